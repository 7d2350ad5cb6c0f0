"""When locks, back-offs and waits for a burial end. Pure: the caller says what time it is."""

from __future__ import annotations

from heapq import heapify, heappop, heappush
from typing import Final

_STALE_MIN: Final = 64  # fewer stale timers than this are not worth a clean-up


class Timers:
    """When something ends, for many offsets; one time each.

    Offsets that were given the same time share a list: a turn of a subscription locks many at once. A list
    may hold offsets whose time was changed or cancelled: they are passed over when they come up, and swept
    out when there are more of them than of the others.
    """

    __slots__ = ("_entries", "_heap", "_offsets", "times")

    def __init__(self) -> None:
        self.times: dict[int, int] = {}  # offset -> time, what holds
        self._offsets: dict[int, list[int]] = {}  # time -> offsets that were given it
        self._heap: list[int] = []  # the times that have a list
        self._entries = 0  # of all lists

    def __len__(self) -> int:
        return len(self.times)

    def time_of(self, offset: int) -> int:
        return self.times[offset]

    def set(self, offset: int, time_ms: int) -> None:
        self.times[offset] = time_ms
        offsets = self._offsets.get(time_ms)
        if offsets is None:
            self._offsets[time_ms] = [offset]
            heappush(self._heap, time_ms)
        else:
            offsets.append(offset)
        self._entries += 1
        if self._entries > 2 * len(self.times) + _STALE_MIN:
            self._sweep()

    def cancel(self, offset: int) -> None:
        self.times.pop(offset, None)

    def next_ms(self) -> int | None:
        heap, times = self._heap, self.times
        while heap:
            time_ms = heap[0]
            offsets = self._offsets[time_ms]
            while offsets:
                if times.get(offsets[-1]) == time_ms:
                    return time_ms
                offsets.pop()
                self._entries -= 1
            del self._offsets[heappop(heap)]
        return None

    def due(self, now_ms: int) -> list[int]:
        """Take out the offsets whose time has come, earliest first."""
        due: list[int] = []
        while (time_ms := self.next_ms()) is not None and time_ms <= now_ms:
            offsets = self._offsets.pop(heappop(self._heap))
            self._entries -= len(offsets)
            for offset in sorted(offsets):
                if self.times.get(offset) == time_ms:  # else it was changed, or is named twice
                    del self.times[offset]
                    due.append(offset)
        return due

    def _sweep(self) -> None:
        self._offsets = {}
        for offset, time_ms in self.times.items():
            self._offsets.setdefault(time_ms, []).append(offset)
        self._heap = list(self._offsets)
        heapify(self._heap)
        self._entries = len(self.times)
