"""Where the clients' default partitioners put a key, computed here a second time.

A keyed record that is not where its client computed it to be means that we told the client a wrong number of
partitions, or routed it wrongly.
"""

from __future__ import annotations

import zlib

_SEED = 0x9747B28C
_MIX = 0x5BD1E995
_WORD = 0xFFFFFFFF


def murmur2(data: bytes) -> int:
    """MurmurHash2, 32 bits, with the seed of the Java client."""
    whole = len(data) & ~3
    hashed = _SEED ^ len(data)
    for start in range(0, whole, 4):
        word = int.from_bytes(data[start : start + 4], "little") * _MIX & _WORD
        word = (word ^ word >> 24) * _MIX & _WORD
        hashed = (hashed * _MIX & _WORD) ^ word
    if tail := data[whole:]:
        hashed = (hashed ^ int.from_bytes(tail, "little")) * _MIX & _WORD
    hashed = (hashed ^ hashed >> 13) * _MIX & _WORD
    return hashed ^ hashed >> 15


def murmur2_partition(key: bytes, partitions: int) -> int:
    """The Java client's choice, and that of most others."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def crc32_partition(key: bytes, partitions: int) -> int:
    """librdkafka's choice ("consistent_random")."""
    return zlib.crc32(key) % partitions
