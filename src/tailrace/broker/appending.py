"""Records that came without a batch: gathered by partition, stored together, each with a time of its own.

This is how records arrive that no Kafka client has put into batches: by REST, and from the process itself.
(`publishing` is for messages, whose time is that of their arrival; it has its batches built here.)

- A record goes where it says; else by its key, as Kafka's own producer chooses. Those that have neither go to
  one partition together, and the next gathering's to the next: few batches, and an even spread over time.
- All of a gathering's batches are built before the first is appended: a record that cannot be stored (too
  large, no key in a compacted topic) costs the whole gathering, and then none of it is stored. A log that
  refuses (it is full, or busy) may do so between two of them.
- What one partition gets becomes one batch, or several where the topic does not take one of that size.

Only `Stored.wait_acknowledged` waits. A record that is sent twice is stored twice: these records have
no producer id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.broker.configs import TopicSettings
from tailrace.broker.partition import Partition
from tailrace.broker.topic import Topic
from tailrace.model import NO_PRODUCER, BrokerError, ErrorCode, Offset, TopicPartition
from tailrace.records import BatchBuilder, NewRecord, build_batch, read_batch

if TYPE_CHECKING:
    from tailrace.broker.gate import Access
    from tailrace.broker.publishing import Publisher  # which has its batches built here

Headers = Sequence[tuple[str, bytes | None]]

SEQUENCE_MAX = (1 << 31) - 1  # followed by 0


@dataclass(frozen=True, slots=True)
class Span:
    """Records of a gathering that follow each other in one partition."""

    partition: int
    offset: int
    count: int


class Gathering:
    """Records for one topic, until they are appended."""

    __slots__ = ("_access", "_groups", "_now_ms", "_places", "_publisher", "_topic", "_turn")

    def __init__(self, access: Access, topic: Topic, publisher: Publisher) -> None:
        """`topic` is one that `access` gave out for writing."""
        self._access = access
        self._topic = topic
        self._publisher = publisher
        self._now_ms = publisher.now_ms()
        self._groups: dict[int, list[NewRecord]] = {}
        self._places: list[tuple[int, int]] = []  # of every record: partition, number in its group
        self._turn: int | None = None  # where records go that neither say nor have a key

    def __len__(self) -> int:
        return len(self._places)

    def add(
        self,
        key: bytes | None,
        value: bytes | None,
        *,
        headers: Headers = (),
        partition: int | None = None,
        timestamp_ms: int | None = None,
    ) -> None:
        """Take a record; without a time it is of now. A partition that does not exist is told by `append`."""
        if partition is None:
            partition = self._choose(key)
        group = self._groups.get(partition)
        if group is None:
            group = self._groups[partition] = []
        self._places.append((partition, len(group)))
        group.append((self._now_ms if timestamp_ms is None else timestamp_ms, key, value, headers))

    def append(self) -> Stored:
        """Sequence everything; acknowledge it when `Stored.wait_acknowledged` has come back."""
        if not self._places:
            raise BrokerError("there is no record to store", code=ErrorCode.INVALID_REQUEST)
        built = []
        for index, records in self._groups.items():
            partition = self._access.writable(TopicPartition(self._topic.name, index))
            stamp_ms = self._now_ms if partition.settings.append_time else None
            built.append((partition, stamp_ms, build_batches(records, partition.settings, stamp_ms=stamp_ms)))
        stored = Stored(self._places)
        for partition, stamp_ms, batches in built:
            for data in batches:
                appended = partition.append(read_batch(data), append_time_ms=stamp_ms)
                stored.add(partition, appended.base_offset, appended.end_offset)
        return stored

    def _choose(self, key: bytes | None) -> int:
        if key is not None:
            return self._publisher.choose(self._topic, key)
        if self._turn is None:
            self._turn = self._publisher.choose(self._topic, None)
        return self._turn


class Stored:
    """Where a gathering went."""

    __slots__ = ("_first", "_partitions", "_places", "spans")

    def __init__(self, places: list[tuple[int, int]]) -> None:
        self._places = places
        self._partitions: dict[int, tuple[Partition, Offset]] = {}
        self._first: dict[int, int] = {}
        self.spans: list[Span] = []

    def add(self, partition: Partition, base_offset: Offset, end_offset: Offset) -> None:
        """No await stands between two batches of a partition, so their offsets follow each other."""
        self._first.setdefault(partition.index, base_offset)
        self._partitions[partition.index] = partition, end_offset
        count = end_offset - base_offset
        if self.spans and self.spans[-1].partition == partition.index:
            last = self.spans.pop()
            base_offset, count = Offset(last.offset), count + last.count
        self.spans.append(Span(partition.index, base_offset, count))

    def offsets(self) -> list[tuple[int, int]]:
        """Partition and offset of every record, in the order in which they were gathered."""
        return [(partition, self._first[partition] + number) for partition, number in self._places]

    async def wait_acknowledged(self) -> None:
        """Return when all of it may be acknowledged."""
        waits = [partition.wait_acknowledged(end) for partition, end in self._partitions.values()]
        if len(waits) == 1:
            await waits[0]
        else:
            await asyncio.gather(*waits)


def build_batches(
    records: Sequence[NewRecord],
    settings: TopicSettings,
    *,
    stamp_ms: int | None,
    producer_id: int = NO_PRODUCER,
    epoch: int = -1,
    sequence: int = -1,
) -> list[bytearray]:
    """The records as one batch, or as several where the topic does not take one of that size.

    MESSAGE_TOO_LARGE or INVALID_RECORD if it takes one of them not at all. `sequence` is that of the first.
    """
    if settings.compact:
        check_keys(records)
    data = build_batch(
        records,
        log_append_time_ms=stamp_ms,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
    )
    if len(data) <= settings.message_bytes_max:
        return [data]
    if len(records) == 1:
        raise too_large(len(data), settings)
    batches: list[bytearray] = []
    for part in _cut(records, bytes_max=settings.message_bytes_max):
        batches += build_batches(
            part, settings, stamp_ms=stamp_ms, producer_id=producer_id, epoch=epoch, sequence=sequence
        )
        if producer_id != NO_PRODUCER:
            sequence = (sequence + len(part)) & SEQUENCE_MAX
    return batches


def check_keys(records: Iterable[NewRecord]) -> None:
    """Whether a compacted topic takes these; INVALID_RECORD."""
    if any(key is None for _, key, _, _ in records):
        raise BrokerError(
            "a record without a key cannot be stored in a compacted topic", code=ErrorCode.INVALID_RECORD
        )


def too_large(size: int, settings: TopicSettings) -> BrokerError:
    """A record of so many bytes, with the batch around it, is one that the topic does not take."""
    return BrokerError(
        f"a record of {size} bytes with its batch is over {settings.message_bytes_max}, the topic's "
        "max.message.bytes (message.max.bytes of the node). Send less, or raise it",
        code=ErrorCode.MESSAGE_TOO_LARGE,
    )


def _cut(records: Sequence[NewRecord], *, bytes_max: int) -> list[Sequence[NewRecord]]:
    """Runs of which each surely fits into a batch, or has one record alone."""
    parts: list[Sequence[NewRecord]] = []
    builder, first = BatchBuilder(), 0
    for at, record in enumerate(records):
        if builder.append(*record) > bytes_max and at > first:
            parts.append(records[first:at])
            builder, first = BatchBuilder(), at
            builder.append(*record)
    parts.append(records[first:])
    return parts
