"""Messages of one target that wait because it cannot be asked now: whether some arrived, or to take them."""

from __future__ import annotations

from array import array
from collections.abc import Iterator

from tailrace.model import Offset

_RETRY_MS = 1000
_RETRY_MS_MAX = 60_000


class Held:
    """Messages of a target that cannot be asked now."""

    __slots__ = ("_pairs", "_wait_ms", "end_offset", "intended", "retry_ms")

    def __init__(self, *, end_offset: Offset | None, retry_ms: int) -> None:
        self.end_offset = end_offset  # where the target ended at the intent; None: no intent was written
        self.intended = 0  # so many of the messages, the first ones, are part of the intent
        self.retry_ms = retry_ms  # by the steady clock
        self._wait_ms = _RETRY_MS
        self._pairs = array("q")  # due, offset, due, offset, ...: a target may be away for long

    def __len__(self) -> int:
        return len(self._pairs) // 2

    def __iter__(self) -> Iterator[tuple[int, int]]:
        yield from zip(self._pairs[::2], self._pairs[1::2], strict=True)

    def add(self, due_ms: int, offset: int) -> None:
        self._pairs.append(due_ms)
        self._pairs.append(offset)

    def postpone(self, now_ms: int) -> None:
        self.retry_ms = now_ms + self._wait_ms
        self._wait_ms = min(2 * self._wait_ms, _RETRY_MS_MAX)
