"""Produce by hand, versions 3-12: against kafka-python and kio both ways, without copies, bad input."""

from __future__ import annotations

import datetime
import importlib
import io
import struct

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from tests.unit.wire.kafka.oracle import kafka_python_type, kio_reads, kio_type

from tailrace.model import ProtocolError
from tailrace.wire.kafka import (
    ProduceResult,
    read_produce_request,
    read_produce_response,
    write_produce_request,
    write_produce_response,
)
from tailrace.wire.kafka.produce import PARTITIONS_MAX

VERSIONS = range(3, 13)
every_version = pytest.mark.parametrize("version", VERSIONS)

TOPICS = {"events": {0: b"first batch", 7: b"x" * 200}, "größe": {2**31 - 1: b""}, "none": {}}
RESULTS = [
    ("events", [ProduceResult(0, 0, 2**40, 0, 3), ProduceResult(7, 87, error_message="no key")]),
    ("größe", [ProduceResult(1, 3, error_message="")]),
    (
        "bad",
        [
            ProduceResult(
                0, 87, error_message="two are bad", record_errors=[(0, "no key"), (2**31 - 1, None)]
            ),
            ProduceResult(1, 87, record_errors=[(3, "größe" * 40)]),
        ],
    ),
    ("none", []),
]


def request_bytes(version: int, transactional_id: str | None = None) -> bytes:
    pieces = write_produce_request(
        version, transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topics=TOPICS
    )
    return b"".join(pieces)


def their_request(version: int, transactional_id: str | None) -> bytes:
    theirs = kafka_python_type("ProduceRequest")
    topic = theirs.TopicProduceData
    data = [
        topic(
            version=version,
            name=name,
            partition_data=[
                topic.PartitionProduceData(version=version, index=index, records=records)
                for index, records in partitions.items()
            ],
        )
        for name, partitions in TOPICS.items()
    ]
    message = theirs(
        version=version, transactional_id=transactional_id, acks=-1, timeout_ms=30_000, topic_data=data
    )
    return bytes(message.encode())


@every_version
@pytest.mark.parametrize("transactional_id", [None, "", "mine", "t" * 200])
def test_our_requests_are_those_of_kafka_python(version: int, transactional_id: str | None) -> None:
    assert request_bytes(version, transactional_id) == their_request(version, transactional_id)


@every_version
def test_kio_reads_our_requests(version: int) -> None:
    entity = kio_reads("ProduceRequest", version, request_bytes(version, "mine"))
    assert (entity.transactional_id, entity.acks) == ("mine", -1)
    read = {topic.name: {p.index: p.records for p in topic.partition_data} for topic in entity.topic_data}
    assert read == TOPICS


@every_version
@pytest.mark.parametrize("transactional_id", [None, "", "mine", "t" * 200])
def test_a_request_is_read_without_copying_records(version: int, transactional_id: str | None) -> None:
    frame = their_request(version, transactional_id)
    request = read_produce_request(memoryview(frame), version)
    assert (request.transactional_id, request.acks, request.timeout_ms) == (transactional_id, -1, 30_000)
    assert {
        topic.name: {partition.index: bytes(partition.records or b"") for partition in topic.partitions}
        for topic in request.topics
    } == TOPICS
    for topic in request.topics:
        for partition in topic.partitions:
            assert partition.records is not None and partition.records.obj is frame


@every_version
def test_null_records_are_none(version: int) -> None:
    head = write_produce_request(version, transactional_id=None, acks=1, timeout_ms=5, topics={"t": {3: b""}})
    whole = b"".join(head)
    size = b"\x01" if version >= 9 else b"\0\0\0\0"
    null = b"\x00" if version >= 9 else b"\xff\xff\xff\xff"
    at = (
        len(whole) - 4
    )  # the length of empty records, from version 9 on with three empty tag buffers behind it
    assert whole[at : at + len(size)] == size
    request = read_produce_request(memoryview(whole[:at] + null + whole[at + len(size) :]), version)
    assert request.topics[0].partitions[0].records is None


def their_response(version: int) -> bytes:
    theirs = kafka_python_type("ProduceResponse")
    topic = theirs.TopicProduceResponse
    message = theirs(
        version=version,
        throttle_time_ms=9,
        responses=[
            topic(
                version=version,
                name=name,
                partition_responses=[
                    topic.PartitionProduceResponse(
                        version=version,
                        index=result.index,
                        error_code=result.error_code,
                        base_offset=result.base_offset,
                        log_append_time_ms=result.log_append_time_ms,
                        log_start_offset=result.log_start_offset,
                        record_errors=[
                            topic.PartitionProduceResponse.BatchIndexAndErrorMessage(
                                version=version, batch_index=number, batch_index_error_message=text
                            )
                            for number, text in (result.record_errors if version >= 8 else ())
                        ],
                        error_message=result.error_message,
                    )
                    for result in results
                ],
            )
            for name, results in RESULTS
        ],
    )
    return bytes(message.encode())


def as_version(result: ProduceResult, version: int) -> ProduceResult:
    """What is left of a result in a version."""
    return ProduceResult(
        result.index,
        result.error_code,
        result.base_offset,
        result.log_append_time_ms,
        result.log_start_offset if version >= 5 else -1,
        result.error_message if version >= 8 else None,
        result.record_errors if version >= 8 else (),
    )


@every_version
def test_our_responses_are_those_of_kafka_python(version: int) -> None:
    assert write_produce_response(version, RESULTS, throttle_time_ms=9) == their_response(version)


@every_version
def test_a_response_is_read(version: int) -> None:
    response = read_produce_response(memoryview(their_response(version)), version)
    assert response.throttle_time_ms == 9
    assert response.topics == [
        (name, [as_version(result, version) for result in results]) for name, results in RESULTS
    ]


@pytest.mark.parametrize("version", [8, 9])
def test_single_bad_records_of_a_response_of_kio_are_read(version: int) -> None:
    whole = kio_type("ProduceResponse", version)
    (topic,) = whole.__dataclass_fields__["responses"].type.__args__[:1]
    (partition,) = topic.__dataclass_fields__["partition_responses"].type.__args__[:1]
    (bad,) = partition.__dataclass_fields__["record_errors"].type.__args__[:1]
    entity = whole(
        throttle_time=datetime.timedelta(milliseconds=4),
        responses=(
            topic(
                name="t",
                partition_responses=(
                    partition(
                        index=1,
                        error_code=ErrorCode(87),
                        base_offset=-1,
                        record_errors=(
                            bad(batch_index=0, batch_index_error_message="bad"),
                            bad(batch_index=1),
                        ),
                        error_message="two are bad",
                    ),
                ),
            ),
        ),
    )
    buffer = io.BytesIO()
    entity_writer(whole)(buffer, entity)
    response = read_produce_response(memoryview(buffer.getvalue()), version)
    bad_records = [(0, "bad"), (1, None)]
    assert response.topics == [
        ("t", [ProduceResult(1, 87, error_message="two are bad", record_errors=bad_records)])
    ]


@pytest.mark.parametrize("version", [10, 11, 12])
def test_the_new_leader_that_a_response_may_tell_of_is_skipped(version: int) -> None:
    response = importlib.import_module(f"kio.schema.produce.v{version}.response")
    result = response.PartitionProduceResponse(
        index=1,
        error_code=ErrorCode.not_leader_or_follower,
        base_offset=-1,
        record_errors=(),
        current_leader=response.LeaderIdAndEpoch(leader_id=3, leader_epoch=9),
    )
    entity = response.ProduceResponse(
        responses=(response.TopicProduceResponse(name="t", partition_responses=(result,)),),
        throttle_time=datetime.timedelta(0),
        node_endpoints=(response.NodeEndpoint(node_id=3, host="localhost", port=9092),),
    )
    buffer = io.BytesIO()
    entity_writer(response.ProduceResponse)(buffer, entity)
    read = read_produce_response(memoryview(buffer.getvalue()), version)
    assert read.topics == [("t", [ProduceResult(1, 6)])]


def test_unknown_tags_are_skipped() -> None:
    whole = write_produce_request(9, transactional_id=None, acks=1, timeout_ms=5, topics={"t": {3: b"r"}})
    data = b"".join(whole)
    assert data.endswith(b"r\0\0\0")
    tagged = data[:-3] + b"\x01\x05\x01a" + b"\x01\x06\x00" + b"\x02\x07\x00\x08\x02bc"
    request = read_produce_request(memoryview(tagged), 9)
    assert bytes(request.topics[0].partitions[0].records or b"") == b"r"


@every_version
def test_more_partitions_than_any_client_sends_are_refused(version: int) -> None:
    def whole(count: int) -> memoryview:
        one = b"\0\0\0\0\x01\0" if version >= 9 else bytes(8)
        (empty,) = write_produce_request(
            version, transactional_id=None, acks=1, timeout_ms=5, topics={"t": {}}
        )
        head = bytes(empty)[: -3 if version >= 9 else -4]
        varint = bytes(((count + 1) & 0x7F | 0x80, (count + 1) >> 7 & 0x7F | 0x80, (count + 1) >> 14))
        counted = varint if version >= 9 else struct.pack(">i", count)
        return memoryview(head + counted + one * count + (b"\0\0" if version >= 9 else b""))

    assert len(read_produce_request(whole(PARTITIONS_MAX), version).topics[0].partitions) == PARTITIONS_MAX
    with pytest.raises(ProtocolError):
        read_produce_request(whole(PARTITIONS_MAX + 1), version)


def test_a_negative_length_does_not_lead_backwards() -> None:
    head = struct.pack(">hhii", -1, 1, 5, 1) + struct.pack(">h1si", 1, b"t", 2)
    good = head + struct.pack(">ii", 0, 0) + struct.pack(">ii", 1, 0)
    assert len(read_produce_request(memoryview(good), 3).topics[0].partitions) == 2
    # Four bytes back from its end, the first partition's length would be the second one's index.
    bad = head + struct.pack(">ii", 0, -4) + struct.pack(">i4s", 4, b"data")
    with pytest.raises(ProtocolError, match="length"):
        read_produce_request(memoryview(bad), 3)


@pytest.mark.parametrize("count", [-1, -2, -(2**31)])
def test_a_negative_count_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError, match="array"):
        read_produce_request(memoryview(struct.pack(">hhii", -1, 1, 5, count)), 3)
    with pytest.raises(ProtocolError, match="array"):
        read_produce_request(memoryview(struct.pack(">hhiih1si", -1, 1, 5, 1, 1, b"t", count)), 3)


@pytest.mark.parametrize("length", [-2, -32768])
def test_a_message_shorter_than_null_is_refused(length: int) -> None:
    good = write_produce_response(8, [("t", [ProduceResult(0)])])
    assert good[-6:] == b"\xff\xff" + bytes(4)
    with pytest.raises(ProtocolError, match="length"):
        read_produce_response(memoryview(good[:-6] + struct.pack(">hi", length, 0)), 8)
