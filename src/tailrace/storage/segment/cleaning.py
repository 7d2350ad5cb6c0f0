"""Key compaction, the work: finds the newest record of every key and rewrites segments without the others.

Records supersede earlier ones once they are final (`PartitionLog.final_before`) and in a checkpoint.

Segments may be rewritten that lie below the newest one of the last checkpoint, while no truncation, trim or
deletion is on its way and no truncation was applied since that checkpoint: what the journal still holds was
planned for the segments as they are. That is looked at again whenever others had a turn, and once more before
a segment is swapped. Then `SegmentLog.compaction` is set, and truncations and the applier wait: for a few
renames, since all that takes long was done before. Compaction itself waits for nobody: it gives way, and is
due again.

It reads through the checked path only. A segment that is damaged is reported once and left as it is. Segments
are not merged: one of which little is left stays a file of its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from itertools import pairwise

from tailrace.model import LogDamaged, LogTruncated, Offset, OffsetOutOfRange, StorageError
from tailrace.records import Batch, BatchError, iter_batches, read_batch
from tailrace.runtime import SyncError
from tailrace.storage.api import NO_LIMIT
from tailrace.storage.retention import SegmentFacts
from tailrace.storage.segment.aborted_file import save_aborted
from tailrace.storage.segment.compaction import Fates, Newest, Remnants, Sieve, Sifted, plan_compaction
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.index import NO_TIMESTAMP
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.pace import Pace, wait_whole
from tailrace.storage.segment.segment import FileExtent, ReadPlan, Segment
from tailrace.storage.segment.shape import OFFSET_MAX
from tailrace.storage.segment.successor import Successor
from tailrace.storage.segment.thinning import read_plain, thin

logger = logging.getLogger(__name__)

_READ_BYTES = 256 * 1024
_TAIL_BYTES = 64 * 1024  # given back at a time


class GaveWay(Exception):
    """Something else is about to change the log; compaction is due again later."""


async def compact(directory: Directory, log: SegmentLog, now_ms: int) -> None:
    """Compact a log if that is due. A SyncError is raised; any other trouble is met again next time.

    One log at a time: its map of keys is all the memory that compaction may take.
    """
    try:
        await Compaction(directory, log, now_ms).run()
    except (GaveWay, LogTruncated, OffsetOutOfRange, StorageError, FileNotFoundError) as error:
        logger.debug("compaction of %s gave way: %s", log.path, error)
    except SyncError:
        raise
    except OSError as error:
        logger.warning("compaction of %s is put off: %s", log.path, error.strerror)


def needs_checkpoint(log: SegmentLog) -> bool:
    """Whether a log would be due if the newest checkpoint held the segments that were sealed since.

    Without this a log would wait for the next checkpoint that comes by itself, for half a minute.
    """
    sealed = list(pairwise(log.segments.values()))
    if not sealed or sealed[-1][0].base < log.checkpoint_segment or sealed[-1][1].base <= log.compacted_end:
        return False
    if log.config.max_compaction_lag_ms != NO_LIMIT:
        return True
    dirty_bytes = sum(each.length for each, following in sealed if following.base > log.compacted_end)
    return dirty_bytes >= log.config.dirty_ratio_min * sum(each.length for each, _ in sealed)


class Compaction:
    """One run over one log."""

    def __init__(self, directory: Directory, log: SegmentLog, now_ms: int) -> None:
        self._directory = directory
        self._log = log
        self._now_ms = now_ms
        self._cut_lsn = log.cut_lsn
        self._pace = Pace(directory.clock)
        self._fates = Fates(())
        self._replayed_from = 0

    async def run(self) -> None:
        log = self._log
        self._check_alone()
        plan = plan_compaction(
            await self._facts(),
            compacted_end=log.compacted_end,
            delete_horizons=log.delete_horizons,
            now_ms=self._now_ms,
            lag_ms_min=log.config.min_compaction_lag_ms,
            lag_ms_max=log.config.max_compaction_lag_ms,
            dirty_ratio_min=log.config.dirty_ratio_min,
        )
        if plan is None:
            return
        snapshots = await self._directory.snapshots.offsets(log.path)
        self._replayed_from = min(snapshots, default=OFFSET_MAX)
        self._check_alone()
        limit = min(log.checkpoint_end, log.final_before())
        # As sequenced: a marker may be visible, and so decide about records below the limit, before the
        # applier comes to it.
        self._fates = Fates(log.aborted_list)
        newest = Newest(log.compacted_end, self._fates)
        if plan.end <= newest.end:  # nothing is new: only tombstones are due
            await self._clean(plan.bases, newest)
            return
        while newest.end < limit:
            newest = await self._find_newest(newest.end, limit=limit)
            await self._clean([base for base in plan.bases if base < newest.end], newest)
            log.compacted_end = min(newest.end, plan.end)

    def _check_alone(self) -> None:
        log = self._log
        if (
            not log.accepts_changes
            or log.unapplied
            or log.compaction is not None
            or log.cut_lsn != self._cut_lsn
            or log.cut_lsn > self._directory.checkpointed_lsn
        ):
            raise GaveWay("another change comes first")

    async def _facts(self) -> list[SegmentFacts]:
        """Of the segments that may be rewritten, oldest first."""
        log, facts = self._log, []
        has_lag = log.config.min_compaction_lag_ms > 0 or log.config.max_compaction_lag_ms != NO_LIMIT
        end = min(log.checkpoint_segment, log.final_before())
        for segment, following in pairwise(list(log.segments.values())):
            if segment.base >= end or not segment.persisted_whole:
                break
            max_timestamp = None
            if has_lag and following.base > log.compacted_end:
                max_timestamp = await self._max_timestamp(segment)
            facts.append(
                SegmentFacts(
                    base=segment.base,
                    next_base=following.base,
                    bytes=segment.length,
                    max_timestamp=max_timestamp,
                )
            )
        return facts

    async def _max_timestamp(self, segment: Segment) -> int:
        try:
            await self._open(segment)
        except LogDamaged as error:
            self._set_aside(segment.base, error)
            return NO_TIMESTAMP
        return segment.newest_ms

    async def _open(self, segment: Segment) -> None:
        interval_bytes = self._log.config.index_interval_bytes
        while not segment.ready:
            await self._directory.cache.open(segment, interval_bytes=interval_bytes)

    def _set_aside(self, base: int, error: LogDamaged) -> None:
        """Leave a damaged segment alone from now on."""
        if base not in self._log.uncleanable:
            self._log.uncleanable.add(base)
            logger.error("segment is not compacted: %s", error)

    # ---- the newest record of every key

    async def _find_newest(self, begin: int, *, limit: int) -> Newest:
        """The keys from `begin` on: all up to `limit`, or as many as may be held."""
        newest = Newest(begin, self._fates)
        while newest.end < limit and len(newest.offsets) < self._directory.config.compaction_keys_max:
            self._check_alone()
            try:
                await self._take_keys(newest, limit)
            except LogDamaged as error:
                newest.end = min(self._set_aside_at(newest.end, error), limit)
        return newest

    async def _take_keys(self, newest: Newest, limit: int) -> None:
        """Take note of one piece of the log, or of so much of it that the map is full."""
        place = Offset(max(newest.end, self._log.start_offset))
        piece = await self._log.read(place, bytes_max=_READ_BYTES, up_to=Offset(limit))
        for extent in piece.extents:
            for batch in sound_batches(await extent.load()):
                await self._pace.wait_turn()
                try:
                    await self._pace.run(newest.take(await read_plain(batch)))
                except BatchError:
                    newest.end = batch.next_offset
                if len(newest.offsets) >= self._directory.config.compaction_keys_max:
                    return
            extent.release()
        newest.end = max(newest.end, min(piece.next_offset, limit))

    def _set_aside_at(self, offset: int, error: LogDamaged) -> int:
        """Leave the segment alone that holds `offset`; where the next one begins, or the log ends."""
        bases = [*self._log.segments, self._log.end_offset]
        following = bisect_right(bases, max(offset, self._log.start_offset))
        self._set_aside(bases[following - 1], error)
        return bases[following]

    # ---- rewriting

    async def _clean(self, bases: Sequence[int], newest: Newest) -> None:
        """Go through segments in ascending order: a tombstone's older records go before it does."""
        log = self._log
        # Of a pass through the segments whose tombstones are due, nothing is known about the others.
        remnants = Remnants(list(log.segments)[: len(bases)] == list(bases), self._replayed_from)
        for base in bases:
            segment = log.segments.get(base)
            if base in log.uncleanable:
                remnants.complete = False
            if segment is None or base in log.uncleanable:
                continue
            sieve = Sieve(
                newest=newest,
                now_ms=self._now_ms,
                delete_retention_ms=log.config.delete_retention_ms,
                tombstones_may_go=all(damaged > base for damaged in log.uncleanable),
                producers=log.applied_producers,
                remnants=remnants,
            )
            try:
                await self._clean_segment(segment, sieve)
            except LogDamaged as error:
                self._set_aside(base, error)
                sieve.delete_horizon_ms = None
                remnants.complete = False
            if sieve.delete_horizon_ms is not None:
                log.delete_horizons[base] = sieve.delete_horizon_ms
            else:
                log.delete_horizons.pop(base, None)

    async def _clean_segment(self, segment: Segment, sieve: Sieve) -> None:
        """Rewrite a segment from its first change on; one that would not change stays."""
        if not segment.length:
            return
        await self._open(segment)
        first = await self._find_change(segment, sieve)
        if first is not None:
            await self._rewrite(segment, sieve, first)

    async def _find_change(self, segment: Segment, sieve: Sieve) -> int | None:
        """Position of the first batch that changes."""
        for place, extent in self._extents(segment):
            self._check_alone()
            for batch in sound_batches(await extent.load()):
                _, sifted = await self._sift(batch, sieve)
                if not sifted.unchanged:
                    return place
                place += batch.size
            extent.release()
        return None

    def _extents(self, segment: Segment) -> Iterator[tuple[int, FileExtent]]:
        """An open segment in pieces, with their places for readers; by the file and index that it has now."""
        index, file, bytes_max = segment.index, segment.file, self._directory.config.slow_read_bytes
        assert index is not None
        assert file is not None
        first = 0
        while first < len(index):
            begin = index.plain[first]
            last = max(bisect_right(index.plain, begin + bytes_max) - 1, first + 1)
            plan = ReadPlan(file, index, segment, first, last, 0, index.plain[last] - begin, 0)
            yield begin, FileExtent(plan, self._directory.pool)
            first = last

    async def _sift(self, batch: Batch, sieve: Sieve) -> tuple[Batch, Sifted]:
        """The batch uncompressed, and what becomes of it."""
        await self._pace.wait_turn()
        plain, sifted = batch, Sifted([], unchanged=True)
        if sieve.applies_to(batch):
            with contextlib.suppress(BatchError):
                plain = await read_plain(batch)
                sifted = await self._pace.run(sieve.sift(plain))
        if not sifted.vanishes:
            sieve.remnants.keep(batch)
        return plain, sifted

    async def _rewrite(self, segment: Segment, sieve: Sieve, first: int) -> None:
        await self._open(segment)
        successor = Successor(self._directory, self._log, segment)
        try:
            await successor.create()
            for place, extent in self._extents(segment):
                self._check_alone()
                for batch in sound_batches(await extent.load()):
                    if place < first:
                        successor.add(batch)
                    else:
                        await self._pass_on(batch, sieve, successor)
                    place += batch.size
                await successor.flush()
                extent.release()
            await successor.sync()
            await successor.seal(self._following(segment))
            await self._leave_tail(segment)
            await self._forget_aborted(segment, sieve.removed_markers)
            await wait_whole(self._swap(segment, successor))
        except SyncError:
            raise
        except (Exception, asyncio.CancelledError):
            await successor.discard()
            raise

    async def _pass_on(self, batch: Batch, sieve: Sieve, successor: Successor) -> None:
        """Give a batch, or what stays of it, to the successor."""
        plain, sifted = await self._sift(batch, sieve)
        if sifted.unchanged:
            successor.add(batch)
        elif not sifted.vanishes:
            horizon_ms = sifted.delete_horizon_ms
            thinned = await thin(batch, plain, sifted.kept, delete_horizon_ms=horizon_ms, pace=self._pace)
            successor.add(read_batch(thinned))

    async def _forget_aborted(self, segment: Segment, markers: set[int]) -> None:
        """Take aborted transactions from the lists whose markers go. First: nothing else is left of them."""
        log = self._log
        if not markers or not any(entry.marker_offset in markers for entry in log.aborted_list):
            return
        self._check_alone()
        log.aborted_list.remove(markers)
        log.applied_aborted.remove(markers)
        await wait_whole(save_aborted(self._directory.disk, log, segment.base))

    async def _leave_tail(self, segment: Segment) -> None:
        """Give back the tail's copy of a segment little by little; the swap would do it at one go."""
        while gone := self._log.tail.evict(self._following(segment), _TAIL_BYTES):
            self._directory.tail_bytes -= gone
            await self._pace.wait_turn()

    def _following(self, segment: Segment) -> int:
        """Base of the segment that follows. Asked anew after every wait: a truncation may have taken it, and
        put batches into memory that no file holds yet."""
        self._check_alone()
        for base in self._log.segments:
            if base > segment.base:
                return base
        raise GaveWay("the segment is the last one now")

    async def _swap(self, segment: Segment, successor: Successor) -> None:
        """Put the successor in place, unless something else came up while it was written."""
        async with self._directory.swap_lock:
            await self._swap_alone(segment, successor)

    async def _swap_alone(self, segment: Segment, successor: Successor) -> None:
        log = self._log
        await self._open(segment)
        self._check_alone()
        if log.segments.get(segment.base) is not segment:
            raise GaveWay("the segment was removed")
        done = log.compaction = asyncio.get_running_loop().create_future()
        before = segment.length
        try:
            await successor.replace()
        finally:
            log.compaction = None
            done.set_result(None)
        logger.info("compacted %s from %d to %d bytes", segment.path, before, successor.length)


def sound_batches(data: memoryview) -> Iterator[Batch]:
    """The batches of checked bytes; if they are none, though the checksum holds, that is damage as well."""
    try:
        yield from iter_batches(data)
    except BatchError as error:
        raise LogDamaged(str(error)) from error
