"""Progress and pace with a clock of the test's own: rates, times left, and what JSON gets."""

from __future__ import annotations

import json

import pytest

from tailrace.spark.pipelines.progress import Pace, Progress, ignore, progress_fields


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_rate_is_that_of_the_last_seconds(clock: Clock) -> None:
    pace = Pace(window_s=10, now=clock)
    for rows in (1_000, 1_000, 0, 0, 0, 10, 10, 10):  # a batch every five seconds
        clock.now += 5
        pace.add(rows)
    assert pace.rows == 2_030
    assert pace.rows_per_s == pytest.approx(2)


def test_a_batch_longer_than_the_window_has_a_rate(clock: Clock) -> None:
    pace = Pace(window_s=10, now=clock)
    clock.now += 60
    pace.add(600)
    assert pace.rows_per_s == pytest.approx(10)
    clock.now += 60
    pace.add(1_200)
    assert pace.rows_per_s == pytest.approx(20)


def test_a_rate_sinks_while_nothing_comes(clock: Clock) -> None:
    pace = Pace(now=clock)
    clock.now += 1
    pace.add(100)
    clock.now += 9
    assert pace.rows_per_s == pytest.approx(10)


def test_a_run_that_has_just_begun_has_no_absurd_rate(clock: Clock) -> None:
    pace = Pace(now=clock)
    assert pace.rows_per_s == 0
    pace.add(5)
    assert pace.rows_per_s <= 100


def test_marks_of_a_long_run_are_bounded(clock: Clock) -> None:
    pace = Pace(window_s=1e9, now=clock)
    for _ in range(5_000):
        clock.now += 1
        pace.add(3)
    assert len(pace._marks) <= 1_000
    assert pace.rows_per_s == pytest.approx(3)


@pytest.mark.parametrize(("left", "eta_s"), [(100, 10.0), (0, 0.0), (-5, 0.0), (None, None), (10**12, None)])
def test_the_time_left_follows_from_the_rate(clock: Clock, left: int | None, eta_s: float | None) -> None:
    pace = Pace(now=clock)
    clock.now += 1
    pace.add(10)
    assert pace.eta_s(left) == (None if eta_s is None else pytest.approx(eta_s))


def test_without_a_rate_nobody_knows_the_time_left(clock: Clock) -> None:
    pace = Pace(now=clock)
    clock.now += 1
    assert pace.eta_s(10) is None


def test_json_has_partitions_as_text_and_short_figures() -> None:
    progress = Progress(
        pipeline="archive",
        batch=2,
        rows=7,
        rows_per_s=1.23456,
        lag=None,
        offsets={"t": {0: 5, 10: 2}},
        eta_s=0.777,
    )
    ignore(progress)
    assert json.loads(json.dumps(progress_fields(progress))) == {
        "pipeline": "archive",
        "batch": 2,
        "rows": 7,
        "rows_per_s": 1.2,
        "lag": None,
        "offsets": {"t": {"0": 5, "10": 2}},
        "bytes": 0,
        "watermark": None,
        "eta_s": 0.8,
        "note": "",
        "notice": "",
        "missing": [],
        "missing_offsets": {},
    }
