"""What a person is told of errors that come out of Spark, on texts as Spark makes them."""

from __future__ import annotations

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines.failure import cause_of, is_lasting, is_late_worker, is_spark_error


class PySparkException(Exception):
    """As if it were pyspark's."""


PySparkException.__module__ = "pyspark.errors.exceptions.captured"

OURS = """
  An exception was thrown from the Python worker. Please see the stack trace below.
Traceback (most recent call last):
  File "/x/pyspark/worker.py", line 3000, in main
    process()
  File "/x/tailrace/spark/reading.py", line 120, in read
    raise DataLoss(text)
tailrace.spark.reading.DataLoss: orders-0 [5, 10) is gone. Set failOnDataLoss=false to go on without it

	at org.apache.spark.api.python.BasePythonRunner.handle(PythonRunner.scala:581)
	at java.base/java.lang.Thread.run(Thread.java:840)
"""

STREAMING = """[STREAM_FAILED] Query [id = 4, runId = 5] terminated with exception: Job aborted:
Task 0 in stage 1.0 failed 1 times, most recent failure: org.apache.spark.api.python.PythonException:
Traceback (most recent call last):
  File "a.py", line 1, in f
    1 / 0
    ~~^~~
ZeroDivisionError: division by zero

The above exception was the direct cause of the following exception:

Traceback (most recent call last):
  File "a.py", line 3, in f
    raise ValueError from error
ValueError: first line
second line
	at org.apache.spark.X.y(X.scala:1)

Driver stacktrace:
JVM stacktrace:
org.apache.spark.SparkException: Job aborted
	at org.apache.spark.Z
Caused by: org.apache.spark.api.python.PythonException: no traceback here
"""


@pytest.mark.parametrize(
    ("text", "cause"),
    [
        (OURS, "orders-0 [5, 10) is gone. Set failOnDataLoss=false to go on without it"),
        (STREAMING, "ValueError: first line second line"),
        (
            "[TABLE_OR_VIEW_NOT_FOUND] The table or view `ordrs` cannot be found. SQLSTATE: 42P01;\n'Project",
            "The table or view `ordrs` cannot be found. SQLSTATE: 42P01; 'Project",
        ),
        ("[PATH_NOT_FOUND] Path does not exist: x. SQLSTATE: 42K03", "Path does not exist: x."),
        ("Job aborted\n\tat org.apache.X\n\tat org.apache.Y", "Job aborted"),
        ("Traceback (most recent call last):\n  File x", "Traceback (most recent call last): File x"),
        ("", "PySparkException"),
    ],
    ids=["ours", "chained in a stream", "analysis", "state", "jvm only", "no end", "empty"],
)
def test_the_cause_is_what_was_raised_last(text: str, cause: str) -> None:
    assert cause_of(PySparkException(text)) == cause


def test_a_package_that_workers_lack_is_told_with_the_fix() -> None:
    text = "Traceback (most recent call last):\n  File x\nModuleNotFoundError: No module named 'tailrace'\n"
    cause = cause_of(PySparkException(text))
    assert "No module named 'tailrace'. Run with --ship" in cause
    assert is_lasting(text)
    assert not is_lasting("lost executor 3")


@pytest.mark.parametrize(
    "text",
    [
        "Timed out while waiting for the Python worker to connect back",
        "Python worker failed to connect back.",
        "Failed to find the data source: tailrace. Make sure the provider name is correct",
    ],
)
def test_a_python_that_started_late_is_recognised(text: str) -> None:
    assert is_late_worker(PySparkException(text))
    assert not is_late_worker(PySparkException("Failed to find the data source: tailraze."))


def test_what_is_not_sparks_is_told_as_it_is() -> None:
    assert cause_of(ConfigError("a\nb")) == "a\nb"
    assert cause_of(KeyError()) == "KeyError"
    assert not is_spark_error(ValueError())
    assert is_spark_error(PySparkException())


def test_an_error_without_words_has_its_class() -> None:
    text = "Traceback (most recent call last):\n  File x\nMemoryError\n\tat org.apache"
    assert cause_of(PySparkException(text)) == "MemoryError"
