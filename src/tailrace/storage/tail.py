"""The tail: the newest batches of a log in memory, from which most reads are answered.

It always holds what the engine cannot read back yet: the segment engine what its files do not hold, and the
open span of the newest segment, whose checksum is not fixed; the tiered engine what is not committed. Beyond
that it keeps batches for as long as the engine's bound allows. Its batches are contiguous and end at the
log's end. An entry is what the engine queued for a batch.

Its bytes count the objects that a batch takes besides its records: small batches are mostly that.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from typing import Generic, Protocol, TypeVar

from tailrace.model import Offset
from tailrace.records import Batch
from tailrace.storage.api import Slice

_JOINED_BYTES_MAX = 64 * 1024

BATCH_OBJECTS_BYTES = 768
"""An entry, its batch, their numbers, a view and a buffer: measured with tracemalloc on CPython 3.11."""


class Entry(Protocol):
    """What a tail keeps."""

    batch: Batch


E = TypeVar("E", bound=Entry)


class MemoryExtent:
    """Batches that are in memory; many small ones are joined into one piece when asked for."""

    __slots__ = ("_parts", "size")

    def __init__(self, parts: list[memoryview], size: int) -> None:
        self._parts = parts
        self.size = size

    def load_nowait(self) -> memoryview:
        if len(self._parts) > 1:
            self._parts = [memoryview(b"".join(self._parts))]
        return self._parts[0]

    async def load(self) -> memoryview:
        return self.load_nowait()

    def release(self) -> None:
        """Nothing to give back: the collector does that."""


class Tail(Generic[E]):
    """Appends in order of offset, each with its place in the files."""

    __slots__ = ("_entries", "_offsets", "bytes")

    def __init__(self) -> None:
        self._entries: list[E] = []
        self._offsets: list[int] = []
        self.bytes = 0

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def first_offset(self) -> int | None:
        """Base offset of the oldest batch in memory."""
        return self._offsets[0] if self._offsets else None

    def add(self, entry: E) -> None:
        batch = entry.batch
        self._entries.append(entry)
        self._offsets.append(batch.base_offset)
        self.bytes += batch.size + BATCH_OBJECTS_BYTES

    def put_back(self, entries: list[E]) -> None:
        """Batches that come before the first one: an open span that was read back."""
        self._entries[:0] = entries
        self._offsets[:0] = [entry.batch.base_offset for entry in entries]
        self.bytes += _memory_bytes(entries)

    def entries_from(self, offset: int) -> list[E]:
        """From the one that holds `offset`, or the first one after it, on."""
        return self._entries[self._place(offset) :]

    def truncate(self, offset: int) -> None:
        """Drop the batches that begin at or after `offset`."""
        keep = bisect_left(self._offsets, offset)
        self.bytes -= _memory_bytes(self._entries[keep:])
        del self._entries[keep:]
        del self._offsets[keep:]

    def clear(self) -> None:
        """Let go of everything."""
        self._entries, self._offsets, self.bytes = [], [], 0

    def evict(self, below: int, bytes_wanted: int) -> int:
        """Drop from the front what ends at or before `below` until so many bytes went; returns how many."""
        entries, count, gone = self._entries, 0, 0
        while gone < bytes_wanted and count < len(entries) and entries[count].batch.next_offset <= below:
            gone += entries[count].batch.size + BATCH_OBJECTS_BYTES
            count += 1
        del entries[:count]
        del self._offsets[:count]
        self.bytes -= gone
        return gone

    def read(self, offset: int, *, bytes_max: int, up_to: int) -> Slice:
        """Whole batches below `up_to` from the one that holds `offset`; an empty slice goes on at `up_to`."""
        extents: list[MemoryExtent] = []
        parts: list[memoryview] = []
        size = joined = 0
        for place in range(self._place(offset), len(self._entries)):
            batch = self._entries[place].batch
            if batch.next_offset > up_to or (size and size + batch.size > bytes_max):
                break
            if parts and joined + batch.size > _JOINED_BYTES_MAX:
                extents.append(MemoryExtent(parts, joined))
                parts, joined = [], 0
            parts.append(batch.data)
            joined += batch.size
            size += batch.size
            offset = batch.next_offset
        if not parts:
            return Slice(Offset(max(offset, up_to)), (), 0)
        extents.append(MemoryExtent(parts, joined))
        return Slice(Offset(offset), extents, size)

    def _place(self, offset: int) -> int:
        place = max(bisect_right(self._offsets, offset) - 1, 0)
        if place < len(self._entries) and self._entries[place].batch.next_offset <= offset:
            place += 1
        return place


def _memory_bytes(entries: Sequence[Entry]) -> int:
    return sum(entry.batch.size for entry in entries) + len(entries) * BATCH_OBJECTS_BYTES
