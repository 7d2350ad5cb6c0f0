"""The aborted transactions of a log: which records a reader of committed records leaves out (KIP-98).

Every abort marker that ends a transaction leaves an entry. A read of the offsets [first, end) needs the
entries whose marker is at or after `first` and whose transaction began before `end`. Entries are in order of
their markers, so they are found by bisection. Each one holds the last stable offset as it was behind its
marker: every transaction that ended later began there or later, so the search is over at the first entry
whose stable offset is at or after `end`.

An entry goes with its marker: one that stays behind would hide the next transaction of its producer.

Written form, little-endian, one file `<base>.aborted` for the markers of one segment:

    0  8s  "TRABORT1"    8  i64  base offset of the segment    16  u32  CRC32C of everything but itself
   20      entries, 32 bytes each: i64 producer id, i64 first offset, i64 marker offset, i64 stable offset
"""

from __future__ import annotations

import struct
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from tailrace.model import Offset
from tailrace.records import crc32c

_MAGIC = b"TRABORT1"
_HEAD = struct.Struct("<8sq")
_CRC = struct.Struct("<I")
_ENTRY = struct.Struct("<qqqq")
_BODY_AT = _HEAD.size + _CRC.size


class AbortedTransaction(NamedTuple):
    """What a reader is told: records of this producer's transactions do not count from this offset on."""

    producer_id: int
    first_offset: Offset


class AbortedEntry(NamedTuple):
    """One aborted transaction, as it is kept."""

    producer_id: int
    first_offset: int
    marker_offset: int
    stable_offset: int  # the last stable offset behind its marker


class AbortedList:
    """The aborted transactions of one log, in order of their markers."""

    __slots__ = ("_entries", "_markers")

    def __init__(self, entries: Iterable[AbortedEntry] = ()) -> None:
        self._entries = list(entries)
        self._markers = [entry.marker_offset for entry in self._entries]

    def __repr__(self) -> str:
        return f"<AbortedList of {len(self._entries)} transactions>"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, AbortedList):
            return NotImplemented
        return self._entries == other._entries

    __hash__ = None  # type: ignore[assignment]

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[AbortedEntry]:
        return iter(self._entries)

    def add(self, entry: AbortedEntry) -> None:
        """Take a transaction whose marker follows all others."""
        assert not self._markers or entry.marker_offset > self._markers[-1]
        self._entries.append(entry)
        self._markers.append(entry.marker_offset)

    def find(self, first: int, end: int) -> Sequence[AbortedTransaction]:
        """What a reader of the offsets [first, end) leaves out."""
        found: list[AbortedTransaction] = []
        for place in range(bisect_left(self._markers, first), len(self._entries)):
            entry = self._entries[place]
            if entry.first_offset < end:
                found.append(AbortedTransaction(entry.producer_id, Offset(entry.first_offset)))
            if entry.stable_offset >= end:
                break
        return found

    def between(self, first: int, end: int) -> list[AbortedEntry]:
        """The entries whose markers have the offsets [first, end)."""
        return self._entries[bisect_left(self._markers, first) : bisect_left(self._markers, end)]

    def truncate(self, offset: int) -> None:
        """Forget the entries whose markers are at or after `offset`."""
        self._keep(slice(bisect_left(self._markers, offset)))

    def trim(self, offset: int) -> None:
        """Forget the entries whose markers are below `offset`."""
        self._keep(slice(bisect_left(self._markers, offset), None))

    def remove(self, markers: Iterable[int]) -> None:
        """Forget the entries of these markers."""
        gone = set(markers)
        if not gone.isdisjoint(self._markers):
            self._entries = [entry for entry in self._entries if entry.marker_offset not in gone]
            self._markers = [entry.marker_offset for entry in self._entries]

    def copy(self) -> AbortedList:
        return AbortedList(self._entries)

    def _keep(self, part: slice) -> None:
        if self._entries:
            self._entries, self._markers = self._entries[part], self._markers[part]


def write_aborted(base: int, entries: Iterable[AbortedEntry]) -> bytes:
    """The whole file of the segment that begins at `base`."""
    head = _HEAD.pack(_MAGIC, base)
    body = b"".join(_ENTRY.pack(*entry) for entry in entries)
    return head + _CRC.pack(crc32c(body, crc32c(head))) + body


def read_aborted(data: bytes, base: int) -> list[AbortedEntry] | None:
    """What `write_aborted` wrote; None if a byte is wrong or missing."""
    body = data[_BODY_AT:]
    if len(data) < _BODY_AT or len(body) % _ENTRY.size or data[: _HEAD.size] != _HEAD.pack(_MAGIC, base):
        return None
    (crc,) = _CRC.unpack_from(data, _HEAD.size)
    if crc != crc32c(body, crc32c(data[: _HEAD.size])):
        return None
    entries = [AbortedEntry(*fields) for fields in _ENTRY.iter_unpack(body)]
    previous = base - 1
    for entry in entries:
        if not (entry.first_offset < entry.marker_offset and previous < entry.marker_offset):
            return None
        previous = entry.marker_offset
    return entries
