"""Segment files on their way into being: created, made durable by name, given room.

A new segment file is durable in its directory before its first byte: else a power cut could keep the
journal's proof of a batch and lose the file that holds it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.storage.segment.index import SpanIndex
from tailrace.storage.segment.segment import Segment

if TYPE_CHECKING:
    from tailrace.storage.segment.directory import Directory
    from tailrace.storage.segment.log import SegmentLog

_RESERVE_BYTES_MAX = 32 << 20


async def prepare_segment(directory: Directory, log: SegmentLog, base: int, end: int) -> Segment:
    """The segment `base` of a log, with room for the bytes below `end`; OSError if there is none."""
    segment = log.segments.get(base)
    if segment is None:
        segment = await create_segment(directory, log, base)
    if end > segment.reserved:
        await _reserve(directory, log, segment, end)
    return segment


async def create_segment(directory: Directory, log: SegmentLog, base: int) -> Segment:
    """A new, empty segment. The committer and the applier may both want it: the second finds it there."""
    async with log.creation_lock:
        segment = log.segments.get(base)
        if segment is None:
            path = log.segment_path(base)
            file = await directory.disk.create(path)
            await directory.disk.sync_directory(log.path)
            index = SpanIndex(base, log.config.index_interval_bytes)
            segment = Segment(base, path, file, index, directory.clock.steady_ms(), log.cipher)
            log.add_segment(segment)
        return segment


async def _reserve(directory: Directory, log: SegmentLog, segment: Segment, end: int) -> None:
    """Room ahead, in growing steps, so that a full disk is met before a batch depends on it."""
    assert segment.file is not None
    step = max(directory.config.reserve_bytes, min(segment.length, _RESERVE_BYTES_MAX))
    wanted = max(end, min(end + step, log.config.segment_bytes))
    await segment.file.reserve(wanted)
    segment.reserved = wanted
    directory.check_space()
