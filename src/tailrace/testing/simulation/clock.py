"""The clock of a simulated process: the loop's virtual time, read as a time of day."""

from __future__ import annotations

from tailrace.testing.simulation.loop import SimulatedLoop

_STARTED_MS = 1_750_000_000_000


class SimulatedClock:
    """A day that passes as the loop's time does, and a time of day that somebody may set."""

    def __init__(self, loop: SimulatedLoop, *, started_ms: int = _STARTED_MS) -> None:
        self._loop = loop
        self._started_ms = started_ms
        self._set_by_ms = 0
        self.ahead_ms = 0

    def set_by(self, delta_ms: int) -> None:
        """Set the machine's clock forward or back: `now_ms` jumps, the others do not."""
        self._set_by_ms += delta_ms

    def now_ms(self) -> int:
        return self.steady_ms() + self._set_by_ms + self.ahead_ms

    def steady_ms(self) -> int:
        return self._started_ms + int(self._loop.time() * 1000)

    def hold(self, at_ms: int) -> None:
        self.ahead_ms = self.steady_ms() - at_ms
        self._started_ms -= self.ahead_ms

    def monotonic(self) -> float:
        return self._loop.time()
