"""Retention: whole segments go, oldest first, when they are past their time or the log is past its size.

A segment is past its time when its greatest timestamp is; one record of the future keeps its segment, and
so everything after it. Where no record carries a timestamp (-1) the segment's last write counts, or the start
of the process if that came later. Time comes from a clock that does not jump. When nothing is left but
expired data the log is trimmed to its end, and the newest segment goes as well. A segment stays while one of
its records is not final: a truncation may still take that record back.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.model import LogDamaged, Offset
from tailrace.storage.api import NO_LIMIT, LogConfig
from tailrace.storage.segment.index import NO_TIMESTAMP

if TYPE_CHECKING:
    from tailrace.storage.segment.cache import SegmentCache
    from tailrace.storage.segment.log import SegmentLog


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What is asked of a segment; `next_base` is where the following one begins, or the log ends."""

    base: int
    next_base: int
    bytes: int
    max_timestamp: int | None  # None: not known, so it stays


def plan_retention(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, start: Offset, final_before: Offset
) -> Offset | None:
    """The offset to trim to, or None. `segments` are all of them, oldest first."""
    oldest_ms = now_ms - config.retention_ms if config.retention_ms != NO_LIMIT else NO_TIMESTAMP
    excess = sum(segment.bytes for segment in segments) - config.retention_bytes
    if config.retention_bytes == NO_LIMIT:
        excess = 0
    trim_to = start
    for place, segment in enumerate(segments):
        expired = (
            segment.max_timestamp is not None and segment.max_timestamp < oldest_ms and segment.bytes > 0
        )
        # By size a segment goes only if what is left still fills the bound, and never the newest.
        oversize = excess >= segment.bytes > 0 and place < len(segments) - 1
        empty = not segment.bytes and place < len(segments) - 1
        if not (expired or oversize or empty) or segment.next_base > final_before:
            break
        excess -= segment.bytes
        trim_to = Offset(max(trim_to, segment.next_base))
    return trim_to if trim_to > start else None


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
