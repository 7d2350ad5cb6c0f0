"""Runs pipelines from their start to their end: with a heartbeat, an observer, and a way to stop them.

All of them share one Spark and have a thread each; the caller's stays free, because signals arrive there. One
that fails does not stop the others, and every run has its outcome; restart.py says which are started again.
`stop` may be called from anywhere, a signal handler too: the runs end after the batch under way.
"""

from __future__ import annotations

import dataclasses
import logging
import re
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import msgspec

from tailrace.spark.pipelines.declared import Declared
from tailrace.spark.pipelines.failure import cause_of, is_late_worker
from tailrace.spark.pipelines.heartbeat import Heartbeat
from tailrace.spark.pipelines.progress import Observer, Progress
from tailrace.spark.pipelines.repeat import repeat
from tailrace.spark.pipelines.restart import (
    LATE_TRIES_MAX,
    LATE_WAIT_S,
    Backoff,
    is_alive,
    may_pass,
    register_source,
)
from tailrace.wire.json.run_record import RunRecord, State, new_run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
_PASSWORD = re.compile(r"(https?://)[^/@\s]+@")

Watch = Callable[["Run", Progress], None]
Ended = Callable[["Outcome"], None]


def watch_nothing(_run: Run, _progress: Progress) -> None:
    """For runs without an observer."""


def end_silently(_outcome: Outcome) -> None:
    """For runs whose end is told when all of them have ended."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """How a run ended."""

    id: str
    name: str
    pipeline: str
    state: State
    seconds: float
    result: Any = None  # what the pipeline returned; None if it failed
    progress: Progress | None = None  # the last one
    error: Exception | None = None

    @property
    def reason(self) -> str | None:
        """Why it failed, for a person."""
        return None if self.error is None else cause_of(self.error)

    @property
    def may_pass(self) -> bool:
        """Whether it failed, and may succeed when it is run again."""
        return self.error is not None and may_pass(self.error)


@dataclass(slots=True)
class Run:
    """One pipeline under way."""

    declared: Declared
    record: RunRecord
    stop: threading.Event = field(default_factory=threading.Event)
    stopped_by: str = ""  # who asked for it through the cluster
    progress: Progress | None = None


class Runner:
    """Some pipelines, to be run together."""

    def __init__(
        self,
        declared: Sequence[Declared],
        *,
        bootstrap: str | None = None,
        watch: Watch = watch_nothing,
        ended: Ended = end_silently,
        beats: bool = True,
        restarts: bool = False,
    ) -> None:
        """`bootstrap` is where the heartbeats of pipelines go that have no cluster of their own.

        With `restarts`, runs that go on until they are stopped start again after errors that may pass.

        `watch` and `ended` are called in the thread of the run that has come further, or to its end.
        """
        self.runs = [_new_run(each) for each in declared]
        self._bootstrap = bootstrap or DEFAULT_BOOTSTRAP
        self._watch = watch
        self._ended = ended
        self._beats = beats
        self._restarts = restarts

    def stop(self) -> None:
        """Have every run end after its batch."""
        for run in self.runs:
            run.stop.set()

    def run(self, spark: SparkSession) -> list[Outcome]:
        """Run them all to their end; what became of each, in the order in which they were declared."""
        outcomes: dict[str, Outcome] = {}

        def keep(run: Run) -> None:
            outcome = outcomes[run.record.id] = self._run_one(run, spark)
            self._ended(outcome)

        threads = [
            threading.Thread(target=keep, args=(run,), name=f"pipeline {run.declared.name}", daemon=True)
            for run in self.runs
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return [outcomes[run.record.id] for run in self.runs]

    def _run_one(self, run: Run, spark: SparkSession) -> Outcome:
        heartbeat = self._start_heartbeat(run)

        def observe(progress: Progress) -> None:
            run.progress = progress
            if heartbeat is not None:
                heartbeat.observe(progress)
            self._watch(run, progress)

        began = time.monotonic()
        result, error, state = None, None, _FAILED
        try:
            _activate(spark)
            result = self._attempt(run, spark=spark, observe=observe)
            state = _STOPPED if _was_stopped(result, run) else _FINISHED
        except Exception as caught:  # whatever it is, it is this run's and no other's
            logger.debug("pipeline %s failed", run.declared.name, exc_info=caught)
            error = caught
        finally:
            if heartbeat is not None:
                heartbeat.end(state=state, error=None if error is None else cause_of(error))
        return Outcome(
            id=run.record.id,
            name=run.declared.name,
            pipeline=run.declared.pipeline.name,
            state=state,
            seconds=time.monotonic() - began,
            result=result,
            progress=run.progress,
            error=error,
        )

    def _attempt(self, run: Run, *, spark: SparkSession, observe: Observer) -> Any:
        """What the pipeline returns at last, started again where restart.py says so; None if stopped then."""
        backoff, late = Backoff(), 0
        while True:
            began, before = time.monotonic(), run.progress
            try:
                return _work(run, spark=spark, observe=observe)
            except Exception as error:
                if run.stop.is_set():
                    raise
                if is_late_worker(error) and run.progress is before and late < LATE_TRIES_MAX:
                    late += 1
                    wait_s = LATE_WAIT_S
                    register_source(spark)
                elif self._restarts and _goes_on(run) and may_pass(error) and is_alive(spark):
                    wait_s = backoff.next_s(ran_s=time.monotonic() - began)
                else:
                    raise
                _tell_restart(run, error, wait_s=wait_s, observe=observe)
            if run.stop.wait(wait_s):
                return None

    def _start_heartbeat(self, run: Run) -> Heartbeat | None:
        if not self._beats:
            return None

        def stop(by: str) -> None:
            run.stopped_by = by
            run.stop.set()

        heartbeat = Heartbeat(run.declared.bootstrap or self._bootstrap, run.record, on_stop=stop)
        heartbeat.start()
        return heartbeat


_FINISHED: State = "finished"
_STOPPED: State = "stopped"
_FAILED: State = "failed"


def _work(run: Run, *, spark: SparkSession, observe: Observer) -> Any:
    """What the pipeline is there for, once or for as long as it is wanted; what it returned last."""
    function, config = run.declared.pipeline.load_function(), run.declared.config

    def once() -> Any:
        return function(config, spark=spark, observe=observe, stop=run.stop)

    every_s = _every_s(run)
    if every_s is None:
        return once()
    name = run.declared.pipeline.name
    return repeat(once, config, every_s=every_s, pipeline=name, observe=observe, stop=run.stop)


def _activate(spark: SparkSession) -> None:
    """Make the session the active one of this thread: Spark looks for the sink of a stream nowhere else."""
    session = getattr(spark, "_jsparkSession", None)
    if session is not None:  # Spark Connect has no JVM here
        spark._jvm.SparkSession.setActiveSession(session)  # type: ignore[union-attr]


def _goes_on(run: Run) -> bool:
    """Whether it was to go on until it is stopped."""
    return _every_s(run) is not None or getattr(run.declared.config, "once", True) is False


def _tell_restart(run: Run, error: Exception, *, wait_s: float, observe: Observer) -> None:
    note = f"failed, and starts again in {wait_s:g} s: {cause_of(error)}"
    logger.warning("pipeline %s %s", run.declared.name, note)
    last = run.progress or Progress(
        pipeline=run.declared.pipeline.name, batch=0, rows=0, rows_per_s=0.0, lag=None
    )
    observe(dataclasses.replace(last, rows_per_s=0.0, note=note))


def _every_s(run: Run) -> float | None:
    every_s: float | None = getattr(run.declared.config, "every_s", None)
    return every_s


def _was_stopped(result: Any, run: Run) -> bool:
    """Whether there was more to do. Some pipelines tell; of one that goes on for ever, the request does."""
    if _every_s(run) is not None:
        return run.stop.is_set()
    if hasattr(result, "is_complete"):
        return not result.is_complete
    return bool(getattr(result, "stopped", run.stop.is_set()))


def _new_run(declared: Declared) -> Run:
    record = new_run(
        pipeline=declared.pipeline.name, name=declared.name, config=config_fields(declared.config)
    )
    return Run(declared=declared, record=record)


def config_fields(config: Any) -> dict[str, Any]:
    """A config as JSON has it, without passwords in addresses: every machine may read it."""
    fields = _without_passwords(msgspec.to_builtins(dataclasses.asdict(config), str_keys=True))
    assert isinstance(fields, dict)
    return fields


def _without_passwords(value: Any) -> Any:
    if isinstance(value, dict):
        return {key: _without_passwords(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_without_passwords(each) for each in value]
    return _PASSWORD.sub(r"\1", value) if isinstance(value, str) else value
