"""Numbers as people read them: short, and no more exact than they are true."""

from __future__ import annotations

_MINUTE_S = 60
_HOUR_S = 60 * _MINUTE_S
_DAY_S = 24 * _HOUR_S
_YEAR_S = 365 * _DAY_S


def short_number(value: float) -> str:
    """512, 1.0k, 2.3M: three digits at most."""
    for limit, divisor, unit in ((1e3, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if value < limit * 0.9995:
            return f"{value / divisor:.{1 if unit and value < limit / 10 else 0}f}{unit}"
    return f"{value / 1e9:.1f}G"


def short_rate(bytes_per_s: float) -> str:
    """61 KB/s, 1.2 MB/s; powers of 1000, as networks are sold. Sizes are powers of 1024 (`model.text`)."""
    for limit, divisor, unit in ((1e6, 1e3, "KB/s"), (1e9, 1e6, "MB/s")):
        if bytes_per_s < limit * 0.9995:
            digits = 0 if bytes_per_s >= 10 * divisor or not bytes_per_s else 1
            return f"{bytes_per_s / divisor:.{digits}f} {unit}"
    return f"{bytes_per_s / 1e9:.1f} GB/s"


def long_duration(seconds: float) -> str:
    """12 minutes, 5 hours, 41 days: rounded down, for it is a promise."""
    if seconds >= _YEAR_S:
        return "more than a year"
    for unit_s, unit in ((_DAY_S, "day"), (_HOUR_S, "hour"), (_MINUTE_S, "minute")):
        if seconds >= 2 * unit_s:
            return f"{int(seconds // unit_s)} {unit}s"
    return "a minute" if seconds >= _MINUTE_S else "less than a minute"


def counted(count: int, noun: str) -> str:
    """1 partition, 3 partitions."""
    return f"{count:,} {noun}" + ("" if count == 1 else "s")
