"""Text that came from outside, made fit to be shown to a person."""

from __future__ import annotations


def escape(text: str) -> str:
    """The text in one line, with everything a terminal might obey written out."""
    if text.isprintable():
        return text
    return "".join(
        char if char.isprintable() else char.encode("unicode_escape").decode("ascii") for char in text
    )
