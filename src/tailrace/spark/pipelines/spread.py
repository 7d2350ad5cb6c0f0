"""A list of tasks through Spark: each runs in some Python worker, and its result comes back as one small row.

    driver                                     workers
    tasks  --pickled inside the function-->    work(task)
    results <--one row each, JSON--            ok: its result, or error: what went wrong

There is no shuffle and no data in the rows, so this works alike on a local Spark, a cluster and Spark
Connect, and records never pass through the JVM. Spark may run a task again, or twice at once: only what the
attempt that won returned is seen here, so a task must leave nothing behind that counts by itself.

An error of ours is a result, not an exception: it arrives as `TaskFailed` with the words it was raised
with, instead of forty lines of JVM, and Spark does not repeat what no repetition mends. So does a worker
that lacks a package (worker.py). Anything else, a worker that died or a bug, is Spark's to retry, and then a
`SparkFailed`.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import msgspec
import pyarrow as pa

from tailrace.client.error import is_retriable
from tailrace.model import ConfigError, TailraceError
from tailrace.spark import INSTALL_SPARK
from tailrace.spark.pipelines.failure import is_lasting, lacking
from tailrace.spark.pipelines.worker import MISSING, run_pickled, send_by_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

T = TypeVar("T")
R = TypeVar("R")

_ROW = "task int, outcome binary"
_ROW_SCHEMA = pa.schema([pa.field("task", pa.int32()), pa.field("outcome", pa.binary())])
_CAUSE = re.compile(r"^(?:Caused by: )?(?:[\w$]+\.)*\w*(?:Exception|Error)\b:? *(.*)$", re.MULTILINE)
_PROBE_ROWS = 4096


class _Failure(msgspec.Struct):
    kind: str
    message: str
    retriable: bool


class _Outcome(msgspec.Struct):
    result: msgspec.Raw = msgspec.Raw(b"null")
    failure: _Failure | None = None


class TaskFailed(TailraceError):
    """A task ended with an error of ours; `kind` is its class there, `retriable` whether it may go away."""

    def __init__(self, message: str, *, kind: str, retriable: bool) -> None:
        super().__init__(message)
        self.kind = kind
        self.retriable = retriable


class SparkFailed(TailraceError):
    """Spark gave up on a job: a worker died too often, the session is gone, or no worker can do it.

    The last is not `retriable`.
    """

    def __init__(self, message: str, *, retriable: bool = True) -> None:
        super().__init__(message)
        self.retriable = retriable


def spread(spark: SparkSession, work: Callable[[T], R], tasks: Sequence[T], *, result: type[R]) -> list[R]:
    """The result of every task, in their order. `work` is a module's function, or a partial of one."""
    if not tasks:
        return []
    send_by_value()
    run = partial(run_pickled, pickle.dumps(partial(_run, work, tuple(tasks))))
    try:
        rows = spark.range(0, len(tasks), 1, len(tasks)).mapInArrow(run, _ROW).collect()
    except ImportError as error:  # mapInArrow wants pandas, though nothing of ours does
        raise ConfigError(f"{error}. Try: {INSTALL_SPARK}") from error
    except Exception as error:  # py4j's, gRPC's and pyspark's have nothing in common but this
        reason = plan_reason(str(error))
        raise SparkFailed(
            f"Spark could not finish a job: {reason}", retriable=not is_lasting(str(error))
        ) from error
    outcomes = {row.task: msgspec.json.decode(bytes(row.outcome), type=_Outcome) for row in rows}
    for outcome in outcomes.values():
        if outcome.failure is not None:
            told = outcome.failure
            message = lacking(told.message) if told.kind == MISSING else told.message
            raise TaskFailed(message, kind=told.kind, retriable=told.retriable)
    if len(outcomes) != len(tasks):
        raise SparkFailed(f"Spark returned {len(outcomes)} results for {len(tasks)} tasks")
    return [msgspec.json.decode(outcomes[at].result, type=result) for at in range(len(tasks))]


def count_cores(spark: SparkSession) -> int:
    """How many tasks run side by side."""
    context = getattr(spark, "sparkContext", None) if _is_classic(spark) else None
    if context is not None:
        return max(1, int(context.defaultParallelism))
    # Spark Connect hides the context, but cuts a range into as many parts as it has cores.
    parts = spark.range(_PROBE_ROWS).selectExpr("spark_partition_id() AS part").distinct().count()
    return max(1, parts)


def plan_reason(text: str) -> str:
    """The one line of a JVM's stack trace that a person wants to read: the innermost cause."""
    causes = [found[0].removeprefix("Caused by: ") for found in _CAUSE.finditer(text) if found[1]]
    told = causes[-1] if causes else text.strip().partition("\n")[0]
    return told.strip() or "it did not say why"


def _is_classic(spark: SparkSession) -> bool:
    return not type(spark).__module__.startswith("pyspark.sql.connect")


def _run(
    work: Callable[[Any], Any], tasks: Sequence[Any], batches: Iterator[pa.RecordBatch]
) -> Iterator[pa.RecordBatch]:
    """What a worker does: Spark hands it the ids of its tasks, usually one."""
    for batch in batches:
        for at in batch.column(0).to_pylist():
            outcome = msgspec.json.encode(_attempt(work, tasks[at]))
            yield pa.RecordBatch.from_arrays(
                [pa.array([at], pa.int32()), pa.array([outcome], pa.binary())], schema=_ROW_SCHEMA
            )


def _attempt(work: Callable[[Any], Any], task: Any) -> _Outcome:
    try:
        return _Outcome(result=msgspec.Raw(msgspec.json.encode(work(task))))
    except (TailraceError, OSError) as error:
        retriable = is_retriable(error)
        return _Outcome(failure=_Failure(kind=type(error).__name__, message=str(error), retriable=retriable))
