"""Times as people write them: `10m` ago, `2026-11-16T03:00`, or milliseconds since 1970."""

from __future__ import annotations

import re
from datetime import datetime, tzinfo

from tailrace.model import ConfigError

_AGO = re.compile(r"(\d+(?:\.\d+)?)\s*(ms|s|m|h|d|w)")
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 604_800_000}
_EPOCH_MS = re.compile(r"\d{10,15}")


def parse_moment(text: str, *, now_ms: int, zone: tzinfo | None = None) -> int:
    """Milliseconds since 1970. A length of time counts back from now.

    A time that names no zone is in `zone`, by default the one of this machine.
    """
    if _EPOCH_MS.fullmatch(text):
        return int(text) if len(text) > 10 else int(text) * 1000
    if (ago := _AGO.fullmatch(text.strip().lower())) is not None:
        return now_ms - int(float(ago[1]) * _UNIT_MS[ago[2]])
    try:
        moment = datetime.fromisoformat(text.strip())
        return int((moment if moment.tzinfo else moment.replace(tzinfo=zone)).timestamp() * 1000)
    except (ValueError, OverflowError, OSError):
        raise ConfigError(
            f"{text!r} is no time. Write 10m, 2h or 3d for that long ago, 2026-11-16T03:00, or milliseconds"
        ) from None
