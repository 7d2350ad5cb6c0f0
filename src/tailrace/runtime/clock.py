"""The clock port.

`now_ms` is the time of day for people: it may jump when somebody sets the machine's clock. `steady_ms` is
the time of day at the start plus what has passed since, so that a jump neither expires a record early nor
keeps it for ever; retention asks this one. A start whose time of day cannot be right holds it at the last
time that was (`hold`). `monotonic` serves deadlines.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Protocol


class Clock(Protocol):
    """Where the time comes from."""

    ahead_ms: int
    """By how much the machine's time of day at the start lies past the time that is believed; 0: it is."""

    def now_ms(self) -> int:
        """Time of day, in milliseconds since 1970."""

    def steady_ms(self) -> int:
        """Time of day that never jumps while this process lives."""

    def hold(self, at_ms: int) -> None:
        """Do not believe the machine's time of day: `steady_ms` goes on from this one."""

    def monotonic(self) -> float:
        """Seconds since some moment; for measuring waits."""


class SystemClock:
    """The machine's clock."""

    monotonic: Callable[[], float]

    def __init__(self) -> None:
        self.monotonic = time.monotonic  # asked for every request: nothing of ours is called in between
        self._started_ms = self.now_ms()
        self._started = time.monotonic()
        self.ahead_ms = 0

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def steady_ms(self) -> int:
        return self._started_ms + int((time.monotonic() - self._started) * 1000)

    def hold(self, at_ms: int) -> None:
        self.ahead_ms = self.steady_ms() - at_ms
        self._started_ms -= self.ahead_ms
