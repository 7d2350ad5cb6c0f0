"""Asks the workers of a cluster what they have, before a pipeline depends on it.

One job of tiny tasks imports what the pipelines run there. What is missing is an error with the fix, seconds
after the start, instead of a query that fails later, task by task and attempt by attempt. The job also waits
for the first executor, so that the cluster's cores can be counted; executors that come in the next moments
are waited for briefly, because a streaming query keeps the number of shuffle partitions that it starts with.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from tailrace import __version__
from tailrace.model import ConfigError
from tailrace.spark.pipelines.failure import INSTALL_ON_WORKERS, cause_of, is_lasting
from tailrace.spark.pipelines.interpreter import PYTHON
from tailrace.spark.pipelines.ship import NOT_SHIPPED
from tailrace.spark.pipelines.worker import probe, send_by_value

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Tell = Callable[[str], None]

WORKER_MODULES = (
    "tailrace.spark.source.task",
    "tailrace.spark.sink.writing",
    "tailrace.spark.pipelines.archive_task",
    "tailrace.spark.pipelines.compact_task",
    "tailrace.spark.pipelines.replay_task",
)
"""What pipelines run in Python workers."""
_TASKS_LEAST = 4
_WAIT_TOLD_S = 10.0
_STEADY_S = 0.5
_STEADY_S_MOST = 3.0


def check_workers(spark: SparkSession, *, tell: Tell) -> int:
    """How many tasks run side by side; ConfigError with the fix if a worker cannot run pipelines."""
    context = spark.sparkContext
    send_by_value()
    count = max(_TASKS_LEAST, 2 * context.defaultParallelism)
    with _WaitingTold(tell):
        try:
            found = (
                context.parallelize(range(count), count)
                .mapPartitions(partial(probe, WORKER_MODULES))
                .collect()
            )
        except Exception as error:  # py4j's and pyspark's have nothing in common but this
            raise ConfigError(_explain(error)) from error
    plan_refusal(found)
    return _wait_steady(lambda: int(context.defaultParallelism))


def plan_refusal(found: Sequence[dict[str, str]]) -> None:
    """ConfigError with the fix for the first worker that lacks something, or has another Tailrace."""
    for worker in found:
        where = f"{worker['python']} (Python {worker['version']}) on {worker['host']}"
        if "error" in worker:
            raise ConfigError(
                f"the workers cannot run pipelines: {worker['error']} in {where}. {_fix(worker)}"
            )
        if worker["tailrace"] != __version__:
            raise ConfigError(
                f"the workers have Tailrace {worker['tailrace']} and this is {__version__}: {where}."
                f" {INSTALL_ON_WORKERS}"
            )


def _fix(worker: dict[str, str]) -> str:
    for name in NOT_SHIPPED:
        if f"'{name}'" in worker["error"] or f"'{name}." in worker["error"]:
            return (
                f"Install it there (pip install {name}), or name a Python that has it with {PYTHON}:"
                " --ship does not send it"
            )
    return INSTALL_ON_WORKERS


def _explain(error: Exception) -> str:
    cause = cause_of(error)
    if "PYTHON_VERSION_MISMATCH" in str(error):
        return f"the workers have another Python: {cause}. Name one of the driver's version with {PYTHON}"
    if "Cannot run program" in str(error):
        return f"the workers do not have this Python: {cause}. Name one that they have with {PYTHON}"
    return cause if is_lasting(str(error)) else f"the workers of the cluster do not answer: {cause}"


def _wait_steady(count: Callable[[], int]) -> int:
    """The count once it has not changed for a moment: Spark tells Python of no new executor."""
    deadline = time.monotonic() + _STEADY_S_MOST
    last, since = count(), time.monotonic()
    while time.monotonic() < min(since + _STEADY_S, deadline):
        time.sleep(0.05)
        now = count()
        if now != last:
            last, since = now, time.monotonic()
    return max(1, last)


class _WaitingTold:
    """Says after a while that no executor has answered: Spark itself waits for one without a word."""

    def __init__(self, tell: Tell) -> None:
        text = (
            "waiting for executors: the cluster has given none yet. Does it have free cores and memory, and"
            " do its workers reach this machine (spark.driver.host)?"
        )
        self._timer = threading.Timer(_WAIT_TOLD_S, tell, [text])
        self._timer.daemon = True

    def __enter__(self) -> None:
        self._timer.start()

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()
