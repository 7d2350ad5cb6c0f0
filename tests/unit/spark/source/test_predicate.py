"""Filters pushed down by Spark: what they cut off, and what Spark has to check again."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import TopicPartition
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.source.predicate import plan_bounds, plan_narrowed

datasource = pytest.importorskip("pyspark.sql.datasource")
pytestmark = pytest.mark.skipif(not hasattr(datasource, "EqualTo"), reason="filters come with pyspark 4.1")

WHOLE = [OffsetRange(topic=t, partition=p, start=0, end=100) for t in ("a", "b") for p in (0, 1, 2)]


def on(kind: str, column: str, value: Any = None) -> Any:
    made = getattr(datasource, kind)
    return made((column,)) if kind in ("IsNull", "IsNotNull") else made((column,), value)


def narrowed(*filters: Any) -> list[str]:
    return [str(each) for each in plan_narrowed(WHOLE, plan_bounds(filters)[0], first_in_time={})]


@pytest.mark.parametrize(
    ("filters", "ranges"),
    [
        (
            [on("EqualTo", "topic", "a"), on("EqualTo", "partition", 1), on("EqualTo", "offset", 7)],
            ["a-1 [7, 8)"],
        ),
        ([on("In", "topic", ("b", "c")), on("In", "partition", (0, 7))], ["b-0 [0, 100)"]),
        (
            [on("EqualTo", "topic", "b"), on("GreaterThan", "partition", 1), on("LessThan", "offset", 5)],
            ["b-2 [0, 5)"],
        ),
        (
            [
                on("EqualTo", "topic", "b"),
                on("LessThanOrEqual", "partition", 0),
                on("GreaterThanOrEqual", "offset", 90),
                on("LessThanOrEqual", "offset", 95),
            ],
            ["b-0 [90, 96)"],
        ),
        ([on("EqualTo", "topic", "a"), on("EqualTo", "topic", "b")], []),
        ([on("GreaterThan", "offset", 99)], []),
        ([on("LessThan", "offset", -3)], []),
    ],
)
def test_ranges_shrink_to_what_can_match_and_nothing_is_left_to_check(
    filters: list[Any], ranges: list[str]
) -> None:
    assert narrowed(*filters) == ranges
    assert plan_bounds(filters)[1] == []


def test_offsets_in_a_list_are_cut_around_it_and_checked_again() -> None:
    chosen = on("In", "offset", (40, 7))
    assert narrowed(chosen, on("EqualTo", "topic", "a"), on("EqualTo", "partition", 0)) == ["a-0 [7, 41)"]
    assert plan_bounds([chosen])[1] == [chosen]


@pytest.mark.parametrize(
    "given_filter",
    [
        on("EqualTo", "value", b"x"),
        on("IsNull", "offset"),
        on("EqualTo", "offset", None),
        on("EqualTo", "offset", True),
        on("EqualTo", "offset", "7"),
        on("StringStartsWith", "topic", "a"),
        on("In", "offset", ()),
        on("In", "partition", (1, None)),
        on("LessThan", "timestamp", datetime(2026, 1, 1, tzinfo=UTC)),
        on("GreaterThan", "timestamp", datetime(2026, 1, 1)),  # without a zone
    ],
    ids=repr,
)
def test_what_is_not_understood_changes_nothing_and_is_left_to_spark(given_filter: Any) -> None:
    bounds, left = plan_bounds([given_filter])
    assert left == [given_filter]
    assert bounds == plan_bounds([])[0]


def test_a_filter_inside_a_column_is_left_to_spark() -> None:
    inner = datasource.EqualTo(("headers", "key"), "x")
    assert plan_bounds([inner]) == (plan_bounds([])[0], [inner])


@pytest.mark.parametrize("kind", ["EqualTo", "GreaterThan", "GreaterThanOrEqual"])
def test_a_lower_bound_in_time_is_known_to_the_millisecond_and_checked_again(kind: str) -> None:
    at = datetime(2026, 1, 1, 1, 0, 0, 1999, tzinfo=timezone(timedelta(hours=1)))
    lower = on(kind, "timestamp", at)
    bounds, left = plan_bounds([lower])
    assert bounds.time_ms_min == 1767225600001
    assert left == [lower]


def test_a_lower_bound_before_1970_passes_over_nothing() -> None:
    lower = on("GreaterThan", "timestamp", datetime(1960, 1, 1, tzinfo=UTC))
    bounds, left = plan_bounds([lower])
    assert bounds.time_ms_min is None, "a record without a time has -1 ms, and the log cannot be asked for it"
    assert left == [lower]


def test_records_before_the_first_one_late_enough_are_not_read() -> None:
    bounds = plan_bounds([on("GreaterThan", "timestamp", datetime(2026, 1, 1, tzinfo=UTC))])[0]
    times = {TopicPartition("a", 0): 60, TopicPartition("a", 1): 100}
    assert [str(each) for each in plan_narrowed(WHOLE[:2], bounds, first_in_time=times)] == ["a-0 [60, 100)"]


_COMPARE = {
    "EqualTo": lambda left, right: left == right,
    "LessThan": lambda left, right: left < right,
    "LessThanOrEqual": lambda left, right: left <= right,
    "GreaterThan": lambda left, right: left > right,
    "GreaterThanOrEqual": lambda left, right: left >= right,
}
comparisons = st.tuples(
    st.sampled_from(sorted(_COMPARE)), st.sampled_from(["offset", "partition"]), st.integers(-2, 12)
)


@given(st.lists(comparisons, max_size=5))
def test_exactly_the_offsets_that_satisfy_all_comparisons_are_left(
    chosen: list[tuple[str, str, int]],
) -> None:
    whole = [OffsetRange(topic="a", partition=p, start=0, end=10) for p in range(4)]
    bounds, left = plan_bounds([on(*each) for each in chosen])
    kept = plan_narrowed(whole, bounds, first_in_time={})
    found = {(each.partition, offset) for each in kept for offset in range(each.start, each.end)}
    wanted = {
        (p, offset)
        for p in range(4)
        for offset in range(10)
        if all(_COMPARE[kind](offset if column == "offset" else p, value) for kind, column, value in chosen)
    }
    assert (found, left) == (wanted, [])
