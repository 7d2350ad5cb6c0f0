"""The shape of produce requests: it finds the same records as reading the whole request, or nothing."""

from __future__ import annotations

import random

import pytest
from tests.unit.kafka.rig import Rig, batch, play, produce_body

from tailrace.kafka.shape import ProduceShape, shape_of
from tailrace.model import ProtocolError, TopicPartition
from tailrace.wire.kafka import PRODUCE, read_produce_request, read_produce_response

VERSIONS = range(3, 10)


def shape_for(version: int, body: bytes) -> ProduceShape | None:
    view = memoryview(body)
    return shape_of(version, view, read_produce_request(view, version))


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("size", [10, 126, 127, 128, 129, 16_382, 16_383, 16_384, 300_000])
def test_the_next_request_of_the_same_shape_yields_its_records(version: int, size: int) -> None:
    shape = shape_for(version, produce_body({3: b"x" * 100}, version=version, timeout_ms=77, acks=1))
    assert shape is not None
    found = shape.match(
        version, memoryview(produce_body({3: b"y" * size}, version=version, timeout_ms=77, acks=1))
    )
    assert found is not None and bytes(found) == b"y" * size
    assert (shape.tp, shape.acks, shape.timeout_ms) == (TopicPartition("orders", 3), 1, 77)


@pytest.mark.parametrize("version", VERSIONS)
def test_other_requests_do_not_match(version: int) -> None:
    shape = shape_for(version, produce_body({3: b"x" * 100}, version=version))
    assert shape is not None
    others = [
        produce_body({2: b"x" * 100}, version=version),
        produce_body({3: b"x" * 100}, version=version, acks=1),
        produce_body({3: b"x" * 100}, version=version, timeout_ms=1),
        produce_body({3: b"x" * 100}, version=version, topic="ordres"),
        produce_body({3: b"x" * 100}, version=version, transactional_id="t"),
        produce_body({3: b"x" * 100, 4: b"x"}, version=version),
        produce_body({3: b""}, version=version),
        b"",
        produce_body({3: b"x" * 100}, version=version)[:-1],
        produce_body({3: b"x" * 100}, version=version) + b"\0",
    ]
    for other in others:
        assert shape.match(version, memoryview(other)) is None
    same = memoryview(produce_body({3: b"x" * 100}, version=version))
    assert shape.match(version, same) is not None
    assert shape.match(version + 1, same) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_requests_without_a_shape(version: int) -> None:
    for body in (
        produce_body({0: b"a", 1: b"b"}, version=version),
        produce_body({0: b""}, version=version),
        produce_body({}, version=version),
        produce_body({0: b"a"}, version=version, transactional_id="t"),
    ):
        assert shape_for(version, body) is None


@pytest.mark.parametrize("version", VERSIONS)
def test_damaged_requests_match_only_where_reading_agrees(version: int) -> None:
    rng = random.Random(version)
    good = produce_body({3: b"x" * 150}, version=version)
    shape = shape_for(version, good)
    assert shape is not None
    matched = 0
    for _ in range(3000):
        body = bytearray(good)
        body[rng.randrange(len(body))] = rng.randrange(256)
        found = shape.match(version, memoryview(body))
        if found is None:
            continue
        matched += 1
        try:
            request = read_produce_request(memoryview(body), version)
        except ProtocolError:
            pytest.fail(f"matched what cannot be read: {bytes(body)!r}")
        assert request.topics[0].partitions[0].records == found
    assert matched > 1000


def test_a_connection_that_changes_its_mind_is_understood() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for version, partition in ((7, 0), (7, 0), (7, 1), (9, 1), (9, 1), (9, 0), (3, 0), (9, 0)):
            body = produce_body({partition: batch()}, version=version)
            answer = read_produce_response(await client.call(PRODUCE, version, body), version)
            assert answer.topics[0][1][0].index == partition and not answer.topics[0][1][0].error_code
        assert (rig.log(0).end_offset, rig.log(1).end_offset) == (5, 3)
        await rig.broker.topics.delete("orders")
        assert (await client.produce(batch())).error_code == 3  # the shape remembers no partition

    play(scenario)
