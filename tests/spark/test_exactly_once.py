"""delivery=exactly-once with a real Spark: repeated micro-batches, failures, speculation, and kills."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest
from tests.spark.test_sink import run_query, values_in, write

import tailrace
from tailrace.client import transaction_admin
from tailrace.client.kafka import KafkaClient
from tailrace.spark.link import link_to

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")

from pyspark.errors import PySparkException

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EXACTLY = {"topic": "rows", "delivery": "exactly-once"}
DEADLINE_S = 180


def open_transactions(broker: tailrace.Broker) -> list[str]:
    async def ask(client: KafkaClient) -> list[str]:
        found = await transaction_admin.list_transactions(client, states=["Ongoing"])
        return [each.transactional_id for each in found]

    return link_to(broker.bootstrap_servers).run(ask)


def test_a_dataframe_is_there_as_a_whole_or_not_at_all(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.create_topic("rows", partitions=2)
    marker = tmp_path / "fails"
    marker.touch()
    path = str(marker)

    def fail_in_one_task(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            yield batch
            if os.path.exists(path) and b"999" in batch.column(0).cast("binary").to_pylist():
                raise RuntimeError("this task fails")

    frame = spark.range(0, 1000, 1, 4).selectExpr("cast(id as string) as value")
    frame = frame.mapInArrow(fail_in_one_task, "value string")
    with pytest.raises(PySparkException, match="this task fails"):
        write(frame, broker, **EXACTLY)
    assert values_in(broker, "rows") == [] and open_transactions(broker) == []
    marker.unlink()
    write(frame, broker, **EXACTLY)
    assert sorted(values_in(broker, "rows"), key=str) == sorted((b"%d" % n for n in range(1000)), key=str)
    assert open_transactions(broker) == []


def test_a_micro_batch_that_is_run_again_adds_nothing(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.create_topic("rows", partitions=2)
    (tmp_path / "in").mkdir()
    lines = spark.readStream.schema("value string").text(str(tmp_path / "in"))
    (tmp_path / "in" / "a").write_text("1\n2\n")
    run_query(lines.repartition(2), broker, tmp_path / "checkpoint", **EXACTLY)
    # Spark is killed behind the sink's commit, and before it notes that in its checkpoint.
    commits = tmp_path / "checkpoint" / "commits"
    for path in [*commits.glob("0"), *commits.glob(".0*")]:
        path.unlink()
    (tmp_path / "in" / "b").write_text("3\n")
    run_query(lines.repartition(3), broker, tmp_path / "checkpoint", **EXACTLY)
    assert sorted(values_in(broker, "rows"), key=str) == [b"1", b"2", b"3"]
    assert open_transactions(broker) == []


def start(broker: tailrace.Broker, folder: Path, *, query: bool) -> subprocess.Popen[str]:
    job = {"bootstrap": broker.bootstrap_servers, "folder": str(folder), "query": query}
    return subprocess.Popen(
        [sys.executable, "-m", "tests.spark.exactly_once_query", msgspec.json.encode(job).decode()],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,  # so that the kill takes Spark's own processes with it
    )


@pytest.mark.heavy
def test_a_query_that_is_killed_again_and_again_writes_every_row_once(
    broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.create_topic("rows", partitions=3)
    (tmp_path / "in").mkdir()
    rows = []
    for file in range(40):
        lines = [f"{file}-{line}" for line in range(200)]
        rows += lines
        (tmp_path / "in" / f"{file:03}").write_text("".join(f"{line}\n" for line in lines))
    for kill in range(6):
        process = start(broker, tmp_path, query=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith("batch"):
                break
        else:
            pytest.fail("the query ended before its first batch")
        # At another moment of a micro-batch each time.
        threading.Event().wait(0.07 * kill)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(DEADLINE_S)
        process.stdout.close()
    process = start(broker, tmp_path, query=True)
    said, _ = process.communicate(timeout=DEADLINE_S * 3)
    assert "done" in said
    counts = Counter((value or b"").decode() for value in values_in(broker, "rows"))
    assert counts == Counter(rows)
    assert open_transactions(broker) == []


@pytest.mark.heavy
def test_speculation_and_adaptive_execution_double_nothing(broker: tailrace.Broker, tmp_path: Path) -> None:
    broker.create_topic("rows", partitions=3)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a").write_text("".join(f"{line}\n" for line in range(5000)))
    process = start(broker, tmp_path, query=False)
    said, _ = process.communicate(timeout=DEADLINE_S)
    assert "done" in said
    assert Counter(values_in(broker, "rows")) == Counter(b"%d" % line for line in range(5000))
