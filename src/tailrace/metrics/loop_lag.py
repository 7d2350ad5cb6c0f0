"""How late the event loop comes to what is due: a timer notes how much later than asked it was called."""

from __future__ import annotations

import asyncio

from tailrace.runtime import Clock, Histogram

_EVERY_S = 0.1


class LoopLag:
    """A chain of timers, from `start` to `stop`."""

    def __init__(self, clock: Clock) -> None:
        self.lateness = Histogram()
        self._clock = clock
        self._worst_s = 0.0  # since somebody asked
        self._due = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Begin to measure, in the running loop; twice is harmless."""
        if self._timer is None:
            self._plan()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def take_worst_s(self) -> float:
        """The worst since this was asked last."""
        worst, self._worst_s = self._worst_s, 0.0
        return worst

    def _plan(self) -> None:
        self._due = self._clock.monotonic() + _EVERY_S
        self._timer = asyncio.get_running_loop().call_later(_EVERY_S, self._called)

    def _called(self) -> None:
        late_s = max(self._clock.monotonic() - self._due, 0.0)
        self.lateness.observe(late_s)
        self._worst_s = max(self._worst_s, late_s)
        self._plan()
