"""Lengths in their classic and their flexible form, for Produce and Fetch: written here for both sides.

The `Cursor` reads what is off the broker's hot path, that is what our own client receives. It checks every
length and slices without copying. Reading past the end raises struct.error or IndexError, which
`cursor_errors` turns into a ProtocolError.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from tailrace.model import ProtocolError
from tailrace.wire.kafka.tag import skip_tags
from tailrace.wire.kafka.varint import read_uvarint, write_uvarint

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")


def write_count(count: int, *, flexible: bool) -> bytes:
    """The count of an array or the length of bytes; -1 for null."""
    return write_uvarint(count + 1) if flexible else _INT32.pack(count)


def write_string(value: str | None, *, flexible: bool) -> bytes:
    """A string with its length."""
    encoded = b"" if value is None else value.encode()
    size = -1 if value is None else len(encoded)
    return (write_uvarint(size + 1) if flexible else _INT16.pack(size)) + encoded


@contextmanager
def cursor_errors(what: str, version: int) -> Iterator[None]:
    """Turns what reading strangers' bytes can raise into ProtocolError."""
    try:
        yield
    except (struct.error, IndexError) as error:
        raise ProtocolError(f"{what} version {version}: cut short") from error
    except UnicodeDecodeError as error:
        raise ProtocolError(f"{what} version {version}: a string is not UTF-8") from error


class Cursor:
    """A position in a message."""

    __slots__ = ("at", "data", "flexible")

    def __init__(self, data: memoryview, *, flexible: bool) -> None:
        self.data = data
        self.at = 0
        self.flexible = flexible

    def unpack(self, layout: struct.Struct) -> tuple[Any, ...]:
        values = layout.unpack_from(self.data, self.at)
        self.at += layout.size
        return values

    def count(self, *, size_min: int) -> int:
        """The count of an array whose elements take size_min bytes at least; -1 for null."""
        count = self._length(_INT32)
        if count * size_min > len(self.data) - self.at:
            raise ProtocolError("an array has more elements than its message can hold")
        return count

    def string(self) -> str:
        value = self.nullable_string()
        if value is None:
            raise ProtocolError("a string is null that may not be")
        return value

    def nullable_string(self) -> str | None:
        size = self._length(_INT16)
        return None if size < 0 else str(self._take(size), "utf-8")

    def nullable_bytes(self) -> memoryview | None:
        size = self._length(_INT32)
        return None if size < 0 else self._take(size)

    def tags(self) -> None:
        if self.flexible:
            self.at = skip_tags(self.data, self.at)

    def end(self) -> None:
        if self.at != len(self.data):
            raise ProtocolError("bytes are left over behind a message")

    def _length(self, layout: struct.Struct) -> int:
        if self.flexible:
            length, self.at = read_uvarint(self.data, self.at)
            return length - 1
        (length,) = self.unpack(layout)
        if length < -1:
            raise ProtocolError(f"a length of {length}")
        return int(length)

    def _take(self, size: int) -> memoryview:
        start, self.at = self.at, self.at + size
        if self.at > len(self.data):
            raise ProtocolError("a length goes past the end of its message")
        return self.data[start : self.at]
