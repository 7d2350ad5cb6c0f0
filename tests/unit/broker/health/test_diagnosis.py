"""One sentence about a node, from made-up figures: what each resource says when it is short, and when not."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from tailrace.broker.health import Figures, Finding, diagnose, judge_descriptors, long_duration
from tailrace.broker.health.finding import judge_free_space, judge_share

GB = 10**9
MINUTE, HOUR, DAY = 60.0, 3600.0, 86400.0

GOOD = Figures(
    records_in_per_s=512.0,
    disk_free_bytes=100 * GB,
    disk_free_bytes_min=64 << 20,
    disk_growth_bytes_per_s=28_000.0,
    flush_p99_ms=4.0,
    loop_lag_ms=0.4,
    cpu_share=0.12,
    memory_bytes=90_000_000,
    memory_bytes_max=8 * GB,
    descriptors=60,
    descriptors_max=20_000,
    connections={"kafka": 3, "native": 1, "http": 2},
    connections_max=9_744,
    lag=40,
    lag_before=35,
    lag_span_s=5 * MINUTE,
)


def finding(figures: Figures, check: str) -> Finding:
    (found,) = [each for each in diagnose(figures).findings if each.check == check]
    return found


def test_a_good_node_says_what_comes_in_and_how_long_the_disk_lasts() -> None:
    found = diagnose(GOOD)
    assert (found.status, found.limit) == ("healthy", "none")
    assert found.summary == "Healthy: 512 records/s in, the disk has room for 41 days at this rate."
    assert {each.status for each in found.findings} == {"ok"}
    assert not [each for each in found.findings if each.advice]


@pytest.mark.parametrize(
    ("changes", "summary"),
    [
        (
            {"records_in_per_s": 0.0},
            "Healthy: nothing comes in now, the disk has room for 41 days at this rate.",
        ),
        ({"disk_growth_bytes_per_s": -5.0}, "Healthy: 512 records/s in, the disk has 93.1 GiB free."),
        ({"disk_growth_bytes_per_s": None}, "Healthy: 512 records/s in, the disk has 93.1 GiB free."),
        ({"disk_free_bytes": None}, "Healthy: 512 records/s in."),
        ({"records_in_per_s": None, "disk_growth_bytes_per_s": 0.0}, "Healthy: the disk has 93.1 GiB free."),
        ({"records_in_per_s": None, "disk_free_bytes": None}, "Healthy: every check is good."),
    ],
)
def test_what_was_not_measured_is_not_told(changes: dict[str, Any], summary: str) -> None:
    assert diagnose(replace(GOOD, **changes)).summary == summary


def test_nothing_known_is_no_reason_to_worry() -> None:
    found = diagnose(Figures())
    assert (found.status, found.limit, found.summary) == ("healthy", "none", "Healthy: every check is good.")


@pytest.mark.parametrize(
    ("changes", "status", "limit", "summary"),
    [
        (
            {"loop_lag_ms": 120.0, "cpu_share": 0.98},
            "degraded",
            "cpu",
            "Degraded: the event loop waits 120 ms: one core is full.",
        ),
        (
            {"loop_lag_ms": 600.0, "cpu_share": 0.2},
            "degraded",
            "cpu",
            "Degraded: the event loop waits 600 ms: something else keeps it from running.",
        ),
        ({"loop_lag_ms": 5_000.0}, "unhealthy", "cpu", "the event loop waits 5000 ms"),
        ({"loop_lag_ms": 500.0, "cpu_share": None}, "degraded", "cpu", "the event loop waits 500 ms"),
        (
            {"disk_free_bytes": 1 << 20},
            "unhealthy",
            "disk",
            "Unhealthy: the disk is full: writes are refused",
        ),
        (
            {"disk_growth_bytes_per_s": 5_000_000.0},
            "degraded",
            "disk",
            "Degraded: the disk has room for 5 hours at this rate.",
        ),
        ({"flush_p99_ms": 900.0}, "degraded", "disk", "the disk is slow: a flush takes 900 ms"),
        ({"memory_bytes": 7 * GB}, "degraded", "memory", "memory is short: 6.5 GiB of 7.5 GiB are in use"),
        ({"memory_bytes": 8 * GB}, "unhealthy", "memory", "memory is short"),
        ({"descriptors": 17_000}, "degraded", "descriptors", "17,000 of 20,000 are open"),
        ({"descriptors": 19_990}, "unhealthy", "descriptors", "19,990 of 20,000 are open"),
        (
            {"connections": {"kafka": 8_000, "http": 1}},
            "degraded",
            "connections",
            "Degraded: the kafka listener has 8,000 of at most 9,744 connections.",
        ),
        ({"connections": {"http": 9_744}}, "unhealthy", "connections", "the http listener has 9,744"),
        (
            {"lag": 120_000, "lag_before": 85_000},
            "degraded",
            "lag",
            "Degraded: consumers fall behind: 120k records wait, 35.0k more than 5 minutes ago.",
        ),
        ({"partitions_under_replicated": 3}, "degraded", "none", "3 partitions with a replica"),
        ({"partitions_offline": 1}, "unhealthy", "none", "1 partition cannot be read or written"),
        (
            {"clock_ahead_ms": 40 * 86_400_000},
            "degraded",
            "none",
            "Degraded: the clock is 40 days ahead of when this node last ran, so nothing expires by it.",
        ),
        ({"failure": "boom."}, "unhealthy", "none", "Unhealthy: the broker failed: boom."),
        ({"failure": "sync /d: I/O", "is_storage_failure": True}, "unhealthy", "disk", "sync /d: I/O"),
    ],
)
def test_what_is_short_makes_the_sentence(
    changes: dict[str, Any], status: str, limit: str, summary: str
) -> None:
    found = diagnose(replace(GOOD, **changes))
    assert (found.status, found.limit) == (status, limit)
    assert summary in found.summary
    bad = [each for each in found.findings if each.status != "ok"]
    assert len(bad) == 1
    assert bad[0].advice


@pytest.mark.parametrize(
    "changes",
    [
        {"loop_lag_ms": 99.0, "cpu_share": 0.99},  # full, and nobody waits
        {"loop_lag_ms": 499.0, "cpu_share": 0.5},  # once may be anything
        {"cpu_share": 1.9},
        {"disk_growth_bytes_per_s": 1_100_000.0},  # a day and an hour
        {"memory_bytes": int(7.9 * GB), "memory_bytes_max": None},
        {"descriptors": 15_999},
        {"descriptors": 100_000, "descriptors_max": None},
        {"connections": {"kafka": 7_000}},
        {"connections": {}, "connections_max": 1},
        {"lag": 9_999, "lag_before": 0},  # a moment's work
        {"lag": 120_000, "lag_before": 119_000},  # large, and not growing
        {"lag": 120_000, "lag_before": None},  # nobody knows whether it grows
        {"flush_p99_ms": 499.0},
    ],
)
def test_what_is_just_enough_is_no_finding(changes: dict[str, Any]) -> None:
    assert diagnose(replace(GOOD, **changes)).status == "healthy"


def test_the_worst_comes_first_and_the_others_are_counted() -> None:
    found = diagnose(replace(GOOD, loop_lag_ms=700.0, lag=120_000, lag_before=1, descriptors=19_999))
    assert (found.status, found.limit) == ("unhealthy", "descriptors")
    assert found.summary.endswith("19,999 of 20,000 are open. 2 more findings.")


def test_a_lag_that_was_nothing_and_is_large_grows() -> None:
    assert diagnose(replace(GOOD, lag=50_000, lag_before=0)).limit == "lag"


def test_the_loop_waits_in_words() -> None:
    assert finding(GOOD, "event loop").found == "waits less than 1 ms"
    assert finding(replace(GOOD, loop_lag_ms=30.0), "event loop").found == "waits 30 ms"


# ---- the checks that doctor shares


@pytest.mark.parametrize(
    ("soft", "hard", "used", "status"),
    [
        (None, None, None, "ok"),
        (None, None, 10**6, "ok"),
        (4096, 4096, None, "ok"),
        (1024, None, None, "warning"),
        (255, 4096, None, "problem"),
        (1024, None, 100, "ok"),  # one that runs is judged by what is left
        (1024, None, 820, "warning"),
        (1024, None, 1000, "problem"),
        (0, 0, 0, "ok"),
    ],
)
def test_descriptors(soft: int | None, hard: int | None, used: int | None, status: str) -> None:
    found = judge_descriptors(soft=soft, hard=hard, used=used)
    assert found.status == status
    assert bool(found.advice) == (status != "ok")


@pytest.mark.parametrize(
    ("free", "growth", "status"),
    [
        (99, None, "problem"),
        (100, None, "ok"),
        (100, 1.0, "warning"),  # room for nothing at all
        (100 + int(DAY), 1.0, "ok"),
        (99 + int(DAY), 1.0, "warning"),
        (10**12, 0.0, "ok"),
    ],
)
def test_free_space(free: int, growth: float | None, status: str) -> None:
    assert judge_free_space(free, least_bytes=100, growth_bytes_per_s=growth).status == status


@pytest.mark.parametrize(
    ("share", "status"), [(0.0, "ok"), (0.79, "ok"), (0.8, "warning"), (0.95, "problem")]
)
def test_shares(share: float, status: str) -> None:
    assert judge_share(share) == status


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "less than a minute"),
        (59, "less than a minute"),
        (60, "a minute"),
        (119, "a minute"),
        (120, "2 minutes"),
        (90 * MINUTE, "90 minutes"),
        (2 * HOUR, "2 hours"),
        (47 * HOUR, "47 hours"),
        (2 * DAY, "2 days"),
        (364 * DAY, "364 days"),
        (365 * DAY, "more than a year"),
        (float("inf"), "more than a year"),
    ],
)
def test_durations_are_rounded_down(seconds: float, text: str) -> None:
    assert long_duration(seconds) == text
