"""The storage suite itself: every kind of broken engine is caught by a case that names what is wrong.

Each engine here is the memory engine with one mistake. That the sound one passes is shown in
tests/conformance; the cases of reopening have a file of their own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from tailrace.model import Epoch, Offset, OffsetOutOfRange, PartitionId
from tailrace.records import Batch
from tailrace.runtime import Clock
from tailrace.storage import LogConfig, Slice, StorageEngine, TimestampedOffset
from tailrace.storage.aborted import AbortedTransaction
from tailrace.storage.api import ignore_change
from tailrace.storage.memory import MemoryLog, MemoryStorage
from tailrace.storage.memory.ring import Ring
from tailrace.testing import FakeClock
from tailrace.testing.storage_suite import StorageSuite

LogType = Callable[..., MemoryLog]

pytestmark = pytest.mark.loop_errors  # of the broken engines


class BrokenStorage(MemoryStorage):
    """The memory engine with logs of another kind."""

    def __init__(self, log_type: LogType, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.log_type = log_type

    async def create(self, partition_id: PartitionId, config: LogConfig) -> MemoryLog:
        await super().create(partition_id, config)
        log = self._logs[partition_id] = self.log_type(partition_id, config, clock=self._clock)
        return log


class BrokenSuite(StorageSuite):
    def __init__(self, log_type: LogType) -> None:
        self.log_type = log_type

    async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
        return BrokenStorage(self.log_type, clock)


def complaint(suite: StorageSuite, case: str, path: Path) -> str:
    """What the case has to say about a broken engine."""
    with pytest.raises(AssertionError) as caught:
        getattr(suite, f"test_{case}")(path)
    return str(caught.value)


# Appending


class GivesWrongOffset(MemoryLog):
    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        return Offset(super().append(batch, leader_epoch=leader_epoch) + 1)


class SkipsOffsets(MemoryLog):
    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        base_offset = super().append(batch, leader_epoch=leader_epoch)
        self._end = Offset(self._end + 1)
        return base_offset


class ForgetsEpoch(MemoryLog):
    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        return super().append(batch, leader_epoch=None if leader_epoch is None else Epoch(0))


class LosesBatches(MemoryLog):
    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        base_offset = super().append(batch, leader_epoch=leader_epoch)
        if base_offset % 5 == 3:
            self._ring.drop_from(base_offset)
        return base_offset


class MovesFollowerBatches(MemoryLog):
    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        return super().append(batch, leader_epoch=leader_epoch or batch.leader_epoch)


class TakesFollowerBatchesAnywhere(MemoryLog):
    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        if leader_epoch is None and batch.base_offset < self._end:
            return batch.base_offset
        return super().append(batch, leader_epoch=leader_epoch)


class RemembersNoProducer(MemoryLog):
    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        base_offset = super().append(batch, leader_epoch=leader_epoch)
        self.producers.clear()
        return base_offset


class DurableWhenAwaited(MemoryLog):
    """Batches become durable when a caller waits for them."""

    durable = Offset(0)

    @property
    def durable_offset(self) -> Offset:
        return self.durable

    def wait_durable(self, end: Offset) -> asyncio.Future[None]:
        waiting = super().wait_durable(end)
        self.durable = max(self.durable, end)
        return waiting


class ShowsWhatIsNotDurable(DurableWhenAwaited):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return super().read_nowait(offset, bytes_max=bytes_max, up_to=self._end)


# Waiting


class NeverWakes(MemoryLog):
    def _wake_reached(self) -> None:
        pass


class WakesEverybody(MemoryLog):
    def _wake_reached(self) -> None:
        for _, future in self._waiters:
            if not future.done():
                future.set_result(None)


class TellsWaitersFirst(MemoryLog):
    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        on_change, self.on_change = self.on_change, ignore_change
        try:
            return super().append(batch, leader_epoch=leader_epoch)
        finally:
            self.on_change = on_change
            on_change()


class TellsOfACutLater(MemoryLog):
    async def truncate(self, offset: Offset) -> None:
        on_change, self.on_change = self.on_change, ignore_change
        await super().truncate(offset)
        self.on_change = on_change
        asyncio.get_running_loop().call_soon(on_change)
        await asyncio.sleep(0)


class WakesNobodyWhenClosed(MemoryLog):
    async def close(self) -> None:
        self._waiters.clear()
        await super().close()


# Reading


class ReadsAfterTheBatch(MemoryLog):
    """An offset inside a batch counts for the next one, so that consumers wait for ever."""

    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        inside = super().read_nowait(offset, bytes_max=0, up_to=up_to)
        if inside.extents:
            base_offset = inside.next_offset - self._length_at(offset)
            offset = offset if offset == base_offset else inside.next_offset
        return super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)

    def _length_at(self, offset: int) -> int:
        return next(b.last_offset_delta + 1 for b in self._ring.batches() if b.next_offset > offset)


class CutsBatches(MemoryLog):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        found = super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)
        return found if found.size <= bytes_max else Slice(offset, (), 0)


class IgnoresTheLimit(MemoryLog):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return super().read_nowait(offset, bytes_max=1 << 30, up_to=up_to)


class ReadsPastItsLimit(MemoryLog):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return super().read_nowait(offset, bytes_max=bytes_max, up_to=self._end)


class RefusesToReadPastItsLimit(MemoryLog):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        if offset > up_to:
            raise OffsetOutOfRange(offset, start=self._start, end=up_to)
        return super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)


class TellsOfTheLogEnd(MemoryLog):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        if offset > self._end:
            raise OffsetOutOfRange(offset, start=self._start, end=self._end)
        return super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)


class EndsAtTheDurableEnd(DurableWhenAwaited):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return super().read_nowait(offset, bytes_max=bytes_max, up_to=min(up_to, self.durable))


class MiscountsBytes(MemoryLog):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        found = super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)
        found.size += bool(found.extents)
        return found


class GoesOnTooFar(MemoryLog):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        found = super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)
        found.next_offset = max(found.next_offset, Offset(self._end - 1))
        return found


class StaysSilentBelowTheStart(MemoryLog):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return super().read_nowait(max(offset, self._start), bytes_max=bytes_max, up_to=up_to)


class StaysSilentPastTheEnd(MemoryLog):
    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return (
            Slice(offset, (), 0)
            if offset > self._end
            else super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)
        )


class ReadsDifferentlyWhenWaiting(MemoryLog):
    async def read(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        return self.read_nowait(offset, bytes_max=0, up_to=up_to)


class ReusesBuffers(MemoryLog):
    """Hands out a buffer that the next append overwrites."""

    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        for old in self._ring.batches():
            old.data[-1] ^= 0xFF
        return super().append(batch, leader_epoch=leader_epoch)


# Looking up a time


class LooksAtBatchesOnly(MemoryLog):
    async def find_timestamp(self, timestamp_ms: int, *, up_to: Offset) -> TimestampedOffset | None:
        for batch in self._ring.batches():
            if batch.max_timestamp >= timestamp_ms:
                return TimestampedOffset(batch.base_offset, batch.max_timestamp)
        return None


class BelievesThatTimeOnlyGrows(MemoryLog):
    async def find_timestamp(self, timestamp_ms: int, *, up_to: Offset) -> TimestampedOffset | None:
        batches = self._ring.batches()
        if not batches or batches[-1].max_timestamp < timestamp_ms:
            return None
        return await super().find_timestamp(timestamp_ms, up_to=up_to)


class FindsPastItsLimit(MemoryLog):
    async def find_timestamp(self, timestamp_ms: int, *, up_to: Offset) -> TimestampedOffset | None:
        return await super().find_timestamp(timestamp_ms, up_to=self._end)


class FindsWhatWasTrimmed(MemoryLog):
    async def find_timestamp(self, timestamp_ms: int, *, up_to: Offset) -> TimestampedOffset | None:
        start, self._start = self._start, Offset(0)
        try:
            return await super().find_timestamp(timestamp_ms, up_to=up_to)
        finally:
            self._start = start


# Cutting


class KeepsTheBatchAtTheCut(MemoryLog):
    async def truncate(self, offset: Offset) -> None:
        batches = [batch for batch in self._ring.batches() if batch.next_offset > offset]
        await super().truncate(batches[0].next_offset if batches else offset)


class KeepsEpochsOverTruncation(MemoryLog):
    async def truncate(self, offset: Offset) -> None:
        epochs = self.epochs.copy()
        await super().truncate(offset)
        self.epochs = epochs


class KeepsProducersOverTruncation(MemoryLog):
    def _rebuild_producers(self) -> None:
        pass


class ForgetsAbortedTransactions(MemoryLog):
    def aborted(self, first: Offset, end: Offset) -> Sequence[AbortedTransaction]:
        return ()


class ListsEveryAbortedTransaction(MemoryLog):
    def aborted(self, first: Offset, end: Offset) -> Sequence[AbortedTransaction]:
        return super().aborted(Offset(0), Offset(1 << 40))


class KeepsAbortedOverTruncation(MemoryLog):
    async def truncate(self, offset: Offset) -> None:
        aborted = self._aborted.copy()
        await super().truncate(offset)
        self._aborted = aborted


class TakesTheUndecidedForFinal(MemoryLog):
    def _stable_end(self) -> Offset:
        return self.durable_offset


class TruncatesPastTheEnd(MemoryLog):
    async def truncate(self, offset: Offset) -> None:
        if offset > self._end:
            self._end = offset
        await super().truncate(offset)


class TrimsWholeBatchesOnly(MemoryLog):
    async def trim(self, offset: Offset) -> None:
        bases = [batch.base_offset for batch in self._ring.batches() if batch.next_offset > offset]
        await super().trim(min(bases, default=offset))


class TrimsTheBatchToo(MemoryLog):
    async def trim(self, offset: Offset) -> None:
        await super().trim(offset)
        if self._ring and self._ring.batches()[0].base_offset < offset:
            self._ring.drop_front()


class MovesTheStartBack(MemoryLog):
    async def trim(self, offset: Offset) -> None:
        await super().trim(offset)
        self._start = offset


class TrimsPastTheEnd(MemoryLog):
    async def trim(self, offset: Offset) -> None:
        await super().trim(min(offset, self._end))


# Retention


class NeverEvicts(MemoryLog):
    def _evict_surplus(self, *, bytes_more: int = 0, messages_more: int = 0, spared: int = 0) -> bool:
        return True

    def _evict_expired(self, now_ms: int, *, batches_max: int, spared: int) -> bool:
        return False


class EvictsWhatIsNotFinal(MemoryLog):
    def _evict_surplus(self, *, bytes_more: int = 0, messages_more: int = 0, spared: int = 0) -> bool:
        self.final_before = self._stable_end
        return super()._evict_surplus(bytes_more=bytes_more, messages_more=messages_more, spared=spared)

    def _evict_expired(self, now_ms: int, *, batches_max: int, spared: int) -> bool:
        self.final_before = self._stable_end
        return super()._evict_expired(now_ms, batches_max=batches_max, spared=spared)


class WaitsForNoArchive(MemoryLog):
    def _is_awaited(self) -> bool:
        return False


class WaitsForArchivesWithoutEnd(MemoryLog):
    def _surplus_waits(self, size: int, messages: int) -> bool:
        return True

    def _expired_waits(self, now_ms: int) -> bool:
        return True


class WaitsForArchivesOfAnySize(MemoryLog):
    def _evict_expired(self, now_ms: int, *, batches_max: int, spared: int) -> bool:
        return super()._evict_expired(now_ms, batches_max=batches_max, spared=1)


class EvictsEverything(MemoryLog):
    async def evict(self) -> None:
        await self.trim(self._end)


class BelievesTheTimeOfDay(MemoryLog):
    async def evict(self) -> None:
        self._evict_expired(self._clock.now_ms(), batches_max=1000, spared=0)


class EvictsInSilence(MemoryLog):
    def _move_start(self, offset: Offset) -> None:
        pass


class IgnoresNewSettings(MemoryLog):
    def configure(self, config: LogConfig) -> None:
        pass


# Closing


class ClosesOnce(MemoryLog):
    async def close(self) -> None:
        assert not self._closed, "closed twice"
        await super().close()


class ReadsWhenClosed(MemoryLog):
    def _check_open(self, op: str) -> None:
        if op != "read":
            super()._check_open(op)


class AppendsWhenClosed(MemoryLog):
    def _check_open(self, op: str) -> None:
        if op != "append":
            super()._check_open(op)


@pytest.mark.parametrize(
    ("log_type", "case", "words"),
    [
        (GivesWrongOffset, "offsets_follow_one_another", "got offset 1"),
        (SkipsOffsets, "offsets_follow_one_another", "ends at 2 after a batch up to 1"),
        (ForgetsEpoch, "the_leader_epoch_is_written_into_the_batch", "epochs 0, 0, 3, 7 carry"),
        (ForgetsEpoch, "epochs_tell_who_wrote_what", "first offsets are"),
        (LosesBatches, "batches_are_read_back_in_order_byte_for_byte", "not the batches at"),
        (MovesFollowerBatches, "a_follower_may_leave_gaps", "was appended as 0"),
        (TakesFollowerBatchesAnywhere, "a_follower_append_below_the_end_is_refused", "must be refused"),
        (RemembersNoProducer, "producers_are_remembered", "not recognised"),
        (RemembersNoProducer, "a_follower_remembers_producers", "not recognised"),
        (
            ShowsWhatIsNotDurable,
            "a_read_up_to_the_durable_end_shows_nothing_above_it",
            "where only 4 is durable",
        ),
        (TellsWaitersFirst, "the_owner_hears_of_a_move_before_those_who_wait", "while the owner knew of 0"),
        (TellsOfACutLater, "the_owner_hears_of_a_truncation_in_the_same_step", "the owner knows of 12"),
        (NeverWakes, "an_append_wakes_those_who_wait_for_it", "hangs"),
        (NeverWakes, "readers_beside_a_writer_see_every_batch_once", "hangs"),
        (WakesEverybody, "an_append_wakes_those_who_wait_for_it", "offset 5 ended at offset 2"),
        (WakesNobodyWhenClosed, "closing_wakes_those_who_wait_in_vain", "hangs"),
        (WakesNobodyWhenClosed, "deleting_wakes_those_who_wait_in_vain", "hangs"),
        (ReadsAfterTheBatch, "an_offset_inside_a_batch_reads_the_whole_batch", "a read from 1 found"),
        (CutsBatches, "a_limit_below_one_batch_still_reads_it", "found nothing"),
        (IgnoresTheLimit, "a_read_stays_within_its_limit", "found 60 batches"),
        (ReadsPastItsLimit, "a_read_shows_only_what_lies_below_its_limit", "a read from 0 up to 0 shows"),
        (RefusesToReadPastItsLimit, "a_read_shows_only_what_lies_below_its_limit", "is refused"),
        (TellsOfTheLogEnd, "offsets_outside_of_the_log_are_out_of_range", "tells of (7, 15), not (7, 10)"),
        (
            EndsAtTheDurableEnd,
            "a_read_with_the_log_end_as_its_limit_shows_what_is_not_durable_yet",
            "found nothing, below its limit",
        ),
        (MiscountsBytes, "batches_are_read_back_in_order_byte_for_byte", "a slice says"),
        (GoesOnTooFar, "a_limit_below_one_batch_still_reads_it", "yet goes on at 5"),
        (StaysSilentBelowTheStart, "offsets_outside_of_the_log_are_out_of_range", "read_nowait at -1"),
        (StaysSilentPastTheEnd, "offsets_outside_of_the_log_are_out_of_range", "read_nowait at 16"),
        (ReadsDifferentlyWhenWaiting, "read_and_read_nowait_find_the_same", "differ"),
        (ReusesBuffers, "batches_are_read_back_in_order_byte_for_byte", "have changed"),
        (LooksAtBatchesOnly, "timestamps_that_go_backwards", "the first record at or after"),
        (BelievesThatTimeOnlyGrows, "timestamps_that_go_backwards", "not None"),
        (FindsPastItsLimit, "nothing_from_the_limit_on_is_found", "from offset 0 to 0, is None"),
        (FindsWhatWasTrimmed, "nothing_below_the_start_is_found", "from offset 1 to"),
        (KeepsTheBatchAtTheCut, "truncating_removes_the_batch_at_the_offset_and_all_after", "still ends at"),
        (KeepsEpochsOverTruncation, "truncating_takes_epochs_back", "the epochs are"),
        (KeepsProducersOverTruncation, "truncating_takes_producers_back", "still taken for"),
        (TruncatesPastTheEnd, "truncating_at_or_past_the_end_changes_nothing", "moved the end from 10 to 11"),
        (TrimsWholeBatchesOnly, "trimming_inside_a_batch_keeps_the_batch", "the log starts at 0"),
        (TrimsTheBatchToo, "trimming_inside_a_batch_keeps_the_batch", "not the batches at"),
        (MovesTheStartBack, "the_start_never_goes_back", "moved the start from 7 to 0"),
        (TrimsPastTheEnd, "trimming_past_the_end_is_out_of_range", "must be refused"),
        (NeverEvicts, "old_batches_leave", "nothing has left"),
        (NeverEvicts, "surplus_bytes_leave", "nothing has left"),
        (EvictsWhatIsNotFinal, "old_batches_that_are_not_final_stay", "moved the start to 10"),
        (EvictsWhatIsNotFinal, "surplus_bytes_that_are_not_final_stay", "no record is final"),
        (WaitsForNoArchive, "old_batches_wait_for_the_archive_so_long", "not archived waits"),
        (WaitsForNoArchive, "surplus_bytes_wait_for_the_archive", "not archived waits"),
        (WaitsForNoArchive, "surplus_bytes_wait_for_the_archive_so_long", "not archived waits"),
        (WaitsForArchivesWithoutEnd, "old_batches_wait_for_the_archive_so_long", "what waited for its hour"),
        (WaitsForArchivesWithoutEnd, "surplus_bytes_wait_for_the_archive_so_long", "nothing has left"),
        (WaitsForArchivesWithoutEnd, "surplus_bytes_wait_for_the_archive", "14000 bytes may be kept"),
        (
            WaitsForArchivesOfAnySize,
            "of_old_batches_so_many_bytes_wait_for_the_archive",
            "4000 bytes may wait",
        ),
        (EvictsEverything, "young_batches_stay", "moved the start to 15"),
        (EvictsEverything, "old_batches_leave", "must be kept"),
        (EvictsEverything, "without_limits_everything_stays", "retention is off"),
        (EvictsEverything, "without_delete_retention_removes_nothing", "retention is off"),
        (BelievesTheTimeOfDay, "a_set_back_clock_neither_removes_nor_keeps", "set ahead"),
        (EvictsInSilence, "old_batches_leave", "nothing has left"),
        (
            ForgetsAbortedTransactions,
            "a_reader_is_told_of_the_aborted_transactions_that_it_meets",
            "is told of []",
        ),
        (
            ListsEveryAbortedTransaction,
            "a_reader_is_told_of_the_aborted_transactions_that_it_meets",
            "a reader of 1 to 2 is told of",
        ),
        (
            KeepsAbortedOverTruncation,
            "a_truncated_marker_opens_its_transaction_again",
            "a reader of 0 to 5 is told of",
        ),
        (
            KeepsProducersOverTruncation,
            "a_truncated_marker_opens_its_transaction_again",
            "open transactions begin at",
        ),
        (TakesTheUndecidedForFinal, "what_is_not_decided_is_not_final", "everything below 7 is final"),
        (IgnoresNewSettings, "new_settings_come_into_force", "settings in force"),
        (ClosesOnce, "closing_a_log_twice_is_harmless", "closed twice"),
        (ReadsWhenClosed, "closing_a_log_twice_is_harmless", "read_nowait of a closed log"),
        (AppendsWhenClosed, "closing_the_engine_twice_is_harmless", "append to a log of a closed engine"),
        (AppendsWhenClosed, "a_deleted_log_is_gone", "append to a deleted log"),
    ],
    ids=lambda value: value.__name__ if isinstance(value, type) else None,
)
def test_the_suite_catches_a_log_that(log_type: LogType, case: str, words: str, tmp_path: Path) -> None:
    suite = BrokenSuite(log_type)
    if words == "hangs":
        suite.deadline_s = 0.2
    assert words in complaint(suite, case, tmp_path)


def test_the_suite_catches_an_engine_that_brings_old_data_back(tmp_path: Path) -> None:
    class Haunted(BrokenStorage):
        async def delete(self, partition_id: PartitionId) -> None:
            ghost = self._logs[partition_id]
            ring, end = ghost._ring, ghost._end
            await super().delete(partition_id)

            def revive(*args: object, clock: Clock) -> MemoryLog:
                log = MemoryLog(partition_id, LogConfig(), clock=clock)
                log._ring, log._end = ring, end
                return log

            self.log_type = revive

    class HauntedSuite(StorageSuite):
        async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
            return Haunted(MemoryLog, clock)

    assert "a re-created log ends at 10" in complaint(
        HauntedSuite(), "a_re_created_log_never_shows_old_data", tmp_path
    )


def test_the_suite_catches_an_engine_that_mixes_partitions(tmp_path: Path) -> None:
    shared = Ring()

    class Mixed(MemoryLog):
        def __init__(self, partition_id: PartitionId, config: LogConfig, *, clock: Clock) -> None:
            super().__init__(partition_id, config, clock=clock)
            self._ring = shared

    assert complaint(BrokenSuite(Mixed), "partitions_are_independent", tmp_path)


def test_the_suite_catches_an_engine_that_fails_for_nothing(tmp_path: Path) -> None:
    class Nervous(MemoryStorage):
        async def wait_failed(self) -> Exception:
            return OSError("nothing in particular")

    class NervousSuite(StorageSuite):
        async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
            return Nervous(clock=clock)

    assert "nothing in particular" in complaint(NervousSuite(), "a_sound_engine_does_not_fail", tmp_path)


def test_the_suite_must_fit_the_engine(tmp_path: Path) -> None:
    class Pretender(MemoryStorage):
        @property
        def durable(self) -> bool:
            return True

    class PretenderSuite(StorageSuite):
        async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
            return Pretender(clock=clock)

    assert "use DurableStorageSuite for it" in complaint(
        PretenderSuite(), "the_suite_fits_the_engine", tmp_path
    )


def test_a_suite_without_an_engine_says_so(tmp_path: Path) -> None:
    with pytest.raises(NotImplementedError, match="open_engine"):
        StorageSuite().test_a_new_log_is_empty(tmp_path)


def test_an_error_of_the_engine_is_not_taken_for_a_hang(tmp_path: Path) -> None:
    class Raises(MemoryLog):
        def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
            raise OffsetOutOfRange(Offset(0), start=Offset(0), end=Offset(0))

    with pytest.raises(OffsetOutOfRange):
        BrokenSuite(Raises).test_offsets_follow_one_another(tmp_path)
