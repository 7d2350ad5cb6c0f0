"""Builds with one rule of transactions broken: crash histories with transactions must catch each of them.

As `test_broken_builds`, for what the storage and the partition know of transactions. Rules of compaction that
need several passes over one marker are too rare in histories: the tests of cleaning and compaction have them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from tailrace.broker.partition import Partition
from tailrace.model import Offset
from tailrace.records import Batch
from tailrace.runtime import Disk
from tailrace.storage.aborted import AbortedEntry
from tailrace.storage.producers import ProducerStates
from tailrace.storage.segment import aborted_file, commit
from tailrace.storage.segment.compaction import Fates, Remnants
from tailrace.storage.segment.snapshot import State
from tailrace.testing.crashes import Options, play

Break = Callable[[pytest.MonkeyPatch], None]

WITH_TRANSACTIONS = Options(transactions=True)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


def loose_topics_do_not_sync_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(commit, "_has_transactional", lambda group: False)


def snapshots_without_open_transactions(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(State, "choose_format", lambda self: 1)


def stable_before_the_marker_is_durable(patch: pytest.MonkeyPatch) -> None:
    def first_undecided(self: ProducerStates, visible_end: int) -> Offset | None:
        return self.first_open

    patch.setattr(ProducerStates, "first_undecided", first_undecided)


def reads_up_to_the_high_watermark(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Partition, "_find_last_stable", lambda self, log: self.high_watermark)


def missing_list_passes_for_an_empty_one(patch: pytest.MonkeyPatch) -> None:
    async def load_aborted(disk: Disk, directory: str, base: int) -> list[AbortedEntry] | None:
        return await aborted_file.load_aborted(disk, directory, base) or []

    patch.setattr("tailrace.storage.segment.adoption.load_aborted", load_aborted)


def truncation_leaves_aborted_entries(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tailrace.storage.aborted.AbortedList.truncate", lambda self, offset: None)


def aborted_records_supersede(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Fates, "is_aborted", lambda self, batch: False)


def marker_goes_before_its_records(patch: pytest.MonkeyPatch) -> None:
    def is_last(self: Remnants, marker: Batch) -> bool:
        return self.complete and marker.base_offset < self.replayed_from

    patch.setattr(Remnants, "is_last", is_last)


PLAYED: list[tuple[Break, int]] = [
    (loose_topics_do_not_sync_transactions, 300),
    (snapshots_without_open_transactions, 100),
    (stable_before_the_marker_is_durable, 300),
    (reads_up_to_the_high_watermark, 50),
    (missing_list_passes_for_an_empty_one, 300),
    (truncation_leaves_aborted_entries, 100),
    (aborted_records_supersede, 300),
    (marker_goes_before_its_records, 500),
]

ALARMS = ("Wrong: ", "StorageError: ", "LogDamaged: ", "BatchError: ", "AssertionError")


def hunt(seeds: int) -> str | None:
    """What was wrong in the first history in which anything was."""
    for seed in range(seeds):
        failed = play(seed, WITH_TRANSACTIONS)[1]
        if failed is not None:
            return f"seed {seed}: {failed.error.strip().splitlines()[-1]}"
    return None


@pytest.mark.heavy
@pytest.mark.parametrize(("broken", "seeds"), PLAYED, ids=[broken.__name__ for broken, _ in PLAYED])
def test_the_histories_catch(broken: Break, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    caught = hunt(seeds)
    assert caught is not None, f"{seeds} seeds played in peace"
    print(caught)
    assert any(alarm in caught for alarm in ALARMS), caught
