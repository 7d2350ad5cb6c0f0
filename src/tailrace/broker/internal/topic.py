"""An internal topic of the broker's own, behind the port `internal.log`.

A compacted topic like any other, but made by the broker when somebody first needs it and hidden from whoever
does not ask for internal topics.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence

from tailrace.broker.partition import ACKS_ALL, Partition
from tailrace.broker.sequence import sequence
from tailrace.broker.topic import NewTopic, Topic
from tailrace.broker.topics import Topics
from tailrace.broker.visible_records import read
from tailrace.model import BrokerError, ErrorCode, Offset
from tailrace.records import NewRecord, Visible
from tailrace.storage.api import Waiter

_READ_BYTES = 1 << 20
_SEGMENT_BYTES = 64 << 20  # small, so that compaction has something to do


def internal_configs(segment_bytes: int = _SEGMENT_BYTES) -> dict[str, str]:
    """The settings with which such a topic is created."""
    return {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes)}


class InternalTopic:
    """The partitions of one internal topic, by number."""

    def __init__(
        self,
        topics: Topics,
        *,
        name: str,
        partitions: int,
        segment_bytes: int = _SEGMENT_BYTES,
        configs: Mapping[str, str] | None = None,
    ) -> None:
        """`configs` are settings with which it is created, beside those of every internal topic."""
        self.name = name
        self._topics = topics
        self._partitions_wanted = partitions
        self._configs = internal_configs(segment_bytes) | dict(configs or {})

    def __repr__(self) -> str:
        return f"<InternalTopic {self.name}, {self.partitions} partitions>"

    @property
    def partitions(self) -> int:
        topic = self._topic()
        return len(topic.partitions) if topic is not None else 0

    def leads(self, partition: int) -> bool:
        topic = self._topic()
        return (
            topic is not None
            and partition < len(topic.partitions)
            and topic.partitions[partition].is_led_here
        )

    def leader_epoch(self, partition: int) -> int:
        """The epoch in which the partition is led."""
        return self._partition(partition).leader_epoch

    async def ensure(self) -> None:
        new = NewTopic(
            name=self.name,
            partitions=self._partitions_wanted,
            configs=self._configs,
            internal=True,
        )
        await self._topics.ensure(new)

    def sequence(self, partition: int, records: Sequence[NewRecord]) -> Offset:
        return sequence(self._partition(partition), records).end_offset

    def sequence_transactional(
        self, partition: int, records: Sequence[NewRecord], *, producer_id: int, producer_epoch: int
    ) -> Offset:
        return sequence(
            self._partition(partition),
            records,
            producer_id=producer_id,
            epoch=producer_epoch,
            transactional=True,
        ).end_offset

    def end_offset(self, partition: int) -> Offset:
        return self._partition(partition).end_offset

    def acknowledged(self, partition: int, end: Offset, waiter: Waiter) -> None:
        self._partition(partition).acknowledged(end, ACKS_ALL, waiter)

    async def read(self, partition: int, *, shows_control: bool = False) -> AsyncIterator[Visible]:
        place = self._partition(partition)
        offset: int = place.start_offset
        end = place.end_offset  # open transactions included: state is loaded as far as it was written
        if place.high_watermark < end:
            await place.wait_acknowledged(end)
        while offset < end:
            portion = await read(place, offset, bytes_max=_READ_BYTES, end=end, read_uncommitted=True)
            for batch in portion.batches(shows_control=shows_control):
                yield batch
            offset = portion.next_offset

    def _topic(self) -> Topic | None:
        return self._topics.get(self.name)

    def _partition(self, partition: int) -> Partition:
        topic = self._topic()
        if topic is None or partition >= len(topic.partitions):
            raise BrokerError(
                f"{self.name}-{partition} does not exist yet", code=ErrorCode.COORDINATOR_NOT_AVAILABLE
            )
        return topic.partitions[partition]
