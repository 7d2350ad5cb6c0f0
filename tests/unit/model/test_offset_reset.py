"""Where a reset brings a group: the rule alone, by example, and what always holds for made-up logs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import TopicPartition
from tailrace.model.offset_reset import (
    CannotReset,
    Goal,
    Move,
    Place,
    Standing,
    count_lag,
    plan_moves,
    plan_reset,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
HALF_READ = Standing(committed=50, start=10, end=100, at_time=70)


def moved(goal: Goal, standing: Standing = HALF_READ) -> Move:
    (move,) = plan_reset(goal, {T0: standing})
    return move


@pytest.mark.parametrize(
    ("goal", "after", "clamped"),
    [
        (Goal(place="earliest"), 10, False),
        (Goal(place="latest"), 100, False),
        (Goal(place="current"), 50, False),
        (Goal(offset=10), 10, False),
        (Goal(offset=60), 60, False),
        (Goal(offset=100), 100, False),
        (Goal(offset=101), 100, True),
        (Goal(offset=9), 10, True),
        (Goal(offset=0), 10, True),
        (Goal(time_ms=1), 70, False),
        (Goal(shift=0), 50, False),
        (Goal(shift=50), 100, False),
        (Goal(shift=51), 100, True),
        (Goal(shift=-40), 10, False),
        (Goal(shift=-41), 10, True),
    ],
)
def test_a_goal_is_an_offset_inside_the_log(goal: Goal, after: int, clamped: bool) -> None:
    move = moved(goal)
    assert (move.before, move.after, move.is_clamped) == (50, after, clamped)
    assert (move.start, move.end, move.lag) == (10, 100, 100 - after)


def test_a_time_after_every_record_is_the_end() -> None:
    move = moved(Goal(time_ms=1), Standing(committed=None, start=10, end=100, at_time=None))
    assert (move.before, move.after, move.is_clamped) == (None, 100, False)


def test_what_is_committed_outside_the_log_comes_back_into_it() -> None:
    move = moved(Goal(place="current"), Standing(committed=3, start=10, end=100))
    assert (move.after, move.is_clamped) == (10, True)


@pytest.mark.parametrize(("goal", "verb"), [(Goal(shift=1), "shifted"), (Goal(place="current"), "kept")])
def test_what_was_never_committed_is_named(goal: Goal, verb: str) -> None:
    standings = {T0: HALF_READ, T1: Standing(committed=None, start=0, end=5)}
    with pytest.raises(CannotReset, match=f"t-1 has no committed offset that could be {verb}"):
        plan_reset(goal, standings)


@pytest.mark.parametrize("place", ["earliest", "latest"])
def test_what_was_never_committed_can_be_sent_somewhere(place: Place) -> None:
    assert moved(Goal(place=place), Standing(committed=None, start=0, end=5)).before is None


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"offset": 1, "shift": 1},
        {"place": "earliest", "offset": 0},
        {"time_ms": 0, "shift": 0},
    ],
)
def test_a_goal_is_one_thing(fields: dict[str, object]) -> None:
    with pytest.raises(CannotReset, match="one place"):
        Goal(**fields)  # type: ignore[arg-type]


def test_zero_is_a_goal() -> None:
    assert moved(Goal(offset=0)).after == 10
    assert moved(Goal(shift=0)).after == 50


def test_moves_are_by_partition_and_only_of_what_was_asked() -> None:
    empty = Standing(committed=None, start=0, end=0)
    moves = plan_moves({T1: 5, T0: 60}, {T0: HALF_READ, T1: empty, TopicPartition("u", 0): empty})
    assert [(move.target, move.after, move.is_clamped) for move in moves] == [
        (T0, 60, False),
        (T1, 0, True),
    ]


@pytest.mark.parametrize(
    ("committed", "lag"), [(50, 50), (100, 0), (120, 0), (10, 90), (0, 90)]
)  # the log holds 10 to 100
def test_lag_is_what_can_still_be_read(committed: int, lag: int) -> None:
    assert count_lag(committed=committed, start=10, end=100) == lag


_OFFSETS = st.integers(0, 2**40)
_LOGS = st.builds(
    lambda start, size, committed, at_time: Standing(
        committed=committed, start=start, end=start + size, at_time=at_time
    ),
    _OFFSETS,
    _OFFSETS,
    st.none() | _OFFSETS,
    st.none() | _OFFSETS,
)
_GOALS = st.one_of(
    st.sampled_from(["earliest", "latest", "current"]).map(lambda place: Goal(place=place)),  # type: ignore[arg-type]
    _OFFSETS.map(lambda offset: Goal(offset=offset)),
    st.integers(-(2**63), 2**63).map(lambda shift: Goal(shift=shift)),
    _OFFSETS.map(lambda time_ms: Goal(time_ms=time_ms)),
)


@given(goal=_GOALS, log=_LOGS)
def test_nobody_is_sent_outside_the_log(goal: Goal, log: Standing) -> None:
    try:
        move = moved(goal, log)
    except CannotReset:
        assert log.committed is None
        return
    assert log.start <= move.after <= log.end
    assert 0 <= move.lag <= log.end - log.start
    again = moved(Goal(place="current"), Standing(committed=move.after, start=log.start, end=log.end))
    assert (again.after, again.is_clamped) == (move.after, False)
