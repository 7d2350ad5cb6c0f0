"""What the Pythons import that Spark starts to plan a read, one after the other, while a person waits."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

OPTIONS = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "orders"}
CODE = """
import json, sys
import pyspark_tailrace
{before}
before = set(sys.modules)
made = pyspark_tailrace.DefaultSource({options!r})
{work}
print(json.dumps(sorted(set(sys.modules) - before)))
"""


def imported(work: str, *, before: str = "") -> set[str]:
    code = CODE.format(options=OPTIONS, work=work, before=before)
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_the_columns_are_told_without_arrow_and_without_a_client() -> None:
    found = imported("made.schema()")
    assert "tailrace.spark.source.settings" in found
    assert not found & {"numpy", "pyarrow", "tailrace.client.kafka", "tailrace.wire.kafka", "urllib.request"}


@pytest.mark.parametrize("reader", ["reader", "streamReader"])
def test_a_read_is_planned_without_what_decodes_records(reader: str) -> None:
    found = imported(f"made.{reader}(made.schema())", before="import pyarrow")
    assert "tailrace.client.kafka" in found
    assert not found & {"pyarrow.compute", "tailrace.spark.reading", "tailrace.spark.codec.decoding"}
