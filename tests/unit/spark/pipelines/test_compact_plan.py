"""Which files are rewritten together and which days go: planned from made-up files."""

from __future__ import annotations

import datetime

from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.lake import DataFile
from tailrace.spark.pipelines.compact_plan import (
    REWRITE_FILES_MAX,
    pick_topics,
    plan_dropped,
    plan_rewrites,
)

TARGET = 1000


def file(
    first: int,
    *,
    size: int = 10,
    topic: str = "a",
    partition: int = 0,
    day: str = "2026-11-16",
    latest_us: int = 1,
) -> DataFile:
    return DataFile(
        path=f"topic={topic}/dt={day}/p{partition:05d}-{first:020d}-{first + 9:020d}.parquet",
        topic=topic,
        partition=partition,
        day=day,
        first_offset=first,
        last_offset=first + 9,
        rows=10,
        bytes=size,
        min_timestamp_us=latest_us,
        max_timestamp_us=latest_us,
    )


def firsts(files: list[DataFile]) -> list[list[int]]:
    return [[each.first_offset for each in plan.files] for plan in plan_rewrites(files, file_bytes=TARGET)]


def test_small_neighbours_become_one_file() -> None:
    assert firsts([file(20), file(0), file(10)]) == [[0, 10, 20]]


def test_a_single_file_is_left_alone() -> None:
    assert firsts([file(0), file(10, partition=1), file(20, day="2026-11-17"), file(30, topic="b")]) == []


def test_large_files_are_left_alone_and_part_their_neighbours() -> None:
    assert firsts([file(0), file(10), file(20, size=750), file(30), file(40)]) == [[0, 10], [30, 40]]
    assert firsts([file(0, size=900), file(10, size=5000)]) == []


def test_files_are_filled_up_to_the_wanted_size() -> None:
    assert firsts([file(at * 10, size=400) for at in range(5)]) == [[0, 10], [20, 30]]


def test_the_groups_with_the_most_files_come_first() -> None:
    few, many = [file(0), file(10)], [file(at * 10, partition=1) for at in range(3)]
    assert [len(each.files) for each in plan_rewrites(few + many, file_bytes=TARGET)] == [3, 2]


def test_a_task_never_opens_more_files_than_it_may() -> None:
    plans = plan_rewrites([file(at * 10, size=1) for at in range(REWRITE_FILES_MAX + 2)], file_bytes=1 << 30)
    assert sorted(len(each.files) for each in plans) == [2, REWRITE_FILES_MAX]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(1, 1200)), max_size=40))
def test_every_file_is_in_one_rewrite_at_most_and_rewriting_comes_to_an_end(
    sizes: list[tuple[int, int]],
) -> None:
    files = [file(at * 10, size=size, partition=partition) for at, (partition, size) in enumerate(sizes)]
    plans = plan_rewrites(files, file_bytes=TARGET)
    taken = [each.path for plan in plans for each in plan.files]
    assert len(taken) == len(set(taken))
    for plan in plans:
        assert len(plan.files) > 1 and plan.bytes <= TARGET
        assert len({each.partition for each in plan.files}) == 1
        inside = [
            each
            for each in files
            if each.partition == plan.files[0].partition
            and plan.files[0].first_offset <= each.first_offset <= plan.files[-1].first_offset
        ]
        assert inside == list(plan.files)  # neighbours only


TODAY = datetime.date(2026, 11, 16)


def test_days_past_retention_go_and_the_last_one_within_it_stays() -> None:
    files = [file(at * 10, day=day) for at, day in enumerate(["2026-11-12", "2026-11-13", "2026-11-14"])]
    dropped = plan_dropped(files, retain_days=3, today=TODAY)
    assert [each.day for each in dropped] == ["2026-11-12"]


def test_days_to_come_stay() -> None:
    assert plan_dropped([file(0, day="9999-12-31")], retain_days=1, today=TODAY) == []


def test_records_without_a_time_stay() -> None:
    assert plan_dropped([file(0, day="1969-12-31", latest_us=-1000)], retain_days=1, today=TODAY) == []


def test_topics_are_picked_by_name_and_all_without_one() -> None:
    files = [file(0), file(0, topic="b")]
    assert [each.topic for each in pick_topics(files, ["b"])] == ["b"]
    assert pick_topics(files, []) == files
