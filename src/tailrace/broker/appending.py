"""Records that came without a batch: gathered by partition, stored together, each with a time of its own.

This is how records arrive that no Kafka client has put into batches: by REST, and from the process itself.
(`publishing` is for messages, whose time is that of their arrival.)

- A record goes where it says; else by its key, as Kafka's own producer chooses. Those that have neither go to
  one partition together, and the next gathering's to the next: few batches, and an even spread over time.
- The batches of all partitions are built before the first is appended (`sequence`).
- `append_together` stores all or nothing. `Gathering.append` may be refused between two batches.

Only `Stored.wait_acknowledged` waits. A record that is sent twice is stored twice: these records have
no producer id.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.broker.partition import Partition
from tailrace.broker.publishing import Publisher
from tailrace.broker.sequence import Sequenced, append_batches, build_batches
from tailrace.broker.topic import Topic
from tailrace.broker.transactions.atomic import Write
from tailrace.model import BrokerError, ErrorCode, TopicPartition
from tailrace.records import NewRecord

if TYPE_CHECKING:
    from tailrace.broker.gate import Access

Headers = Sequence[tuple[str, bytes | None]]


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
        built = [
            (partition, stamp_ms, build_batches(records, partition.settings, stamp_ms=stamp_ms))
            for partition, records, stamp_ms in self.plan_writes()
        ]
        stored = Stored(self._places)
        for partition, stamp_ms, batches in built:
            stored.add(partition, append_batches(partition, batches, stamp_ms=stamp_ms))
        return stored

    def plan_writes(self) -> list[Write]:
        """What goes into each partition; BrokerError if there is nothing, or where one cannot be written."""
        if not self._places:
            raise BrokerError("there is no record to store", code=ErrorCode.INVALID_REQUEST)
        writes = []
        for index, records in self._groups.items():
            partition = self._access.writable(TopicPartition(self._topic.name, index))
            writes.append(Write(partition, records, self._now_ms if partition.settings.append_time else None))
        return writes

    def stored(self, writes: Sequence[Write], sequenced: Iterator[Sequenced]) -> Stored:
        """Where the gathering went: `sequenced` says it of its `writes`, in their order."""
        stored = Stored(self._places)
        for write in writes:
            stored.add(write.partition, next(sequenced))
        return stored

    def _choose(self, key: bytes | None) -> int:
        if key is not None:
            return self._publisher.choose(self._topic, key)
        if self._turn is None:
            self._turn = self._publisher.choose(self._topic, None)
        return self._turn


async def append_together(access: Access, gatherings: Sequence[Gathering]) -> list[Stored]:
    """Store gatherings of several topics in one transaction; returns where each went, when that is durable.

    All or nothing: a gathering that is refused costs all of them (`broker.transactions.atomic`).
    """
    planned: list[list[Write]] = []

    def plan() -> list[Write]:
        planned.extend(each.plan_writes() for each in gatherings)
        return [write for writes in planned for write in writes]

    sequenced = iter(await access.append_atomically(plan))
    return [each.stored(writes, sequenced) for each, writes in zip(gatherings, planned, strict=True)]


class Stored:
    """Where a gathering went."""

    __slots__ = ("_partitions", "_places")

    def __init__(self, places: list[tuple[int, int]]) -> None:
        self._places = places
        self._partitions: dict[int, tuple[Partition, Sequenced]] = {}

    def add(self, partition: Partition, sequenced: Sequenced) -> None:
        """All records of the gathering that are for this partition went there."""
        self._partitions[partition.index] = partition, sequenced

    @property
    def spans(self) -> list[Span]:
        """Where the records are, partition by partition."""
        return [Span(index, base, end - base) for index, (_, (base, end)) in self._partitions.items()]

    def offsets(self) -> list[tuple[int, int]]:
        """Partition and offset of every record, in the order in which they were gathered."""
        first = {index: sequenced.base_offset for index, (_, sequenced) in self._partitions.items()}
        return [(partition, first[partition] + number) for partition, number in self._places]

    async def wait_acknowledged(self) -> None:
        """Return when all of it may be acknowledged."""
        waits = [
            partition.wait_acknowledged(sequenced.end_offset)
            for partition, sequenced in self._partitions.values()
        ]
        if len(waits) == 1:
            await waits[0]
        else:
            await asyncio.gather(*waits)
