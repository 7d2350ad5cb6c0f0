"""Which chunks of a log are in which tables: a few numbers per log and day, kept in memory.

A lookup that names the day asks one table instead of all. A span is a run of chunks of one class and day. It
holds what retention and lookups by time ask first: sizes, and the newest and oldest timestamp among the
greatest ones of its chunks.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass

from tailrace.storage.tiered.chunk import ChunkName
from tailrace.storage.tiered.retention_class import times_of_day


@dataclass(slots=True)
class Span:
    """Chunks of one log, class and day."""

    retention: int
    day: int
    base_offset: int
    next_offset: int
    oldest_ms: int  # the least of the greatest timestamps of its chunks
    newest_ms: int
    size: int

    @property
    def times(self) -> tuple[int, int]:
        """The append times that its table is for."""
        return times_of_day(self.retention, self.day)


class Spans:
    """The spans of one log, in the order of their offsets."""

    def __init__(self) -> None:
        self._spans: list[Span] = []

    def __iter__(self) -> Iterator[Span]:
        return iter(self._spans)

    def __len__(self) -> int:
        return len(self._spans)

    @property
    def size(self) -> int:
        return sum(span.size for span in self._spans)

    def load(self, span: Span) -> None:
        """A span as it was read; in the order of offsets."""
        self._spans.append(span)

    def add(self, name: ChunkName) -> None:
        """A chunk was written behind all others."""
        last = self._spans[-1] if self._spans else None
        if last is not None and (last.retention, last.day) == (name.retention, name.day):
            last.next_offset = name.next_offset
            last.oldest_ms = min(last.oldest_ms, name.max_timestamp)
            last.newest_ms = max(last.newest_ms, name.max_timestamp)
            last.size += name.size
            return
        self._spans.append(
            Span(
                name.retention,
                name.day,
                name.base_offset,
                name.next_offset,
                name.max_timestamp,
                name.max_timestamp,
                name.size,
            )
        )

    def truncate(self, end: int) -> None:
        """Chunks from `end` on are gone. What a span says of size and times may be too much from now on."""
        while self._spans and self._spans[-1].base_offset >= end:
            self._spans.pop()
        if self._spans:
            self._spans[-1].next_offset = min(self._spans[-1].next_offset, end)

    def trim(self, start: int) -> None:
        """What lies below `start` as a whole is not looked for any more."""
        while self._spans and self._spans[0].next_offset <= start:
            del self._spans[0]

    def from_offset(self, offset: int) -> list[Span]:
        """The span that holds `offset`, or the first one after it, and all that follow."""
        place = max(bisect_right(self._spans, offset, key=lambda span: span.base_offset) - 1, 0)
        return [span for span in self._spans[place:] if span.next_offset > offset]
