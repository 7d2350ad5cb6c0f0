"""Entries: the messages in the body of a PUBLISH_BATCH, one after the other.

    entry     properties length  uint32  |  properties  |  body length  uint32  |  body

The frame says how many there are, and they fill its body exactly. What belongs to the whole batch (topic,
partition, producer, sequence) stands in the frame; an entry has the properties of its message.

Read entries are slices of what was read, encoded as they came: of a memoryview they are views, good as long
as the buffer behind it is left alone.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import TypeAlias

from tailrace.model import ProtocolError

Entry: TypeAlias = tuple[bytes | memoryview, bytes | memoryview]
"""Properties and body of one message of a batch."""

ENTRY_BYTES_MIN = 8

_LENGTH = struct.Struct(">I")
_TWO_LENGTHS = struct.Struct(">II")

_read_length = _LENGTH.unpack_from
_write_length = _LENGTH.pack
_write_two_lengths = _TWO_LENGTHS.pack


def read_entries(view: bytes | memoryview, count: int) -> list[Entry]:
    """The entries of a batch; there must be exactly so many."""
    size = len(view)
    if not 1 <= count <= size // ENTRY_BYTES_MIN:
        raise ProtocolError(f"a batch of {size} bytes cannot have {count} messages")
    entries: list[Entry] = []
    at = 0
    try:
        for _ in range(count):
            begin = at + 4
            end = begin + _read_length(view, at)[0]
            at = end + 4 + _read_length(view, end)[0]
            entries.append((view[begin:end], view[end + 4 : at]))
    except struct.error as error:
        raise ProtocolError(
            f"message {len(entries)} of a batch does not fit into its {size} bytes"
        ) from error
    if at != size:
        raise ProtocolError(f"{count} messages of a batch end at byte {at}, and the batch has {size}")
    return entries


def write_entries(entries: Iterable[Entry]) -> bytes:
    """The body of a batch of these messages, whose properties are encoded already."""
    parts: list[bytes | memoryview] = []
    append = parts.append
    for properties, body in entries:
        if properties:
            append(_write_length(len(properties)))
            append(properties)
            append(_write_length(len(body)))
        else:
            append(_write_two_lengths(0, len(body)))
        append(body)
    return b"".join(parts)
