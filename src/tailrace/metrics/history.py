"""Samples of the last while: rows of figures at even times, the oldest of which are forgotten.

A row has a tick, which counts the samples since the start. What did not change has no row, and costs nothing:
between two rows that are not neighbours the figures were what `missing` says.

    tick      7        8    9    10       newest: 11
    row     (3.0,)    -    -   (5.0,)
    column   3.0      0.0  0.0  5.0       0.0
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

Figure = float | None
"""None is what nobody measured."""


class History:
    """The newest samples of something, at most `samples_max` of them."""

    __slots__ = ("_missing", "_rows", "_samples_max", "_since")

    def __init__(self, *, samples_max: int, since: int, missing: Figure = 0.0) -> None:
        self._rows: deque[tuple[int, Sequence[Figure]]] = deque(maxlen=samples_max)
        self._samples_max = samples_max
        self._since = since  # the first tick of which anything is known
        self._missing = missing

    def add(self, tick: int, figures: Sequence[Figure]) -> None:
        """A sample; ticks only grow."""
        self._rows.append((tick, figures))

    def newest(self, tick: int) -> Sequence[Figure] | None:
        """The row of this tick, if it is the newest there is."""
        return self._rows[-1][1] if self._rows and self._rows[-1][0] == tick else None

    def column(self, index: int, *, tick: int, count: int | None = None) -> list[Figure]:
        """One figure of every sample up to `tick`, the oldest first; at most `count` of them."""
        most = self._samples_max if count is None else min(count, self._samples_max)
        first = max(tick - most + 1, self._since)
        column = [self._missing] * max(tick - first + 1, 0)
        for at, figures in self._rows:
            if first <= at <= tick:
                column[at - first] = figures[index]
        return column
