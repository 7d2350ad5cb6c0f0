"""An exactly-once write without Spark: tasks and drivers as Spark calls them, and kills at any request.

A kill is an exception at a request, before it is sent or after its answer came, and from then on at every
request of that process: so nothing of it reaches the broker any more, the cleaning up included.
"""

from __future__ import annotations

import itertools
import pickle
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyspark
import pytest
from pyspark.sql.types import IntegerType, StringType, StructField, StructType

import tailrace
from tailrace.client.connection import Connection
from tailrace.spark.link import close_links
from tailrace.spark.sink import batch_writer, stream_writer
from tailrace.spark.sink.delivery import Written
from tailrace.spark.sink.exactly_once import _committed

SCHEMA = StructType([StructField("value", StringType()), StructField("partition", IntegerType())])
TOPIC = "orders"
_numbers = itertools.count(1)


class Killed(BaseException):
    """The process is gone."""


@dataclass
class Context:
    """What Spark tells a task (pyspark.TaskContext)."""

    partition: int
    attempt: int
    properties: dict[str, str]

    def partitionId(self) -> int:
        return self.partition

    def attemptNumber(self) -> int:
        return self.attempt

    def getLocalProperty(self, name: str) -> str | None:
        return self.properties.get(name)


class Killer:
    """Counts the requests of the process, and ends it at one of them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.seen = 0
        self._at: int | None = None
        self._is_dead = False
        real = Connection.exchange

        async def exchange(connection: Connection, *args: Any, **options: Any) -> memoryview:
            if self._is_dead:
                raise Killed
            number, self.seen = self.seen, self.seen + 1
            if self._at == 2 * number:
                self._is_dead = True
                raise Killed
            answer = await real(connection, *args, **options)
            if self._at == 2 * number + 1:
                self._is_dead = True
            if self._is_dead:
                raise Killed
            return answer

        monkeypatch.setattr(Connection, "exchange", exchange)

    @contextmanager
    def killing(self, at: int | None) -> Iterator[None]:
        """Kill what runs here: before request at // 2 is sent if `at` is even, else after its answer."""
        self.seen, self._at, self._is_dead = 0, at, False
        try:
            yield
        except Killed:
            new_process()
            raise
        finally:
            self._at, self._is_dead = None, False


def new_process() -> None:
    """Nothing is left of what the process knew."""
    close_links()
    _committed.clear()


class Driver:
    """A query that was started, or a DataFrame that is written: its tasks, and the calls in the driver."""

    def __init__(
        self,
        broker: tailrace.Broker,
        monkeypatch: pytest.MonkeyPatch,
        *,
        query: str | None,
        **options: str,
    ) -> None:
        self.query, self.run = query, f"run{next(_numbers)}"
        self._patch = monkeypatch
        given = {
            "kafka.bootstrap.servers": broker.bootstrap_servers,
            "topic": TOPIC,
            "delivery": "exactly-once",
        }
        make: Callable[..., Any] = stream_writer if query else batch_writer
        self.writer = pickle.loads(pickle.dumps(make(given | options, SCHEMA, overwrite=False)))

    def task(self, batch: int, partition: int, values: Sequence[str], *, attempt: int = 0) -> Written:
        """One attempt at a task: its rows go to the partition of its own number."""
        properties = {
            "sql.streaming.queryId": self.query or "",
            "spark.jobGroup.id": self.run,
            "streaming.sql.batchId": str(batch),
        }
        context = Context(partition, attempt, properties if self.query else {})
        self._patch.setattr(pyspark.TaskContext, "get", classmethod(lambda _: context))
        rows = pa.record_batch(
            {
                "value": pa.array(list(values), pa.string()),
                "partition": pa.array([partition % 2] * len(values), pa.int32()),
            }
        )
        written = self.writer.write(iter([rows]))
        returned = pickle.loads(pickle.dumps(written))
        assert isinstance(returned, Written)
        return returned

    def tasks(self, batch: int, rows: Sequence[Sequence[str]], *, attempt: int = 0) -> list[Written]:
        return [self.task(batch, number, values, attempt=attempt) for number, values in enumerate(rows)]

    def commit(self, batch: int, written: Sequence[Written | None]) -> None:
        self.writer.commit(list(written), *([batch] if self.query else []))

    def abort(self, batch: int, written: Sequence[Written | None]) -> None:
        self.writer.abort(list(written), *([batch] if self.query else []))

    def batch(self, batch: int, rows: Sequence[Sequence[str]]) -> None:
        self.commit(batch, self.tasks(batch, rows))


def visible(broker: tailrace.Broker, topic: str = TOPIC) -> list[str]:
    """The rows that readers of committed records see."""
    return sorted((record.value or b"").decode() for record in broker.read(topic))
