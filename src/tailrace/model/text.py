"""Text for a person: what came from outside made fit to be shown, times and sizes as people read
them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

_SIZES: Final = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")


def escape(text: str) -> str:
    """The text in one line, with everything a terminal might obey written out."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )


def day_of(time_ms: int) -> str:
    """A time of day to the minute, out of milliseconds since 1970."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")
    except (OverflowError, ValueError, OSError):
        return f"{time_ms} ms"


def size_of(count: float) -> str:
    """0 B, 9.7 KiB, 64 MiB: powers of 1024, as in the console, so that one disk has one size."""
    size, unit = float(count), 0
    while size >= 1024 and unit < len(_SIZES) - 1:
        size, unit = size / 1024, unit + 1
    is_whole = unit == 0 or size >= 100 or size == int(size)
    return f"{size:.{0 if is_whole else 1}f} {_SIZES[unit]}"
