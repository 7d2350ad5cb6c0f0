"""Runs with a real Spark: in the shared session, and as processes that are watched and stopped from here."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import tailrace
from tailrace.cli.connection import Cluster
from tailrace.cli.main import main
from tailrace.model import TailraceError
from tailrace.spark.pipelines import heartbeat
from tailrace.spark.pipelines.declared import read_declared
from tailrace.spark.pipelines.failure import cause_of
from tailrace.spark.pipelines.run_topic import fetch_runs
from tailrace.spark.pipelines.runner import Runner
from tailrace.spark.pipelines.session import SHUFFLE_PARTITIONS, new_session, open_session
from tailrace.wire.json.run_record import RunRecord

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

DEADLINE_S = 240
TAILRACE = [sys.executable, "-m", "tailrace"]


def fill(broker: tailrace.Broker, topic: str, count: int) -> None:
    for number in range(count):
        broker.produce(topic, b"%d" % number)


@contextmanager
def started(*args: str, cwd: Path) -> Iterator[subprocess.Popen[str]]:
    """A command under way; whatever happens, it and its pipes are gone in the end."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")}
    environment["PYTHONPATH"] = str(Path(tailrace.__file__).parents[1])
    process = subprocess.Popen(
        [*TAILRACE, *args],
        cwd=cwd,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    watchdog = threading.Timer(DEADLINE_S, process.kill)
    watchdog.start()
    with process:
        try:
            yield process
        finally:
            watchdog.cancel()
            process.kill()


def wait_for_run(bootstrap: str, condition: Callable[[RunRecord], bool]) -> RunRecord:
    """Another process gives no sign but its record; it is asked until that is the right one."""
    ends = time.monotonic() + DEADLINE_S
    while time.monotonic() < ends:
        for run in Cluster(bootstrap).run(fetch_runs):
            if condition(run):
                return run
        time.sleep(0.1)
    raise AssertionError("no such run")


def rows_of(run: RunRecord) -> int:
    return 0 if run.progress is None else int(run.progress["rows"])


# ---- in the shared session


def test_declared_pipelines_run_together_in_one_spark(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(heartbeat, "_END_S", DEADLINE_S)  # Spark leaves a small machine little time for it
    fill(broker, "a", 30)
    fill(broker, "b", 20)
    tables = {
        name: {"run": "archive", "topic": name, "to": str(tmp_path / name), "once": True}
        for name in ("a", "b", "absent")
    }
    runner = Runner(read_declared(tables, overrides={"bootstrap": broker.bootstrap_servers}))
    first, second, third = runner.run(spark)
    assert (first.state, first.result.offsets) == ("finished", {"a": {0: 30}})
    assert (second.state, second.result.offsets) == ("finished", {"b": {0: 20}})
    assert third.state == "failed"
    assert "absent" in (third.reason or "")
    states = {run.name: run.state for run in Cluster(broker.bootstrap_servers).run(fetch_runs)}
    assert states == {"a": "finished", "b": "finished", "absent": "failed"}


def test_a_query_of_a_declared_pipeline_writes_into_a_topic(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    fill(broker, "orders", 5)
    table = {
        "query": "SELECT key, value FROM STREAM orders",
        "to": "topic:copy",
        "checkpoint": str(tmp_path / "checkpoint"),
        "once": True,
    }
    overrides = {"bootstrap": broker.bootstrap_servers}
    (outcome,) = Runner(read_declared({"sql": table}, overrides=overrides), beats=False).run(spark)
    assert outcome.reason is None
    assert {record.value for record in broker.read("copy")} == {b"%d" % number for number in range(5)}


def test_what_failed_in_a_worker_is_told_in_its_own_words(spark: SparkSession) -> None:
    from pyspark.errors import PySparkException

    def refuse(_batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        raise TailraceError("orders-0 is gone. Go on without it")

    with pytest.raises(PySparkException) as error:
        spark.range(1).mapInArrow(refuse, "id long").collect()
    assert len(str(error.value)) > 200  # with all that is around it
    assert cause_of(error.value) == "orders-0 is gone. Go on without it"


def test_what_spark_itself_refuses_is_told_without_its_codes(spark: SparkSession) -> None:
    from pyspark.errors import AnalysisException

    with pytest.raises(AnalysisException) as error:
        spark.sql("SELECT * FROM ordrs")
    assert cause_of(error.value).startswith("The table or view `ordrs` cannot be found")


def test_a_session_for_a_query_has_the_shuffle_partitions_of_its_cluster(spark: SparkSession) -> None:
    before = spark.conf.get(SHUFFLE_PARTITIONS)
    assert before is not None
    spark.conf.set(SHUFFLE_PARTITIONS, "3")  # as for a cluster of three cores, once they could be counted
    try:
        assert new_session(spark).conf.get(SHUFFLE_PARTITIONS) == "3"
    finally:
        spark.conf.set(SHUFFLE_PARTITIONS, before)


def test_a_session_that_is_there_is_used_and_left_alone(spark: SparkSession) -> None:
    with open_session(name="x") as session:
        assert session is spark
    assert spark.range(3).count() == 3


# ---- as processes


@pytest.mark.slow
def test_a_run_is_seen_and_stopped_from_elsewhere(
    broker: tailrace.Broker, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bootstrap = broker.bootstrap_servers
    fill(broker, "orders", 50)
    run = ("pipeline", "run", "archive", "--topic", "orders", "--to", "lake", "--interval-s", "0")
    with started(*run, "-b", bootstrap, "-o", "jsonl", cwd=tmp_path) as process:
        wait_for_run(bootstrap, lambda run: rows_of(run) == 50)
        fill(broker, "orders", 7)
        seen = wait_for_run(bootstrap, lambda run: rows_of(run) == 57)
        assert (seen.name, seen.state, seen.pid) == ("archive", "running", process.pid)
        waiting = ("--wait", "--timeout", str(DEADLINE_S))
        assert main(["pipeline", "stop", "archive", *waiting, "-b", bootstrap]) == 0
        out, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    assert "WARN" not in err
    assert "Traceback" not in err
    *progress, last = (json.loads(line) for line in out.splitlines())
    assert progress[-1]["offsets"] == {"orders": {"0": 57}}
    (outcome,) = last["runs"]
    assert (last["done"], outcome["state"]) == (True, "stopped")
    assert outcome["result"]["offsets"] == {"orders": {"0": 57}}
    capsys.readouterr()
    assert main(["pipeline", "status", outcome["id"], "-o", "json", "-b", bootstrap]) == 0
    assert json.loads(capsys.readouterr().out)["state"] == "stopped"


@pytest.mark.slow
def test_up_archives_its_demo_and_ends_with_everything_it_started(tmp_path: Path) -> None:
    ports = ("--kafka-port", "0", "--native-port", "0", "--http-port", "0")
    with started("up", "--demo", "--pipelines", *ports, cwd=tmp_path) as process:
        assert process.stdout is not None
        lines: list[str] = []
        while not lines or lines[-1] != "ready":
            line = process.stdout.readline()
            assert line, lines
            lines.append(line.rstrip("\n"))
        assert any("pipelines: archive to" in line for line in lines), lines
        place = tmp_path / "tailrace-data"
        kafka = json.loads((place / "tailrace.ports.json").read_text())["kafka"]
        seen = wait_for_run(f"127.0.0.1:{kafka}", lambda run: rows_of(run) > 0)
        assert set(_offsets(seen)) == {"orders", "payments", "clicks"}
        assert list((place / "lake").glob("topic=orders/**/*.parquet"))
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=DEADLINE_S)
    assert process.returncode == 0, err
    assert " ERROR " not in err
    assert not Path(f"/proc/{seen.pid}").exists()
    assert main(["log", "verify", str(place)]) == 0  # a lake beside the log is nobody's trouble


def _offsets(run: RunRecord) -> dict[str, Any]:
    assert run.progress is not None
    offsets = run.progress["offsets"]
    assert isinstance(offsets, dict)
    return offsets
