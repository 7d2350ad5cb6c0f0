"""What retention asks of the segments of a log; the decision is `tailrace.storage.retention`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.model import LogDamaged
from tailrace.storage.retention import SegmentFacts

if TYPE_CHECKING:
    from tailrace.storage.segment.cache import SegmentCache
    from tailrace.storage.segment.log import SegmentLog


async def segment_facts(log: SegmentLog, cache: SegmentCache) -> list[SegmentFacts]:
    """The facts of every applied segment; indexes that are not in memory are loaded."""
    segments = list(log.segments.values())
    facts: list[SegmentFacts] = []
    for place, segment in enumerate(segments):
        try:
            while not segment.ready:
                await cache.open(segment, interval_bytes=log.config.index_interval_bytes)
        except (LogDamaged, OSError):  # unreadable for now or for good, or trimmed meanwhile
            max_timestamp = None
        else:
            max_timestamp = segment.newest_ms
        if segment is log.applied_segment and log.applied_end < log.end_offset:
            max_timestamp = None  # newer batches are on their way into it
        next_base = segments[place + 1].base if place + 1 < len(segments) else log.applied_end
        facts.append(
            SegmentFacts(
                base=segment.base, next_base=next_base, bytes=segment.length, max_timestamp=max_timestamp
            )
        )
        if segment is log.applied_segment:
            break
    return facts
