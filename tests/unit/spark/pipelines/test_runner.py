"""Runs of made-up pipelines, without Spark and without a broker unless one is asked for: outcomes, stops."""

from __future__ import annotations

import dataclasses
import threading
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast

import pytest

import tailrace
from tailrace.cli.connection import Cluster
from tailrace.model import TailraceError
from tailrace.spark.pipelines.declared import Declared
from tailrace.spark.pipelines.progress import Observer, Progress
from tailrace.spark.pipelines.registry import Pipeline
from tailrace.spark.pipelines.run_topic import fetch_runs, request_stop
from tailrace.spark.pipelines.runner import Outcome, Run, Runner, config_fields

DEADLINE_S = 60
NO_SPARK = cast(Any, object())


@pytest.fixture(autouse=True)
def patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """A busy machine may need longer for the last record than a person should have to wait for it."""
    monkeypatch.setattr("tailrace.spark.pipelines.heartbeat._END_S", DEADLINE_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class PourConfig:
    rows: int = 1
    bootstrap: str | None = None
    fails: bool = False
    waits: bool = False
    every_s: float | None = None
    lake: str = ""
    topic: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Poured:
    rows: int
    stopped: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Spilled:
    is_complete: bool


def pour(config: PourConfig, *, spark: object, observe: Observer, stop: threading.Event | None) -> Poured:
    assert spark is NO_SPARK
    assert stop is not None
    observe(Progress(pipeline="pour", batch=1, rows=config.rows, rows_per_s=1.0, lag=None))
    if config.fails:
        raise TailraceError("the jug is empty")
    if config.waits:
        assert stop.wait(DEADLINE_S)
    return Poured(rows=config.rows, stopped=stop.is_set())


POUR = Pipeline(name="pour", summary="", module=__name__, config="PourConfig", function="pour")


def declared(name: str, **config: Any) -> Declared:
    return Declared(name=name, pipeline=POUR, config=PourConfig(**config))


def test_a_run_has_its_outcome_and_its_observer() -> None:
    seen: list[tuple[str, int]] = []

    def watch(run: Run, progress: Progress) -> None:
        seen.append((run.declared.name, progress.rows))

    runner = Runner([declared("a", rows=5)], watch=watch, beats=False)
    (outcome,) = runner.run(NO_SPARK)
    assert (outcome.name, outcome.pipeline, outcome.state) == ("a", "pour", "finished")
    assert outcome.result == Poured(rows=5)
    assert outcome.progress is not None
    assert outcome.progress.rows == 5
    assert (outcome.error, outcome.reason) == (None, None)
    assert seen == [("a", 5)]


def test_one_that_fails_does_not_stop_the_others() -> None:
    failed_first = threading.Event()

    def watch(run: Run, _progress: Progress) -> None:
        if run.declared.name == "good":
            assert failed_first.wait(DEADLINE_S)

    runner = Runner([declared("bad", fails=True), declared("good", rows=2)], watch=watch, beats=False)
    threading.Timer(0.1, failed_first.set).start()
    bad, good = runner.run(NO_SPARK)
    assert (bad.name, bad.state, bad.reason, bad.result) == ("bad", "failed", "the jug is empty", None)
    assert (good.name, good.state, good.result) == ("good", "finished", Poured(rows=2))


def test_the_end_of_a_run_is_told_while_the_others_go_on() -> None:
    failed = threading.Event()
    told: list[tuple[str, str | None]] = []

    def ended(outcome: Outcome) -> None:
        told.append((outcome.name, outcome.reason))
        failed.set()

    def watch(run: Run, _progress: Progress) -> None:
        if run.declared.name == "good":
            assert failed.wait(DEADLINE_S)

    runner = Runner([declared("good"), declared("bad", fails=True)], watch=watch, ended=ended, beats=False)
    assert [outcome.state for outcome in runner.run(NO_SPARK)] == ["finished", "failed"]
    assert told == [("bad", "the jug is empty"), ("good", None)]


def test_a_pipeline_that_cannot_be_loaded_is_a_run_that_failed() -> None:
    absent = dataclasses.replace(POUR, module="tailrace.absent")
    (outcome,) = Runner([Declared(name="x", pipeline=absent, config=PourConfig())], beats=False).run(NO_SPARK)
    assert outcome.state == "failed"
    assert isinstance(outcome.error, ImportError)


def test_stop_ends_every_run() -> None:
    started = threading.Barrier(3)

    def watch(_run: Run, _progress: Progress) -> None:
        started.wait(DEADLINE_S)

    runner = Runner([declared("a", waits=True), declared("b", waits=True)], watch=watch, beats=False)

    def stop() -> None:
        started.wait(DEADLINE_S)
        runner.stop()

    threading.Thread(target=stop, daemon=True).start()
    assert [outcome.state for outcome in runner.run(NO_SPARK)] == ["stopped", "stopped"]


def test_one_that_is_repeated_waits_for_its_lake_and_runs_until_it_is_stopped(
    archive_rows: Any, row: Any, tmp_path: Path
) -> None:
    seen: list[str] = []

    def watch(_run: Run, progress: Progress) -> None:
        seen.append(progress.note)
        if len(seen) == 1:
            archive_rows([row(offset=0, time_ms=0)])
        if len(seen) == 3:
            runner.stop()

    lake = str(tmp_path / "lake")
    runner = Runner([declared("tidy", every_s=0.01, lake=lake)], watch=watch, beats=False)
    (outcome,) = runner.run(NO_SPARK)
    assert (outcome.state, outcome.result) == ("stopped", Poured(rows=1, stopped=True))
    assert seen == [f"waiting for the lake {lake}", "", ""]


def test_runs_beat_and_can_be_stopped_from_elsewhere() -> None:
    with tailrace.Broker() as broker:
        cluster = Cluster(broker.bootstrap_servers)
        runner = Runner([declared("mine", waits=True)], bootstrap=broker.bootstrap_servers)
        (run,) = runner.runs

        def stop() -> None:
            while not cluster.run(fetch_runs):
                pass
            cluster.run(lambda client: request_stop(client, run.record.id))

        threading.Thread(target=stop, daemon=True).start()
        (outcome,) = runner.run(NO_SPARK)
        assert outcome.state == "stopped"
        assert "@" in run.stopped_by
        (record,) = cluster.run(fetch_runs)
        assert (record.id, record.name, record.state) == (outcome.id, "mine", "stopped")
        assert record.config["waits"] is True
        assert record.progress is not None
        assert record.progress["rows"] == 1


def test_the_cluster_of_the_config_is_where_a_run_beats() -> None:
    with tailrace.Broker() as broker:
        runner = Runner(
            [declared("a", bootstrap=broker.bootstrap_servers, waits=True)], bootstrap="127.0.0.1:1"
        )
        cluster = Cluster(broker.bootstrap_servers)

        def stop() -> None:
            while not cluster.run(fetch_runs):
                pass
            runner.stop()

        threading.Thread(target=stop, daemon=True).start()
        runner.run(NO_SPARK)
        (record,) = cluster.run(fetch_runs)
        assert record.state == "stopped"


@pytest.mark.parametrize(("is_complete", "state"), [(True, "finished"), (False, "stopped")])
def test_a_pipeline_may_tell_that_it_is_complete(
    monkeypatch: pytest.MonkeyPatch, is_complete: bool, state: str
) -> None:
    monkeypatch.setattr(
        Pipeline, "load_function", lambda _self: lambda *_a, **_k: Spilled(is_complete=is_complete)
    )
    (outcome,) = Runner([declared("x")], beats=False).run(NO_SPARK)
    assert outcome.state == state


@pytest.mark.parametrize("count", [0, 1, 4])
def test_outcomes_come_in_the_order_of_the_declarations(count: int) -> None:
    names = [f"p{number}" for number in range(count)]
    outcomes = Runner([declared(name) for name in names], beats=False).run(NO_SPARK)
    assert [outcome.name for outcome in outcomes] == names


def test_passwords_in_addresses_are_not_told() -> None:
    config = PourConfig(lake="http://ann:secret@host/x", topic=("https://bob@host", "mail@host"))
    fields = config_fields(config)
    assert (fields["lake"], fields["topic"]) == ("http://host/x", ["https://host", "mail@host"])
