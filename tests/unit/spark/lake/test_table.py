"""What every table does, whatever its log: commits, conflicts, compaction, old snapshots, expiry."""

from __future__ import annotations

import os
import time
from dataclasses import replace

import pytest
from tests.unit.spark.lake.kit import DAY_MS, NOON_MS, Kit

from tailrace.model import StorageError, TopicPartition
from tailrace.spark.lake import (
    Advance,
    BadRange,
    Change,
    Conflict,
    LakeFileError,
    Snapshot,
    Staging,
    Table,
    open_table,
)

ORDERS = TopicPartition("orders", 0)


def reopened(table: Table) -> Snapshot:
    """What a process sees that opens the lake now."""
    other = open_table(table.root)
    try:
        return other.snapshot()
    finally:
        other.close()


def test_a_commit_is_there_for_whoever_opens_the_lake(table: Table, kit: Kit) -> None:
    snapshot = kit.archive(table, 0, 20)
    assert reopened(table) == snapshot == table.snapshot()
    assert snapshot.ends == {ORDERS: 20}
    assert kit.offsets(snapshot.files) == list(range(20))


def test_files_say_what_they_hold(table: Table, kit: Kit) -> None:
    kit.archive(table, 5, 20)
    (file,) = reopened(table).files
    assert (file.topic, file.partition, file.day) == ("orders", 0, "2026-09-22")
    assert (file.first_offset, file.last_offset, file.rows) == (5, 19, 15)
    assert file.bytes == (kit.root / file.path).stat().st_size
    assert (file.min_timestamp_us, file.max_timestamp_us) == (
        (NOON_MS + 5) * 1000,
        (NOON_MS + 19) * 1000,
    )


@pytest.mark.parametrize("time_ms", [-1, 0, -(1 << 53), (1 << 53) - 1])
def test_times_beyond_the_calendar_keep_their_value(table: Table, kit: Kit, time_ms: int) -> None:
    kit.archive(table, 0, 3, time_ms=lambda _: time_ms)
    (file,) = reopened(table).files
    assert (file.min_timestamp_us, file.max_timestamp_us) == (time_ms * 1000, time_ms * 1000)
    assert kit.offsets([file]) == [0, 1, 2]


def test_commits_follow_each_other(table: Table, kit: Kit) -> None:
    first = kit.archive(table, 0, 10)
    second = kit.archive(table, 10, 30)
    assert second.version == first.version + 1
    assert kit.offsets(reopened(table).files) == list(range(30))


def test_partitions_and_topics_go_each_their_own_way(table: Table, kit: Kit) -> None:
    kit.archive(table, 0, 10, topic="a.b", partition=7)
    kit.archive(table, 3, 5, topic="a.b", partition=11)
    kit.archive(table, 100, 110, topic="a", partition=7)
    assert reopened(table).ends == {
        TopicPartition("a.b", 7): 10,
        TopicPartition("a.b", 11): 5,
        TopicPartition("a", 7): 110,
    }


def test_an_advance_needs_no_file(table: Table) -> None:
    advance = Advance(topic="orders", partition=0, start=4, end=9)
    snapshot = table.commit(Change(operation="archive", advances=[advance]))
    assert (reopened(table), snapshot.ends, snapshot.files) == (snapshot, {ORDERS: 9}, ())


def test_ranges_of_one_partition_may_come_in_parts_and_in_any_order(table: Table, kit: Kit) -> None:
    parts = [kit.addition(10, 20), kit.addition(0, 10), kit.addition(20, 25)]
    change = Change(
        operation="archive",
        add=[file for part in parts for file in part.add],
        advances=[advance for part in parts for advance in part.advances],
    )
    assert table.commit(change).ends == {ORDERS: 25}
    assert kit.offsets(reopened(table).files) == list(range(25))


def test_parts_with_a_gap_between_them_are_a_conflict(table: Table, kit: Kit) -> None:
    parts = [kit.addition(0, 10), kit.addition(11, 20)]
    change = Change(operation="archive", advances=[a for part in parts for a in part.advances])
    with pytest.raises(Conflict, match="ends at offset 10, this change begins at 11"):
        table.commit(change)


@pytest.mark.parametrize(("start", "end"), [(0, 10), (0, 30), (5, 15), (11, 20), (20, 30)])
def test_a_change_that_does_not_begin_at_the_end_is_a_conflict(
    table: Table, kit: Kit, start: int, end: int
) -> None:
    before = kit.archive(table, 0, 10)
    late = kit.addition(start, end)
    with pytest.raises(
        Conflict, match=f"orders-0: the table ends at offset 10, this change begins at {start}"
    ):
        table.commit(late)
    assert reopened(table) == before
    assert kit.visible() == [file.path for file in before.files]


def test_ids_of_topics_are_kept_for_good(table: Table, kit: Kit) -> None:
    table.commit(replace(kit.addition(0, 10), topics={"orders": "aa"}))
    after = table.commit(replace(kit.addition(10, 20), topics={"clicks": "bb"}))
    assert reopened(table) == after
    assert after.topics == {"orders": "aa", "clicks": "bb"}


def test_another_topic_of_the_same_name_is_a_conflict(table: Table, kit: Kit) -> None:
    before = table.commit(replace(kit.addition(0, 10), topics={"orders": "aa"}))
    with pytest.raises(Conflict, match="another topic that was named orders"):
        table.commit(replace(kit.addition(10, 20), topics={"orders": "bb"}))
    assert reopened(table) == before


def test_of_two_writers_of_one_partition_the_second_is_told(table: Table, kit: Kit) -> None:
    other = open_table(kit.root)
    other.snapshot()
    kit.archive(table, 0, 10)
    with pytest.raises(Conflict):
        kit.archive(other, 0, 10)
    assert kit.archive(other, 10, 20).ends == {ORDERS: 20}
    other.close()


def test_writers_of_different_partitions_do_not_disturb_each_other(table: Table, kit: Kit) -> None:
    other = open_table(kit.root)
    other.snapshot()
    kit.archive(table, 0, 10)
    snapshot = kit.archive(other, 0, 10, partition=1)
    assert snapshot.ends == {ORDERS: 10, TopicPartition("orders", 1): 10}
    assert table.snapshot() == snapshot
    other.close()


def test_rows_outside_of_what_a_change_advances_over_are_refused(table: Table, kit: Kit) -> None:
    change = kit.addition(0, 10)
    narrow = replace(change, advances=[Advance(topic="orders", partition=0, start=0, end=9)])
    with pytest.raises(ValueError, match="outside of what the change advances over"):
        table.commit(narrow)
    assert reopened(table).files == ()


def test_an_advance_that_goes_back_is_refused(table: Table) -> None:
    advance = Advance(topic="orders", partition=0, start=9, end=4)
    with pytest.raises(ValueError, match="cannot go from 9 to 4"):
        table.commit(Change(operation="archive", advances=[advance]))


def test_a_staged_file_that_is_gone_is_not_committed(table: Table, kit: Kit) -> None:
    change = kit.addition(0, 10)
    os.unlink(kit.root / change.add[0].staged)
    with pytest.raises(StorageError, match="the staged file is not there"):
        table.commit(change)
    assert reopened(table).ends == {}


def test_a_staged_file_that_is_cut_is_not_committed(table: Table, kit: Kit) -> None:
    change = kit.addition(0, 10)
    os.truncate(kit.root / change.add[0].staged, 100)
    with pytest.raises(StorageError, match="has 100 bytes, not"):
        table.commit(change)


@pytest.mark.parametrize(
    "staged", ["/etc/hosts", "_tailrace/staging/../lake.json", "topic=orders/dt=2026-09-22/x.parquet"]
)
def test_a_file_from_elsewhere_is_not_committed(table: Table, kit: Kit, staged: str) -> None:
    change = kit.addition(0, 10)
    target = kit.root / staged
    if not target.exists():
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(b"x" * change.add[0].file.bytes)
    bad = replace(change, add=[replace(change.add[0], staged=staged)])
    with pytest.raises((LakeFileError, StorageError)):
        table.commit(bad)
    assert reopened(table).ends == {}


def test_bad_ranges_are_remembered_in_order(table: Table, kit: Kit) -> None:
    bad = [
        BadRange(topic="orders", partition=0, first_offset=i, last_offset=i + 1, reason=f'"{i}" <é>')
        for i in (3, 7)
    ]
    for start, each in zip((0, 5), bad, strict=True):
        table.commit(replace(kit.addition(start, start + 5), bad=[each]))
    assert list(reopened(table).bad) == bad


def test_compaction_replaces_files_and_no_row_changes(table: Table, kit: Kit) -> None:
    kit.archive(table, 0, 10)
    before = kit.archive(table, 10, 20)
    after = table.commit(kit.compaction(before.files))
    assert [(file.first_offset, file.last_offset) for file in after.files] == [(0, 19)]
    assert (after.ends, reopened(table)) == (before.ends, after)
    assert kit.offsets(after.files) == list(range(20))


def test_a_reader_with_an_older_snapshot_still_finds_every_row(table: Table, kit: Kit) -> None:
    kit.archive(table, 0, 10)
    before = kit.archive(table, 10, 20)
    table.commit(kit.compaction(before.files))
    assert kit.offsets(before.files) == list(range(20))


def test_a_file_rewritten_under_its_own_range_gets_another_name(table: Table, kit: Kit) -> None:
    before = kit.archive(table, 0, 10)
    after = table.commit(kit.compaction(before.files))
    again = table.commit(kit.compaction(after.files))
    paths = {file.path for snapshot in (before, after, again) for file in snapshot.files}
    assert len(paths) == 3
    assert [kit.offsets(each.files) for each in (before, after, again)] == [list(range(10))] * 3


def test_removing_what_somebody_else_removed_is_a_conflict(table: Table, kit: Kit) -> None:
    kit.archive(table, 0, 10)
    before = kit.archive(table, 10, 20)
    late = kit.compaction(before.files)
    after = table.commit(kit.compaction(before.files))
    with pytest.raises(Conflict, match="not in the table any more"):
        table.commit(late)
    assert reopened(table) == after


def test_archiving_beside_a_compaction_is_no_conflict(table: Table, kit: Kit) -> None:
    kit.archive(table, 0, 10)
    before = kit.archive(table, 10, 20)
    compaction = kit.compaction(before.files)
    kit.archive(table, 20, 30)
    after = table.commit(compaction)
    assert (after.ends, kit.offsets(after.files)) == ({ORDERS: 30}, list(range(30)))


def test_whole_files_can_be_dropped(table: Table, kit: Kit) -> None:
    snapshot = kit.archive(table, 0, 20, time_ms=lambda offset: NOON_MS + (offset // 10) * DAY_MS)
    old = [file for file in snapshot.files if file.day == "2026-09-22"]
    after = table.commit(Change(operation="retain", remove=old))
    assert kit.offsets(after.files) == list(range(10, 20))
    assert (reopened(table), after.ends) == (after, {ORDERS: 20})


def test_replaced_files_are_deleted_only_after_their_grace(table: Table, kit: Kit) -> None:
    kit.archive(table, 0, 10)
    before = kit.archive(table, 10, 20)
    long_ago = time.time() - 90 * 3600
    for file in before.files:
        os.utime(kit.root / file.path, (long_ago, long_ago))  # written long ago, removed now
    after = table.commit(kit.compaction(before.files))
    assert table.expire(older_than_h=1) == 0
    assert kit.offsets(before.files) == list(range(20))
    assert table.expire(older_than_h=0) == 2
    assert kit.offsets(after.files) == list(range(20))
    with pytest.raises(StorageError, match="not in the lake any more"):
        kit.offsets(before.files)
    assert reopened(table) == after


def test_recovery_clears_what_dead_runs_staged_and_spares_the_living(table: Table, kit: Kit) -> None:
    kit.stage(0, 10)
    with Staging(kit.root) as living:
        alive = kit.write(living.path, kit.pieces(0, 10))
        table.recover()
        staged = [path.relative_to(kit.root).as_posix() for path in kit.root.rglob("*.staged")]
        assert staged == [file.staged for file in alive.files]
    table.recover()
    assert list(kit.root.rglob("*.staged")) == []


def test_recovery_changes_nothing_that_is_committed(table: Table, kit: Kit) -> None:
    kit.archive(table, 0, 10)
    before = kit.archive(table, 10, 20)
    table.recover()
    assert reopened(table) == before
    assert kit.offsets(before.files) == list(range(20))


def test_a_commit_tells_how_far_it_is(table: Table, kit: Kit) -> None:
    steps: list[str] = []
    table.commit(kit.addition(0, 10), on_step=steps.append)
    assert steps[0] == "staged"
    assert {"logged", "moved", "placed"} <= set(steps)
    # Readers of folders see a file of ours after the log has it; other logs want it to be there before.
    assert (steps.index("logged") < steps.index("placed")) is (table.format == "parquet")


def test_many_commits_later_the_table_is_the_same(table: Table, kit: Kit) -> None:
    for version in range(52):  # past a checkpoint
        table.commit(
            Change(
                operation="archive",
                advances=[Advance(topic="orders", partition=0, start=version, end=version + 1)],
            )
        )
    kit.archive(table, 52, 60)
    assert reopened(table) == table.snapshot()
    assert reopened(table).ends == {ORDERS: 60}
