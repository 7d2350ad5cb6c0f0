"""The Kafka protocol: for Tailrace and Apache Kafka alike, byte for byte the same requests."""

from __future__ import annotations

from bench.dialect.port import Dialect
from bench.load import RECORD_BYTES, Part, WireJob
from tailrace.bench.wire import Lane
from tailrace.bench.wire.kafka import (
    batch_bytes,
    fetch_reader,
    fetch_ring,
    one_record,
    produce_reader,
    produce_ring,
)
from tailrace.bench.wire.topic import admin, connect, fill
from tailrace.records import read_batch

_FILL_BYTES = 32_000_000
_FETCH_PLACES_MAX = 64


class KafkaDialect(Dialect):
    """One topic for each part."""

    def __init__(self, job: WireJob) -> None:
        super().__init__(job)
        self._topics: list[str] = []

    def lanes(self, part: Part, *, name: str) -> list[Lane]:
        topic = f"{self.job.topic}-{name}"
        self._topics.append(topic)
        self._make(topic, part.partitions)
        if part.kind == "fetch":
            return self._fetching(part, topic, name)
        batch = batch_bytes(part.batch_bytes) if part.batch_bytes else one_record(RECORD_BYTES)
        return [self._producing(part, topic, name, batch, each) for each in range(part.connections)]

    def clean(self) -> None:
        with admin(self.job.host, self.job.port) as client:
            for topic in self._topics:
                client.delete(topic)

    def _make(self, topic: str, partitions: int) -> None:
        with admin(self.job.host, self.job.port) as client:
            client.delete(topic)  # an earlier run may have been cut off
            client.create(topic, partitions=partitions, configs=self.job.topic_configs)

    def _producing(self, part: Part, topic: str, name: str, batch: bytes, number: int) -> Lane:
        ring = produce_ring(batch, topic=topic, partition=number % part.partitions, in_flight=part.in_flight)
        return Lane(
            sock=connect(self.job.host, self.job.port),
            ring=ring,
            reader=produce_reader(ring, topic=topic),
            in_flight=part.in_flight,
            name=name,
        )

    def _fetching(self, part: Part, topic: str, name: str) -> list[Lane]:
        batch = batch_bytes(part.batch_bytes)
        batches = min(_FILL_BYTES // len(batch), _FETCH_PLACES_MAX)
        fill(self.job.host, self.job.port, topic=topic, batch=batch, batches=batches)
        records = read_batch(memoryview(batch)).last_offset_delta + 1
        offsets = [each * records for each in range(batches)]
        ring = fetch_ring(topic=topic, partition=0, offsets=offsets, bytes_max=len(batch))
        return [
            Lane(
                sock=connect(self.job.host, self.job.port),
                ring=ring,
                reader=fetch_reader(ring, topic=topic),
                in_flight=part.in_flight,
                name=name,
            )
            for _ in range(part.connections)
        ]


class BareDialect(KafkaDialect):
    """The same requests to a handler that knows no topics, and nothing but Produce."""

    def clean(self) -> None:
        """There is nothing to take away."""

    def _make(self, topic: str, partitions: int) -> None:
        """There is nothing to make."""
