"""Percentiles by nearest rank, on numbers whose percentiles are known."""

from __future__ import annotations

import pytest

from tailrace.bench.wire.latency import nearest_rank, percentiles


@pytest.mark.parametrize(
    ("fraction", "expected"), [(0.5, 500), (0.99, 990), (0.999, 999), (1.0, 1000), (0.0001, 1)]
)
def test_a_percentile_of_a_thousand(fraction: float, expected: int) -> None:
    assert nearest_rank(range(1, 1001), fraction) == expected


@pytest.mark.parametrize("fraction", [0.001, 0.5, 0.999, 1.0])
def test_one_value_is_every_percentile(fraction: float) -> None:
    assert nearest_rank([7], fraction) == 7


def test_of_two_the_median_is_the_lower() -> None:
    assert nearest_rank([1, 2], 0.5) == 1


@pytest.mark.parametrize("fraction", [0, -0.1, 1.01])
def test_a_fraction_is_above_zero_and_at_most_one(fraction: float) -> None:
    with pytest.raises(ValueError, match="not within"):
        nearest_rank([1], fraction)


def test_nothing_has_no_percentile() -> None:
    with pytest.raises(ValueError, match="nothing"):
        nearest_rank([], 0.5)


def test_nanoseconds_in_any_order_become_milliseconds() -> None:
    found = percentiles([3_000_000, 1_000_000, 2_000_000])

    assert found is not None
    assert (found.p50_ms, found.p99_ms, found.max_ms) == (2.0, 3.0, 3.0)


def test_nothing_measured_is_none() -> None:
    assert percentiles([]) is None
