"""The classic field types of Kafka's own structures, as the records of the offsets topic use them.

    int16, int32, int64   big-endian
    string                int16 length, UTF-8; length -1 is null where null is allowed
    bytes                 int32 length, the bytes; length -1 is null where null is allowed
    array                 int32 count, the elements

Bytes out of a log are read as if an enemy had written them: every length is checked before it is used.
"""

from __future__ import annotations

import struct

from tailrace.model import BrokerError, ErrorCode
from tailrace.records import BytesLike

_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_INT16_MAX = (1 << 15) - 1


class MalformedFields(BrokerError):
    """Bytes that are not the structure they should be."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.CORRUPT_MESSAGE)


class FieldReader:
    """Reads one field after the other; MalformedFields where the bytes do not add up."""

    __slots__ = ("_data", "_position")

    def __init__(self, data: BytesLike) -> None:
        self._data = bytes(data)
        self._position = 0

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(8))[0])

    def string(self) -> str:
        if (text := self.nullable_string()) is None:
            raise MalformedFields("a string is null that must not be")
        return text

    def nullable_string(self) -> str | None:
        if (size := self.int16()) == -1:
            return None
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise MalformedFields(f"a string of {size} bytes is not UTF-8") from None

    def nullable_bytes(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self._take(size)

    def count(self, *, element_bytes_min: int) -> int:
        """The length of an array whose elements take at least so many bytes each."""
        count = self.int32()
        left = len(self._data) - self._position
        if not 0 <= count <= left // element_bytes_min:
            raise MalformedFields(f"an array of {count} elements cannot be in {left} bytes")
        return count

    def end(self) -> None:
        """There must be nothing after the last field."""
        if left := len(self._data) - self._position:
            raise MalformedFields(f"{left} bytes follow the last field")

    def _take(self, size: int) -> bytes:
        start, left = self._position, len(self._data) - self._position
        if not 0 <= size <= left:
            raise MalformedFields(f"a field of {size} bytes cannot be in the {left} that are left")
        self._position += size
        return self._data[start : self._position]


class FieldWriter:
    """The counterpart of FieldReader."""

    __slots__ = ("data",)

    def __init__(self) -> None:
        self.data = bytearray()

    def int16(self, value: int) -> None:
        self.data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.data += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.data += _INT64.pack(value)

    def string(self, text: str | None) -> None:
        if text is None:
            self.int16(-1)
            return
        raw = text.encode()
        if len(raw) > _INT16_MAX:
            raise BrokerError(
                f"a string of {len(raw)} bytes is over {_INT16_MAX}", code=ErrorCode.INVALID_REQUEST
            )
        self.int16(len(raw))
        self.data += raw

    def bytes(self, value: BytesLike) -> None:
        self.int32(len(value))
        self.data += value
