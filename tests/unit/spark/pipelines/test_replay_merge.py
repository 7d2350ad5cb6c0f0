"""Lanes merged by time: equal to a plain sort, however the lanes are cut into batches."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.codec import TIMESTAMP_TYPE
from tailrace.spark.pipelines.replay_merge import Stretch, TimeMerge, due_times
from tailrace.spark.pipelines.replay_plan import NO_TIME_US


def rows_of(times: Sequence[int], *, first: int = 0) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays(
        [pa.array(times, TIMESTAMP_TYPE), pa.array(range(first, first + len(times)), pa.int64())],
        names=["timestamp", "offset"],
    )


def stretches(times: Sequence[int], cuts: Sequence[int]) -> Iterator[Stretch]:
    """The rows of a lane in pieces, with empty ones among them where cuts coincide."""
    bounds = [0, *sorted(min(cut, len(times)) for cut in cuts), len(times)]
    for first, end in pairwise(bounds):
        yield Stretch(rows=rows_of(times[first:end], first=first), next_offset=end)


def merged(lanes: Sequence[Sequence[int]], cuts: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    merge = TimeMerge(
        [stretches(times, cut) for times, cut in zip(lanes, cuts, strict=True)],
        floors_us=[NO_TIME_US] * len(lanes),
        starts=[0] * len(lanes),
    )
    out: list[tuple[int, int, int]] = []
    for part in merge:
        offsets = part.rows.column("offset").to_pylist()
        out += zip(part.due_us.tolist(), part.lanes.tolist(), offsets, strict=True)
    assert merge.looked_through() == {at: (len(times), True) for at, times in enumerate(lanes)}
    return out


def plainly(lanes: Sequence[Sequence[int]]) -> list[tuple[int, int, int]]:
    return sorted(
        (max(times[: at + 1]), lane, at) for lane, times in enumerate(lanes) for at in range(len(times))
    )


TIMES = st.lists(st.integers(-5, 20), max_size=12)
CUTS = st.lists(st.integers(0, 12), max_size=4)


@given(st.lists(st.tuples(TIMES, CUTS), min_size=1, max_size=4))
def test_the_order_is_that_of_a_plain_sort_whatever_the_batches(
    lanes: list[tuple[list[int], list[int]]],
) -> None:
    assert merged([times for times, _ in lanes], [cuts for _, cuts in lanes]) == plainly(
        [times for times, _ in lanes]
    )


def test_equal_times_go_by_lane_and_never_wait_for_the_end_of_a_lane() -> None:
    """A lane of one time only must not be read into memory as a whole."""
    pulled: list[int] = []

    def endless(lane: int) -> Iterator[Stretch]:
        for at in range(1000):
            pulled.append(lane)
            yield Stretch(rows=rows_of([7], first=at), next_offset=at + 1)

    merge = TimeMerge([endless(0), endless(1)], floors_us=[NO_TIME_US] * 2, starts=[0, 0])
    first = next(iter(merge))
    assert first.lanes.tolist() == [0]
    assert len(pulled) == 2


def test_a_row_that_is_late_is_due_with_those_before_it() -> None:
    assert due_times(rows_of([5, 3, 9, 1]), floor_us=4).tolist() == [5, 5, 9, 9]
    assert due_times(rows_of([1, 2]), floor_us=4).tolist() == [4, 4]


def test_going_on_in_the_middle_gives_the_rest_of_the_same_order() -> None:
    lanes = [[1, 9, 2, 2], [3, 3, 1, 10]]
    whole = merged(lanes, [[], []])
    # After the first four, lane 0 is at its second row (due 9) and lane 1 at its fourth.
    assert whole[:4] == [(1, 0, 0), (3, 1, 0), (3, 1, 1), (3, 1, 2)]
    merge = TimeMerge(
        [
            iter([Stretch(rows=rows_of([9, 2, 2], first=1), next_offset=4)]),
            iter([Stretch(rows=rows_of([10], first=3), next_offset=4)]),
        ],
        floors_us=[1, 3],
        starts=[1, 3],
    )
    rest = [
        each
        for part in merge
        for each in zip(
            part.due_us.tolist(), part.lanes.tolist(), part.rows.column("offset").to_pylist(), strict=True
        )
    ]
    assert rest == whole[4:]


def test_a_merge_that_is_late_says_how_far_each_lane_was_looked_through() -> None:
    empty = Stretch(rows=rows_of([]), next_offset=50)
    late = False

    def lane() -> Iterator[Stretch]:
        nonlocal late
        yield empty
        late = True
        yield Stretch(rows=rows_of([]), next_offset=60)
        raise AssertionError("a late merge asks for no more")

    merge = TimeMerge([lane()], floors_us=[0], starts=[5], is_late=lambda: late)
    assert list(merge) == []
    assert merge.looked_through() == {0: (60, False)}


def test_a_merge_that_is_late_from_the_start_still_gets_somewhere() -> None:
    lanes = [stretches([1, 2], [1]), stretches([1, 2], [1])]
    merge = TimeMerge(lanes, floors_us=[NO_TIME_US] * 2, starts=[0, 0], is_late=lambda: True)
    assert sum(part.rows.num_rows for part in merge) > 0


def test_sources_and_floors_must_match() -> None:
    with pytest.raises(ValueError, match="zip"):
        TimeMerge([iter([])], floors_us=[], starts=[0])


def test_times_outside_of_pythons_years_are_numbers_like_others() -> None:
    far = 1 << 60
    assert due_times(rows_of([far, -far]), floor_us=NO_TIME_US).tolist() == [far, far]
    assert np.int64(far) == far
