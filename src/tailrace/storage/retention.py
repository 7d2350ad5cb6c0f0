"""Retention, decided purely: whole segments go, oldest first, past their time or over the size of the log.

A segment is a file of the segment engine, a chunk or a day of the tiered one. It is past its time when its
greatest timestamp is; one record of the future keeps its segment, and so everything after it. Where no
record carries a timestamp (-1) the segment's last write counts, or the start of the process if that came
later. Time comes from a clock that does not jump. When nothing is left but expired data the log is trimmed
to its end, and the newest segment goes as well. A segment stays while one of its records is not final: a
truncation may still take that record back.

Where the settings say so, a segment that is due and not wholly archived waits for the archive: until it has
been due for `archive_wait_ms`, and while all that waits is at most `archive_wait_bytes`. By time a segment is
due when its newest record is past retention. By size it is due when the segments after it fill the bound; the
newest record of the segment that filled it tells about when that was.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.model import Offset
from tailrace.storage.api import NO_LIMIT, LogConfig

_LONG_AGO_MS = -(1 << 63)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What is asked of a segment; `next_base` is where the following one begins, or the log ends."""

    base: int
    next_base: int
    bytes: int
    max_timestamp: int | None  # None: not known, so it stays


def plan_retention(
    segments: Sequence[SegmentFacts],
    config: LogConfig,
    *,
    now_ms: int,
    start: Offset,
    final_before: Offset,
    archived_before: Offset,
) -> Offset | None:
    """The offset to trim to, or None. `segments` are all of them, oldest first."""
    due = _count_due(segments, config, now_ms=now_ms, final_before=final_before)
    if config.archive_wait_ms > 0:
        due = _count_unawaited(segments, due, config, now_ms=now_ms, archived_before=archived_before)
    trim_to = Offset(max([start, *(segment.next_base for segment in segments[:due])]))
    return trim_to if trim_to > start else None


def _count_due(
    segments: Sequence[SegmentFacts], config: LogConfig, *, now_ms: int, final_before: Offset
) -> int:
    """How many segments are past retention, from the oldest on."""
    oldest_ms = now_ms - config.retention_ms if config.retention_ms != NO_LIMIT else _LONG_AGO_MS
    excess = sum(segment.bytes for segment in segments) - config.retention_bytes
    if config.retention_bytes == NO_LIMIT:
        excess = 0
    for place, segment in enumerate(segments):
        expired = (
            segment.max_timestamp is not None and segment.max_timestamp < oldest_ms and segment.bytes > 0
        )
        # By size a segment goes only if what is left still fills the bound, and never the newest.
        oversize = excess >= segment.bytes > 0 and place < len(segments) - 1
        empty = not segment.bytes and place < len(segments) - 1
        if not (expired or oversize or empty) or segment.next_base > final_before:
            return place
        excess -= segment.bytes
    return len(segments)


def _count_unawaited(
    segments: Sequence[SegmentFacts], due: int, config: LogConfig, *, now_ms: int, archived_before: Offset
) -> int:
    """How many of the `due` oldest segments go: those that are archived, or have waited for long enough."""
    waiting = sum(segment.bytes for segment in segments[:due] if segment.next_base > archived_before)
    for place, segment in enumerate(segments[:due]):
        if segment.next_base <= archived_before or not segment.bytes:
            continue
        is_too_much = 0 <= config.archive_wait_bytes < waiting
        since_ms = _due_since(segments, place, config)
        if not is_too_much and (since_ms is None or now_ms - since_ms <= config.archive_wait_ms):
            return place
        waiting -= segment.bytes
    return due


def _due_since(segments: Sequence[SegmentFacts], place: int, config: LogConfig) -> int | None:
    """Since when a segment has been past retention, as far as timestamps tell."""
    times = []
    max_timestamp = segments[place].max_timestamp
    if config.retention_ms != NO_LIMIT and max_timestamp is not None:
        times.append(max_timestamp + config.retention_ms)
    if config.retention_bytes != NO_LIMIT:
        after = itertools.accumulate(segment.bytes for segment in segments[place + 1 :])
        filled = [nth for nth, size in enumerate(after, start=place + 1) if size >= config.retention_bytes]
        # The least of them: a record that claims to be of the future must not make the segment wait.
        times += sorted(newest for nth in filled if (newest := segments[nth].max_timestamp) is not None)[:1]
    return min(times, default=None)
