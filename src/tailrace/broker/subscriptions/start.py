"""Where a subscription begins in a partition, or is moved to."""

from __future__ import annotations

from tailrace.broker.partition import Partition
from tailrace.broker.subscriptions.definition import Start
from tailrace.model import Offset, OffsetOutOfRange


async def resolve_start(start: Start, partition: Partition) -> int:
    """The offset that a start means in a partition, now. What retention took away does not count."""
    first, end = partition.start_offset, partition.last_stable_offset
    if start.kind == "earliest":
        return first
    if start.kind == "latest":
        return end
    if start.kind == "time":
        found = await partition.find_timestamp(start.value, up_to=end)
        return end if found is None else found.offset
    if start.value > partition.high_watermark:
        raise OffsetOutOfRange(Offset(start.value), start=first, end=partition.high_watermark)
    return max(start.value, first)
