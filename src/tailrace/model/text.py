"""Text for a person: what came from outside made fit to be shown, times as people read them."""

from __future__ import annotations

from datetime import UTC, datetime


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
