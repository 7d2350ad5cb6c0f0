"""Who waits for the durability of one log, in the order of their offsets."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from itertools import count

from tailrace.model import Offset
from tailrace.storage.api import Waiter

_PURGE_AT_MIN = 64
_ticket = count().__next__  # orders waiters for the same offset


class Waiting:
    """Waiters, each told once."""

    __slots__ = ("_purge_at", "_waiters")

    def __init__(self) -> None:
        self._waiters: list[tuple[int, int, Waiter]] = []
        self._purge_at = _PURGE_AT_MIN  # so many waiters that some of them may have given up

    def add(self, end: Offset, waiter: Waiter) -> None:
        if len(self._waiters) >= self._purge_at:
            self._waiters = [each for each in self._waiters if not each[2].done()]
            heapify(self._waiters)
            self._purge_at = max(_PURGE_AT_MIN, 2 * len(self._waiters))
        heappush(self._waiters, (end, _ticket(), waiter))

    def reached(self, durable: Offset) -> None:
        """Tell those who wait for an offset up to `durable`."""
        waiters = self._waiters
        while waiters and waiters[0][0] <= durable:
            waiter = heappop(waiters)[2]
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: Exception, *, above: int = -1, up_to: int = 1 << 63) -> None:
        """Tell those who wait for an offset in (above, up_to] that it never comes; others go on waiting."""
        waiting, self._waiters = self._waiters, []
        for each in waiting:
            if above < each[0] <= up_to:
                if not each[2].done():
                    each[2].set_exception(error)
            else:
                heappush(self._waiters, each)
