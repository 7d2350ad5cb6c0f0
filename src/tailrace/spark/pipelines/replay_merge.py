"""Rows of several lanes in one order that depends on nothing but the rows: by time, then by lane.

Timestamps within a partition may jump back. A row is never put before one that it comes after in its own
partition, so what counts is the greatest timestamp so far in its lane, here called when the row is *due*.
Equal times are ordered by lane. That order is the same wherever the lanes were cut into batches, which lets a
replay go on in the middle.

    lane 0   3 3 7 | ...      a batch in hand from each; what comes later is not before its last row
    lane 1   4 5   | ...      so everything up to the least (last due, lane) may leave: 3 3 4 5

In memory is a batch of each lane, never more.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Longs = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """Some rows of one lane, none perhaps, and the offset before which the lane has been looked through."""

    rows: pa.RecordBatch
    next_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Merged:
    """Rows in order; of each, when it is due and from which lane it is."""

    rows: pa.RecordBatch
    due_us: Longs
    lanes: npt.NDArray[np.int32]


@dataclass(slots=True, kw_only=True)
class _Head:
    """What is in hand of one lane."""

    lane: int
    source: Iterator[Stretch]
    floor_us: int
    next_offset: int
    rows: pa.RecordBatch | None = None
    due_us: Longs = field(default_factory=lambda: np.empty(0, np.int64))
    is_over: bool = False
    is_pulled: bool = False

    def pull(self) -> None:
        """Take the next stretch, or learn that there is none. To be called with empty hands."""
        self.is_pulled = True
        stretch = next(self.source, None)
        if stretch is None:
            self.is_over = True
            return
        self.next_offset = stretch.next_offset
        if stretch.rows.num_rows:
            self.rows = stretch.rows
            self.due_us = due_times(stretch.rows, floor_us=self.floor_us)
            self.floor_us = int(self.due_us[-1])

    def take(self, count: int) -> pa.RecordBatch:
        assert self.rows is not None
        taken = self.rows.slice(0, count)
        self.rows = self.rows.slice(count) if count < self.rows.num_rows else None
        self.due_us = self.due_us[count:]
        return taken


class TimeMerge:
    """Merges lanes. Between two steps of the iteration it knows which lanes have nothing in hand."""

    def __init__(
        self,
        sources: Sequence[Iterator[Stretch]],
        *,
        floors_us: Sequence[int],
        starts: Sequence[int],
        is_late: Callable[[], bool] = lambda: False,
    ) -> None:
        self._heads = [
            _Head(lane=lane, source=source, floor_us=floor_us, next_offset=start)
            for lane, (source, floor_us, start) in enumerate(zip(sources, floors_us, starts, strict=True))
        ]
        self._is_late = is_late

    def __iter__(self) -> Iterator[Merged]:
        """Merged rows until the lanes are over, or until it is late."""
        while self._fill():
            held = [head for head in self._heads if head.rows is not None]
            if not held:
                return
            yield _merge(held, self._bound())

    def looked_through(self) -> dict[int, tuple[int, bool]]:
        """Of each lane with nothing in hand, the offset to go on from, and whether it is over."""
        return {head.lane: (head.next_offset, head.is_over) for head in self._heads if head.rows is None}

    def _fill(self) -> bool:
        """Have rows of every lane that has any left; False if it got late on the way.

        It is not late before every lane was asked once: however slow that is, a merge gets somewhere.
        """
        for head in self._heads:
            while head.rows is None and not head.is_over:
                if head.is_pulled and self._is_late():
                    return False
                head.pull()
        return True

    def _bound(self) -> tuple[int, int] | None:
        """The last place (due, lane) that nothing to come can be before; None if nothing is to come."""
        return min(
            ((int(head.due_us[-1]), head.lane) for head in self._heads if not head.is_over), default=None
        )


def due_times(rows: pa.RecordBatch, *, floor_us: int) -> Longs:
    """When each row is due: the greatest timestamp up to it."""
    times: Longs = rows.column("timestamp").cast(pa.int64()).to_numpy(zero_copy_only=False)
    return np.maximum(np.maximum.accumulate(times), floor_us)


def _merge(held: Sequence[_Head], bound: tuple[int, int] | None) -> Merged:
    parts: list[pa.RecordBatch] = []
    due: list[Longs] = []
    lanes: list[npt.NDArray[Any]] = []
    for head in held:
        count = _count_before(head, bound)
        if count:
            due.append(head.due_us[:count])
            lanes.append(np.full(count, head.lane, np.int32))
            parts.append(head.take(count))
    if len(parts) == 1:
        return Merged(rows=parts[0], due_us=due[0], lanes=lanes[0])
    all_due, all_lanes = np.concatenate(due), np.concatenate(lanes)
    order = np.lexsort((all_lanes, all_due))  # stable: rows of one lane keep their order
    rows = pa.Table.from_batches(parts).take(pa.array(order)).combine_chunks().to_batches()
    return Merged(rows=rows[0], due_us=all_due[order], lanes=all_lanes[order])


def _count_before(head: _Head, bound: tuple[int, int] | None) -> int:
    """How many rows in hand are not after the bound."""
    if bound is None:
        return len(head.due_us)
    due_us, lane = bound
    return int(np.searchsorted(head.due_us, due_us, side="right" if head.lane <= lane else "left"))
