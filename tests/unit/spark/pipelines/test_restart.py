"""Which failed runs are started again, and when; runs of made-up pipelines that fail as they are told."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, cast

import pytest

from tailrace.client.error import ConnectionLost, TimedOut
from tailrace.model import ConfigError, TailraceError
from tailrace.spark.pipelines import restart, runner
from tailrace.spark.pipelines.declared import Declared
from tailrace.spark.pipelines.progress import Observer, Progress
from tailrace.spark.pipelines.registry import Pipeline
from tailrace.spark.pipelines.restart import Backoff, is_alive, may_pass
from tailrace.spark.pipelines.runner import Outcome, Run, Runner
from tailrace.spark.pipelines.spread import SparkFailed, TaskFailed

NO_SPARK = cast(Any, object())
LATE = "org.apache.spark.SparkException: Python worker failed to connect back."


@dataclass(frozen=True, slots=True, kw_only=True)
class FlowConfig:
    once: bool = False
    bootstrap: str | None = None


errors: Iterator[Exception] = iter(())
tells_first = False


def flow(config: FlowConfig, *, spark: object, observe: Observer, stop: threading.Event) -> str:
    if tells_first:
        observe(Progress(pipeline="flow", batch=1, rows=1, rows_per_s=1.0, lag=None))
    for error in errors:
        raise error
    return "done"


FLOW = Pipeline(name="flow", summary="", module=__name__, config="FlowConfig", function="flow")


@pytest.fixture(autouse=True)
def fast(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Waits are short, and it is noted where the data source is registered."""
    registered: list[object] = []
    monkeypatch.setattr(restart, "_FIRST_S", 0.0)
    monkeypatch.setattr(Backoff, "next_s", lambda self, ran_s: 0.0)
    monkeypatch.setattr(runner, "LATE_WAIT_S", 0.0)
    monkeypatch.setattr(runner, "register_source", registered.append)
    return registered


def run(
    *raised: Exception, restarts: bool = True, once: bool = False, tells: bool = False
) -> tuple[Outcome, list[str]]:
    """How a run ends that raises these in turn, and what it says meanwhile."""
    global errors, tells_first
    errors, tells_first = iter(raised), tells
    notes: list[str] = []

    def watch(_run: Run, progress: Progress) -> None:
        notes.append(progress.note)

    declared = Declared(name="flow", pipeline=FLOW, config=FlowConfig(once=once))
    (outcome,) = Runner([declared], watch=watch, beats=False, restarts=restarts).run(NO_SPARK)
    return outcome, [note for note in notes if note]


def test_a_declared_pipeline_starts_again_until_it_works(caplog: pytest.LogCaptureFixture) -> None:
    outcome, notes = run(ConnectionLost("away"), TimedOut("still away"))
    assert (outcome.state, outcome.result) == ("finished", "done")
    assert notes == [
        "failed, and starts again in 0 s: away",
        "failed, and starts again in 0 s: still away",
    ]
    assert "pipeline flow failed, and starts again in 0 s: away" in caplog.text


@pytest.mark.parametrize(
    ("error", "options"),
    [
        (ConfigError("wrong"), {}),
        (TaskFailed("no module", kind="ModuleNotFoundError", retriable=False), {}),
        (SparkFailed("no module", retriable=False), {}),
        (TypeError("a bug"), {}),
        (ConnectionLost("away"), {"once": True}),
        (ConnectionLost("away"), {"restarts": False}),
    ],
)
def test_others_end_with_their_error(error: Exception, options: dict[str, bool]) -> None:
    outcome, notes = run(error, **options)
    assert (outcome.state, outcome.error, notes) == ("failed", error, [])


def test_a_spark_that_is_gone_ends_them(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "is_alive", lambda _spark: False)
    outcome, _ = run(SparkFailed("no JVM"))
    assert outcome.state == "failed"
    assert outcome.may_pass, "another process may succeed"


def test_a_late_python_is_waited_for_by_any_run(fast: list[object]) -> None:
    outcome, notes = run(TailraceError(LATE), TailraceError(LATE), restarts=False, once=True)
    assert outcome.state == "finished"
    assert len(notes) == 2
    assert fast == [NO_SPARK, NO_SPARK], "the search for data sources may have failed"


def test_a_late_python_is_waited_for_a_few_times_only() -> None:
    outcome, notes = run(*[TailraceError(LATE)] * 9, restarts=False)
    assert (outcome.state, len(notes)) == ("failed", 3)


def test_a_run_that_has_told_something_is_not_repeated_for_a_late_python() -> None:
    outcome, _ = run(TailraceError(LATE), restarts=False, tells=True)
    assert outcome.state == "failed"


# ---- the rule


def spark_error(text: str) -> Exception:
    """An error of the class that pyspark has for most."""
    errors = pytest.importorskip("pyspark.errors", reason="pyspark is not installed")
    made: Exception = errors.PySparkException(text)
    return made


TRACEBACK = "Job aborted.\nTraceback (most recent call last):\n  File x\n{}: gone\n\n\tat org.apache"


@pytest.mark.parametrize(
    ("text", "passes"),
    [
        ("Job aborted: lost executor 3", True),
        (TRACEBACK.format("tailrace.client.error.ConnectionLost"), True),
        (TRACEBACK.format("tailrace.spark.reading.DataLoss"), False),
        (TRACEBACK.format("tailrace.model.error.ConfigError"), False),
        ("ModuleNotFoundError: No module named 'tailrace'", False),
        ("[PYTHON_VERSION_MISMATCH] another Python", False),
    ],
)
def test_what_comes_out_of_spark_passes_or_does_not(text: str, passes: bool) -> None:
    assert may_pass(spark_error(text)) is passes


def test_a_query_that_spark_refuses_does_not_pass() -> None:
    errors = pytest.importorskip("pyspark.errors", reason="pyspark is not installed")
    assert not may_pass(errors.AnalysisException("no such column"))


def test_a_full_disk_may_pass() -> None:
    assert may_pass(OSError(28, "No space left on device"))


def test_a_jvm_that_is_gone_is_not_alive() -> None:
    class Gone:
        @property
        def _sc(self) -> Any:
            return self

        @property
        def _jsc(self) -> Any:
            raise ConnectionRefusedError

    assert not is_alive(cast(Any, Gone()))
    assert is_alive(NO_SPARK)


def test_waits_double_up_to_a_bound_and_begin_again_after_a_long_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()
    backoff = Backoff(first_s=1.0, most_s=5.0)
    assert [backoff.next_s(ran_s=0) for _ in range(5)] == [1.0, 2.0, 4.0, 5.0, 5.0]
    assert backoff.next_s(ran_s=6.0) == 1.0
