"""What became of the requests of one API on one listener, as plain numbers.

A request is counted once, when its answer is known: how long that took, and its error if it had one. An
answer that carries an error for every item counts with the first of them.
"""

from __future__ import annotations

from typing import Protocol

from tailrace.runtime import Histogram


class Trace(Protocol):
    """Hears of requests once their answer is known, where somebody wants to see single ones."""

    def __call__(self, api: str, seconds: float, *, count: int = 1, error: str = "") -> None:
        """So many requests of an API took so long, and ended with an error or, "", without."""


class Tally:
    """The requests of one API. Every number grows only."""

    __slots__ = ("duration", "errors", "requests")

    def __init__(self) -> None:
        self.requests = 0
        self.duration = Histogram()  # of most of them
        self.errors: dict[str, int] = {}  # by the name of the error; those without one are not here

    def __repr__(self) -> str:
        return f"<Tally {self.requests} requests, {self.failed} failed>"

    @property
    def failed(self) -> int:
        return sum(self.errors.values())

    def note(self, seconds: float, count: int = 1) -> None:
        """So many requests are answered; each took so long."""
        self.requests += count
        self.duration.observe(seconds, count)

    def fail(self, error: str, count: int = 1) -> None:
        """So many of the requests that are counted, or will be, were answered with an error."""
        self.errors[error] = self.errors.get(error, 0) + count
