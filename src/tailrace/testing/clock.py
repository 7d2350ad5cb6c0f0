"""A clock that stands still until a test moves it."""

from __future__ import annotations

_START_MS = 1_750_000_000_000  # some day in June 2025: a time of day like any other


class FakeClock:
    """Implements `tailrace.runtime.Clock`. `advance` lets time pass; `set_back` only turns the hands back."""

    def __init__(self, now_ms: int = _START_MS) -> None:
        self._now_ms = now_ms
        self._steady_ms = now_ms
        self._passed_ms = 0
        self.ahead_ms = 0

    def __repr__(self) -> str:
        return f"<FakeClock at {self._now_ms} ms, {self._passed_ms} ms passed>"

    def now_ms(self) -> int:
        return self._now_ms

    def steady_ms(self) -> int:
        return self._steady_ms

    def hold(self, at_ms: int) -> None:
        self.ahead_ms = self._steady_ms - at_ms
        self._steady_ms = at_ms

    def monotonic(self) -> float:
        return self._passed_ms / 1000

    def advance(self, ms: int) -> None:
        """Let `ms` milliseconds pass."""
        if ms < 0:
            raise ValueError(f"time does not pass backwards: {ms} ms")
        self._now_ms += ms
        self._steady_ms += ms
        self._passed_ms += ms

    def set_back(self, ms: int) -> None:
        """Somebody sets the time of day back (or, with a negative number, ahead); no time passes."""
        self._now_ms -= ms
