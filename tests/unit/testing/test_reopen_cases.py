"""The suite's cases of reopening: a toy that keeps its logs passes them, and is caught when it forgets.

The toy is the memory engine with a shelf: logs that were closed lie there until the next engine takes them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.model import Offset, PartitionId
from tailrace.runtime import Clock
from tailrace.storage import LeaderEpochs, LogConfig, ProducerStates, StorageEngine
from tailrace.storage.aborted import AbortedList
from tailrace.storage.memory import MemoryLog, MemoryStorage
from tailrace.storage.memory.ring import Ring
from tailrace.testing import FakeClock
from tailrace.testing.storage_suite import DurableStorageSuite, StorageSuite


def complaint(suite: StorageSuite, case: str, path: Path) -> str:
    """What the case has to say about a broken engine."""
    with pytest.raises(AssertionError) as caught:
        getattr(suite, f"test_{case}")(path)
    return str(caught.value)


class KeptLog(MemoryLog):
    """A log whose ring can be had after closing."""

    kept: Ring

    async def close(self) -> None:
        if not self._closed:
            self.kept = self._ring
        await super().close()

    def revive(self, clock: Clock) -> KeptLog:
        twin = KeptLog(self.partition_id, self._config, clock=clock)
        twin._ring, twin._start, twin._end = self.kept, self._start, self._end
        twin.epochs, twin.producers = self.epochs, self.producers
        twin._dropped_producers, twin._aborted = self._dropped_producers, self._aborted
        return twin


Shelf = dict[PartitionId, KeptLog]


class KeptStorage(MemoryStorage):
    """Leaves its logs on a shelf, where the next engine finds them."""

    def __init__(self, shelf: Shelf, clock: Clock) -> None:
        super().__init__(clock=clock)
        self.shelf = shelf
        for partition_id, log in list(shelf.items()):
            self._logs[partition_id] = shelf[partition_id] = log.revive(clock)

    @property
    def durable(self) -> bool:
        return True

    async def create(self, partition_id: PartitionId, config: LogConfig) -> MemoryLog:
        await super().create(partition_id, config)
        log = self._logs[partition_id] = self.shelf[partition_id] = KeptLog(
            partition_id, config, clock=self._clock
        )
        return log

    async def delete(self, partition_id: PartitionId) -> None:
        await super().delete(partition_id)
        del self.shelf[partition_id]


class ToySuite(DurableStorageSuite):
    """`spoil` is what happens to the shelf before an engine is opened."""

    def __init__(self) -> None:
        self.shelf: Shelf = {}
        self.spoil: Callable[[Shelf], object] = len

    async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
        self.spoil(self.shelf)
        return KeptStorage(self.shelf, clock)


CASES = [name for name in dir(DurableStorageSuite) if name.startswith("test_")]


@pytest.mark.parametrize("case", CASES)
def test_the_toy_is_sound(case: str, tmp_path: Path) -> None:
    getattr(ToySuite(), case)(tmp_path)


def _lose_epochs(log: KeptLog) -> None:
    log.epochs = LeaderEpochs()


def _lose_producers(log: KeptLog) -> None:
    log.producers = ProducerStates()


def _lose_aborted(log: KeptLog) -> None:
    log._aborted = AbortedList()


def _lose_start(log: KeptLog) -> None:
    log._start = Offset(0)


def _lose_newest_batch(log: KeptLog) -> None:
    if log.kept:
        log._end = log.kept.batches()[-1].base_offset
        log.kept.drop_from(log._end)


def _damage_a_byte(log: KeptLog) -> None:
    if log.kept:
        log.kept.batches()[0].data[70] ^= 1


@pytest.mark.parametrize(
    ("spoil", "case", "words"),
    [
        (_lose_epochs, "batches_and_offsets_survive", "the epochs were"),
        (_lose_producers, "producers_survive", "have become"),
        (_lose_producers, "truncation_survives", "have become"),
        (_lose_aborted, "open_and_aborted_transactions_survive", "is told of []"),
        (_lose_producers, "open_and_aborted_transactions_survive", "open transactions begin at {}"),
        (_lose_start, "the_start_survives", "start and end were (3, 20)"),
        (_lose_newest_batch, "batches_and_offsets_survive", "start and end were"),
        (_lose_newest_batch, "what_was_not_waited_for_survives_closing", "start and end were (0, 60)"),
        (_lose_newest_batch, "a_log_closed_by_itself_survives", "reading ended at 0"),
        (_damage_a_byte, "gaps_survive", "have changed"),
        (_damage_a_byte, "batches_over_truncated_ones_survive", "have changed"),
    ],
)
def test_the_suite_catches_an_engine_that_forgets(
    spoil: Callable[[KeptLog], None], case: str, words: str, tmp_path: Path
) -> None:
    def spoil_all(shelf: Shelf) -> None:
        for log in shelf.values():
            spoil(log)

    suite = ToySuite()
    suite.spoil = spoil_all
    assert words in complaint(suite, case, tmp_path)


def test_the_suite_catches_an_engine_that_loses_a_log(tmp_path: Path) -> None:
    suite = ToySuite()
    suite.spoil = dict.clear
    assert "is gone" in complaint(suite, "an_empty_log_survives", tmp_path)


def test_the_suite_catches_an_engine_whose_deletion_does_not_last(tmp_path: Path) -> None:
    class Sticky(dict[PartitionId, KeptLog]):
        def __delitem__(self, key: PartitionId) -> None:
            pass

    suite = ToySuite()
    suite.shelf = Sticky()
    assert "a deleted log is back" in complaint(suite, "deletion_survives", tmp_path)


def test_the_suite_must_fit_the_engine(tmp_path: Path) -> None:
    class Misfit(DurableStorageSuite):
        async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
            return MemoryStorage(clock=clock)

    assert "use StorageSuite for it" in complaint(Misfit(), "the_suite_fits_the_engine", tmp_path)
