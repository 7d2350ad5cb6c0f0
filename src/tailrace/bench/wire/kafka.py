"""Rings and readers for Kafka's Produce (version 9) and Fetch (version 12): one topic, one partition a
request.

Both are the newest versions that name topics instead of numbering them, and every broker of the last years
speaks them. With one topic and one partition the place of the error code is known beforehand:

    Produce   size:4 | correlation:4 | tags:1 | topics:1 | length:1 | name | partitions:1 | index:4 | error:2
    Fetch     size:4 | correlation:4 | tags:1 | throttle:4 | error:2 | session:4
              | topics:1 | length:1 | name | partitions:1 | index:4 | error:2
"""

from __future__ import annotations

import struct
import time

from tailrace.bench.batch import batch_of
from tailrace.bench.wire.reader import LoadError
from tailrace.bench.wire.ring import Ring, ring_of
from tailrace.model import ErrorCode
from tailrace.records import UNCHECKED_BYTES, build_batch, crc32c
from tailrace.wire.kafka import (
    FETCH,
    PRODUCE,
    FetchPartition,
    write_fetch_request,
    write_produce_request,
    write_request,
)

PRODUCE_VERSION, FETCH_VERSION = 9, 12
CLIENT_ID = "tailrace-bench"
TOPIC_NAME_BYTES_MAX = 125  # then the length takes one byte, as the diagrams say

_PRODUCE_NAME_AT, _FETCH_NAME_AT = 11, 21
_RING_BYTES = 1 << 16
_TIMEOUT_MS = 30_000
_SIZE = struct.Struct(">i")
_CRC, _CRC_AT = struct.Struct(">I"), 17
_TIMESTAMPS, _TIMESTAMPS_AT = struct.Struct(">qq"), 27  # base and max; see tailrace.records


def one_record(value_bytes: int) -> bytes:
    """A batch with a single record: what a producer sends that does not wait for more."""
    return bytes(build_batch([(_now_ms(), None, bytes(value_bytes), ())]))


def batch_bytes(size: int) -> bytes:
    """A batch of exactly `size` bytes, of records of 100 bytes, dated now: an old one is soon deleted."""
    batch = bytearray(batch_of(size))
    now_ms = _now_ms()
    _TIMESTAMPS.pack_into(batch, _TIMESTAMPS_AT, now_ms, now_ms)
    _CRC.pack_into(batch, _CRC_AT, crc32c(memoryview(batch)[UNCHECKED_BYTES:]))
    return bytes(batch)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def produce_ring(batch: bytes, *, topic: str, partition: int, in_flight: int, acks: int = -1) -> Ring:
    """Produce requests that all carry this batch, to be acknowledged by all replicas."""

    def request(place: int) -> bytes:
        body = write_produce_request(
            PRODUCE_VERSION,
            transactional_id=None,
            acks=acks,
            timeout_ms=_TIMEOUT_MS,
            topics={topic: {partition: batch}},
        )
        return write_request(PRODUCE, PRODUCE_VERSION, place, CLIENT_ID, b"".join(body))

    places = max(in_flight, _RING_BYTES // len(batch))
    return ring_of((request(place) for place in range(places)), payload_bytes=len(batch))


def fetch_ring(*, topic: str, partition: int, offsets: list[int], bytes_max: int) -> Ring:
    """Fetch requests at these offsets in turn; each asks for `bytes_max` and waits for at most a second."""

    def request(place: int) -> bytes:
        where = FetchPartition(partition, -1, offsets[place], -1, -1, bytes_max)
        body = write_fetch_request(
            FETCH_VERSION, topics={topic: [where]}, max_wait_ms=1000, min_bytes=1, max_bytes=bytes_max
        )
        return write_request(FETCH, FETCH_VERSION, place, CLIENT_ID, body)

    return ring_of((request(place) for place in range(len(offsets))), payload_bytes=bytes_max)


class KafkaReader:
    """Replies to the requests of one ring, whose correlation ids are their places in it."""

    __slots__ = ("_head", "_missing", "_place", "_places", "_size_min")

    def __init__(self, *, name_at: int, topic: str, places: int, reply_bytes_min: int = 0) -> None:
        name_bytes = len(topic.encode())
        if not 0 < name_bytes <= TOPIC_NAME_BYTES_MAX:
            raise ValueError(f"a topic's name has 1 to {TOPIC_NAME_BYTES_MAX} bytes here, not {name_bytes}")
        between = name_at - 8 + name_bytes + 1 + 4
        self._head = struct.Struct(f">ii{between}xh")
        self._places = places
        self._place = 0  # of the reply that comes next
        self._missing = 0  # bytes of the reply that has begun
        self._size_min = max(reply_bytes_min, self._head.size - _SIZE.size)

    def feed(self, data: memoryview) -> tuple[int, int]:
        available = len(data)
        if self._missing > available:
            self._missing -= available
            return 0, available
        at = self._missing
        replies = 1 if at else 0
        self._missing = 0
        head_bytes = self._head.size
        while available - at >= head_bytes:
            size, place, error = self._head.unpack_from(data, at)
            if error or place != self._place or size < self._size_min:
                self._refuse(size, place, error)
            self._place = place + 1 if place + 1 < self._places else 0
            end = at + 4 + size
            if end > available:
                self._missing = end - available
                return replies, available
            at = end
            replies += 1
        if available - at >= _SIZE.size:
            (size,) = _SIZE.unpack_from(data, at)
            if size < self._size_min:
                self._refuse(size, self._place, 0)
        return replies, at

    def _refuse(self, size: int, place: int, error: int) -> None:
        if place != self._place:
            raise LoadError(f"correlation id {place} where {self._place} was due")
        if error:
            name = ErrorCode(error).name if error in ErrorCode._value2member_map_ else "unknown"
            raise LoadError(f"the broker answered with error {error} ({name})")
        raise LoadError(f"a reply of {size} bytes, where the least is {self._size_min}")


def produce_reader(ring: Ring, *, topic: str) -> KafkaReader:
    """For a ring of `produce_ring`."""
    return KafkaReader(name_at=_PRODUCE_NAME_AT, topic=topic, places=ring.count)


def fetch_reader(ring: Ring, *, topic: str) -> KafkaReader:
    """For a ring of `fetch_ring`: a reply with less than was asked for is a failure."""
    return KafkaReader(
        name_at=_FETCH_NAME_AT, topic=topic, places=ring.count, reply_bytes_min=ring.payload_bytes
    )
