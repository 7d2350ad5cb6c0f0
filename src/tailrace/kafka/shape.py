"""What the produce requests of one connection have in common, so that it is read once.

A producer sends to the same partition again and again: everything before the records is the same bytes each
time. A request that begins with those bytes, and ends with its records, needs no further reading.

    classic     ... index:int32 | size:int32 | records
    flexible    ... index:int32 | size + 1: varint | records | three empty tag buffers
"""

from __future__ import annotations

import struct

from tailrace.model import TopicPartition
from tailrace.wire.kafka import ProduceRequest

_SIZE = struct.Struct(">i")
_FLEXIBLE_FROM = 9
_NO_TAGS = b"\0\0\0"


class ProduceShape:
    """A request for one partition, without its records."""

    __slots__ = ("_prefix", "_prefix_bytes", "_version", "acks", "timeout_ms", "tp", "transactional_id")

    def __init__(self, version: int, prefix: bytes, request: ProduceRequest) -> None:
        (topic,) = request.topics
        self._version = version
        self._prefix = prefix
        self._prefix_bytes = len(prefix)
        self.tp = TopicPartition(topic.name, topic.partitions[0].index)
        self.acks = request.acks
        self.timeout_ms = request.timeout_ms
        self.transactional_id = request.transactional_id

    def match(self, version: int, body: memoryview) -> memoryview | None:
        """The records of a request of this shape; None for any other."""
        at = self._prefix_bytes
        if version != self._version or len(body) < at + 8 or body[:at] != self._prefix:
            return None
        if version < _FLEXIBLE_FROM:
            (size,) = _SIZE.unpack_from(body, at)
            at += _SIZE.size
            return body[at:] if size > 0 and at + size == len(body) else None
        size = shift = 0
        while True:
            byte = body[at]
            at += 1
            size |= (byte & 0x7F) << shift
            if byte < 0x80:
                break
            shift += 7
            if shift > 28:
                return None
        end = at + size - 1
        return body[at:end] if end > at and len(body) == end + 3 and body[end:] == _NO_TAGS else None


def shape_of(version: int, body: memoryview, request: ProduceRequest) -> ProduceShape | None:
    """The shape of a request, if it has one: one batch, nothing unusual at its end."""
    if len(request.topics) != 1:
        return None
    partitions = request.topics[0].partitions
    if len(partitions) != 1 or not (records := partitions[0].records):
        return None
    size = len(records)
    if version < _FLEXIBLE_FROM:
        prefix_bytes = len(body) - size - _SIZE.size
    else:
        prefix_bytes = len(body) - size - len(_NO_TAGS) - ((size + 1).bit_length() + 6) // 7
    shape = ProduceShape(version, bytes(body[:prefix_bytes]), request)
    found = shape.match(version, body)
    return shape if found is not None and len(found) == size else None
