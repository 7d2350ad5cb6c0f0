"""A run that failed is started again, where that may help: which errors pass, and how long to wait.

Every pipeline may be killed and run again, so starting it again is safe. Two cases:

- A Python of Spark did not start within Spark's 10 s, and the run had not done anything yet. Any run is tried
  again, a few times. If that Python was to look for data sources, the session has none from then on, so ours
  is registered.
- A pipeline of tailrace.toml that goes on until it is stopped failed with an error that may pass: a broker
  that is away, a disk that is full, a worker that was lost. It is started again for as long as that lasts,
  with a wait that doubles. What no repetition heals ends it: a wrong setting, a query that Spark refuses,
  records that are gone, a package that the workers lack, a Spark that is no longer there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tailrace.client.error import is_retriable
from tailrace.model import BrokerError, StorageError
from tailrace.spark.pipelines.failure import is_lasting, is_spark_error, raised_in

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LATE_TRIES_MAX = 3
LATE_WAIT_S = 1.0
_FIRST_S = 1.0
_MOST_S = 300.0
_REFUSED = frozenset({"AnalysisException", "ParseException", "IllegalArgumentException"})
_OURS_LASTING = frozenset({"ConfigError", "DataLoss", "UnknownTopic"})


@dataclass(slots=True)
class Backoff:
    """The waits before further starts: doubled each time, and from the beginning after a run that lasted."""

    first_s: float = _FIRST_S
    most_s: float = _MOST_S
    failures: int = 0

    def next_s(self, *, ran_s: float) -> float:
        """How long to wait after a run of `ran_s` failed."""
        if ran_s >= self.most_s:
            self.failures = 0
        self.failures += 1
        return min(self.most_s, self.first_s * 2.0 ** min(self.failures - 1, 30))


def may_pass(error: BaseException) -> bool:
    """Whether the same run may succeed later without anything being changed for it."""
    retriable: Any = getattr(error, "retriable", None)  # of tasks and jobs
    if isinstance(retriable, bool):
        return retriable
    if is_spark_error(error):
        raised = raised_in(str(error)).rpartition(".")[2]
        is_refused = type(error).__name__ in _REFUSED
        return not (is_refused or raised in _OURS_LASTING or is_lasting(str(error)))
    if isinstance(error, BrokerError):
        return is_retriable(error)
    return isinstance(error, OSError | StorageError) or is_retriable(error)


def register_source(spark: SparkSession) -> None:
    """Make the data source known to a session whose own search for it failed."""
    from tailrace.spark.source.data_source import TailraceDataSource

    spark.dataSource.register(TailraceDataSource)


def is_alive(spark: SparkSession) -> bool:
    """Whether a session can still run anything; one of Spark Connect is believed to."""
    context = getattr(spark, "_sc", None)
    if context is None:
        return True
    try:
        return not context._jsc.sc().isStopped()
    except Exception:  # py4j has several errors for a JVM that is gone
        return False
