"""What recovery finds before it writes: is everything there that the plan takes from the files?

Only reads. The part of the newest checkpointed segment that the files must hold (the solid part) is checked
against its index and the checkpoint; every batch that was written by reference is checked against the header
that the journal holds. On the way the indexes of all planned segments are made, since every byte passes by.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from tailrace.model import LogDamaged, StorageError
from tailrace.records import HEADER_BYTES, UNCHECKED_BYTES, Batch, BatchError, crc32c
from tailrace.runtime import Disk, File
from tailrace.storage.api import LogConfig
from tailrace.storage.segment.apply import read_open_span
from tailrace.storage.segment.cache import read_file, scan_segment
from tailrace.storage.segment.checkpoint import NONE, Row
from tailrace.storage.segment.entry import REFERENCED, Append
from tailrace.storage.segment.index import IndexState, SpanIndex, read_index
from tailrace.storage.segment.names import numbered, read_numbered
from tailrace.storage.segment.plan import Plan
from tailrace.storage.segment.segment import Segment

logger = logging.getLogger(__name__)

_RUN_BYTES = 1 << 20


@dataclass(slots=True)
class Findings:
    """What was found of one partition, and what its indexes will be."""

    plan: Plan
    names: list[str] | None  # of its directory; None if that is missing
    files: dict[int, File] = field(default_factory=dict)
    indexes: dict[int, SpanIndex] = field(default_factory=dict)  # of the planned segments
    persisted: IndexState = field(default_factory=IndexState)  # of the one that the checkpoint knew

    @property
    def bases(self) -> list[int]:
        """Base offsets of the segments that are there, ascending."""
        found = (read_numbered(name, "log") for name in self.names or [])
        return sorted(base for base in found if base is not None)

    def note_damage(self, offset: int, reason: str) -> None:
        """Acknowledged bytes at or after `offset` are not what was written."""
        plan = self.plan
        logger.error("partition quarantined: %s: %s", plan.path, reason)
        plan.damaged = offset if plan.damaged == NONE else min(plan.damaged, offset)


class Examiner:
    """Looks at the partitions of a directory."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk

    async def examine(self, plan: Plan) -> Findings:
        try:
            names: list[str] | None = await self._disk.list(plan.path)
        except FileNotFoundError:
            names = None
        found = Findings(plan, names)
        await self._examine_solid(found)
        await self._examine_appends(found)
        return found

    async def _examine_solid(self, found: Findings) -> None:
        """The part of the newest checkpointed segment that the files hold."""
        plan = found.plan
        base, position = plan.solid
        if base not in plan.shape.segments:
            return
        interval_bytes = LogConfig().index_interval_bytes
        found.indexes[base] = SpanIndex(base, interval_bytes)
        if not position:
            return  # nothing of it is solid: a truncation may be about to create it
        file = await self.open(found, base)
        if file is None or file.size() < position:
            found.note_damage(base, f"{numbered(base, 'log')} is missing or shorter than {position} bytes")
            found.indexes[base].add_unreadable(offset=base, size=position, next_offset=plan.solid_offset)
            return
        try:
            found.indexes[base] = await self._solid_index(found, file, interval_bytes)
        except LogDamaged as error:
            found.note_damage(base, str(error))
            found.indexes[base].add_unreadable(offset=base, size=position, next_offset=plan.solid_offset)

    async def _solid_index(self, found: Findings, file: File, interval_bytes: int) -> SpanIndex:
        plan, row = found.plan, found.plan.row
        base, position = plan.solid
        index = await self._load_index(found, base, interval_bytes)
        if index is None:
            return await scan_segment(
                file,
                f"{plan.path}/{numbered(base, 'log')}",
                base=base,
                length=position,
                interval_bytes=interval_bytes,
                seal=False,
            )
        index = index.cut(position, offset=plan.solid_offset)
        found.persisted = found.persisted.cut(index)
        segment = Segment(base, f"{plan.path}/{numbered(base, 'log')}", file, index, 0)
        try:
            opened = await read_open_span(plan.life, segment, index.end, position)
            if row is not None and plan.solid == (row.segment, row.length):
                _check_open_span(opened, row)
        except (BatchError, LogDamaged, StorageError) as error:
            found.note_damage(index.closed_offset, str(error))
            index.add_unreadable(
                offset=index.closed_offset, size=position - index.end, next_offset=plan.solid_offset
            )
            return index
        for append in opened:
            index.add(append.batch)
        return index

    async def _load_index(self, found: Findings, base: int, interval_bytes: int) -> SpanIndex | None:
        plan, row = found.plan, found.plan.row
        if row is None:
            return None
        stem = f"{plan.path}/{numbered(base, '')}"
        places = await read_file(self._disk, stem + "index", fresh=True)
        times = await read_file(self._disk, stem + "timeindex", fresh=True)
        state = None
        if base == row.segment:
            state = IndexState(row.index_entries, row.index_crc, row.time_crc)
            if not row.index_entries:
                return SpanIndex(base, interval_bytes)
        if places is None or times is None:
            return None
        index = read_index(places, times, base=base, interval_bytes=interval_bytes, state=state)
        if index is not None and state is not None:
            found.persisted = state
        return index

    async def _examine_appends(self, found: Findings) -> None:
        """Check every batch that was written by reference, and index what survives."""
        plan = found.plan
        for run in runs_of(plan.surviving()):
            data = None
            if run[0].flags & REFERENCED:
                data = await self._read_run(found, run)
            place = 0
            for append in run:
                size = append.batch.size
                if data is None:
                    self._index_of(found, append).add(append.batch)
                elif _is_whole(append, piece := data[place : place + size]):
                    self._index_of(found, append).add(Batch(piece))
                elif plan.cut_loose(append):
                    logger.warning(
                        "log ends at offset %d after a crash, as fsync = os or interval allows: %s",
                        plan.shape.end,
                        plan.path,
                    )
                    return
                else:
                    offset = append.batch.base_offset
                    found.note_damage(offset, f"the acknowledged batch at offset {offset} is unreadable")
                    self._index_of(found, append).add_unreadable(
                        offset=offset,
                        size=size,
                        next_offset=append.batch.next_offset,
                        header=append.batch.data,
                    )
                place += size

    async def _read_run(self, found: Findings, run: list[Append]) -> memoryview:
        size = run[-1].position + run[-1].batch.size - run[0].position
        file = await self.open(found, run[0].segment)
        data = bytearray(size)
        done = 0 if file is None else await file.read(run[0].position, memoryview(data))
        return memoryview(data)[:done]

    def _index_of(self, found: Findings, append: Append) -> SpanIndex:
        index = found.indexes.get(append.segment)
        if index is None:
            index = found.indexes[append.segment] = SpanIndex(
                append.segment, LogConfig().index_interval_bytes
            )
        return index

    async def open(self, found: Findings, base: int) -> File | None:
        if base not in found.files:
            try:
                found.files[base] = await self._disk.open(
                    f"{found.plan.path}/{numbered(base, 'log')}", fresh=True
                )
            except FileNotFoundError:
                return None
        return found.files[base]


def _check_open_span(opened: list[Append], row: Row) -> None:
    """The bytes behind the last index entry are those that the checkpoint saw."""
    crc = 0
    for append in opened:
        crc = crc32c(append.stored.data, crc)
    if crc != row.open_crc:
        raise LogDamaged(
            f"the last {sum(a.batch.size for a in opened)} bytes are not what the checkpoint saw"
        )


def runs_of(appends: list[Append]) -> list[list[Append]]:
    """Appends that lie one after the other and came the same way, in pieces of about a MiB."""
    runs: list[list[Append]] = []
    size = 0
    for append in appends:
        last = runs[-1][-1] if runs else None
        if (
            last is not None
            and last.segment == append.segment
            and last.position + last.batch.size == append.position
            and (last.flags ^ append.flags) & REFERENCED == 0
            and size + append.batch.size <= _RUN_BYTES
        ):
            runs[-1].append(append)
            size += append.batch.size
        else:
            runs.append([append])
            size = append.batch.size
    return runs


def _is_whole(append: Append, data: memoryview) -> bool:
    """Whether the bytes are the batch whose header the journal holds."""
    if bytes(data[:HEADER_BYTES]) != bytes(append.batch.data[:HEADER_BYTES]):
        return False
    return crc32c(data[UNCHECKED_BYTES:]) == append.batch.crc
