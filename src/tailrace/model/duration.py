"""Lengths of time as people write them: `90s`, `15m`, `36h`, `7d`, or a bare number of milliseconds."""

from __future__ import annotations

import re

from tailrace.model.errors import ConfigError

_DURATION = re.compile(r"([0-9]{1,12})\s*(ms|s|m|h|d)?", re.ASCII)
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}


def parse_duration_ms(text: str) -> int:
    """The milliseconds that a text stands for; ConfigError if it stands for none."""
    found = _DURATION.fullmatch(text.strip().lower())
    if found is None:
        raise ConfigError(f"{text!r} is not a length of time. Write 90s, 15m, 36h, 7d, or milliseconds")
    return int(found[1]) * _UNIT_MS[found[2] or "ms"]
