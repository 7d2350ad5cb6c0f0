"""Verdicts by trend: series that leak, that are flat, that fall, and that are too short to tell."""

from __future__ import annotations

import random

import pytest
from bench.soak.trend import Course, Figure, course_of, judge, quarter, slope_per_hour

SPAN_S = 1200.0
TIMES_S = [float(at) for at in range(1, 1201)]
MEMORY = Figure(name="rss_mb", title="memory", unit="MB", noise=8.0)
LOAD = Figure(name="records_per_s", title="load", unit="/s", noise=0.0, more_is_better=True)


def test_a_leak_rises_and_fails() -> None:
    verdict = judge(MEMORY, TIMES_S, [100 + at * 0.05 for at in TIMES_S], span_s=SPAN_S)

    assert (verdict.course, verdict.passed) == ("rises", False)
    assert verdict.second is not None and verdict.last is not None
    assert verdict.second == pytest.approx(122.5, abs=0.1)
    assert verdict.last == pytest.approx(152.5, abs=0.1)
    assert verdict.slope_per_hour == pytest.approx(180)


def test_noise_around_a_level_is_flat() -> None:
    noise = random.Random(5)

    verdict = judge(MEMORY, TIMES_S, [200 + noise.uniform(-30, 30) for _ in TIMES_S], span_s=SPAN_S)

    assert (verdict.course, verdict.passed) == ("flat", True)


def test_what_grows_in_the_first_quarter_is_warm_up() -> None:
    verdict = judge(MEMORY, TIMES_S, [50 + min(at, 299) for at in TIMES_S], span_s=SPAN_S)

    assert verdict.course == "flat"
    assert verdict.slope_per_hour == pytest.approx(0)


def test_the_teeth_of_a_saw_are_flat() -> None:
    verdict = judge(MEMORY, TIMES_S, [100 + at % 30 * 4 for at in TIMES_S], span_s=SPAN_S)

    assert verdict.course == "flat"


def test_a_single_outlier_is_forgiven() -> None:
    values = [100.0] * len(TIMES_S)
    values[-1] = 10_000.0

    assert judge(MEMORY, TIMES_S, values, span_s=SPAN_S).course == "flat"


@pytest.mark.parametrize(("figure", "passed"), [(MEMORY, True), (LOAD, False)])
def test_a_fall_fails_only_where_more_is_better(figure: Figure, passed: bool) -> None:
    verdict = judge(figure, TIMES_S, [1000 - at * 0.5 for at in TIMES_S], span_s=SPAN_S)

    assert (verdict.course, verdict.passed) == ("falls", passed)


def test_a_rise_of_the_load_is_no_failure() -> None:
    assert judge(LOAD, TIMES_S, TIMES_S, span_s=SPAN_S).passed


@pytest.mark.parametrize("count", [0, 1, 2])
def test_too_few_samples_are_no_verdict_and_no_pass(count: int) -> None:
    times_s = [900.0 + at for at in range(count)] + [400.0, 401.0, 402.0]

    verdict = judge(MEMORY, times_s, [100.0] * len(times_s), span_s=SPAN_S)

    assert (verdict.course, verdict.passed, verdict.last) == ("too short", False, None)


@pytest.mark.parametrize(
    ("before", "after", "course"),
    [
        (1000.0, 1100.0, Course.FLAT),  # just a tenth
        (1000.0, 1100.1, Course.RISES),
        (1000.0, 900.0, Course.FLAT),
        (1000.0, 899.9, Course.FALLS),
        (10.0, 18.0, Course.FLAT),  # just the noise, and far over a tenth
        (10.0, 18.1, Course.RISES),
        (0.0, 8.0, Course.FLAT),
        (None, 8.0, Course.TOO_SHORT),
        (8.0, None, Course.TOO_SHORT),
    ],
)
def test_flat_is_within_a_tenth_or_within_the_noise(
    before: float | None, after: float | None, course: Course
) -> None:
    assert course_of(before, after, noise=8.0) == course


@pytest.mark.parametrize(
    ("at_s", "found"),
    [(-1.0, 0), (0.0, 0), (24.9, 0), (25.0, 1), (50.0, 2), (75.0, 3), (100.0, 3), (101.0, 3)],
)
def test_a_run_has_four_quarters(at_s: float, found: int) -> None:
    assert quarter(at_s, 100.0) == found


@pytest.mark.parametrize("pairs", [[], [(1.0, 5.0)], [(1.0, 5.0), (1.0, 7.0)]])
def test_a_line_needs_two_times(pairs: list[tuple[float, float]]) -> None:
    assert slope_per_hour(pairs) is None


def test_a_slope_is_per_hour() -> None:
    assert slope_per_hour([(0.0, 1.0), (10.0, 2.0), (20.0, 3.0)]) == pytest.approx(360)
