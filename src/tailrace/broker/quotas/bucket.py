"""A token bucket. Pure: the time is given, in seconds of a clock that never goes back.

It fills at `rate` per second up to what comes in BURST_S. Taking is never refused: it may leave a debt, and
the answer is the time until the debt is paid. So a single large request passes, and is paid for afterwards.
"""

from __future__ import annotations

from typing import Final

BURST_S: Final = 1.0
"""What was not used in this time may be used at once: the burst of a client that was idle."""


class Bucket:
    """What one quota has left."""

    __slots__ = ("_at", "_level", "rate")

    def __init__(self, rate: float, now: float) -> None:
        self.rate = rate
        self._level = rate * BURST_S
        self._at = now

    def __repr__(self) -> str:
        return f"<Bucket {self.rate:g}/s, {self._level:g} left>"

    def take(self, amount: float, now: float) -> float:
        """Take so much; the seconds until the debt is paid, 0.0 if there is none."""
        level = min(self._level + self.rate * (now - self._at), self.rate * BURST_S) - amount
        self._level, self._at = level, now
        return -level / self.rate if level < 0.0 else 0.0

    def wait_s(self, now: float) -> float:
        """The seconds until the debt is paid, 0.0 if there is none."""
        return self.take(0.0, now)

    def set_rate(self, rate: float, now: float) -> None:
        """Another rate from now on; a debt stays a debt of as many units."""
        self.take(0.0, now)
        self.rate = rate
        self._level = min(self._level, rate * BURST_S)
