"""The delayed topic: one partition, made when the first message comes.

It is compacted, and nothing in it goes by its age. What lies below the oldest message that waits is trimmed
by `moving`, so that the topic stays short wherever delays are.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Sequence

from tailrace.broker.partition import Partition
from tailrace.broker.publishing import NATIVE_EPOCH, id_prefix
from tailrace.broker.sequence import sequence
from tailrace.broker.topic import NewTopic
from tailrace.broker.topics import Topics
from tailrace.broker.visible_records import Portion, read
from tailrace.model import NO_PRODUCER, Offset
from tailrace.records import NewRecord, Record, pass_over

DELAYED_TOPIC = "__tailrace_delayed"

DELAYED_CONFIGS = {
    "cleanup.policy": "compact",
    "segment.bytes": str(64 << 20),  # small, so that compaction has something to do
    "memory.max.bytes": "-1",  # in memory too, nothing leaves before it was moved: whoever puts is refused
    "memory.max.messages": "-1",
    "memory.ttl.ms": "-1",
}
_PIECE_BYTES = 256 << 10


class DelayedLog:
    """The partition of the delayed topic."""

    def __init__(self, topics: Topics) -> None:
        self._topics = topics

    def __repr__(self) -> str:
        return f"<DelayedLog {self.partition or 'that was not needed yet'}>"

    @property
    def partition(self) -> Partition | None:
        """None as long as nobody needed it."""
        topic = self._topics.get(DELAYED_TOPIC)
        return None if topic is None else topic.partitions[0]

    @property
    def id_prefix(self) -> str:
        """What the ids of delayed messages begin with; their offset follows."""
        return id_prefix(self.known().id.topic_id, 0)

    def known(self) -> Partition:
        """The partition, which somebody made before."""
        partition = self.partition
        assert partition is not None
        return partition

    async def ensure(self) -> Partition:
        new = NewTopic(name=DELAYED_TOPIC, partitions=1, configs=DELAYED_CONFIGS, internal=True)
        return (await self._topics.ensure(new)).partitions[0]

    async def append(self, records: Sequence[NewRecord]) -> None:
        """Append records as one batch and return when they are durable."""
        partition = self.known()
        await partition.wait_acknowledged(sequence(partition, records).end_offset)

    def put(self, record: NewRecord, *, producer_id: int, base_sequence: int) -> Offset:
        """Append one message, numbered by its producer if it has one; returns the offset past it."""
        epoch = -1 if producer_id == NO_PRODUCER else NATIVE_EPOCH
        sequenced = sequence(
            self.known(), [record], producer_id=producer_id, epoch=epoch, first_sequence=base_sequence
        )
        return sequenced.end_offset

    async def read(self, *, end: Offset) -> AsyncIterator[Sequence[Record]]:
        """Every record below `end`, in portions."""
        partition = self.known()
        async for portion in _portions(partition, partition.start_offset, end):
            yield list(portion.records())


async def _portions(partition: Partition, start: int, end: int) -> AsyncIterator[Portion]:
    """What lies from `start` to before `end`, which must be durable.

    Up to the high watermark: a message of the broker's own counts as soon as it is durable, whether or not a
    client's transaction is open before it.
    """
    offset = start
    while offset < end:
        portion = await read(partition, offset, bytes_max=_PIECE_BYTES, end=end, read_uncommitted=True)
        yield portion
        assert portion.next_offset > offset, "the end is not durable"
        offset = portion.next_offset


async def find_delayed_ids(
    partition: Partition, *, start: Offset, end: Offset, header: str, ids: Iterable[str]
) -> set[str]:
    """Those of `ids` that records of the partition from `start` up to `end` carry in a header."""
    wanted = {each.encode() for each in ids}
    found: set[str] = set()

    def visit(record: Record) -> bool:
        found.update(
            value.decode()
            for name, value in record.headers
            if name == header and value in wanted and value is not None
        )
        return False

    async for portion in _portions(partition, max(start, partition.start_offset), end):
        await portion.visit(visit, on_damage=pass_over)  # a broken batch is a client's, not ours
    return found
