"""The guide of Spark as a newcomer follows it: its commands and programs run, on the shared Spark.

They run inside the test's process, where a session is there already and none has to start: everything else is
what a person gets. The tables of options are held against the code.
"""

from __future__ import annotations

import json
import random
import re
import shlex
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.cli.main import main
from tailrace.server.demo.event import Shop

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).parents[2]
GUIDE_PATH = ROOT / "docs" / "guide" / "spark.md"
GUIDE = GUIDE_PATH.read_text(encoding="utf-8")
README = (ROOT / "README.md").read_text(encoding="utf-8")
ORDERS = 100


def blocks(language: str, text: str = GUIDE) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.MULTILINE | re.DOTALL)


def commands() -> list[str]:
    return [line for block in blocks("sh") for line in block.splitlines()]


def saved_programs() -> dict[str, str]:
    """The programs that the reader is told to save, by their names."""
    found = re.findall(
        r"[Ss]ave this as `(\w+\.py)`:\n\n```python\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL
    )
    return dict(found)


class Reader:
    """Somebody with a running broker who types what the guide says."""

    def __init__(self, broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]) -> None:
        self.broker = broker
        self._capsys = capsys

    def type(self, line: str) -> str:
        """A command line, and what it prints on stdout once it has ended well."""
        words = shlex.split(line)
        self._capsys.readouterr()
        if words[0] == ".venv/bin/tailrace":
            code = main(words[1:])
            printed = self._capsys.readouterr()
            assert code == 0, f"{line}\n{printed.out}{printed.err}"
            return printed.out
        if words[:2] == [".venv/bin/pip", "install"]:
            assert all(find_spec(name) for name in words[2:]), "`make install` has them already"
            return ""
        assert words[0] == ".venv/bin/python"
        return self.run(saved_programs()[words[1]])

    def run(self, program: str) -> str:
        """What a program prints. The one change: our broker has another port."""
        patched = program.replace("127.0.0.1:9092", self.broker.bootstrap_servers)
        exec(compile(patched, "guide", "exec"), {"__name__": "__main__"})
        return self._capsys.readouterr().out

    def records(self, topic: str) -> list[tuple[Any, ...]]:
        """Everything of a topic but where it lies."""
        return [
            (each.partition, each.timestamp, each.key, each.value, each.headers)
            for each in self.broker.read(topic)
        ]


@pytest.fixture
def reader(
    spark: SparkSession,
    broker: tailrace.Broker,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Reader:
    """In a directory of their own, with the demo's topics."""
    for topic in ("orders", "payments", "clicks"):
        broker.create_topic(topic, partitions=3)
    for event in islice(Shop(random.Random(7)).events(), ORDERS * 5):
        broker.produce(event.topic, event.value, key=event.key)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
    return Reader(broker, capsys)


@pytest.mark.slow
def test_the_guide_leads_to_a_lake_and_back(reader: Reader, tmp_path: Path) -> None:
    up, archive, duckdb, count, sql, replay, describe, report, orders = commands()
    assert up == "make up SPARK=1"

    printed = reader.type(archive)
    assert all(f"orders-{partition}" in printed for partition in range(3))
    reader.type(duckdb)
    assert reader.type(count) == f"{ORDERS} by DuckDB\n{ORDERS} by pandas\n"

    assert re.search(r"\bp-\d\d\b", reader.type(sql)), "products were counted"

    reader.type(replay)
    assert "orders-again" in reader.type(describe)
    assert reader.records("orders-again") == reader.records("orders") != []
    reader.type(replay)
    assert len(reader.records("orders-again")) == ORDERS, "a second replay adds nothing"

    reader.type(report)
    assert (tmp_path / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")

    assert f"{ORDERS} orders" in reader.type(orders)
    # The copy has as many partitions as the broker makes by itself.
    copied, read = (sorted(row[1:] for row in reader.records(name)) for name in ("orders-copy", "orders"))
    assert copied == read


def test_the_program_of_readme_shows_orders(reader: Reader) -> None:
    (program,) = [block for block in blocks("python", README) if 'format("tailrace")' in block]
    assert '"product": "p-' in reader.run(program)


def test_the_commands_of_readme_are_those_of_the_guide() -> None:
    of_readme = [
        line.split("  #")[0].strip()
        for block in blocks("sh", README)
        for line in block.splitlines()
        if " pipeline " in line
    ]
    assert of_readme != []
    assert set(of_readme) <= set(commands())


def option_names(heading: str) -> set[str]:
    """The options that a part of the guide tells of, in tables and lists."""
    (part,) = [part for part in re.split(r"^## ", GUIDE, flags=re.MULTILINE) if part.startswith(heading)]
    tables = re.findall(r"^\| option \|.*?(?=\n\n)", part, re.MULTILINE | re.DOTALL)
    assert tables != []
    told = [cell for table in tables for cell in re.findall(r"^\| ([^|]+) \|", table, re.MULTILINE)[1:]]
    told += re.findall(r"(?:and do nothing|without meaning): (.*?)\.\n", part, re.DOTALL)
    return {name for text in told for name in re.findall(r"`([\w.]+)`", text)}


def test_every_option_of_the_source_is_in_the_guide() -> None:
    pytest.importorskip("pyspark")
    from tailrace.spark.source.settings import KNOWN

    assert option_names("Reading") | {"kafka.isolation.level"} == set(KNOWN)


def test_every_option_of_the_sink_is_in_the_guide() -> None:
    pytest.importorskip("pyspark")
    from tailrace.spark.options import KAFKA_LINK
    from tailrace.spark.sink import options

    assert option_names("Writing") == {*options._MEANING, *options._MEANINGLESS, *KAFKA_LINK}


def test_the_pipelines_of_the_guide_can_be_declared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("pyarrow")
    from tailrace.server.configuration import check_file

    monkeypatch.chdir(tmp_path)
    payment = {"type": "record", "name": "Payment", "fields": [{"name": "order", "type": "string"}]}
    (tmp_path / "payments.avsc").write_text(json.dumps(payment), encoding="utf-8")
    file = tmp_path / "tailrace.toml"
    file.write_text("\n".join(blocks("toml")), encoding="utf-8")
    assert check_file(file) == []


def test_links_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)[^)]*\)", GUIDE)
    local = [link for link in links if "://" not in link]
    assert local != []
    assert [link for link in local if not (GUIDE_PATH.parent / link).exists()] == []
