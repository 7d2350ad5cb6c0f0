"""The internal topic `__consumer_offsets`, behind the port of the group coordinator (`groups.ports`).

A compacted topic like any other, but made by the broker when the first group needs it and hidden from whoever
does not ask for internal topics.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence

from tailrace.broker.groups.ports import OFFSETS_TOPIC
from tailrace.broker.partition import Partition
from tailrace.broker.topic import NewTopic
from tailrace.broker.topics import Topics
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import Batch, NewRecord, build_batch, iter_batches, read_batch

_READ_BYTES = 1 << 20
_SEGMENT_BYTES = 64 << 20  # small, so that compaction has something to do


class OffsetsTopic:
    """The partitions of the internal topic, by number."""

    def __init__(self, topics: Topics, *, partitions: int) -> None:
        self._topics = topics
        self._partitions_wanted = partitions

    @property
    def partitions(self) -> int:
        topic = self._topics.get(OFFSETS_TOPIC)
        return len(topic.partitions) if topic is not None else 0

    def leads(self, partition: int) -> bool:
        topic = self._topics.get(OFFSETS_TOPIC)
        return (
            topic is not None
            and partition < len(topic.partitions)
            and topic.partitions[partition].is_led_here
        )

    async def ensure(self) -> None:
        if self._topics.get(OFFSETS_TOPIC) is not None:
            return
        new = NewTopic(
            name=OFFSETS_TOPIC,
            partitions=self._partitions_wanted,
            configs={"cleanup.policy": "compact", "segment.bytes": str(_SEGMENT_BYTES)},
            internal=True,
        )
        try:
            await self._topics.create(new)
        except BrokerError as error:
            if error.code != ErrorCode.TOPIC_ALREADY_EXISTS:  # another group was first
                raise

    async def append(self, partition: int, records: Sequence[NewRecord]) -> None:
        place = self._partition(partition)
        appended = place.append(read_batch(build_batch(records)))
        await place.wait_durable(appended.end_offset)

    async def read(self, partition: int) -> AsyncIterator[Batch]:
        place = self._partition(partition)
        offset, end = place.start_offset, place.high_watermark
        while offset < end:
            piece = await place.read(offset, bytes_max=_READ_BYTES)
            for batch in iter_batches(await piece.load()):
                yield batch
            offset = piece.next_offset

    def _partition(self, partition: int) -> Partition:
        topic = self._topics.get(OFFSETS_TOPIC)
        if topic is None or partition >= len(topic.partitions):
            raise BrokerError(
                f"{OFFSETS_TOPIC}-{partition} does not exist yet", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        return topic.partitions[partition]
