"""Which partition of an internal topic a name lives in.

Kafka's own rule for groups, so that every tool agrees on where a group is; other names follow the same one.
"""

from __future__ import annotations

import struct

_INT32_MIN = -(1 << 31)


def partition_for(name: str, partitions: int) -> int:
    """The absolute value of Java's hash of the name, modulo the partitions."""
    hash_ = java_hash(name)
    return (0 if hash_ == _INT32_MIN else abs(hash_)) % partitions


def java_hash(text: str) -> int:
    """`String.hashCode` of Java: over UTF-16 code units, wrapping at 32 bits."""
    raw = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for (unit,) in struct.iter_unpack(">H", raw):
        value = (31 * value + unit) & 0xFFFF_FFFF
    return value - (1 << 32) if value & 0x8000_0000 else value
