"""Tasks through Spark and their results back, with a stand-in for Spark that pickles as Spark does."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace

import pytest
from tests.spark.kill_archive import LocalSpark, as_session

from tailrace.client.error import ConnectionLost
from tailrace.model import ConfigError, TailraceError
from tailrace.spark.pipelines.spread import SparkFailed, TaskFailed, count_cores, plan_reason, spread


@dataclass(frozen=True, kw_only=True)
class Square:
    of: int
    is_: int


def square(offset: int, number: int) -> Square:
    if number == 13:
        raise TailraceError("thirteen is not squared here")
    if number == 14:
        raise ConnectionLost("the broker went away")
    if number == 15:
        raise OSError(28, "No space left on device")
    if number == 16:
        raise ZeroDivisionError("a bug")
    return Square(of=number, is_=number * number + offset)


def run(*numbers: int, spark: LocalSpark | None = None) -> list[Square]:
    return spread(as_session(spark or LocalSpark()), partial(square, 1), numbers, result=Square)


def test_results_come_back_in_the_order_of_the_tasks() -> None:
    assert run(3, 1, 2) == [Square(of=3, is_=10), Square(of=1, is_=2), Square(of=2, is_=5)]


def test_no_tasks_start_no_job() -> None:
    spark = LocalSpark()
    assert run(spark=spark) == []
    assert spark.jobs == 0


@pytest.mark.parametrize(
    ("number", "kind", "retriable", "told"),
    [
        (13, "TailraceError", False, "thirteen is not squared here"),
        (14, "ConnectionLost", True, "the broker went away"),
        (15, "OSError", False, "No space left on device"),
    ],
)
def test_an_error_of_ours_arrives_in_its_own_words(
    number: int, kind: str, retriable: bool, told: str
) -> None:
    with pytest.raises(TaskFailed, match=told) as failed:
        run(1, number, 2)
    assert (failed.value.kind, failed.value.retriable) == (kind, retriable)


def test_a_bug_is_left_to_spark() -> None:
    with pytest.raises(SparkFailed, match="a bug"):
        run(1, 16)


@pytest.mark.parametrize(
    ("text", "retriable"),
    [
        ("Python worker exited unexpectedly (crashed)", True),
        ("ModuleNotFoundError: No module named 'pyarrow'", False),
        ("[PYTHON_VERSION_MISMATCH] 3.9 and 3.11", False),
        ('java.io.IOException: Cannot run program "python3.12": error=2', False),
    ],
)
def test_what_workers_lack_is_not_for_a_further_try(text: str, retriable: bool) -> None:
    class Broken(LocalSpark):
        def collect(self) -> list[SimpleNamespace]:
            raise RuntimeError(text)

    with pytest.raises(SparkFailed) as failed:
        run(1, spark=Broken())
    assert failed.value.retriable is retriable


def test_results_that_are_missing_are_noticed() -> None:
    class Forgetful(LocalSpark):
        def attempt(self, task: int) -> list[object]:
            return [] if task == 1 else super().attempt(task)

    with pytest.raises(SparkFailed, match="2 results for 3 tasks"):
        run(1, 2, 3, spark=Forgetful())


def test_a_missing_package_is_told_with_the_fix() -> None:
    class Bare(LocalSpark):
        def mapInArrow(self, work: object, schema: str) -> LocalSpark:
            raise ImportError("pandas >= 2.2.0 must be installed; however, it was not found.")

    with pytest.raises(ConfigError, match=r"pandas .* Try: pip install 'tailrace\[spark\]'"):
        run(1, spark=Bare())


def test_cores_are_what_spark_says() -> None:
    assert count_cores(as_session(LocalSpark(cores=7))) == 7


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (
            "An error occurred while calling o1.collect.\n: org.apache.spark.SparkException: Job aborted: x\n"
            "\tat org.apache.Foo\nCaused by: java.io.EOFException\n\tat java.base/x.y\n"
            "Caused by: org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)\n\tat z",
            "org.apache.spark.SparkException: Python worker exited unexpectedly (crashed)",
        ),
        ("Traceback:\n  File x\nValueError: seven\n", "ValueError: seven"),
        ("plain words\nand more", "plain words"),
        ("", "it did not say why"),
    ],
)
def test_of_a_stack_trace_the_innermost_cause_is_told(text: str, reason: str) -> None:
    assert plan_reason(text) == reason
