"""The rounds that count without a checkpoint: hand-made journals of bytes, used again, torn and damaged."""

from __future__ import annotations

import pytest

from tailrace.model import StorageError
from tailrace.storage.segment.entry import Delete, write_entry
from tailrace.storage.segment.journal import SECTOR, JournalHeader, write_header, write_round
from tailrace.storage.segment.journal_run import find_run

FILE_BYTES = 16 * 1024


def file_of(
    first_lsn: int, *rounds: tuple[int, int], torn: tuple[int, ...] = (), journal_id: int = 7
) -> memoryview:
    """A journal file with rounds of one sector, each an LSN and the LSN that it names as synced."""
    data = bytearray(write_header(JournalHeader(journal_id, first_lsn, FILE_BYTES)))
    for lsn, synced in rounds:
        parts: list[bytes | memoryview] = []
        write_entry(Delete(lsn), parts)
        frame = write_round(journal_id, lsn=lsn, synced_lsn=synced, count=1, parts=parts)
        data += bytes(SECTOR) if lsn in torn else frame
    return memoryview(bytes(data.ljust(FILE_BYTES, b"\0")))


def run_of(*files: memoryview) -> tuple[int, list[int], int]:
    """The LSN before the run, the LSNs of the run, and the newest one."""
    _, floor, run, newest = find_run(dict(enumerate(files, start=1)))
    return floor, [each.lsn for each in run], newest


def test_the_run_goes_down_as_far_as_the_journal_reaches() -> None:
    older, newer = file_of(5, (5, 4), (6, 5)), file_of(7, (7, 6), (8, 7), journal_id=9)
    assert run_of(newer, older) == (4, [5, 6, 7, 8], 8)


def test_rounds_before_a_file_that_was_used_again_do_not_count() -> None:
    """Rounds 7 and 8 are gone: the checkpoint had passed them, and so it had passed 5 and 6."""
    assert run_of(file_of(5, (5, 4), (6, 5)), file_of(9, (9, 8), journal_id=9)) == (8, [9], 9)


def test_a_file_that_was_just_used_again_holds_nothing_to_replay() -> None:
    assert run_of(file_of(12)) == (11, [], 11)


def test_a_journal_that_was_never_used() -> None:
    assert run_of(file_of(0)) == (0, [], 0)
    assert run_of(file_of(0), memoryview(bytes(FILE_BYTES))) == (0, [], 0)


def test_a_torn_tail_ends_the_run_and_its_numbers_are_not_used_again() -> None:
    assert run_of(file_of(1, (1, 0), (2, 1), (3, 2), (4, 2), torn=(3,))) == (0, [1, 2], 4)


def test_a_round_that_a_later_one_names_as_synced_is_damage() -> None:
    with pytest.raises(StorageError, match="round 3 is unreadable"):
        run_of(file_of(1, (1, 0), (2, 1), (3, 2), (4, 3), (5, 4), torn=(3,)))


def test_what_lay_behind_the_torn_round_of_an_earlier_crash_is_not_replayed() -> None:
    """That recovery left rounds 3 and 4 out, and numbered on from 5."""
    older = file_of(1, (1, 0), (2, 1), (3, 1), (4, 1), torn=(3,))
    assert run_of(older, file_of(5, (5, 4), journal_id=9)) == (4, [5], 5)


def test_a_damaged_header_of_a_file_with_rounds_is_damage() -> None:
    data = bytearray(file_of(1, (1, 0)))
    data[9] ^= 1
    with pytest.raises(StorageError, match="header of the journal file is unreadable"):
        run_of(memoryview(data))
