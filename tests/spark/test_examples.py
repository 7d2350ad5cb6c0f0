"""The examples of Spark as a person runs them: processes of their own, on topics as the demo has them."""

from __future__ import annotations

import datetime
import json
import os
import random
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from decimal import Decimal
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import pytest

import tailrace
from tailrace.server.demo.event import Shop

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "examples" / "spark"
PROJECT = ROOT / "examples" / "declarative_pipeline"
PARTITIONS = 3
DEADLINE_S = 300
WINDOW_MS = 10_000
# Far from now, and not at the start of a window: 2026-03-01 12:00:03 UTC.
FIRST_MS = 1_772_366_403_000
STEP_MS = 700

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("java") is None, reason="Spark needs Java, which is not here"),
]


class Order(NamedTuple):
    """What the tests remember of an order that they have produced."""

    timestamp_ms: int
    product: str
    quantity: int
    total: Decimal


class Demo:
    """The demo's topics, filled on demand instead of by the clock."""

    def __init__(self, broker: tailrace.Broker) -> None:
        self.bootstrap = broker.bootstrap_servers
        self.orders: list[Order] = []
        self._broker = broker
        self._events = Shop(random.Random(7)).events()
        for topic in ("orders", "payments", "clicks"):
            # Retention goes by the records' timestamps, which are fixed here and get older every day.
            broker.create_topic(topic, partitions=PARTITIONS, configs={"retention.ms": "-1"})

    def produce(self, orders: int) -> None:
        """So many orders more, and what comes with them."""
        for event in islice(self._events, orders * 5):
            at_ms = FIRST_MS + len(self.orders) * STEP_MS
            self._broker.produce(event.topic, event.value, key=event.key, timestamp=at_ms)
            if event.topic == "orders":
                body = json.loads(event.value)
                self.orders.append(Order(at_ms, body["product"], body["quantity"], Decimal(body["total"])))

    def read(self, topic: str) -> dict[str, dict[str, object]]:
        """The newest value of each key."""
        return {
            (record.key or b"").decode(): json.loads(record.value or b"null")
            for record in self._broker.read(topic)
        }


@pytest.fixture
def demo(broker: tailrace.Broker) -> Demo:
    return Demo(broker)


RUNNER = """
import contextlib, io, json, os, runpy, sys, traceback

for line in sys.stdin:
    cwd, script, *arguments = json.loads(line)
    os.chdir(cwd)
    sys.argv = [script, *arguments]
    printed, error = io.StringIO(), ""
    with contextlib.redirect_stdout(printed):
        try:
            runpy.run_path(script, run_name="__main__")
        except BaseException:
            error = traceback.format_exc()
    print(json.dumps([printed.getvalue(), error]), flush=True)
"""
"""Runs one script after the other as `python SCRIPT` would, in a process whose Java need not start again."""


class Examples:
    """Where the examples run: the interpreter of the tests, and no help from their environment."""

    def __init__(self) -> None:
        environment = {key: value for key, value in os.environ.items() if not key.startswith("PYSPARK_")}
        self._process = subprocess.Popen(
            [sys.executable, "-c", RUNNER],
            env={**environment, "PYTHONPATH": str(ROOT / "src"), "SPARK_LOCAL_IP": "127.0.0.1"},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str, *arguments: str, cwd: Path) -> str:
        """What it prints."""
        assert self._process.stdin is not None and self._process.stdout is not None
        watchdog = threading.Timer(DEADLINE_S, self._process.kill)
        watchdog.start()
        try:
            self._process.stdin.write(json.dumps([str(cwd), str(EXAMPLES / name), *arguments]) + "\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
        finally:
            watchdog.cancel()
        assert answer, f"{name} ended the process, or took over {DEADLINE_S} s"
        printed, error = json.loads(answer)
        assert not error, f"{name} failed:\n{printed}{error}"
        return str(printed)

    def close(self) -> None:
        self._process.communicate(timeout=DEADLINE_S)


@pytest.fixture(scope="module")
def examples() -> Iterator[Examples]:
    running = Examples()
    yield running
    running.close()


def tables(printed: str) -> Iterator[list[dict[str, str]]]:
    """The tables that Spark's show() printed, as rows of text by column."""
    rows = [line.strip("|").split("|") for line in printed.splitlines() if line.startswith("|")]
    cells = [[cell.strip() for cell in row] for row in rows]
    heads = [n for n, row in enumerate(cells) if not any(any(c.isdigit() for c in cell) for cell in row)]
    for start, end in zip(heads, [*heads[1:], len(cells)], strict=True):
        yield [dict(zip(cells[start], row, strict=True)) for row in cells[start + 1 : end]]


def revenue_by_product(orders: list[Order]) -> list[tuple[str, int, int, Decimal]]:
    """Product, orders, pieces and revenue, as the example's table has them."""
    found = []
    for product in sorted({order.product for order in orders}):
        sold = [order for order in orders if order.product == product]
        pieces, revenue = sum(order.quantity for order in sold), sum((o.total for o in sold), Decimal(0))
        found.append((product, len(sold), pieces, revenue))
    return sorted(found, key=lambda row: (-row[3], row[0]))


def revenue_by_window(orders: list[Order]) -> dict[str, dict[str, object]]:
    """What the topic `revenue` must say of each window."""
    windows: dict[int, list[Order]] = {}
    for order in orders:
        windows.setdefault(order.timestamp_ms // WINDOW_MS * WINDOW_MS, []).append(order)
    told = {}
    for start_ms, inside in windows.items():
        start = datetime.datetime.fromtimestamp(start_ms / 1000, datetime.UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        revenue = float(sum(order.total for order in inside))
        told[start] = {"window": start, "orders": len(inside), "revenue": revenue}
    return told


def test_batch_read_prints_the_best_sellers(examples: Examples, demo: Demo, tmp_path: Path) -> None:
    demo.produce(200)
    printed = examples.run("batch_read.py", "--bootstrap", demo.bootstrap, cwd=tmp_path)
    assert "200 orders" in printed
    (table,) = tables(printed)
    expected = revenue_by_product(demo.orders)[:10]
    assert [
        (row["product"], int(row["orders"]), int(row["pieces"]), Decimal(row["revenue"])) for row in table
    ] == expected


def test_streaming_aggregate_goes_on_where_it_was(examples: Examples, demo: Demo, tmp_path: Path) -> None:
    arguments = ("streaming_aggregate.py", "--once", "--bootstrap", demo.bootstrap)
    demo.produce(100)
    assert "100 orders were read" in examples.run(*arguments, cwd=tmp_path)
    assert demo.read("revenue") == revenue_by_window(demo.orders)

    demo.produce(40)  # they begin in the middle of a window that was written already
    assert "40 orders were read" in examples.run(*arguments, cwd=tmp_path)
    assert demo.read("revenue") == revenue_by_window(demo.orders)


def test_lake_history_has_no_gap_and_no_overlap(examples: Examples, demo: Demo, tmp_path: Path) -> None:
    arguments = ("lake_history.py", "--bootstrap", demo.bootstrap)
    demo.produce(120)
    printed = examples.run(*arguments, cwd=tmp_path)
    assert "120 records archived" in printed
    check_history(printed, demo, archived=120)

    demo.produce(80)
    check_history(examples.run(*arguments, cwd=tmp_path), demo, archived=120)


def check_history(printed: str, demo: Demo, *, archived: int) -> None:
    places, minutes = tables(printed)
    assert sum(int(row["records"]) for row in places) == len(demo.orders)
    for row in places:
        assert row["records"] == row["offsets"] == str(int(row["last"]) + 1), "every offset once"
        assert row["first"] == "0"
    assert sum(int(row["from_lake"]) for row in minutes) == archived
    assert sum(int(row["from_topic"]) for row in minutes) == len(demo.orders) - archived
    assert sum(Decimal(row["revenue"]) for row in minutes) == sum(order.total for order in demo.orders)


class Project:
    """A copy of the Declarative Pipelines template, with this broker and this folder in it."""

    def __init__(self, folder: Path, *, bootstrap: str) -> None:
        self._folder = folder / "project"
        self.made = folder / "made"
        shutil.copytree(PROJECT, self._folder)
        for name in ("spark-pipeline.yml", "conf/spark-defaults.conf"):
            file = self._folder / name
            text = file.read_text(encoding="utf-8")
            assert "/tmp/tailrace-shop" in text
            text = text.replace("/tmp/tailrace-shop", str(self.made)).replace("127.0.0.1:9092", bootstrap)
            file.write_text(text, encoding="utf-8")

    def run(self) -> str:
        """What `spark-pipelines run` says, once it has ended well."""
        import pyspark

        done = subprocess.run(
            [str(Path(pyspark.__path__[0], "bin", "spark-pipelines")), "run"],
            cwd=self._folder,
            env={
                **os.environ,
                "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), os.environ.get("PYTHONPATH", "")]),
                "PYSPARK_PYTHON": sys.executable,
                "SPARK_HOME": str(Path(pyspark.__path__[0])),
                "SPARK_CONF_DIR": "conf",
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=DEADLINE_S * 2,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    def rows(self, table: str) -> list[dict[str, object]]:
        """What a table holds, read as plain Parquet files."""
        import pyarrow.parquet as pq

        found: list[dict[str, object]] = pq.read_table(self.made / "warehouse" / table).to_pylist()
        return found


@pytest.mark.heavy
def test_declarative_pipeline_makes_tables_and_goes_on_with_what_is_new(demo: Demo, tmp_path: Path) -> None:
    for module in ("grpc", "grpc_status", "yaml", "pandas"):
        pytest.importorskip(module, reason="spark-pipelines needs it: pip install 'pyspark[pipelines]'")
    project = Project(tmp_path, bootstrap=demo.bootstrap)
    for more in (100, 50):
        demo.produce(more)
        assert "Run is COMPLETED" in project.run()
        check_tables(project, demo)


def check_tables(project: Project, demo: Demo) -> None:
    bronze, silver = project.rows("bronze_orders"), project.rows("silver_orders")
    places = {(row["partition"], row["offset"]) for row in bronze}
    assert len(bronze) == len(places) == len(demo.orders)
    assert {(row["partition"], row["offset"]) for row in silver} == places
    assert len(silver) == len(places)
    sold = [
        (row["product"], row["orders"], row["pieces"], row["revenue"])
        for row in project.rows("gold_products")
    ]
    assert sorted(sold) == sorted(revenue_by_product(demo.orders))
    methods = project.rows("gold_methods")
    assert {row["method"] for row in methods} == {"card", "transfer", "wallet"}
    assert sum(int(str(row["payments"])) for row in methods) == len(demo.orders)
