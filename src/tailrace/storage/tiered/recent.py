"""The newest chunks of the logs by name, so that Redis can be asked without asking PostgreSQL first."""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Callable, Iterable

from tailrace.storage.tiered.chunk import ChunkName

_OF_A_LOG_MIN = 16


class RecentChunks:
    """Names of one log's chunks; `share` says how many it may keep now."""

    __slots__ = ("_names", "_share")

    def __init__(self, share: Callable[[], int]) -> None:
        self._names: deque[ChunkName] = deque()
        self._share = share

    def __len__(self) -> int:
        return len(self._names)

    def add(self, name: ChunkName) -> None:
        """A chunk was written behind all others."""
        self._names.append(name)
        most = max(_OF_A_LOG_MIN, self._share())
        while len(self._names) > most:
            self._names.popleft()

    def find(self, offset: int) -> ChunkName | None:
        """The chunk that holds `offset`, or the first after it; None if it may be one that is not known."""
        names = self._names
        if not names or offset < names[0].base_offset:
            return None
        place = bisect_right(names, offset, key=lambda name: name.base_offset) - 1
        if names[place].next_offset <= offset:
            place += 1
        return names[place] if place < len(names) else None

    def truncate(self, end: int, split: Iterable[ChunkName]) -> None:
        """Chunks that end after `end` are gone; `split` is what is left of the one that held it."""
        while self._names and self._names[-1].next_offset > end:
            self._names.pop()
        for name in split:
            self.add(name)
