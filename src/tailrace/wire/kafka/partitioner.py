"""Which partition a record goes to, as the Java client decides it.

A record with a key goes where murmur2 of the key says, so that equal keys share a partition, whichever client
wrote them. Records without a key stick to one partition until about a batch of bytes went there, then move to
another one: full batches, and an even spread over time (KIP-480, KIP-794).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from tailrace.records import BytesLike

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(data: BytesLike) -> int:
    """The 32-bit hash that Kafka's Java client computes, as an unsigned number."""
    length = len(data)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = int.from_bytes(data[at : at + 4], "little") * _M & _MASK
        k = (k ^ (k >> 24)) * _M & _MASK
        h = (h * _M & _MASK) ^ k
    if whole != length:
        h ^= int.from_bytes(data[whole:], "little")
        h = h * _M & _MASK
    h = (h ^ (h >> 13)) * _M & _MASK
    return h ^ (h >> 15)


def partition_of_key(key: BytesLike, *, partitions: int) -> int:
    """The partition of a record with a key, among so many."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


class StickyPartitioner:
    """Where the records of one topic that have no key go."""

    __slots__ = ("_bytes_left", "_bytes_per_partition", "_partition", "_random")

    def __init__(self, *, bytes_per_partition: int, chooser: random.Random | None = None) -> None:
        self._bytes_per_partition = max(bytes_per_partition, 1)
        self._random = chooser or random.Random()
        self._partition = -1
        self._bytes_left = 0

    def choose(self, available: Callable[[], Sequence[int]], *, record_bytes: int) -> int:
        """The partition for the next record; `available` lists, on a change, those that have a leader."""
        if self._bytes_left <= 0:
            listed = available()
            others = [each for each in listed if each != self._partition] or listed
            self._partition = self._random.choice(others)
            self._bytes_left = self._bytes_per_partition
        self._bytes_left -= max(record_bytes, 1)
        return self._partition
