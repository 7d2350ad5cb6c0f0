"""A process that archives, or compacts, and kills itself at one step of one commit; for tests that run it.

    python -m tests.spark.kill_archive '{"pipeline": "archive", "config": {...}, "step": "logged", "nth": 2}'

It runs in a Spark of its own with "master", else in `LocalSpark`, which starts in no time. It ends by
SIGKILL, or prints what the pipeline returned.
"""

from __future__ import annotations

import os
import pickle
import signal
import sys
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pyarrow as pa

from tailrace.spark.pipelines.archive import ArchiveConfig, archive
from tailrace.spark.pipelines.compact import CompactConfig, compact

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Batches = Iterator[pa.RecordBatch]


class LocalSpark:
    """As much of a Spark session as `spread` needs: tasks run here, one after the other, pickled as there.

    `interfere` is called before each task with its number, and may run it, fail or do nothing.
    """

    def __init__(self, *, cores: int = 2, interfere: Callable[[int], None] | None = None) -> None:
        self.sparkContext = SimpleNamespace(defaultParallelism=cores)
        self.interfere = interfere
        self.jobs = 0

    def range(self, start: int, end: int, step: int, slices: int) -> LocalSpark:
        assert (start, step, end) == (0, 1, slices)
        self._count = end
        return self

    def mapInArrow(self, work: Callable[[Batches], Batches], schema: str) -> LocalSpark:
        self._work = pickle.dumps(work)
        return self

    def collect(self) -> list[SimpleNamespace]:
        self.jobs += 1
        rows: list[SimpleNamespace] = []
        for task in range(self._count):
            if self.interfere is not None:
                self.interfere(task)
            rows += [SimpleNamespace(**row) for batch in self.attempt(task) for row in batch.to_pylist()]
        return rows

    def attempt(self, task: int) -> list[pa.RecordBatch]:
        """Run one task, as often as it is called."""
        ids = pa.RecordBatch.from_pydict({"id": [task]})
        return list(pickle.loads(self._work)(iter([ids])))


def as_session(spark: LocalSpark) -> SparkSession:
    """For calls that are typed; it is not one, and has what is used of one."""
    return cast("SparkSession", spark)


class Job(msgspec.Struct, kw_only=True):
    """What to run, and where to die."""

    pipeline: str
    config: dict[str, Any]
    step: str = ""
    nth: int = 1
    master: str = ""


def _killer(job: Job) -> Callable[[str], None]:
    seen = 0

    def on_step(name: str) -> None:
        nonlocal seen
        seen += name == job.step
        if seen == job.nth and job.step:
            os.kill(os.getpid(), signal.SIGKILL)

    return on_step


def _open(job: Job) -> SparkSession:
    if not job.master:
        return as_session(LocalSpark())
    from pyspark.sql import SparkSession

    os.environ["PYSPARK_PYTHON"] = sys.executable
    return (
        SparkSession.builder.master(job.master)
        .config("spark.ui.enabled", "false")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.log.level", "ERROR")
        .getOrCreate()
    )


def main(text: str) -> None:
    job = msgspec.json.decode(text, type=Job)
    done: object
    if job.pipeline == "archive":
        config = msgspec.convert(job.config, ArchiveConfig, strict=False)
        done = archive(config, spark=_open(job), on_step=_killer(job))
    else:
        done = compact(
            msgspec.convert(job.config, CompactConfig, strict=False), spark=_open(job), on_step=_killer(job)
        )
    print(msgspec.json.encode(done).decode())


if __name__ == "__main__":
    main(sys.argv[1])
