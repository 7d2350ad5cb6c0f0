"""The runs of pipelines, as they tell of themselves in the topic `__tailrace_pipelines`.

The topic is read piece by piece, so that a long one does not keep the loop from other work, and what was read
is remembered, so that the next look costs what is new since. What a run tells is not trusted: any client may
write to a topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from uuid import UUID

from tailrace.broker.gate import Access
from tailrace.broker.partition import Partition
from tailrace.broker.visible_records import read
from tailrace.model import BrokerError, ErrorCode, OffsetOutOfRange, TopicPartition
from tailrace.records import Record, pass_over
from tailrace.wire.json.run_record import TOPIC, RunFold, RunRecord

RUNS_PLACE = TopicPartition(TOPIC, 0)
_READ_BYTES = 256 * 1024
_FOLDED_BYTES_MAX = 32 << 20  # past this all of it is read again, and no more than that is remembered
_LAKE_CHARS_MAX = 200


class Runs:
    """The runs as far as the topic was read.

    It begins anew where what was read is not what is there: another topic of that name, or one whose oldest
    records were deleted. And every so often, because what it holds is bounded by what it has read.
    """

    def __init__(self) -> None:
        self._reading = asyncio.Lock()
        self._begin(None, 0)

    async def read(self, access: Access) -> list[RunRecord]:
        """Every run that the topic tells of, newest first; none where there is no such topic."""
        async with self._reading:
            try:
                partition = access.readable(RUNS_PLACE)
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                self._begin(None, 0)
                return []
            if not self._goes_on(partition):
                self._begin(partition.id.topic_id, partition.start_offset)
            await self._read_on(partition)
            return self._fold.runs()

    def _begin(self, topic_id: UUID | None, offset: int) -> None:
        self._topic_id = topic_id
        self._begun = self._offset = offset
        self._fold = RunFold()
        self._folded_bytes = 0

    def _goes_on(self, partition: Partition) -> bool:
        is_whole = partition.start_offset <= self._begun and self._offset <= partition.high_watermark
        return (
            partition.id.topic_id == self._topic_id and is_whole and self._folded_bytes <= _FOLDED_BYTES_MAX
        )

    async def _read_on(self, partition: Partition) -> None:
        """Take what was written until now; what is read is taken, also if the rest cannot be."""
        end = partition.last_stable_offset
        while self._offset < end:
            try:
                portion = await read(partition, self._offset, bytes_max=_READ_BYTES, end=end)
            except OffsetOutOfRange:
                if partition.start_offset <= self._offset:
                    break
                self._begin(self._topic_id, partition.start_offset)  # the oldest went meanwhile
                continue
            await portion.visit(self._take, on_damage=pass_over)  # any client may write to a topic
            self._folded_bytes += len(portion.data)
            if portion.next_offset <= self._offset:
                break
            self._offset = portion.next_offset

    def _take(self, record: Record) -> bool:
        self._fold.take(record.key, record.value)
        return False


def missing_offsets(runs: Iterable[RunRecord]) -> dict[tuple[str, str, str], int]:
    """How many offsets lakes miss, by lake, topic and partition: what the newest run of each told."""
    told: set[tuple[str, str]] = set()
    missing: dict[tuple[str, str, str], int] = {}
    for run in runs:
        lake, counts = run.config.get("to"), (run.progress or {}).get("missing_offsets")
        offsets = (run.progress or {}).get("offsets")
        if run.pipeline != "archive" or not isinstance(lake, str):
            continue
        if not isinstance(counts, dict) or not isinstance(offsets, dict):
            continue
        for topic in offsets:
            if (lake, topic) in told:
                continue
            told.add((lake, topic))
            partitions = counts.get(topic)
            for partition, count in partitions.items() if isinstance(partitions, dict) else ():
                if partition.isdecimal() and isinstance(count, int) and count > 0:
                    missing[lake[:_LAKE_CHARS_MAX], topic, partition] = count
    return missing
