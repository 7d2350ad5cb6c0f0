"""Counts the replies in a byte stream.

A reader is fed what has arrived and says how many replies ended in it and how many bytes it is done with; the
rest is shown to it again with more behind it. It checks what tells success from failure and decodes nothing
else: time spent here is time that the broker under test does not get on a small machine.
"""

from __future__ import annotations

from typing import Protocol


class LoadError(Exception):
    """The peer refused, answered nonsense or fell silent: the figures of this load would mean nothing."""


class Reader(Protocol):
    """Finds the ends of replies."""

    def feed(self, data: memoryview) -> tuple[int, int]:
        """(replies that ended in these bytes, bytes not to be shown again); LoadError for a refusal."""
        ...


class FixedReader:
    """Replies of one known size that all begin alike: what a request that never changes is answered with."""

    __slots__ = ("_begins", "_missing", "_size")

    def __init__(self, *, reply_bytes: int, begins: bytes) -> None:
        if not 0 < len(begins) <= reply_bytes:
            raise ValueError("a reply begins with at least one byte, and with no more than it has")
        self._size = reply_bytes
        self._begins = begins
        self._missing = 0  # bytes of the reply that has begun

    def feed(self, data: memoryview) -> tuple[int, int]:
        available = len(data)
        if self._missing > available:
            self._missing -= available
            return 0, available
        at = self._missing
        replies = 1 if at else 0
        self._missing = 0
        begins = self._begins
        while available - at >= len(begins):
            if data[at : at + len(begins)] != begins:
                raise LoadError(f"a reply begins with {bytes(data[at : at + 80])!r}, not with {begins!r}")
            if available - at < self._size:
                self._missing = self._size - (available - at)
                return replies, available
            at += self._size
            replies += 1
        return replies, at
