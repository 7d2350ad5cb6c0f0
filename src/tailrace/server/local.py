"""Producing and reading in the broker's own process, without a socket: what the embedded brokers offer.

A record produced here takes the same way as one from a client: a batch, sequenced by its partition,
acknowledged when it is durable. Reading ends at the last stable offset as it was when the reading began.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.broker.appending import Gathering, append_together
from tailrace.broker.gate import Gate
from tailrace.broker.partition import Partition
from tailrace.broker.topic import NewTopic
from tailrace.broker.unreadable import Unreadable
from tailrace.broker.visible_records import Portion, read
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.model.operation import Operation
from tailrace.model.payload import wrong_payload
from tailrace.model.session import EMBEDDED
from tailrace.records import BadSpan, BatchError

if TYPE_CHECKING:
    from tailrace.server.local_transaction import GatheredRecord

READ_BYTES = 1 << 20

Headers = Sequence[tuple[str, bytes | None]] | Mapping[str, bytes | None]


class Produced(NamedTuple):
    """Where a record went."""

    partition: int
    offset: int


class EmbeddedRecord(NamedTuple):
    """A record as it was read."""

    value: bytes | None
    key: bytes | None
    headers: tuple[tuple[str, bytes | None], ...]
    timestamp: int
    """Milliseconds since 1970."""
    topic: str
    partition: int
    offset: int


class Span(NamedTuple):
    """What one read goes through: the offsets of one partition, up to its last stable offset.

    The partition itself, and not its number: a topic that is made anew under the same name is another one.
    """

    partition: Partition
    start: int
    end: int


class LocalAccess:
    """One broker, used from its own loop."""

    def __init__(self, gate: Gate) -> None:
        self._access = gate.access(EMBEDDED)
        self._publisher = gate.publisher

    async def produce(
        self,
        topic: str,
        value: bytes | None,
        *,
        key: bytes | None,
        headers: Headers,
        partition: int | None,
        timestamp: int | None,
    ) -> Produced:
        """Append one record and return when it is acknowledged."""
        known = await self._access.writable_topic(NewTopic(name=topic))
        gathering = Gathering(self._access, known, self._publisher)
        gathering.add(key, value, headers=header_pairs(headers), partition=partition, timestamp_ms=timestamp)
        stored = gathering.append()
        await stored.wait_acknowledged()
        return Produced(*stored.offsets()[0])

    async def produce_together(self, records: Sequence[GatheredRecord]) -> list[Produced]:
        """Append the records of a transaction, all or none; returns where each went, when that is durable."""
        gatherings: dict[str, Gathering] = {}
        for topic in dict.fromkeys(record.topic for record in records):
            known = await self._access.writable_topic(NewTopic(name=topic))
            gatherings[topic] = Gathering(self._access, known, self._publisher)
        for record in records:
            gatherings[record.topic].add(
                record.key,
                record.value,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp,
            )
        stored = await append_together(self._access, list(gatherings.values()))
        places = {topic: iter(each.offsets()) for topic, each in zip(gatherings, stored, strict=True)}
        return [Produced(*next(places[record.topic])) for record in records]

    async def create_topic(self, name: str, *, partitions: int, configs: Mapping[str, object]) -> None:
        from tailrace.server.kind import as_text  # only for those who set something

        texts = {key: as_text(given) for key, given in configs.items()}
        await self._access.create_topic(NewTopic(name=name, partitions=partitions, configs=texts))

    def plan_read(self, topic: str, *, partition: int | None, offset: int | None) -> list[Span]:
        """What to read; OffsetOutOfRange is told by the read itself."""
        known = self._access.topic(topic, Operation.READ)
        indexes = range(len(known.partitions)) if partition is None else [partition]
        spans = []
        for index in indexes:
            found = self._access.readable(TopicPartition(topic, index))
            start = found.start_offset if offset is None else offset
            spans.append(Span(found, start, found.last_stable_offset))
        return spans

    async def read_portion(self, topic: str, span: Span, offset: int) -> Portion:
        """The next batches of a span, from `offset` on."""
        if self._access.readable(span.partition.name) is not span.partition:
            raise BrokerError(
                f"topic {topic!r} was deleted and made anew while it was read",
                code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            )
        return await read(span.partition, offset, bytes_max=READ_BYTES, end=span.end)

    async def read(self, topic: str, spans: Sequence[Span]) -> AsyncIterator[EmbeddedRecord]:
        for span in spans:
            offset = span.start
            while offset != span.end:
                portion = await self.read_portion(topic, span, offset)
                for record in records_in(portion, topic=topic, span=span):
                    yield record
                if portion.next_offset == offset:
                    break  # it begins behind the last stable offset
                offset = portion.next_offset


def records_in(portion: Portion, *, topic: str, span: Span) -> Iterator[EmbeddedRecord]:
    """The records of a portion, as the embedded brokers give them; Unreadable where that cannot be done."""

    def refuse(damage: BadSpan) -> bool:
        raise Unreadable(
            span.partition.name,
            offset=damage.first_offset,
            next_offset=damage.next_offset,
            cause=BatchError(damage.reason),
        )

    for record in portion.records(on_damage=refuse):
        yield EmbeddedRecord(
            record.value,
            record.key,
            record.headers,
            record.timestamp,
            topic,
            span.partition.index,
            record.offset,
        )


def header_pairs(headers: Headers) -> list[tuple[str, bytes | None]]:
    """Headers as pairs, each checked."""
    pairs = list(headers.items()) if isinstance(headers, Mapping) else list(headers)
    for name, data in pairs:
        check_bytes(f"header {name!r}", data)
    return pairs


def check_bytes(name: str, value: object) -> None:
    """Bytes or nothing: text has more than one encoding, and only its owner knows which."""
    if value is not None and not isinstance(value, bytes | bytearray | memoryview):
        raise wrong_payload(name, value, takes_text=False)


def check_timestamp(timestamp: object) -> None:
    """Whole milliseconds: seconds, as `time.time()` has them, would be a day in January 1970."""
    if timestamp is not None and not isinstance(timestamp, int):
        raise TypeError(
            f"timestamp must be milliseconds since 1970 as an int, not {type(timestamp).__name__}: "
            "int(time.time() * 1000)"
        )
