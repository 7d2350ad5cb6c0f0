"""Unsigned varints of the flexible encoding: seven bits to a byte, the lowest first, at most 32 bits.

Lengths and counts travel as their value plus one, so that 0 can say null; the callers do that sum.
"""

from __future__ import annotations

from tailrace.model import ProtocolError

ONE_BYTE = tuple(bytes((value,)) for value in range(0x80))  # the varints of one byte, which most are


def write_uvarint(value: int) -> bytes:
    """The varint of a value that fits 32 bits."""
    if value < 0x80:
        return ONE_BYTE[value]
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def read_uvarint(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """The value at a position and the position behind it. IndexError where the data ends too early."""
    first = data[at]
    if first < 0x80:
        return first, at + 1
    return read_uvarint_tail(data, at + 1, first)


def read_uvarint_tail(data: bytes | memoryview, at: int, first: int) -> tuple[int, int]:
    """The rest of a varint whose first byte, already taken, had its high bit set."""
    value = first & 0x7F
    for shift in (7, 14, 21, 28):
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, at
    raise ProtocolError("a varint is wider than 32 bits")
