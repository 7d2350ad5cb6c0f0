"""Lengths of time: what is read, and what is refused."""

from __future__ import annotations

import pytest

from tailrace.model import ConfigError
from tailrace.model.duration import parse_duration_ms


@pytest.mark.parametrize(
    ("text", "duration_ms"),
    [("0", 0), ("1500", 1500), ("250ms", 250), ("90s", 90_000), (" 36 H ", 129_600_000), ("7d", 604_800_000)],
)
def test_a_number_with_or_without_a_unit_is_read(text: str, duration_ms: int) -> None:
    assert parse_duration_ms(text) == duration_ms


@pytest.mark.parametrize("text", ["", "h", "-1", "1.5h", "a week", "1y", "1h30m", "9" * 13, "٣d"])
def test_everything_else_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="Write 90s, 15m"):
        parse_duration_ms(text)
