"""Real clients under load: an idempotent producer that never stops by itself, and a member of a group.

Both are confluent-kafka, in threads of this process, and write down what they were told in a History.
"""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.interop.history import History

TOPIC = "load"
GROUP = "readers"
PARTITIONS = 4
_PENDING_MAX = 500
_FLUSH_S = 60
_COMMON = {"log_level": 0, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 200}


class _Worker:
    """A thread with a beginning, an end, and an error that does not go unnoticed."""

    def __init__(self, work: Callable[[], None]) -> None:
        self.ended = threading.Event()
        self._work = work
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def end(self) -> None:
        self.ended.set()
        self._thread.join(_FLUSH_S + 10)
        assert not self._thread.is_alive(), "it does not end"
        if self._error is not None:
            raise self._error

    def _run(self) -> None:
        try:
            self._work()
        except BaseException as error:
            self._error = error


class Writer:
    """acks=all and idempotent; after `with` every send was acknowledged, or the client has failed."""

    def __init__(self, bootstrap: str, name: str, history: History) -> None:
        """Nothing is sent yet."""
        self.acknowledged = 0
        self._name = name
        self._history = history
        self._worker = _Worker(self._write)
        self._failures: list[str] = []
        settings = {"acks": "all", "enable.idempotence": True, "linger.ms": 1, "delivery.timeout.ms": 120_000}
        self._producer = Producer({**_COMMON, "bootstrap.servers": bootstrap, **settings})

    def __enter__(self) -> Writer:
        """Writing."""
        self._worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Everything sent, everything answered."""
        self._worker.end()
        assert not self._failures, f"{len(self._failures)} failed, first: {self._failures[0]}"

    def _write(self) -> None:
        for number in itertools.count():
            if self._worker.ended.is_set() or self._failures:
                break
            value = f"{self._name} {number}".encode()
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._report)
            self._producer.poll(0 if len(self._producer) < _PENDING_MAX else 0.05)
        left = self._producer.flush(_FLUSH_S)
        if left:
            self._failures.append(f"{left} sends were not answered within {_FLUSH_S} s")

    def _report(self, error: Any, message: Any) -> None:
        if error is not None:
            self._failures.append(str(error))
            return
        self.acknowledged += 1
        self._history.acknowledge(
            partition=message.partition(), offset=message.offset(), value=message.value()
        )


class Reader:
    """A member of the group; it commits after what it has seen, so its group never skips a record."""

    def __init__(self, bootstrap: str, history: History) -> None:
        """It joins when it starts."""
        self.seen: set[tuple[int, int]] = set()
        self._history = history
        self._worker = _Worker(self._read)
        settings = {"enable.auto.commit": False, "auto.offset.reset": "earliest", "session.timeout.ms": 6000}
        self._settings: dict[str, Any] = {
            **_COMMON,
            **settings,
            "bootstrap.servers": bootstrap,
            "group.id": GROUP,
            "heartbeat.interval.ms": 500,
        }

    def __enter__(self) -> Reader:
        """Reading."""
        self._worker.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """It leaves the group."""
        self._worker.end()

    def _read(self) -> None:
        consumer = Consumer(self._settings)
        consumer.subscribe([TOPIC])
        commit_at = time.monotonic() + 0.2
        try:
            while not self._worker.ended.is_set():
                for message in consumer.consume(200, 0.1):
                    self._see(message)
                if time.monotonic() > commit_at:
                    consumer.commit(asynchronous=True)
                    commit_at = time.monotonic() + 0.2
        finally:
            consumer.close()

    def _see(self, message: Any) -> None:
        if message.error():
            return  # the broker is away, and comes back
        self.seen.add((message.partition(), message.offset()))
        self._history.see(partition=message.partition(), offset=message.offset(), value=message.value())


def read_everything(bootstrap: str) -> dict[int, list[tuple[int, bytes]]]:
    """Every record of the topic by partition, read after all is over."""
    found: dict[int, list[tuple[int, bytes]]] = {index: [] for index in range(PARTITIONS)}
    consumer = Consumer({**_COMMON, "bootstrap.servers": bootstrap, "group.id": "last"})
    try:
        ends = {
            index: consumer.get_watermark_offsets(TopicPartition(TOPIC, index), 20)[1]
            for index in range(PARTITIONS)
        }
        consumer.assign([TopicPartition(TOPIC, index, 0) for index in range(PARTITIONS)])
        deadline = time.monotonic() + 60
        while any((rows[-1][0] + 1 if rows else 0) < ends[index] for index, rows in found.items()):
            assert time.monotonic() < deadline, "the topic does not end"
            for message in consumer.consume(1000, 0.2):
                assert not message.error(), message.error()
                value = message.value()
                assert isinstance(value, bytes)
                index, offset = message.partition(), message.offset()
                assert index is not None and offset is not None
                found[index].append((offset, value))
    finally:
        consumer.close()
    return found
