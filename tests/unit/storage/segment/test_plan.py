"""What recovery decides: hand-made journals of bytes, torn, damaged and whole, and the plans out of them."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import pytest

from tailrace.model import Offset, PartitionId, StorageError
from tailrace.records import Batch, build_batch, read_batch
from tailrace.storage.segment.checkpoint import NONE, Checkpoint, Row
from tailrace.storage.segment.entry import (
    LOOSE,
    REFERENCED,
    Append,
    Create,
    Delete,
    Entry,
    Trim,
    Truncate,
    write_entry,
)
from tailrace.storage.segment.journal import SECTOR, JournalHeader, Round, write_header, write_round
from tailrace.storage.segment.plan import JournalContent, Plan, plan_recovery, read_journal

FIRST, SECOND = PartitionId(UUID(int=1), 0), PartitionId(UUID(int=2), 0)
FILE_BYTES = 16 * 1024


def batch_at(offset: int, count: int = 1, *, text: bytes = b"v") -> Batch:
    return read_batch(build_batch([(0, None, text, ())] * count, base_offset=offset))


SIZE = batch_at(0).size


def append(
    offset: int, segment: int = 0, position: int | None = None, *, life: int = 1, flags: int = 0
) -> Append:
    place = (offset - segment) * SIZE if position is None else position
    return Append(life, batch_at(offset), segment, place, flags)


def bytes_of(*entries: Entry) -> bytes:
    parts: list[bytes | memoryview] = []
    for entry in entries:
        write_entry(entry, parts)
    return b"".join(parts)


def round_of(lsn: int, *entries: Entry) -> Round:
    return Round(lsn, 0, len(entries), memoryview(bytes_of(*entries)), 0)


# ---- the journal


class JournalFileBytes:
    """A journal file made by hand: rounds of one sector each, any of which can be torn."""

    def __init__(self, journal_id: int, first_lsn: int) -> None:
        self.id = journal_id
        self.data = bytearray(write_header(JournalHeader(journal_id, first_lsn, FILE_BYTES)))
        self.places: dict[int, int] = {}

    def add(self, lsn: int, *, synced: int) -> JournalFileBytes:
        self.places[lsn] = len(self.data)
        self.data += write_round(self.id, lsn=lsn, synced_lsn=synced, count=1, parts=[bytes_of(Delete(lsn))])
        return self

    def tear(self, *lsns: int) -> JournalFileBytes:
        for lsn in lsns:
            self.data[self.places[lsn] : self.places[lsn] + SECTOR] = bytes(SECTOR)
        return self

    def view(self) -> memoryview:
        return memoryview(self.data.ljust(FILE_BYTES, b"\0"))


def damaged_header(file: JournalFileBytes, place: int) -> memoryview:
    file.data[place] ^= 1 << place % 8
    return file.view()


@pytest.mark.parametrize("place", range(0, SECTOR, 7))
def test_a_damaged_header_of_a_file_below_the_checkpoint_is_passed_over(place: int) -> None:
    passed = JournalFileBytes(7, 1).add(1, synced=0).add(2, synced=1)
    newest = JournalFileBytes(9, 3).add(3, synced=2)
    content = read_journal({1: damaged_header(passed, place), 2: newest.view()}, at_lsn(2))
    assert [each.lsn for each in content.rounds] == [3]


@pytest.mark.parametrize("place", range(0, SECTOR, 7))
def test_a_damaged_header_of_a_file_that_was_never_used_is_passed_over(place: int) -> None:
    newest = JournalFileBytes(9, 3).add(3, synced=2)
    content = read_journal({1: damaged_header(JournalFileBytes(7, 0), place), 2: newest.view()}, at_lsn(2))
    assert [each.lsn for each in content.rounds] == [3]


@pytest.mark.parametrize("place", range(0, SECTOR, 7))
def test_a_damaged_header_of_a_file_with_rounds_above_the_checkpoint_is_damage(place: int) -> None:
    """The newest file: no gap betrays that its rounds are missing."""
    passed = JournalFileBytes(7, 1).add(1, synced=0).add(2, synced=1)
    newest = JournalFileBytes(9, 3).add(3, synced=2)
    with pytest.raises(StorageError, match="header of the journal file is unreadable"):
        read_journal({1: passed.view(), 2: damaged_header(newest, place)}, at_lsn(2))


def test_a_damaged_header_is_damage_if_the_first_round_is_unreadable_too() -> None:
    """Then nobody can say which use of the file the other rounds are of."""
    file = JournalFileBytes(7, 1).add(1, synced=0).add(2, synced=1).tear(1)
    with pytest.raises(StorageError, match="header of the journal file is unreadable"):
        read_journal({1: damaged_header(file, 9)}, at_lsn(2))


@pytest.mark.parametrize("content", [b"", bytes(SECTOR), bytes(FILE_BYTES), b"x" * FILE_BYTES])
def test_a_file_that_lost_more_than_its_header_is_damage(content: bytes) -> None:
    with pytest.raises(StorageError, match="header of the journal file is unreadable"):
        read_journal({1: memoryview(content)}, at_lsn(2))


def at_lsn(lsn: int) -> Checkpoint:
    return Checkpoint(lsn=lsn, next_life=1, journal_files=(1, 2), rows=())


def checkpoint_at(lsn: int) -> Checkpoint:
    return Checkpoint(lsn=lsn, next_life=1, journal_files=(1, 2), rows=())


def read(files: Mapping[int, JournalFileBytes], *, checkpoint: int = 0) -> tuple[list[int], int]:
    found: JournalContent = read_journal({n: f.view() for n, f in files.items()}, checkpoint_at(checkpoint))
    return [each.lsn for each in found.rounds], found.last_lsn


def synced_file(journal_id: int, *lsns: int) -> JournalFileBytes:
    """Every round was synced before the next one was written."""
    file = JournalFileBytes(journal_id, lsns[0])
    for lsn in lsns:
        file.add(lsn, synced=lsn - 1)
    return file


def test_rounds_above_the_checkpoint_are_replayed_in_order() -> None:
    files = {2: synced_file(5, 1, 2, 3), 1: synced_file(7, 4, 5)}
    assert read(files) == ([1, 2, 3, 4, 5], 5)
    assert read(files, checkpoint=3) == ([4, 5], 5)
    assert read(files, checkpoint=5) == ([], 5)


def test_an_empty_journal_goes_on_after_the_checkpoint() -> None:
    assert read({1: JournalFileBytes(5, 0)}, checkpoint=9) == ([], 9)
    assert read({}, checkpoint=9) == ([], 9)


def test_files_that_the_checkpoint_has_passed_do_not_matter() -> None:
    assert read({1: synced_file(5, 1, 2), 2: synced_file(7, 3)}, checkpoint=7) == ([], 7)


def test_an_unreadable_last_round_is_a_torn_tail() -> None:
    assert read({1: synced_file(5, 1, 2, 3).tear(3)}) == ([1, 2], 2)


def test_a_round_that_a_later_one_saw_synced_is_damage() -> None:
    for torn in (1, 2):
        with pytest.raises(StorageError, match=f"round {torn} was acknowledged and is unreadable"):
            read({1: synced_file(5, 1, 2, 3).tear(torn)})


def test_a_round_before_the_first_of_a_newer_file_is_damage() -> None:
    first = JournalFileBytes(5, 1).add(1, synced=0).add(2, synced=0)
    with pytest.raises(StorageError, match="round 2 was acknowledged"):
        read({1: first.tear(2), 2: JournalFileBytes(7, 3)})


def test_a_missing_file_in_the_middle_is_damage() -> None:
    with pytest.raises(StorageError, match="round 3 was acknowledged"):
        read({1: synced_file(5, 1, 2), 3: synced_file(9, 5, 6)})


def test_damage_below_the_checkpoint_costs_nothing() -> None:
    assert read({1: synced_file(5, 1, 2, 3, 4).tear(1, 2)}, checkpoint=2) == ([3, 4], 4)


def test_rounds_that_nobody_waited_for_may_be_torn_anywhere() -> None:
    """Loose rounds are not synced: what lies behind a missing one was never promised to anybody."""
    file = JournalFileBytes(5, 1).add(1, synced=0)
    for lsn in (2, 3, 4):
        file.add(lsn, synced=1)
    assert read({1: file.tear(2)}) == ([1], 4)
    assert read({1: file.tear(3)}) == ([1], 4)


def test_new_rounds_are_numbered_above_everything_seen() -> None:
    """Else a stale round behind the tear could be taken for the next one of its number."""
    file = JournalFileBytes(5, 1)
    for lsn in (1, 2, 3, 4, 5):
        file.add(lsn, synced=0)
    assert read({1: file.tear(1)}) == ([], 5)


@pytest.mark.parametrize("place", [0, 9, 20, 33, 400])
def test_an_unreadable_header_is_damage_that_names_the_file(place: int) -> None:
    file = synced_file(5, 1)
    file.data[place] ^= 1
    with pytest.raises(StorageError, match=r"journal/0003\.journal.*unreadable.*Nothing was changed"):
        read({3: file})


# ---- plans


def row(*, end: int = 0, segment: int = 0, start: int = 0, life: int = 1, damaged: int = NONE) -> Row:
    return Row(
        life=life,
        partition_id=FIRST,
        start=Offset(start),
        end=Offset(end),
        segment=segment,
        length=(end - segment) * SIZE,
        damaged=damaged,
    )


def plan_of(rows: list[Row], *entries: Entry) -> Plan:
    (plan,), deleted, _ = plan_recovery(rows, [round_of(1, *entries)])
    assert not deleted
    return plan


def kept(plan: Plan) -> list[int]:
    return [append.batch.base_offset for append in plan.surviving()]


def test_nothing_in_the_journal_leaves_what_the_checkpoint_says() -> None:
    plans, deleted, greatest = plan_recovery([row(start=2, end=8, segment=5, damaged=6)], [])
    (plan,) = plans
    assert (plan.life, plan.partition_id, plan.damaged) == (1, FIRST, 6)
    assert (plan.shape.start, plan.shape.end, plan.shape.segments) == (2, 8, {5: 3 * SIZE})
    assert (plan.solid, plan.solid_offset) == ((5, 3 * SIZE), 8)
    assert (kept(plan), deleted, greatest) == ([], set(), 1)


def test_appends_follow_the_checkpoint() -> None:
    plan = plan_of([row(end=2)], append(2), append(3), append(4, 4, 0))
    assert kept(plan) == [2, 3, 4]
    assert plan.shape.segments == {0: 4 * SIZE, 4: SIZE}
    assert plan.shape.end == 5
    assert (plan.solid, plan.solid_offset) == ((0, 2 * SIZE), 2)


def test_a_created_partition_begins_with_nothing() -> None:
    plan = plan_of([], Create(7, SECOND), append(0, life=7))
    assert (plan.row, plan.partition_id, plan.path) == (None, SECOND, f"{SECOND}-7")
    assert (plan.solid, plan.solid_offset) == ((0, 0), 0)
    assert kept(plan) == [0]


def test_truncate_and_append_again_leaves_only_the_new() -> None:
    """Applying what is missing would bring the old batch back under a right checksum."""
    new = Append(1, batch_at(3, text=b"n"), 0, 3 * SIZE)
    plan = plan_of([row(end=2)], append(2), append(3), append(4), Truncate(1, Offset(3), 0, 3 * SIZE), new)
    assert plan.surviving()[-1].batch.data == new.batch.data
    assert kept(plan) == [2, 3]
    assert plan.shape.segments == {0: 4 * SIZE}
    assert plan.solid == (0, 2 * SIZE)


def test_truncation_below_the_checkpoint_shortens_what_is_solid() -> None:
    plan = plan_of([row(end=9, segment=5)], append(9, 5), Truncate(1, Offset(3), 0, 3 * SIZE), append(3))
    assert (plan.solid, plan.solid_offset) == ((0, 3 * SIZE), 3)
    assert plan.shape.segments == {0: 4 * SIZE}
    assert kept(plan) == [3]


def test_truncation_to_the_very_checkpoint_keeps_it_solid() -> None:
    plan = plan_of([row(end=2)], append(2), Truncate(1, Offset(2), 0, 2 * SIZE))
    assert (plan.solid, plan.solid_offset) == ((0, 2 * SIZE), 2)
    assert kept(plan) == []


def test_truncation_within_a_gap_behind_the_checkpoint_moves_the_solid_end() -> None:
    """The files hold nothing there, so the place is the same; yet nothing solid lies past the end."""
    gap = Row(
        life=1, partition_id=FIRST, start=Offset(0), end=Offset(12), segment=0, length=2 * SIZE, snapshot=12
    )
    plan = plan_of([gap], Truncate(1, Offset(9), 0, 2 * SIZE))
    assert (plan.solid, plan.solid_offset) == ((0, 2 * SIZE), 9)
    assert plan.shape.end == 9


def test_a_trim_with_a_roll_lets_everything_before_it_go() -> None:
    plan = plan_of([row(end=2)], append(2), Trim(1, Offset(3), 3), append(3, 3, 0))
    assert (plan.shape.start, plan.shape.end) == (3, 4)
    assert plan.shape.segments == {3: SIZE}
    assert kept(plan) == [3]


def test_a_trim_within_a_segment_keeps_it() -> None:
    plan = plan_of([row(end=2)], append(2), Trim(1, Offset(2)))
    assert plan.shape.start == 2
    assert plan.shape.segments == {0: 3 * SIZE}
    assert kept(plan) == [2]


def test_a_deleted_partition_has_no_plan() -> None:
    plans, deleted, greatest = plan_recovery([row(end=2)], [round_of(1, append(2), Delete(1))])
    assert (plans, deleted, greatest) == ([], {f"{FIRST}-1"}, 1)


def test_a_partition_deleted_and_created_again_is_another_life() -> None:
    rounds = [round_of(1, append(2), Delete(1), Create(2, FIRST)), round_of(2, append(0, life=2))]
    (plan,), deleted, greatest = plan_recovery([row(end=2)], rounds)
    assert (plan.life, plan.row, kept(plan)) == (2, None, [0])
    assert deleted == {f"{FIRST}-1"}
    assert greatest == 2


def test_one_created_and_deleted_in_the_journal_is_gone() -> None:
    plans, deleted, greatest = plan_recovery([], [round_of(1, Create(9, FIRST), Delete(9))])
    assert (plans, deleted, greatest) == ([], {f"{FIRST}-9"}, 9)


def test_partitions_are_planned_apart() -> None:
    rounds = [round_of(1, append(2), Create(5, SECOND), append(0, life=5), append(3), append(1, life=5))]
    plans, _, _ = plan_recovery([row(end=2)], rounds)
    assert {plan.life: kept(plan) for plan in plans} == {1: [2, 3], 5: [0, 1]}


@pytest.mark.parametrize(
    "wrong",
    [
        append(1),
        append(2, 0, 3 * SIZE),
        append(2, 0, SIZE),
        append(2, 1, 0),
        append(3, 2, 0),
        append(2, 2, SIZE),
    ],
    ids=["offset below the end", "a hole", "overlap", "older segment", "segment before it", "mid-segment"],
)
def test_an_append_that_does_not_fit_is_damage(wrong: Append) -> None:
    with pytest.raises(StorageError, match="journal and checkpoint disagree"):
        plan_of([row(end=2)], wrong)


def test_an_entry_of_a_life_that_nothing_created_is_damage() -> None:
    for entry in (append(0, life=8), Truncate(8, Offset(0), 0, 0), Trim(8, Offset(0)), Delete(8)):
        with pytest.raises(StorageError, match="life 8, which nothing created"):
            plan_recovery([row(end=2)], [round_of(3, entry)])


def test_a_round_that_makes_no_sense_is_damage() -> None:
    for data in (b"\xff" * 40, bytes_of(Delete(1))[:-1], b""):
        with pytest.raises(StorageError, match="round 6 holds an entry that makes no sense"):
            plan_recovery([row(end=2)], [Round(6, 0, 1, memoryview(data), 0)])


# ---- loose appends that are not there


def loose_plan(*flags: int) -> Plan:
    return plan_of([row(end=2)], *(append(2 + n, flags=REFERENCED | flag) for n, flag in enumerate(flags)))


def test_the_log_may_end_before_what_was_never_synced() -> None:
    plan = loose_plan(LOOSE, LOOSE, LOOSE)
    assert plan.cut_loose(plan.appends[1])
    assert kept(plan) == [2]
    assert plan.shape.end == 3
    assert plan.shape.segments == {0: 3 * SIZE}


def test_not_if_something_behind_it_was_synced() -> None:
    plan = loose_plan(LOOSE, LOOSE, 0)
    assert not plan.cut_loose(plan.appends[0])
    assert kept(plan) == [2, 3, 4]
    assert plan.shape.end == 5


def test_nor_if_it_was_synced_itself() -> None:
    plan = loose_plan(LOOSE, 0)
    assert not plan.cut_loose(plan.appends[1])
    assert plan.shape.end == 4


def test_a_loose_cut_takes_the_segments_above() -> None:
    plan = plan_of(
        [row(end=2)], append(2, flags=LOOSE), append(3, 3, 0, flags=LOOSE), append(4, 4, 0, flags=LOOSE)
    )
    assert plan.cut_loose(plan.appends[1])
    assert plan.shape.segments == {0: 3 * SIZE, 3: 0}
    assert kept(plan) == [2]
