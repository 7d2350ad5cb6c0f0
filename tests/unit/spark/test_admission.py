"""How a batch's limit is shared and how ranges become tasks, by generated backlogs."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import TopicPartition
from tailrace.spark.admission import plan_admission, plan_ranges, split_range
from tailrace.spark.offset_range import OffsetRange

A, B = TopicPartition("orders", 0), TopicPartition("orders", 1)

partitions = st.builds(TopicPartition, st.sampled_from(["a", "b"]), st.integers(0, 5))
logs = st.dictionaries(
    partitions, st.tuples(st.integers(0, 1 << 40), st.integers(0, 1 << 40)), min_size=1, max_size=8
)
ranges = logs.map(
    lambda found: [
        OffsetRange(topic=tp.topic, partition=tp.partition, start=start, end=start + count)
        for tp, (start, count) in found.items()
    ]
)


def test_without_a_limit_a_batch_takes_everything() -> None:
    assert plan_admission({A: 5, B: 0}, {A: 9, B: 7}, offsets_max=None) == {A: 9, B: 7}


def test_a_limit_is_shared_in_proportion_to_what_waits() -> None:
    assert plan_admission({A: 0, B: 100}, {A: 300, B: 200}, offsets_max=40) == {A: 30, B: 110}


def test_a_small_partition_is_not_starved_by_a_large_one() -> None:
    assert plan_admission({A: 0, B: 0}, {A: 1_000_000, B: 1}, offsets_max=10) == {A: 9, B: 1}


def test_a_partition_that_shrank_or_vanished_stays_where_it_was() -> None:
    assert plan_admission({A: 9, B: 4}, {A: 3}, offsets_max=10) == {A: 9, B: 4}


def test_a_byte_limit_counts_the_estimated_size_of_records() -> None:
    ends = plan_admission(
        {A: 0, B: 0},
        {A: 1000, B: 1000},
        offsets_max=None,
        bytes_max=11_000,
        record_bytes={A: 10.0, B: 100.0},
    )
    assert ends == {A: 100, B: 100}


@given(logs, st.integers(1, 1 << 41))
def test_a_batch_moves_on_and_keeps_its_limit(log: dict[TopicPartition, tuple[int, int]], limit: int) -> None:
    start = {tp: first for tp, (first, _) in log.items()}
    latest = {tp: first + count for tp, (first, count) in log.items()}
    end = plan_admission(start, latest, offsets_max=limit)
    taken = {tp: end[tp] - start[tp] for tp in start}
    waiting = [tp for tp, (_, count) in log.items() if count]
    assert all(0 <= taken[tp] <= latest[tp] - start[tp] for tp in start)
    assert all(taken[tp] for tp in waiting)
    assert sum(taken.values()) < limit + len(waiting) or not waiting


@given(logs, st.integers(1, 1 << 50), st.floats(0.5, 1e6))
def test_a_byte_limit_is_kept_but_for_one_record_of_each(
    log: dict[TopicPartition, tuple[int, int]], limit: int, size: float
) -> None:
    start = {tp: first for tp, (first, _) in log.items()}
    latest = {tp: first + count for tp, (first, count) in log.items()}
    sizes = dict.fromkeys(start, size)
    end = plan_admission(start, latest, offsets_max=None, bytes_max=limit, record_bytes=sizes)
    counted = sum((end[tp] - start[tp]) * max(size, 1.0) for tp in start)
    assert counted <= limit * 1.0001 + max(size, 1.0) * len(start)
    assert all(end[tp] > start[tp] for tp, (_, count) in log.items() if count)


@given(ranges, st.integers(1, 40), st.booleans())
def test_tasks_cover_every_offset_once(wanted: list[OffsetRange], parts: int, splits: bool) -> None:
    tasks = plan_ranges(wanted, parts=parts, splits=splits)
    assert len(tasks) <= parts
    assert all(task and all(each.count for each in task) for task in tasks)
    for one in wanted:
        found = sorted(
            (each.start, each.end)
            for task in tasks
            for each in task
            if each.topic_partition == one.topic_partition
        )
        if not one.count:
            assert not found
            continue
        assert (found[0][0], found[-1][1]) == (one.start, one.end)
        assert all(left[1] == right[0] for left, right in pairwise(found))
        assert splits or len(found) == 1


def test_a_plan_does_not_depend_on_the_order_in_which_ranges_come() -> None:
    wanted = [OffsetRange(topic="t", partition=p, start=p, end=100 * p + 7) for p in range(6)]
    assert plan_ranges(wanted, parts=4) == plan_ranges(wanted[::-1], parts=4)


def test_one_large_range_becomes_as_many_tasks_as_asked_for() -> None:
    wanted = [OffsetRange(topic="t", partition=0, start=10, end=110)]
    assert [str(task[0]) for task in plan_ranges(wanted, parts=4)] == [
        "t-0 [10, 35)",
        "t-0 [35, 60)",
        "t-0 [60, 85)",
        "t-0 [85, 110)",
    ]


def test_nothing_to_read_is_no_task() -> None:
    assert plan_ranges([], parts=4) == []
    assert plan_ranges([OffsetRange(topic="t", partition=0, start=3, end=3)], parts=4) == []


def test_a_range_is_not_cut_finer_than_its_offsets() -> None:
    assert len(split_range(OffsetRange(topic="t", partition=0, start=0, end=3), 10)) == 3


@pytest.mark.parametrize(("start", "end"), [(-1, 5), (6, 5)])
def test_a_range_that_cannot_be_is_refused(start: int, end: int) -> None:
    with pytest.raises(ValueError, match="is no range"):
        OffsetRange(topic="t", partition=0, start=start, end=end)
