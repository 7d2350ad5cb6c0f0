"""Ranges against a plain set of numbers, and the cases where ranges meet."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model.ranges import Ranges

BOUNDS = st.tuples(st.integers(0, 40), st.integers(0, 40))


def runs(offsets: set[int]) -> list[tuple[int, int]]:
    """The runs of a set, found the slow way."""
    found: list[tuple[int, int]] = []
    for offset in sorted(offsets):
        if found and found[-1][1] == offset:
            found[-1] = (found[-1][0], offset + 1)
        else:
            found.append((offset, offset + 1))
    return found


@given(st.lists(BOUNDS, max_size=12))
def test_adding_is_union_and_tells_what_is_new(added: list[tuple[int, int]]) -> None:
    ranges, model = Ranges(), set[int]()
    for start, end in added:
        offsets = set(range(start, end))
        assert ranges.add(start, end) == runs(offsets - model)
        model |= offsets
        assert list(ranges) == runs(model)
        assert (len(ranges), ranges.count) == (len(runs(model)), len(model))


@given(st.lists(BOUNDS, max_size=8), st.integers(-1, 42))
def test_every_question_is_answered_as_the_set_would(added: list[tuple[int, int]], offset: int) -> None:
    ranges = Ranges(added)
    model = {number for start, end in added for number in range(start, end)}
    assert (offset in ranges) == (offset in model)
    assert ranges.first_gap(offset) == min(set(range(offset, 50)) - model)
    assert ranges.first == min(model, default=None)
    assert ranges.count_from(offset) == len([number for number in model if number >= offset])


@given(st.lists(BOUNDS, max_size=8), st.integers(-1, 42))
def test_dropping_leaves_what_lies_above(added: list[tuple[int, int]], offset: int) -> None:
    ranges = Ranges(added)
    model = {number for start, end in added for number in range(start, end) if number >= offset}
    ranges.drop_below(offset)
    assert list(ranges) == runs(model)
    assert ranges.count == len(model)


@pytest.mark.parametrize(
    ("start", "end", "new", "all_"),
    [
        (6, 9, [(6, 9)], [(3, 10), (12, 14)]),  # fills a gap exactly
        (2, 3, [(2, 3)], [(2, 6), (9, 10), (12, 14)]),  # touches a start
        (14, 15, [(14, 15)], [(3, 6), (9, 10), (12, 15)]),  # touches the end
        (4, 5, [], [(3, 6), (9, 10), (12, 14)]),  # lies within
        (0, 20, [(0, 3), (6, 9), (10, 12), (14, 20)], [(0, 20)]),  # covers everything
        (7, 7, [], [(3, 6), (9, 10), (12, 14)]),  # is empty
        (8, 7, [], [(3, 6), (9, 10), (12, 14)]),  # is the wrong way round
    ],
)
def test_where_ranges_meet(
    start: int, end: int, new: list[tuple[int, int]], all_: list[tuple[int, int]]
) -> None:
    ranges = Ranges([(3, 6), (9, 10), (12, 14)])
    assert ranges.add(start, end) == new
    assert list(ranges) == all_


def test_a_million_in_a_row_are_one_range() -> None:
    ranges = Ranges()
    for offset in range(1, 1_000_001, 100):
        ranges.add(offset, offset + 100)
    assert list(ranges) == [(1, 1_000_001)]
    assert ranges.count == 1_000_000


def test_two_with_the_same_offsets_are_equal() -> None:
    assert Ranges([(1, 3), (3, 5)]) == Ranges([(1, 5)])
    assert Ranges([(1, 3)]) != Ranges([(1, 4)])
    assert Ranges([(1, 3)]) != [(1, 3)]
    with pytest.raises(TypeError):
        hash(Ranges())


def test_it_shows_its_first_ranges() -> None:
    assert repr(Ranges([(3, 6), (9, 10)])) == "<Ranges 3-5,9>"
    assert repr(Ranges([(at, at + 1) for at in range(0, 14, 2)])) == "<Ranges 0,2,4,6,8, ...>"


def test_cleared_it_is_empty() -> None:
    ranges = Ranges([(1, 3)])
    ranges.clear()
    assert not ranges and ranges.count == 0 and ranges == Ranges()
