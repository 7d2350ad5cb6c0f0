"""One timer for everything that has a time: nobody polls.

Times are the clock's steady milliseconds. An alarm may go off early, when something was planned anew
meanwhile; whoever is called looks at the time himself.
"""

from __future__ import annotations

import asyncio
import heapq
import itertools
from collections.abc import Callable
from typing import Generic, TypeVar

from tailrace.runtime import Clock

T = TypeVar("T")


class Alarm(Generic[T]):
    """Calls `ring` in the loop when the earliest planned time has come; `take_due` says for whom."""

    def __init__(self, clock: Clock, ring: Callable[[], None]) -> None:
        self._clock = clock
        self._ring = ring
        self._heap: list[tuple[int, int, T]] = []
        self._order = itertools.count()  # so that things themselves are never compared
        self._timer: asyncio.TimerHandle | None = None
        self._timer_ms = 0

    def __len__(self) -> int:
        return len(self._heap)

    def plan(self, at_ms: int, thing: T) -> None:
        heapq.heappush(self._heap, (at_ms, next(self._order), thing))
        self._set_timer()

    def take_due(self, now_ms: int) -> list[tuple[int, T]]:
        """What was planned up to now, with the time that it was planned for; it is not planned any more."""
        due = []
        while self._heap and self._heap[0][0] <= now_ms:
            at_ms, _, thing = heapq.heappop(self._heap)
            due.append((at_ms, thing))
        return due

    def cancel(self) -> None:
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _set_timer(self) -> None:
        if not self._heap:
            return
        at_ms = self._heap[0][0]
        if self._timer is not None:
            if self._timer_ms <= at_ms:
                return
            self._timer.cancel()
        wait_ms = max(at_ms - self._clock.steady_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later(wait_ms / 1000, self._go_off)
        self._timer_ms = at_ms

    def _go_off(self) -> None:
        self._timer = None
        self._ring()
        self._set_timer()
