"""The cursor against a plain set of done offsets: the prefix, what lies beyond it, and what is new."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.subscriptions.cursor import Cursor
from tailrace.model.ranges import Ranges

BOUNDS = st.tuples(st.integers(0, 30), st.integers(0, 30))


def check(cursor: Cursor, done: set[int]) -> None:
    """The cursor says the same as the set, and keeps its rule."""
    position = min(set(range(100)) - done)
    assert cursor.position == position
    assert {at for start, end in cursor.beyond for at in range(start, end)} == {
        at for at in done if at > position
    }
    assert all(cursor.is_done(at) == (at in done) for at in range(40))
    assert all(cursor.done_from(at) == sum(each >= at for each in done) for at in range(40))


@given(st.integers(0, 10), st.lists(BOUNDS, max_size=12))
def test_whatever_is_done_in_whatever_order(position: int, ranges: list[tuple[int, int]]) -> None:
    cursor, done = Cursor(position), set(range(position))
    for start, end in ranges:
        offsets = set(range(start, end))
        assert cursor.done(start, end) == len(offsets - done)
        done |= offsets
        check(cursor, done)


@given(st.integers(0, 30), st.lists(BOUNDS, max_size=6))
def test_whatever_is_loaded_keeps_the_rule(position: int, beyond: list[tuple[int, int]]) -> None:
    done = set(range(position)) | {at for start, end in beyond for at in range(start, end)}
    check(Cursor(position, beyond), done)


def test_the_prefix_swallows_what_it_reaches() -> None:
    cursor = Cursor(5, [(7, 9), (10, 12)])
    assert cursor.done(5, 7) == 2
    assert cursor == Cursor(9, [(10, 12)])
    assert cursor.done(9, 10) == 1
    assert cursor == Cursor(12)


def test_what_is_done_already_is_not_new() -> None:
    cursor = Cursor(5, [(7, 9)])
    assert cursor.done(0, 5) == 0
    assert cursor.done(7, 9) == 0
    assert cursor == Cursor(5, [(7, 9)])


def test_moved_it_forgets_what_was_beyond() -> None:
    cursor = Cursor(5, [(7, 9)])
    cursor.move_to(2)
    assert cursor == Cursor(2)
    assert not cursor.is_done(8)


def test_two_that_say_the_same_are_equal() -> None:
    assert Cursor(3, [(5, 6), (6, 7)]) == Cursor(3, Ranges([(5, 7)]))
    assert Cursor(3) != Cursor(4)
    assert Cursor(3) != Cursor(3, [(5, 6)])
    assert Cursor(3) != 3
    with pytest.raises(TypeError):
        hash(Cursor(3))
    assert repr(Cursor(3, [(5, 7)])) == "<Cursor 3 and 2 beyond>"
