"""What an archive's next batch is: planned from plain numbers, the good and the bad ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import TopicPartition
from tailrace.spark.lake.missing import GONE
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.pipelines.archive_plan import (
    TASK_ROWS_MIN,
    BatchPlan,
    OtherTopic,
    Reach,
    check_same_topics,
    new_topic_ids,
    plan_batch,
    plan_tasks,
)

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def reach(start: int, end: int, *, high: int | None = None) -> Reach:
    return Reach(start=start, end=end, high=end if high is None else high)


def advances(plan: BatchPlan) -> dict[TopicPartition, tuple[int, int]]:
    return {TopicPartition(each.topic, each.partition): (each.start, each.end) for each in plan.advances}


def ranges(plan: BatchPlan) -> dict[TopicPartition, tuple[int, int]]:
    return {each.topic_partition: (each.start, each.end) for each in plan.ranges}


def test_a_batch_goes_from_the_lakes_end_to_the_topics_end() -> None:
    plan = plan_batch({A0: 5}, {A0: reach(0, 9)}, goal=None, rows_max=100)
    assert advances(plan) == {A0: (5, 9)} and ranges(plan) == {A0: (5, 9)}
    assert (plan.backlog, plan.count, list(plan.gaps)) == (4, 4, [])


def test_a_partition_with_nothing_new_is_left_out() -> None:
    plan = plan_batch({A0: 9, A1: 3}, {A0: reach(0, 9), A1: reach(3, 7)}, goal=None, rows_max=100)
    assert advances(plan) == {A1: (3, 7)} and ranges(plan) == {A1: (3, 7)}
    assert not plan.gaps


def test_nothing_new_is_an_empty_plan() -> None:
    plan = plan_batch({A0: 9, A1: 0}, {A0: reach(0, 9), A1: reach(0, 0)}, goal=None, rows_max=9)
    assert not plan.advances and not plan.ranges and plan.backlog == 0


def test_the_limit_is_shared_and_the_backlog_told_whole() -> None:
    there = {A0: reach(0, 900), B0: reach(0, 100)}
    plan = plan_batch({A0: 0, B0: 0}, there, goal=None, rows_max=100)
    assert ranges(plan) == {A0: (0, 90), B0: (0, 10)}
    assert (plan.count, plan.backlog) == (100, 1000)


def test_a_goal_bounds_the_batch_and_leaves_new_partitions_alone() -> None:
    there = {A0: reach(0, 50), A1: reach(0, 50)}
    plan = plan_batch({A0: 10, A1: 0}, there, goal={A0: 20}, rows_max=100)
    assert advances(plan) == {A0: (10, 20)}
    done = plan_batch({A0: 20, A1: 0}, there, goal={A0: 20}, rows_max=100)
    assert not done.advances


def test_what_retention_took_is_advanced_over_and_told() -> None:
    plan = plan_batch({A0: 5}, {A0: reach(8, 12)}, goal=None, rows_max=100)
    assert advances(plan) == {A0: (5, 12)} and ranges(plan) == {A0: (8, 12)}
    (gap,) = plan.gaps
    assert (gap.topic, gap.partition, gap.first_offset, gap.last_offset) == ("a", 0, 5, 7)
    assert (gap.reason, gap.saved) == (GONE, None)


@pytest.mark.parametrize("goal", [None, {A0: 7}])
def test_a_gap_with_nothing_after_it_is_still_told(goal: dict[TopicPartition, int] | None) -> None:
    plan = plan_batch({A0: 5}, {A0: reach(8, 8)}, goal=goal, rows_max=100)
    assert advances(plan) == {A0: (5, 8)} and not plan.ranges
    assert [(gap.first_offset, gap.last_offset) for gap in plan.gaps] == [(5, 7)]


def test_a_limited_batch_after_a_gap_still_covers_it() -> None:
    plan = plan_batch({A0: 5}, {A0: reach(100, 200)}, goal=None, rows_max=10)
    assert advances(plan) == {A0: (5, 110)} and ranges(plan) == {A0: (100, 110)}


def test_a_lake_ahead_of_its_topic_is_refused_with_the_fix() -> None:
    with pytest.raises(OtherTopic, match=r"a-0 go up to offset 10, and the topic ends at 4.*another lake"):
        check_same_topics({A0: 10}, {A0: reach(0, 4)}, topic_ids={})


def test_a_lake_with_more_partitions_than_its_topic_is_refused() -> None:
    with pytest.raises(OtherTopic, match="a-1, and the topic has no such partition"):
        check_same_topics({A0: 4, A1: 4}, {A0: reach(0, 4)}, topic_ids={})
    check_same_topics({A0: 4, A1: 0}, {A0: reach(0, 4)}, topic_ids={})  # the lake has nothing of a-1


def test_another_topic_of_the_same_name_is_refused_however_long_it_is() -> None:
    there = {A0: Reach(start=0, end=100, high=100, topic_id="new")}
    with pytest.raises(
        OtherTopic, match=r"another topic that was named a\. It was deleted and created again"
    ):
        check_same_topics({A0: 4}, there, topic_ids={"a": "old"})
    check_same_topics({A0: 4}, there, topic_ids={"a": "new", "b": "old"})
    check_same_topics({A0: 4}, there, topic_ids={})


def test_a_broker_without_ids_is_not_another_topic() -> None:
    check_same_topics({A0: 4}, {A0: reach(0, 4)}, topic_ids={"a": "old"})
    assert new_topic_ids({A0: reach(0, 4)}, topic_ids={}) == {}


def test_ids_are_new_until_the_lake_has_them() -> None:
    there = {A0: Reach(start=0, end=1, high=1, topic_id="x"), B0: Reach(start=0, end=1, high=1, topic_id="y")}
    assert new_topic_ids(there, topic_ids={"a": "x"}) == {"b": "y"}


def test_open_transactions_are_not_another_topic() -> None:
    there = {A0: reach(0, 4, high=12)}
    check_same_topics({A0: 10}, there, topic_ids={})
    assert not plan_batch({A0: 10}, there, goal=None, rows_max=9).advances


def test_topics_of_the_lake_that_the_run_is_not_about_are_left_alone() -> None:
    check_same_topics({B0: 1000}, {A0: reach(0, 4)}, topic_ids={})
    plan = plan_batch({A0: 0, B0: 1000}, {A0: reach(0, 4)}, goal=None, rows_max=9)
    assert advances(plan) == {A0: (0, 4)}


@given(
    st.dictionaries(
        st.tuples(st.sampled_from("ab"), st.integers(0, 3)),
        st.tuples(st.integers(0, 50), st.integers(0, 80), st.integers(0, 80), st.booleans()),
        min_size=1,
    ),
    st.integers(1, 60),
)
def test_batches_cover_every_offset_once_and_come_to_an_end(
    given_: dict[tuple[str, int], tuple[int, int, int, bool]], rows_max: int
) -> None:
    ends: dict[TopicPartition, int] = {}
    there: dict[TopicPartition, Reach] = {}
    for (topic, partition), (at, low, more, in_lake) in given_.items():
        tp = TopicPartition(topic, partition)
        there[tp] = reach(low, max(low, at) + more)
        ends[tp] = at if in_lake else low
    seen = dict(ends)
    for _ in range(2000):
        plan = plan_batch(ends, there, goal=None, rows_max=rows_max)
        if not plan.advances:
            break
        assert plan.count <= rows_max + len(there)
        for gap in plan.gaps:
            tp = TopicPartition(gap.topic, gap.partition)
            assert seen[tp] == gap.first_offset
            seen[tp] = gap.last_offset + 1
        for each in plan.ranges:
            assert seen[each.topic_partition] == each.start < each.end
            seen[each.topic_partition] = each.end
        ends |= {TopicPartition(each.topic, each.partition): each.end for each in plan.advances}
        assert all(seen[tp] == end for tp, end in ends.items())
    assert seen == {tp: each.end for tp, each in there.items()}


def whole(topic: str, partition: int, count: int) -> OffsetRange:
    return OffsetRange(topic=topic, partition=partition, start=0, end=count)


def test_a_large_range_is_cut_for_every_core_and_a_small_one_is_not() -> None:
    large = plan_tasks([whole("a", 0, 40 * TASK_ROWS_MIN)], cores=2)
    assert len(large) == 4
    small = [whole("a", each, 10) for each in range(20)]
    (task,) = plan_tasks(small, cores=2)
    assert task == small


def test_no_ranges_are_no_tasks() -> None:
    assert plan_tasks([], cores=2) == []
