"""Recovery: from whatever a crash left to a directory that serves.

Read the checkpoint and every round above it; sync the journal before any other write; plan; examine what must
already be there; write the surviving inline batches, cut every planned segment to its length, remove what the
plan does not know; sync; checkpoint; serve. It may be killed at any call, any number of times: until the new
checkpoint is durable, the next run finds the same journal and makes the same plan.

Caches are dropped before reading: after a failed sync the page cache holds what the disk does not.

Damage below what was acknowledged is never cut. If it touches the journal or the checkpoint the directory does
not open; if it touches one partition, that partition is quarantined: its files stay as they are, what is
readable is served, and appends are refused.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from itertools import pairwise

from tailrace.model import LogDamaged, Offset, StorageError
from tailrace.records import HEADER_BYTES, BatchError, iter_batches, read_batch
from tailrace.runtime import Disk, File
from tailrace.storage.api import LogConfig
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates
from tailrace.storage.segment.apply import read_open_span, remove_partition
from tailrace.storage.segment.cache import read_file, scan_segment
from tailrace.storage.segment.checkpoint import NONE, Checkpoint, read_checkpoint
from tailrace.storage.segment.checkpointing import write_checkpoint_file
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.entry import REFERENCED, Append
from tailrace.storage.segment.index import IndexState, SpanIndex, read_index
from tailrace.storage.segment.journal import Journal, JournalFile, read_header, read_rounds
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.names import (
    CHECKPOINT,
    DELETED,
    JOURNAL_DIRECTORY,
    STRAY,
    journal_file,
    numbered,
    read_journal_file,
    read_numbered,
    read_partition_directory,
)
from tailrace.storage.segment.plan import JournalContent, Plan, damage, plan_recovery, read_journal
from tailrace.storage.segment.segment import Segment
from tailrace.storage.segment.shape import wholly_below

logger = logging.getLogger(__name__)

_RUN_BYTES = 1 << 20
_SCAN_BYTES = 1 << 20


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


class Recovery:
    """One run over one directory."""

    def __init__(self, directory: Directory, journal: Journal) -> None:
        self._directory = directory
        self._disk: Disk = directory.disk
        self._journal = journal

    async def run(self) -> None:
        """Leave the directory's logs as they were acknowledged. The caller checkpoints, then serves."""
        data = await read_file(self._disk, CHECKPOINT, fresh=True)
        if data is None:
            await self._format()
            return
        checkpoint = read_checkpoint(memoryview(data))
        if checkpoint is None:
            raise damage(CHECKPOINT, "the checkpoint is unreadable")
        content = await self._read_journal(checkpoint)
        for file in self._journal.files:
            await file.file.sync()
        plans, deleted, greatest_life = plan_recovery(checkpoint.rows, content.rounds)
        found = [await self._examine(plan) for plan in plans]
        for each in found:
            await self._restore(each)
        await self._remove_others({plan.path for plan in plans}, deleted)
        await self._disk.sync_directory("")
        directory = self._directory
        directory.durable_lsn = directory.applied_lsn = content.last_lsn
        directory.checkpointed_lsn = checkpoint.lsn
        directory.next_life = max(checkpoint.next_life, greatest_life + 1)
        self._journal.synced_lsn = content.last_lsn
        for each in found:
            await self._adopt(each)

    # ---- a new directory

    async def _format(self) -> None:
        names = await self._disk.list("")
        if any(read_partition_directory(name.rstrip("/")) for name in names):
            raise damage(CHECKPOINT, "the checkpoint is missing, and partitions are there")
        if JOURNAL_DIRECTORY + "/" in names:
            await self._check_unused()
        else:
            await self._disk.make_directory(JOURNAL_DIRECTORY)
        self._journal.files.append(await self._journal.create_file())
        await self._disk.sync_directory("")
        await write_checkpoint_file(
            self._directory, Checkpoint(lsn=0, next_life=1, journal_files=(1,), rows=())
        )

    async def _check_unused(self) -> None:
        """A crash while formatting leaves journal files without rounds; others mean that CHECKPOINT was lost."""
        for name in await self._disk.list(JOURNAL_DIRECTORY):
            data = memoryview(await read_file(self._disk, f"{JOURNAL_DIRECTORY}/{name}", fresh=True) or b"")
            header = read_header(data)
            if header is not None and any(True for _ in read_rounds(data, header)):
                raise damage(CHECKPOINT, "the checkpoint is missing, and the journal holds rounds")

    # ---- the journal

    async def _read_journal(self, checkpoint: Checkpoint) -> JournalContent:
        contents: dict[int, memoryview] = {}
        for number in checkpoint.journal_files:
            try:
                file = await self._disk.open(journal_file(number), fresh=True)
            except FileNotFoundError:
                raise damage(journal_file(number), "the journal file is missing") from None
            data = bytearray(file.size())
            await file.read(0, memoryview(data))
            contents[number] = memoryview(data)
            self._journal.files.append(JournalFile(number, file, len(data)))
        content = read_journal(contents, checkpoint)
        listed = set(checkpoint.journal_files)
        for name in await self._disk.list(JOURNAL_DIRECTORY):
            if read_journal_file(name) not in listed:
                await self._disk.remove(f"{JOURNAL_DIRECTORY}/{name}")  # made for a checkpoint that never was
        return content

    # ---- examine: only reads

    async def _examine(self, plan: Plan) -> Findings:
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
        if plan.row is None and not position:
            return
        file = await self._open(found, base)
        if file is None or file.size() < position:
            self._note_damage(
                found, base, f"{numbered(base, 'log')} is missing or shorter than {position} bytes"
            )
            found.indexes[base].add_unreadable(size=position, next_offset=plan.solid_offset)
            return
        try:
            found.indexes[base] = await self._solid_index(found, file, interval_bytes)
        except LogDamaged as error:
            self._note_damage(found, base, str(error))
            found.indexes[base].add_unreadable(size=position, next_offset=plan.solid_offset)

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
        if index.end > position:
            index = index.cut(position)
        found.persisted = found.persisted.cut(index)
        segment = Segment(base, f"{plan.path}/{numbered(base, 'log')}", file, index, 0)
        try:
            opened = await read_open_span(plan.life, segment, index.end, position)
        except (BatchError, StorageError) as error:
            raise LogDamaged(str(error)) from error
        for append in opened:
            index.add(append.batch)
        if row is not None and plan.solid == (row.segment, row.length) and index.open_crc != row.open_crc:
            raise LogDamaged(f"{segment.path}: the last bytes are not what the checkpoint saw")
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
        for run in _runs(plan.surviving()):
            data = None
            if run[0].flags & REFERENCED:
                data = await self._read_run(found, run)
            place = 0
            for append in run:
                size = append.batch.size
                if data is None:
                    self._index_of(found, append).add(append.batch)
                elif _is_whole(append, data[place : place + size]):
                    self._index_of(found, append).add(read_batch(data, place))
                elif plan.cut_loose(append):
                    logger.warning(
                        "log ends at offset %d after a crash, as fsync = os or interval allows: %s",
                        plan.shape.end,
                        plan.path,
                    )
                    return
                else:
                    offset = append.batch.base_offset
                    self._note_damage(
                        found, offset, f"the acknowledged batch at offset {offset} is unreadable"
                    )
                    self._index_of(found, append).add_unreadable(
                        size=size, next_offset=append.batch.next_offset, header=append.batch.data
                    )
                place += size

    async def _read_run(self, found: Findings, run: list[Append]) -> memoryview:
        size = run[-1].position + run[-1].batch.size - run[0].position
        file = await self._open(found, run[0].segment)
        data = bytearray(size)
        if file is not None:
            await file.read(run[0].position, memoryview(data))
        return memoryview(data)

    def _index_of(self, found: Findings, append: Append) -> SpanIndex:
        index = found.indexes.get(append.segment)
        if index is None:
            index = found.indexes[append.segment] = SpanIndex(
                append.segment, LogConfig().index_interval_bytes
            )
        return index

    async def _open(self, found: Findings, base: int) -> File | None:
        if base not in found.files:
            try:
                found.files[base] = await self._disk.open(
                    f"{found.plan.path}/{numbered(base, 'log')}", fresh=True
                )
            except FileNotFoundError:
                return None
        return found.files[base]

    def _note_damage(self, found: Findings, offset: int, reason: str) -> None:
        plan = found.plan
        logger.error("partition quarantined: %s: %s", plan.path, reason)
        plan.damaged = offset if plan.damaged == NONE else min(plan.damaged, offset)

    # ---- restore: the files become what the plan says

    async def _restore(self, found: Findings) -> None:
        plan, disk = found.plan, self._disk
        if found.names is None:
            await disk.make_directory(plan.path)
            found.names = []
        if plan.damaged == NONE:
            for name in _unplanned(found):
                await disk.remove(f"{plan.path}/{name}")
                found.names.remove(name)
        await self._create_missing(found)
        for run in _runs(plan.surviving()):
            if not run[0].flags & REFERENCED:
                await found.files[run[0].segment].write(
                    run[0].position, [append.batch.data for append in run]
                )
        for base, length in plan.shape.segments.items():
            if plan.damaged == NONE:
                await found.files[base].truncate(length)
            await found.files[base].sync(bulk=True)
        await disk.sync_directory(plan.path)

    async def _create_missing(self, found: Findings) -> None:
        """A new segment is durable in its directory before its first byte."""
        created = False
        for base in found.plan.shape.segments:
            if await self._open(found, base) is None:
                found.files[base] = await self._disk.create(f"{found.plan.path}/{numbered(base, 'log')}")
                created = True
        if created:
            await self._disk.sync_directory(found.plan.path)

    async def _remove_others(self, known: set[str], deleted: set[str]) -> None:
        """Finish deletions; what nobody knows is put aside and reported, never removed."""
        for entry in await self._disk.list(""):
            name = entry.rstrip("/")
            if name == entry or name == JOURNAL_DIRECTORY or name in known or name.startswith(STRAY):
                continue
            if name in deleted or name.startswith(DELETED):
                await remove_partition(self._directory, name)
            elif read_partition_directory(name) is not None:
                logger.warning("partition directory that nothing knows, put aside: %s", STRAY + name)
                await self._disk.rename(name, STRAY + name)

    # ---- adopt: the logs serve

    async def _adopt(self, found: Findings) -> None:
        plan, directory = found.plan, self._directory
        log = SegmentLog(
            directory,
            life=plan.life,
            partition_id=plan.partition_id,
            config=LogConfig(),
            start=plan.shape.start,
            end=plan.shape.end,
        )
        log.damaged = plan.damaged
        directory.logs[plan.life] = log
        directory.serving[plan.partition_id] = log
        await self._adopt_segments(found, log)
        await self._adopt_state(found, log)
        if plan.damaged != NONE:
            log.quarantine(
                plan.damaged,
                LogDamaged(
                    f"{plan.path}: acknowledged data from offset {plan.damaged} on is damaged. Nothing was cut; "
                    "what is readable is served, appends are refused"
                ),
            )

    async def _adopt_segments(self, found: Findings, log: SegmentLog) -> None:
        plan, now_ms = found.plan, self._directory.clock.steady_ms()
        planned = plan.shape.segments
        for base in planned:  # one that begins empty was not met on the way
            found.indexes.setdefault(base, SpanIndex(base, log.config.index_interval_bytes))
        for base, following in pairwise(planned):
            found.indexes[base].seal(following)
        sealed = {base for base in found.bases if base <= plan.solid[0]} - set(planned)
        for base in sorted(sealed | set(planned)):
            segment = Segment(
                base, log.segment_path(base), found.files.get(base), found.indexes.get(base), now_ms
            )
            log.segments[base] = segment
            if base not in planned:
                await self._adopt_sealed(segment)
        for base in wholly_below(log.segments, plan.shape.start):
            del log.segments[base]
        if min(log.segments) > plan.shape.start and plan.damaged == NONE:
            self._note_damage(found, plan.shape.start, f"the segments before {min(log.segments)} are missing")
        last = log.applied_segment = log.segments[plan.shape.last()[0]]
        assert last.index is not None
        last.persisted = found.persisted if last.base == plan.solid[0] else IndexState()
        for base in list(planned)[:-1]:
            log.segments[base].sealed = True
        opened = await read_open_span(plan.life, last, last.index.closed_position, last.index.end)
        log.tail.put_back(opened)
        self._directory.tail_bytes += log.tail.bytes
        log.resume(segment=last.base, position=last.length)

    async def _adopt_sealed(self, segment: Segment) -> None:
        file = await self._disk.open(segment.path)
        segment.length = file.size()
        segment.sealed = segment.persisted_whole = True
        file.close()

    async def _adopt_state(self, found: Findings, log: SegmentLog) -> None:
        """Epochs and producers: from the snapshot, then from what the journal brought."""
        plan, row = found.plan, found.plan.row
        known = None
        if row is not None and row.snapshot != NONE and plan.solid_offset == row.end:
            known = await self._directory.snapshots.load(plan.path, row.snapshot)
            log.snapshot = row.snapshot
        if known is None:
            known = await self._rebuild_state(log, plan)
            log.snapshot = NONE
        log.state_changed = log.snapshot == NONE or bool(plan.appends)
        log.epochs, log.producers = known
        for append in plan.surviving():
            log.epochs.apply(append.batch.leader_epoch, append.batch.base_offset)
            log.producers.apply(append.batch)
        log.epochs.trim(plan.shape.start)
        log.applied_epochs, log.applied_producers = log.epochs.copy(), log.producers.copy()

    async def _rebuild_state(self, log: SegmentLog, plan: Plan) -> tuple[LeaderEpochs, ProducerStates]:
        """The state at the end of the solid part, from an older snapshot and the log behind it."""
        epochs, producers, place = LeaderEpochs(), ProducerStates(), plan.shape.start
        for offset in sorted(await self._directory.snapshots.offsets(plan.path), reverse=True):
            snapshot = await self._directory.snapshots.load(plan.path, offset)
            if offset <= plan.solid_offset and snapshot is not None:
                epochs, producers = snapshot
                place = max(place, Offset(offset))
                break
        while place < plan.solid_offset:
            try:
                piece = await log.read(place, bytes_max=_SCAN_BYTES)
                data = await piece.load()
            except LogDamaged as error:
                self._note_damage(Findings(plan, None), place, str(error))
                break
            for batch in iter_batches(data):
                if batch.next_offset <= plan.solid_offset:
                    epochs.apply(batch.leader_epoch, batch.base_offset)
                    producers.apply(batch)
            place = piece.next_offset
        return epochs, producers


def _runs(appends: list[Append]) -> list[list[Append]]:
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
    return read_batch(data).check_crc()


def _unplanned(found: Findings) -> list[str]:
    """Names that are not part of the partition: segments the plan does not know from the end of the solid part
    on, what lies below the start, snapshots past the solid part, unfinished files."""
    plan = found.plan
    known = {base for base in found.bases if base <= plan.solid[0]} | set(plan.shape.segments)
    known.difference_update(wholly_below(known, plan.shape.start))
    names = {numbered(base, suffix) for base in known for suffix in ("log", "index", "timeindex")}

    def planned(name: str) -> bool:
        offset = read_numbered(name, "snapshot")
        return name in names if offset is None else offset <= plan.solid_offset

    return [name for name in found.names or [] if not planned(name)]
