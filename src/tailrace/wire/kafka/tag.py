"""Tag buffers of the flexible encoding (KIP-482): optional fields that a reader may not know.

    count:uvarint | (tag:uvarint | size:uvarint | value) ...

An empty one, which most are, is a zero byte; callers look at that byte first and come here for the others.
"""

from __future__ import annotations

from tailrace.model import ProtocolError
from tailrace.wire.kafka.varint import read_uvarint


def skip_tags(data: bytes | memoryview, at: int) -> int:
    """The position behind a tag buffer of which no tag is known. IndexError where the data ends too early."""
    count, at = read_tag_count(data, at)
    for _ in range(count):
        _, _, at = read_tag_extent(data, at)
    return at


def read_tag_count(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """How many tags follow, and where the first one is. A tag takes two bytes at least."""
    count, at = read_uvarint(data, at)
    if count * 2 > len(data) - at:
        raise ProtocolError("a tag buffer has more tags than its message can hold")
    return count, at


def read_tag_extent(data: bytes | memoryview, at: int) -> tuple[int, int, int]:
    """A tag, and where its value begins and ends."""
    tag, at = read_uvarint(data, at)
    size, at = read_uvarint(data, at)
    if size > len(data) - at:
        raise ProtocolError("a tag is longer than its message")
    return tag, at, at + size
