"""Times as people write them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from tailrace.model import ConfigError
from tailrace.wire.json.moment import parse_moment

NOW_MS = 1_800_000_000_000


@pytest.mark.parametrize(
    ("text", "ago_ms"),
    [
        ("10m", 600_000),
        ("2h", 7_200_000),
        ("1.5s", 1500),
        ("250ms", 250),
        ("3d", 259_200_000),
        ("1W", 604_800_000),
    ],
)
def test_a_length_of_time_counts_back_from_now(text: str, ago_ms: int) -> None:
    assert parse_moment(text, now_ms=NOW_MS) == NOW_MS - ago_ms


def test_an_iso_time_is_read_with_its_zone() -> None:
    expected = int(datetime(2026, 11, 16, 9, 30, tzinfo=UTC).timestamp() * 1000)
    assert parse_moment("2026-11-16T09:30Z", now_ms=NOW_MS) == expected
    assert parse_moment("2026-11-16 10:30+01:00", now_ms=NOW_MS) == expected


def test_a_time_without_a_zone_is_in_the_one_that_is_given() -> None:
    expected = int(datetime(2026, 11, 16, 9, 30, tzinfo=UTC).timestamp() * 1000)
    assert parse_moment("2026-11-16T09:30", now_ms=NOW_MS, zone=UTC) == expected
    assert parse_moment("2026-11-16T10:30+01:00", now_ms=NOW_MS, zone=UTC) == expected


def test_a_time_without_a_zone_is_local() -> None:
    expected = int(datetime(2026, 11, 16, 9, 30).timestamp() * 1000)
    assert parse_moment("2026-11-16T09:30", now_ms=NOW_MS) == expected


def test_a_long_number_is_milliseconds_and_one_of_ten_digits_seconds() -> None:
    assert parse_moment("1700000000123", now_ms=NOW_MS) == 1_700_000_000_123
    assert parse_moment("1700000000", now_ms=NOW_MS) == 1_700_000_000_000


@pytest.mark.parametrize(
    "text", ["", "yesterday", "10", "m", "10x", "-5m", "2026-13-01", "12:00", "0001-01-01T00:00+14:00x"]
)
def test_what_is_no_time_is_refused_with_examples(text: str) -> None:
    with pytest.raises(ConfigError, match="10m"):
        parse_moment(text, now_ms=NOW_MS)
