"""When rows leave that keep their distances in time: decided from a clock that is made up here."""

from __future__ import annotations

import numpy as np
import pytest

from tailrace.spark.pipelines.replay_pace import WAIT_S_MIN, Step, plan_step
from tailrace.spark.pipelines.replay_plan import Epoch

EPOCH = Epoch(wall_s=100.0, event_us=5_000_000)
DUE = np.array([5_000_000, 6_000_000, 6_000_000, 9_000_000], np.int64)


def step(
    *,
    now_s: float,
    speed: float = 1.0,
    until_s: float = 1e9,
    due: np.ndarray[tuple[int], np.dtype[np.int64]] = DUE,
) -> Step:
    return plan_step(due, epoch=EPOCH, speed=speed, now_s=now_s, until_s=until_s)


@pytest.mark.parametrize(
    ("now_s", "speed", "count"),
    [
        (100.0, 1.0, 1),
        (100.9, 1.0, 1),
        (101.0, 1.0, 3),
        (104.0, 1.0, 4),
        (1000.0, 1.0, 4),
        (100.125, 8.0, 3),
        (100.5, 8.0, 4),
        (101.0, 0.5, 1),
        (102.0, 0.5, 3),
    ],
)
def test_what_is_due_leaves_at_once(now_s: float, speed: float, count: int) -> None:
    assert step(now_s=now_s, speed=speed) == Step(count=count, wait_s=0.0)


@pytest.mark.parametrize(("speed", "wait_s"), [(1.0, 1.0), (10.0, 0.1), (0.5, 2.0)])
def test_before_that_it_waits_as_long_as_the_speed_says(speed: float, wait_s: float) -> None:
    found = step(now_s=100.0, speed=speed, due=DUE[1:])
    assert found.count == 0
    assert found.wait_s == pytest.approx(wait_s)


def test_it_waits_no_longer_than_its_time_lasts() -> None:
    assert step(now_s=100.0, due=DUE[3:], until_s=100.25).wait_s == pytest.approx(0.25)
    assert step(now_s=100.0, due=DUE[3:], until_s=99.0).wait_s == 0.0


def test_rows_close_together_share_a_request() -> None:
    close = np.array([5_000_001], np.int64)
    assert step(now_s=100.0, due=close).wait_s == pytest.approx(WAIT_S_MIN)


def test_no_rows_need_no_waiting() -> None:
    assert step(now_s=0.0, due=DUE[:0]) == Step(count=0, wait_s=0.0)


def test_a_whole_replay_takes_its_time_divided_by_the_speed() -> None:
    now_s, at, left_at = 100.0, 0, []
    while at < len(DUE):
        found = step(now_s=now_s, speed=2.0, due=DUE[at:])
        left_at += [now_s] * found.count
        at += found.count
        now_s += found.wait_s
    assert left_at == pytest.approx([100.0, 100.5, 100.5, 102.0])
