"""Prebuilt requests: decoded again with the broker's own codec."""

from __future__ import annotations

import time

import pytest

from tailrace.bench.wire.kafka import batch_bytes, fetch_ring, one_record, produce_ring
from tailrace.bench.wire.ring import Ring, ring_of
from tailrace.records import validate_batch
from tailrace.wire.kafka import FETCH, PRODUCE, read_fetch_request, read_produce_request, read_request_header


def requests_of(ring: Ring) -> list[memoryview]:
    """The frames of a ring without their size, which is checked."""
    frames = []
    for place in range(ring.count):
        frame = memoryview(ring.data)[place * ring.request_bytes : (place + 1) * ring.request_bytes]
        assert int.from_bytes(frame[:4], "big") == ring.request_bytes - 4
        frames.append(frame[4:])
    return frames


def test_a_produce_request_carries_the_batch_and_its_place() -> None:
    batch = batch_bytes(16_384)

    for place, frame in enumerate(requests_of(produce_ring(batch, topic="t", partition=3, in_flight=5))):
        header, body = read_request_header(frame)
        request = read_produce_request(body, header.api_version)
        assert (header.api_key, header.correlation_id, request.acks) == (PRODUCE, place, -1)
        (topic,) = request.topics
        (part,) = topic.partitions
        assert part.records is not None
        assert (topic.name, part.index, bytes(part.records)) == ("t", 3, batch)


def test_a_fetch_request_asks_for_its_offset() -> None:
    ring = fetch_ring(topic="t", partition=0, offsets=[0, 150, 300], bytes_max=16_000)

    asked = []
    for frame in requests_of(ring):
        header, body = read_request_header(frame)
        assert header.api_key == FETCH
        (part,) = read_fetch_request(body, header.api_version).topics[0].partitions
        asked.append((header.correlation_id, part.fetch_offset, part.partition_max_bytes))

    assert asked == [(0, 0, 16_000), (1, 150, 16_000), (2, 300, 16_000)]


def test_a_batch_of_one_record_is_valid() -> None:
    batch = validate_batch(bytearray(one_record(100)), bytes_max=1000)

    assert batch.last_offset_delta == 0


@pytest.mark.parametrize("size", [1000, 16_384, 1_000_000])
def test_a_batch_of_a_size_is_valid_and_from_now(size: int) -> None:
    before_ms = time.time_ns() // 1_000_000

    batch = validate_batch(bytearray(batch_bytes(size)), bytes_max=size)

    assert batch.size == size
    assert before_ms <= batch.base_timestamp == batch.max_timestamp <= time.time_ns() // 1_000_000


def test_a_ring_has_room_for_what_is_in_flight() -> None:
    assert produce_ring(batch_bytes(1_000_000), topic="t", partition=0, in_flight=3).count == 3


@pytest.mark.parametrize("requests", [[], [b""], [b"ab", b"abc"]])
def test_requests_of_a_ring_have_one_size(requests: list[bytes]) -> None:
    with pytest.raises(ValueError, match="one size"):
        ring_of(requests, payload_bytes=1)
