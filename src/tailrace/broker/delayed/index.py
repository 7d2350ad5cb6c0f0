"""Which messages are due when: pairs of due time and offset in the delayed topic, in memory.

Most of them are far: they lie in buckets of ten minutes, sixteen bytes each, in the order in which they came.
A bucket is brought near shortly before it begins, in portions, and only what is near is ordered (a heap). So
a million messages take about 16 MB, and neither putting one nor taking one looks at the others. Buckets of
one minute would cost more than the messages in them where a million are spread over a year.

Equal times are taken in the order of their offsets.
"""

from __future__ import annotations

from array import array
from heapq import heappop, heappush

BUCKET_MS = 600_000
LEAD_MS = 10_000  # a bucket is brought near so long before it begins

_OFFSET_BITS = 64
_OFFSET_MASK = (1 << _OFFSET_BITS) - 1


class DueIndex:
    """The due times of what waits."""

    __slots__ = ("_count", "_far", "_near", "_near_end_ms", "_opened", "_opening", "_starts")

    def __init__(self) -> None:
        self._count = 0
        self._near: list[int] = []  # a heap of due << 64 | offset: half of what a tuple would take
        self._near_end_ms = 0  # what is due before comes near at once
        # By the beginning of the bucket. The first number is its lowest offset; due, offset, due, ... follow.
        self._far: dict[int, array[int]] = {}
        self._starts: list[int] = []  # a heap of their beginnings
        self._opening = array("q")  # the bucket that is being brought near, and how much of it is
        self._opened = 0

    def __len__(self) -> int:
        return self._count

    def __repr__(self) -> str:
        return f"<DueIndex of {self._count}, {len(self._near)} near, {len(self._far)} buckets>"

    def add(self, due_ms: int, offset: int) -> None:
        """A message that waits until then."""
        self._count += 1
        if due_ms < self._near_end_ms:
            self._push(due_ms, offset)
            return
        start_ms = due_ms - due_ms % BUCKET_MS
        bucket = self._far.get(start_ms)
        if bucket is None:
            bucket = self._far[start_ms] = array("q", [offset])
            heappush(self._starts, start_ms)
        elif offset < bucket[0]:
            bucket[0] = offset
        bucket.append(due_ms)
        bucket.append(offset)

    def bring_near(self, now_ms: int, *, count_max: int) -> bool:
        """Bring so many messages near, of buckets that are about to begin; whether that was all of them."""
        while self._opening or self._open_next(now_ms):
            bucket = self._opening
            end = min(self._opened + 2 * count_max, len(bucket))
            for place in range(self._opened, end, 2):
                self._push(bucket[place], bucket[place + 1])
            count_max -= (end - self._opened) // 2
            self._opened = end
            if end < len(bucket):
                return False
            self._opening = array("q")
        return True

    def take_due(self, now_ms: int, *, count_max: int) -> list[tuple[int, int]]:
        """(due, offset) of what is due by now, earliest first, once `bring_near` said that it is done."""
        assert not self._opening
        taken: list[tuple[int, int]] = []
        near, limit = self._near, (now_ms + 1) << _OFFSET_BITS
        while near and near[0] < limit and len(taken) < count_max:
            entry = heappop(near)
            taken.append((entry >> _OFFSET_BITS, entry & _OFFSET_MASK))
        self._count -= len(taken)
        return taken

    def next_ms(self) -> int | None:
        """When to look again: something is due, or a bucket is to be brought near. 0 is at once."""
        times = [0] if self._opening else []
        if self._near:
            times.append(self._near[0] >> _OFFSET_BITS)
        if self._starts:
            times.append(self._starts[0] - LEAD_MS)
        return min(times, default=None)

    def next_due_ms(self) -> int | None:
        """For people: when the first message is due."""
        times = self._opening[self._opened :: 2].tolist()
        if self._near:
            times.append(self._near[0] >> _OFFSET_BITS)
        if self._starts:
            times.append(min(self._far[self._starts[0]][1::2]))
        return min(times, default=None)

    def oldest_offset(self) -> int | None:
        """No message here has a lower offset than this; None if there are none. Looks at all that is near."""
        oldest = [bucket[0] for bucket in self._far.values()]
        if self._opening:
            oldest.append(self._opening[0])
        if self._near:
            oldest.append(min(entry & _OFFSET_MASK for entry in self._near))
        return min(oldest, default=None)

    def _open_next(self, now_ms: int) -> bool:
        """Begin with the next bucket, if it is time; what comes into it from now on is near at once."""
        if not self._starts or self._starts[0] - LEAD_MS > now_ms:
            return False
        start_ms = heappop(self._starts)
        self._opening, self._opened = self._far.pop(start_ms), 1
        self._near_end_ms = max(self._near_end_ms, start_ms + BUCKET_MS)
        return True

    def _push(self, due_ms: int, offset: int) -> None:
        heappush(self._near, due_ms << _OFFSET_BITS | offset)
