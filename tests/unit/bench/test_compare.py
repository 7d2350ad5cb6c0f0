"""Taking turns, with sides that only note that they ran."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import count

import pytest

from tailrace.bench.compare import Comparison, Turns, compare


def take_turns(runs: int, *, seconds_max: float = 600) -> tuple[list[str], Comparison]:
    """Who ran when, and the comparison of sides that return 1, 2, 3 and 10, 20, 30 and so on."""
    turns = Turns(runs=runs, seconds_max=seconds_max)
    ran: list[str] = []
    numbers: Iterator[int] = count(1)
    tens: Iterator[int] = count(10, 10)

    async def ours() -> float:
        ran.append("ours")
        return next(numbers)

    def bare() -> float:
        ran.append("bare")
        return next(tens)

    return ran, asyncio.run(compare(turns, unit="MiB/s", ours=ours, bare=bare))


def test_who_goes_first_changes_with_every_turn() -> None:
    ran, _ = take_turns(runs=3)
    assert ran == ["bare", "ours", "ours", "bare", "bare", "ours", "ours", "bare"]


def test_the_first_turn_is_not_counted() -> None:
    _, comparison = take_turns(runs=3)
    assert (comparison.ours, comparison.bare) == ((2, 3, 4), (20, 30, 40))


def test_a_machine_too_slow_for_all_runs_makes_three() -> None:
    _, comparison = take_turns(runs=100, seconds_max=0)
    assert len(comparison.ours) == len(comparison.bare) == 3


def test_fewer_runs_than_that_stay_fewer() -> None:
    _, comparison = take_turns(runs=2, seconds_max=0)
    assert len(comparison.ours) == 2


def test_the_ratio_is_of_medians_and_over_one_where_we_are_faster() -> None:
    assert Comparison(unit="x", ours=(1, 8, 1000), bare=(2, 2, 3)).ratio == 4
    assert Comparison(unit="x", ours=(2, 2, 3), bare=(1, 8, 1000)).ratio == 0.25


def test_details_tell_the_absolute_figures() -> None:
    assert Comparison(unit="MiB/s", ours=(1, 2, 9), bare=(4, 4, 4)).details() == {
        "unit": "MiB/s",
        "runs": 3,
        "tailrace": {"min": 1, "median": 2, "max": 9},
        "bare": {"min": 4, "median": 4, "max": 4},
    }


def test_a_side_that_fails_ends_it() -> None:
    async def ours() -> float:
        raise OSError(28, "No space left on device")

    with pytest.raises(OSError, match="No space"):
        asyncio.run(compare(Turns(runs=2, seconds_max=600), unit="x", ours=ours, bare=lambda: 1.0))
