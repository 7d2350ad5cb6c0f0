"""The last step of recovery: logs that serve, over files that are as the plan says."""

from __future__ import annotations

from itertools import pairwise

from tailrace.model import LogDamaged, Offset
from tailrace.records import iter_batches
from tailrace.storage.api import LogConfig
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates
from tailrace.storage.segment.apply import read_open_span
from tailrace.storage.segment.checkpoint import NONE
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.examination import Findings
from tailrace.storage.segment.index import IndexState, SpanIndex
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.segment import Segment
from tailrace.storage.segment.shape import wholly_below

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
                base, log.segment_path(base), found.files.get(base), found.indexes.get(base), now_ms
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
        log.tail.put_back(opened)
        self._directory.tail_bytes += log.tail.bytes
        log.resume(segment=last.base, position=last.length)

    async def _adopt_sealed(self, segment: Segment) -> None:
        file = await self._directory.disk.open(segment.path)
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
            known = await self._rebuild_state(log, found)
            log.snapshot = NONE
        trimmed = row is None or plan.shape.start != row.start  # which a snapshot tells a rebuild
        log.state_changed = log.snapshot == NONE or trimmed or bool(plan.appends)
        log.epochs, log.producers = known
        for append in plan.surviving():
            log.epochs.apply(append.batch.leader_epoch, append.batch.base_offset)
            log.producers.apply(append.batch)
        log.epochs.trim(plan.shape.start)
        log.applied_epochs, log.applied_producers = log.epochs.copy(), log.producers.copy()

    async def _rebuild_state(self, log: SegmentLog, found: Findings) -> tuple[LeaderEpochs, ProducerStates]:
        """The state at the end of the solid part, from an older snapshot and the log behind it."""
        plan = found.plan
        epochs, producers, place = LeaderEpochs(), ProducerStates(), plan.shape.start
        for offset in sorted(await self._directory.snapshots.offsets(plan.path), reverse=True):
            snapshot = await self._directory.snapshots.load(plan.path, offset)
            if offset <= plan.solid_offset and snapshot is not None:
                epochs, producers = snapshot
                place = max(place, Offset(offset))
                break
        while place < plan.solid_offset:
            try:
                piece = await log.read(place, bytes_max=_SCAN_BYTES, up_to=log.durable_offset)
                data = await piece.load()
            except LogDamaged as error:
                found.note_damage(place, str(error))
                break
            for batch in iter_batches(data):
                if batch.next_offset <= plan.solid_offset:
                    epochs.apply(batch.leader_epoch, batch.base_offset)
                    producers.apply(batch)
            place = piece.next_offset
        return epochs, producers
