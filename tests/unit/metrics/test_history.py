"""Samples of the last while: their order, what is missing between them, and that they are bounded."""

from __future__ import annotations

import pytest

from tailrace.metrics.history import History


def test_a_column_ends_with_the_newest_tick() -> None:
    history = History(samples_max=10, since=1)
    history.add(1, (1.0, 10.0))
    history.add(2, (2.0, 20.0))
    assert history.column(0, tick=2) == [1.0, 2.0]
    assert history.column(1, tick=2) == [10.0, 20.0]


@pytest.mark.parametrize("missing", [0.0, None])
def test_ticks_without_a_row_have_what_is_missing(missing: float | None) -> None:
    history = History(samples_max=10, since=1, missing=missing)
    history.add(2, (5.0,))
    assert history.column(0, tick=4) == [missing, 5.0, missing, missing]


def test_no_more_is_given_than_was_asked_for() -> None:
    history = History(samples_max=10, since=1)
    for tick in range(1, 6):
        history.add(tick, (float(tick),))
    assert history.column(0, tick=5, count=2) == [4.0, 5.0]
    assert history.column(0, tick=5, count=99) == [1.0, 2.0, 3.0, 4.0, 5.0]


def test_the_oldest_are_forgotten() -> None:
    history = History(samples_max=3, since=1)
    for tick in range(1, 101):
        history.add(tick, (float(tick),))
    assert history.column(0, tick=100) == [98.0, 99.0, 100.0]


@pytest.mark.parametrize("tick", [-1, 0])
def test_before_the_first_sample_there_is_nothing(tick: int) -> None:
    assert History(samples_max=3, since=1).column(0, tick=tick) == []
