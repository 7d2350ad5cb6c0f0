"""Rates between two readings, which are made up here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tailrace.metrics.reading import Reading, compare
from tailrace.runtime import Histogram

FIRST = Reading(
    at_ms=1_000,
    at_s=1.0,
    records_in=100,
    bytes_in=1000,
    records_out=50,
    bytes_out=500,
    requests=10,
    errors=1,
    cpu_s=2.0,
    memory_bytes=1,
    flushes=tuple(Histogram().counts),
    produce_ms=(900.0, 901.0, 902.0),
)


def test_a_rate_is_what_was_added_by_the_time_that_passed() -> None:
    now = replace(FIRST, at_s=3.0, records_in=300, bytes_out=700, requests=12, errors=2, cpu_s=3.0)
    rates = compare(FIRST, now)
    assert rates is not None
    assert (rates.records_in_per_s, rates.bytes_in_per_s) == (100, 0)
    assert (rates.records_out_per_s, rates.bytes_out_per_s) == (0, 100)
    assert (rates.requests_per_s, rates.errors_per_s, rates.cpu_share) == (1, 0.5, 0.5)


def test_waits_from_before_the_first_reading_do_not_count() -> None:
    now = replace(FIRST, at_s=2.0, produce_ms=(*FIRST.produce_ms, 1.0, 2.0))
    rates = compare(FIRST, now)
    assert rates is not None
    assert (rates.produce_p50_ms, rates.produce_p99_ms) == (1.0, 2.0)


def test_of_more_waits_than_are_kept_the_newest_count() -> None:
    rates = compare(FIRST, replace(FIRST, at_s=2.0, produce_ms=(4.0, 5.0)))
    assert rates is not None
    assert rates.produce_p99_ms == 5.0


def test_where_nothing_was_measured_there_is_no_figure() -> None:
    rates = compare(FIRST, replace(FIRST, at_s=2.0))
    assert rates is not None
    assert rates.produce_p50_ms is rates.produce_p99_ms is rates.flush_p99_ms is None


def test_flushes_count_since_the_reading_before() -> None:
    slow, both = Histogram(), Histogram()
    slow.observe(20.0)
    both.observe(20.0)
    both.observe(0.0001)
    now = replace(FIRST, at_s=2.0, flushes=tuple(both.counts))
    rates = compare(replace(FIRST, flushes=tuple(slow.counts)), now)
    assert rates is not None
    assert rates.flush_p99_ms == pytest.approx(0.099)


def test_two_readings_at_one_moment_say_nothing() -> None:
    assert compare(FIRST, FIRST) is None
