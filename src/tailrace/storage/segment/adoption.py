"""The last step of recovery: logs that serve, over files that are as the plan says."""

from __future__ import annotations

import logging
from collections.abc import Iterable
from itertools import pairwise

from tailrace.model import LogDamaged, Offset
from tailrace.records import iter_batches
from tailrace.storage.aborted import AbortedEntry, AbortedList
from tailrace.storage.api import LogConfig
from tailrace.storage.encryption.layout import is_encrypted
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates
from tailrace.storage.segment.aborted_file import base_of, load_aborted
from tailrace.storage.segment.apply import read_open_span
from tailrace.storage.segment.checkpoint import NONE
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.entry import Append
from tailrace.storage.segment.examination import Findings
from tailrace.storage.segment.index import IndexState, SpanIndex
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.segment import Segment
from tailrace.storage.segment.shape import wholly_below
from tailrace.storage.segment.snapshot import State

logger = logging.getLogger(__name__)

_SCAN_BYTES = 1 << 20


class Adoption:
    """Makes the logs of a directory out of what was found and restored."""

    def __init__(self, directory: Directory) -> None:
        self._directory = directory

    async def adopt(self, found: Findings) -> None:
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
                    f"{plan.path}: acknowledged data is damaged from offset {plan.damaged} on. It is kept; "
                    "what is readable is served, appends are refused. Restore a backup; or copy what is "
                    "readable elsewhere, give up all records of this partition, and go on at offset "
                    f"{plan.shape.end}: tailrace topic purge TOPIC --partition {plan.partition_id.partition}"
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
                base,
                log.segment_path(base),
                found.files.get(base),
                found.indexes.get(base),
                now_ms,
                log.cipher,
            )
            log.segments[base] = segment
            if base not in planned:
                await self._adopt_sealed(segment)
        for base in wholly_below(log.segments, plan.shape.start):
            del log.segments[base]
        if min(log.segments) > plan.shape.start and plan.damaged == NONE:
            found.note_damage(plan.shape.start, f"the segments before {min(log.segments)} are missing")
        last = log.applied_segment = log.segments[plan.shape.last()[0]]
        assert last.index is not None
        last.persisted = found.persisted if last.base == plan.solid[0] else IndexState()
        for base in list(planned)[:-1]:
            log.segments[base].sealed = True
        opened = await read_open_span(plan.life, last, last.index.closed_position, last.index.end)
        if not _decrypt(found, log, opened):
            last.index.close_open(plan.shape.end)  # so that reads find it, and tell that it is damaged
            opened = []
        log.tail.put_back(opened)
        self._directory.tail_bytes += log.tail.bytes
        log.resume(segment=last.base, position=last.length, encrypted=last.index.encrypted)

    async def _adopt_sealed(self, segment: Segment) -> None:
        file = await self._directory.disk.open(segment.path)
        segment.length = file.size()
        segment.sealed = segment.persisted_whole = True
        file.close()

    async def _adopt_state(self, found: Findings, log: SegmentLog) -> None:
        """Epochs, producers, transactions: from the snapshot, then from what the journal brought."""
        plan, row = found.plan, found.plan.row
        known: State | None = None
        replayed: list[AbortedEntry] = []
        if row is not None and row.snapshot != NONE and plan.solid_offset == row.end:
            known = await self._directory.snapshots.load(plan.path, row.snapshot)
            log.snapshot = row.snapshot
        if known is None:
            known, place, replayed = await self._rebuild_state(log, found)
            log.snapshot = NONE
        else:
            place = Offset(log.snapshot)
        saved = await self._load_aborted(log, known.aborted_bases, below=place)
        if saved is None:
            logger.warning("lists of aborted transactions made again: %s", plan.path)
            saved, replayed = [], await self._find_aborted(log, found)
        trimmed = row is None or plan.shape.start != row.start  # which a snapshot tells a rebuild
        log.state_changed = log.snapshot == NONE or trimmed or bool(plan.appends)
        log.epochs, log.producers = known.epochs, known.producers
        # Of trimmed segments too: a marker may end what a snapshot has open.
        below = [append for append in plan.appends if append.batch.next_offset <= plan.shape.start]
        _decrypt(found, log, [append for append in plan.appends if append.batch.is_control])
        replayed += _apply(log, below)
        log.producers.forget_trimmed(plan.shape.start)
        replayed += _apply(log, plan.appends[len(below) :])
        log.epochs.trim(plan.shape.start)
        log.producers.settle()
        self._adopt_aborted(log, saved, replayed)
        log.applied_epochs, log.applied_producers = log.epochs.copy(), log.producers.copy()

    def _adopt_aborted(
        self, log: SegmentLog, saved: list[AbortedEntry], replayed: list[AbortedEntry]
    ) -> None:
        log.aborted_list = AbortedList([*saved, *replayed])
        log.aborted_list.trim(log.start_offset)
        log.applied_aborted = log.aborted_list.copy()
        log.unsaved_aborted = {base_of(log, entry.marker_offset) for entry in replayed}

    async def _load_aborted(
        self, log: SegmentLog, bases: Iterable[int], *, below: Offset
    ) -> list[AbortedEntry] | None:
        """What the files say of the markers below an offset; None if one is missing or damaged."""
        entries: list[AbortedEntry] = []
        for base in bases:
            if base not in log.segments:
                continue  # trimmed since
            saved = await load_aborted(self._directory.disk, log.path, base)
            if saved is None:
                return None
            entries += [entry for entry in saved if entry.marker_offset < below]
        return entries

    async def _find_aborted(self, log: SegmentLog, found: Findings) -> list[AbortedEntry]:
        """The aborted transactions of the solid part, from the log alone."""
        _, _, replayed = await self._replay(
            log, found, State(LeaderEpochs(), ProducerStates()), found.plan.shape.start
        )
        return replayed

    async def _rebuild_state(
        self, log: SegmentLog, found: Findings
    ) -> tuple[State, Offset, list[AbortedEntry]]:
        """The state at the end of the solid part, from an older snapshot and the log behind it.

        With the place of that snapshot, and the transactions that were aborted behind it.
        """
        plan = found.plan
        state, place = State(LeaderEpochs(), ProducerStates()), plan.shape.start
        for offset in sorted(await self._directory.snapshots.offsets(plan.path), reverse=True):
            snapshot = await self._directory.snapshots.load(plan.path, offset)
            if offset <= plan.solid_offset and snapshot is not None:
                state = snapshot
                place = max(place, Offset(offset))
                state.producers.forget_trimmed(plan.shape.start)
                break
        return await self._replay(log, found, state, place)

    async def _replay(
        self, log: SegmentLog, found: Findings, state: State, begin: Offset
    ) -> tuple[State, Offset, list[AbortedEntry]]:
        """Apply the solid part from `begin` on to a state."""
        plan, place = found.plan, begin
        replayed: list[AbortedEntry] = []
        while place < plan.solid_offset:
            try:
                piece = await log.read(place, bytes_max=_SCAN_BYTES, up_to=log.durable_offset)
                data = await piece.load()
            except LogDamaged as error:
                found.note_damage(place, str(error))
                break
            for batch in iter_batches(data):
                if batch.next_offset <= plan.solid_offset:
                    state.epochs.apply(batch.leader_epoch, batch.base_offset)
                    aborted = state.producers.apply(batch)
                    if aborted is not None:
                        replayed.append(aborted)
            place = piece.next_offset
        return state, begin, replayed


def _decrypt(found: Findings, log: SegmentLog, appends: list[Append]) -> bool:
    """Have what readers get of entries that were read from the files; False if that is damaged."""
    for append in appends:
        try:
            log.decrypt_entry(append)
        except LogDamaged as error:
            found.note_damage(append.batch.base_offset, str(error))
            return False
        append.stored = append.batch
    return True


def _apply(log: SegmentLog, appends: Iterable[Append]) -> list[AbortedEntry]:
    """Move the state of a log along with what the journal brought; the transactions that were aborted."""
    found: list[AbortedEntry] = []
    for append in appends:
        if append.batch.is_control and is_encrypted(append.batch):
            continue  # it is damaged, and the log in quarantine
        log.epochs.apply(append.batch.leader_epoch, append.batch.base_offset)
        aborted = log.producers.apply(append.batch)
        if aborted is not None:
            found.append(aborted)
    return found
