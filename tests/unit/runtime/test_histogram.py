"""Histograms: where an observation goes, what is cumulative, what quantiles come out of made-up numbers."""

from __future__ import annotations

import pytest

from tailrace.runtime import BOUNDS_S, Histogram, quantile_s


@pytest.mark.parametrize(
    ("seconds", "bucket"),
    [
        (0.0, 0),
        (0.0001, 0),  # a bound belongs to its own bucket
        (0.000_100_1, 1),
        (0.003, 5),
        (30.0, len(BOUNDS_S) - 1),
        (31.0, len(BOUNDS_S)),
        (1e9, len(BOUNDS_S)),
    ],
)
def test_an_observation_goes_into_the_first_bucket_that_holds_it(seconds: float, bucket: int) -> None:
    histogram = Histogram()
    histogram.observe(seconds)
    assert histogram.counts.index(1) == bucket
    assert histogram.sum_s == seconds


def test_many_at_once_count_as_many() -> None:
    histogram = Histogram()
    histogram.observe(0.002, 40)
    assert histogram.count == 40
    assert histogram.sum_s == pytest.approx(0.08)


def test_cumulative_counts_never_fall_and_end_with_all() -> None:
    histogram = Histogram()
    for seconds in (0.00005, 0.002, 0.002, 99.0):
        histogram.observe(seconds)
    rows = list(histogram.cumulative())
    assert rows[0] == ("0.0001", 1)
    assert dict(rows)["0.0025"] == 3
    assert rows[-2:] == [("30.0", 3), ("+Inf", 4)]


@pytest.mark.parametrize(
    ("observed", "part", "expected"),
    [
        ([], 0.99, None),
        ([0.002], 0.5, 0.00175),  # in the middle of (0.001, 0.0025]
        ([0.00005] * 99 + [8.0], 0.99, 0.0001),
        ([0.00005] * 98 + [8.0] * 2, 0.99, 7.5),
        ([100.0], 0.99, 30.0),  # over the last bound nobody knows more
    ],
)
def test_a_quantile_lies_where_its_bucket_says(
    observed: list[float], part: float, expected: float | None
) -> None:
    histogram = Histogram()
    for seconds in observed:
        histogram.observe(seconds)
    found = quantile_s(histogram.counts, part)
    assert found == (None if expected is None else pytest.approx(expected))
