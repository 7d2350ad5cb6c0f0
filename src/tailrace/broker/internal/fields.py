"""The field types that the records of internal topics are made of, most of them Kafka's own classic ones.

    int8, int16, int32, int64   big-endian
    varint    zigzag, 7 bits a byte, lowest first, up to 64 bits; as in Kafka's records, not in its structures
    uvarint   the same without zigzag, as in Kafka's flexible structures (KIP-482)
    raw       bytes whose number both sides know
    string    int16 length, UTF-8; length -1 is null where null is allowed
    bytes     int32 length, the bytes; length -1 is null where null is allowed
    array     int32 count, or varint, then the elements
    compact   a string or an array whose length is a uvarint, plus one; 0 is null

Bytes out of a log are read as if an enemy had written them: every length is checked before it is used.
"""

from __future__ import annotations

import struct

from tailrace.model import BrokerError, ErrorCode
from tailrace.records import BatchError, BytesLike
from tailrace.records.twin import read_varlong, write_varint

_INT8 = struct.Struct(">b")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_INT64 = struct.Struct(">q")
_INT16_MAX = (1 << 15) - 1
_UINT32_MAX = (1 << 32) - 1


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

    def int8(self) -> int:
        return int(_INT8.unpack(self._take(1))[0])

    def int16(self) -> int:
        return int(_INT16.unpack(self._take(2))[0])

    def int32(self) -> int:
        return int(_INT32.unpack(self._take(4))[0])

    def int64(self) -> int:
        return int(_INT64.unpack(self._take(8))[0])

    def varint(self, *, at_least: int, at_most: int) -> int:
        """A number that can only be within these bounds."""
        try:
            value, self._position = read_varlong(self._data, self._position)
        except BatchError as error:
            raise MalformedFields(str(error)) from None
        if not at_least <= value <= at_most:
            raise MalformedFields(f"{value} is not within {at_least} to {at_most}")
        return value

    def uvarint(self) -> int:
        """A number that fits into 32 bits."""
        value = 0
        for shift in range(0, 35, 7):
            byte = self._take(1)[0]
            value |= (byte & 0x7F) << shift
            if byte < 0x80:
                if value > _UINT32_MAX:
                    break
                return value
        raise MalformedFields("a length takes more than 32 bits")

    def raw(self, size: int) -> bytes:
        return self._take(size)

    def compact_string(self) -> str:
        if (length := self.uvarint()) == 0:
            raise MalformedFields("a string is null that must not be")
        return self._text(length - 1)

    def compact_count(self, *, element_bytes_min: int) -> int:
        """The length of a compact array; 0 where it is null."""
        return self._check_count(max(self.uvarint() - 1, 0), element_bytes_min)

    def string(self) -> str:
        if (text := self.nullable_string()) is None:
            raise MalformedFields("a string is null that must not be")
        return text

    def nullable_string(self) -> str | None:
        if (size := self.int16()) == -1:
            return None
        return self._text(size)

    def nullable_bytes(self) -> bytes | None:
        size = self.int32()
        return None if size == -1 else self._take(size)

    def count(self, *, element_bytes_min: int) -> int:
        """The length of an array whose elements take at least so many bytes each."""
        return self._check_count(self.int32(), element_bytes_min)

    def nullable_count(self, *, element_bytes_min: int) -> int:
        """The same where the array may be null, which is length -1; 0 then."""
        return self._check_count(max(self.int32(), 0), element_bytes_min)

    def varint_count(self, *, element_bytes_min: int) -> int:
        """The same where the length is a varint."""
        return self._check_count(self.varint(at_least=0, at_most=len(self._data)), element_bytes_min)

    def end(self) -> None:
        """There must be nothing after the last field."""
        if left := len(self._data) - self._position:
            raise MalformedFields(f"{left} bytes follow the last field")

    def _text(self, size: int) -> str:
        try:
            return self._take(size).decode()
        except UnicodeDecodeError:
            raise MalformedFields(f"a string of {size} bytes is not UTF-8") from None

    def _check_count(self, count: int, element_bytes_min: int) -> int:
        left = len(self._data) - self._position
        if not 0 <= count <= left // element_bytes_min:
            raise MalformedFields(f"an array of {count} elements cannot be in {left} bytes")
        return count

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

    def int8(self, value: int) -> None:
        self.data += _INT8.pack(value)

    def int16(self, value: int) -> None:
        self.data += _INT16.pack(value)

    def int32(self, value: int) -> None:
        self.data += _INT32.pack(value)

    def int64(self, value: int) -> None:
        self.data += _INT64.pack(value)

    def varint(self, value: int) -> None:
        write_varint(self.data, value)

    def uvarint(self, value: int) -> None:
        while value >= 0x80:
            self.data.append(value & 0x7F | 0x80)
            value >>= 7
        self.data.append(value)

    def raw(self, value: BytesLike) -> None:
        self.data += value

    def compact_string(self, text: str) -> None:
        raw = text.encode()
        self.uvarint(len(raw) + 1)
        self.data += raw

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
