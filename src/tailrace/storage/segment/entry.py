"""Journal entries: everything that changes a partition, in the order in which it was sequenced.

An entry on disk is a header and a body, little-endian:

     0  u8   kind: 1 append  2 create  3 truncate  4 trim  5 delete
     1  u8   flags: 1 referenced  2 loose
     2  u16  zero
     4  u32  length of the body
     8  u64  life: one creation of one replica; never used again
    16  i64  segment: base offset of the segment file   (append, truncate; trim: -1, or roll to it)
    24  u32  position in it                             (append, truncate)
    28       body: append    the whole batch; if referenced, its 61-byte header alone, unless it is a control
                             batch: what a marker decides is in its record, and its segment may be trimmed
                   create    topic id (16 bytes), partition (u32)
                   truncate  offset (i64): the new end
                   trim      offset (i64): the new start
                   delete    nothing

A *referenced* batch lies in its segment already; the header's CRC proves it. A *loose* batch was acknowledged
when it was written: a power cut may take it, so its absence is not damage (fsync = os or interval).
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from uuid import UUID

from tailrace.model import Offset, PartitionId
from tailrace.records import CONTROL_BIT, HEADER_BYTES, Batch, read_batch
from tailrace.storage.encryption.layout import OVERHEAD_BYTES
from tailrace.storage.producers import ProducerStates

APPEND, CREATE, TRUNCATE, TRIM, DELETE = 1, 2, 3, 4, 5
REFERENCED, LOOSE = 1, 2

ENTRY_BYTES = 28
ENTRY_BYTES_MAX = ENTRY_BYTES + 20 + OVERHEAD_BYTES  # of an entry but for the batch in it
_ENTRY = struct.Struct("<BBHIQqI")
_CREATE = struct.Struct("<16sI")
_OFFSET = struct.Struct("<q")


Done = asyncio.Future[None]
"""Resolved when the entry is durable; lives in memory only, as does everything that waits."""


class EntryError(ValueError):
    """A round with a right checksum holds an entry that makes no sense."""


class Append:
    """One batch with its fixed place. Made once per produced batch, so a plain slotted class.

    `batch` is what readers get, `stored` what lies in the files: the same, or its encrypted form from the
    round that commits it until it is applied. What recovery reads is stored in both.
    """

    __slots__ = ("batch", "flags", "life", "position", "segment", "stored")
    kind = APPEND

    def __init__(self, life: int, batch: Batch, segment: int, position: int, flags: int = 0) -> None:
        self.life = life
        self.batch = self.stored = batch
        self.segment = segment
        self.position = position
        self.flags = flags

    def __repr__(self) -> str:
        how = "referenced" if self.flags & REFERENCED else "inline"
        return f"<append {how} life {self.life} at {self.segment}:{self.position} {self.batch!r}>"


@dataclass(slots=True)
class Create:
    """A partition begins to exist."""

    life: int
    partition_id: PartitionId
    done: Done | None = None
    kind = CREATE


@dataclass(slots=True)
class Truncate:
    """Everything from `offset` on is gone; `segment` and `position` are where it began."""

    life: int
    offset: Offset
    segment: int
    position: int
    producers: ProducerStates | None = None  # as they were at `offset`; in memory only
    done: Done | None = None
    kind = TRUNCATE


@dataclass(slots=True)
class Trim:
    """Everything below `offset` is gone; an empty `segment` is rolled to first, unless that is -1."""

    life: int
    offset: Offset
    segment: int = -1
    done: Done | None = None
    kind = TRIM


@dataclass(slots=True)
class Delete:
    """The partition is gone."""

    life: int
    done: Done | None = None
    kind = DELETE


Control = Create | Truncate | Trim | Delete
Entry = Append | Control


def write_entry(entry: Entry, parts: list[bytes | memoryview]) -> None:
    """Add the entry's bytes to `parts`; the batch itself is not copied."""
    if isinstance(entry, Append):
        data = entry.stored.data
        if entry.flags & REFERENCED and not entry.batch.attributes & CONTROL_BIT:
            data = data[:HEADER_BYTES]
        parts.append(
            _ENTRY.pack(APPEND, entry.flags, 0, len(data), entry.life, entry.segment, entry.position)
        )
        parts.append(data)
    elif isinstance(entry, Create):
        body = _CREATE.pack(entry.partition_id.topic_id.bytes, entry.partition_id.partition)
        parts.append(_ENTRY.pack(CREATE, 0, 0, len(body), entry.life, 0, 0) + body)
    elif isinstance(entry, Truncate):
        body = _OFFSET.pack(entry.offset)
        parts.append(_ENTRY.pack(TRUNCATE, 0, 0, len(body), entry.life, entry.segment, entry.position) + body)
    elif isinstance(entry, Trim):
        body = _OFFSET.pack(entry.offset)
        parts.append(_ENTRY.pack(TRIM, 0, 0, len(body), entry.life, entry.segment, 0) + body)
    else:
        parts.append(_ENTRY.pack(DELETE, 0, 0, 0, entry.life, 0, 0))


def read_entries(data: memoryview, count: int) -> Iterator[Entry]:
    """The `count` entries that fill `data` exactly; inline batches are views into it."""
    place = 0
    for _ in range(count):
        if place + ENTRY_BYTES > len(data):
            raise EntryError(f"{count} entries do not fit into {len(data)} bytes")
        kind, flags, zero, length, life, segment, position = _ENTRY.unpack_from(data, place)
        place += ENTRY_BYTES
        if zero or place + length > len(data):
            raise EntryError(f"entry of kind {kind} claims {length} bytes, {len(data) - place} are there")
        body = data[place : place + length]
        place += length
        yield _read_entry(kind, flags, life, segment, position, body)
    if place != len(data):
        raise EntryError(f"{len(data) - place} bytes follow the last entry")


def _read_entry(kind: int, flags: int, life: int, segment: int, position: int, body: memoryview) -> Entry:
    if kind == APPEND:
        batch = Batch(body) if flags & REFERENCED and len(body) == HEADER_BYTES else read_batch(body)
        return Append(life, batch, segment, position, flags)
    try:
        if kind == CREATE:
            topic_id, partition = _CREATE.unpack(body)
            return Create(life, PartitionId(UUID(bytes=topic_id), partition))
        if kind == TRUNCATE:
            return Truncate(life, Offset(*_OFFSET.unpack(body)), segment, position)
        if kind == TRIM:
            return Trim(life, Offset(*_OFFSET.unpack(body)), segment)
    except struct.error as error:
        raise EntryError(f"entry of kind {kind}: {error}") from error
    if kind == DELETE and not body:
        return Delete(life)
    raise EntryError(f"entry of unknown kind {kind} with {len(body)} bytes")
