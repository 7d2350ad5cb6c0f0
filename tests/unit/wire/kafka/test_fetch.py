"""Fetch by hand, versions 4-17: against kafka-python and kio both ways, pieces around records, bad input."""

from __future__ import annotations

import datetime
import io
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar
from uuid import UUID, uuid5

import pytest
from kio.schema.errors import ErrorCode
from kio.serial import entity_writer
from tests.unit.wire.kafka.oracle import kafka_python_type, kio_type

from tailrace.model import ProtocolError
from tailrace.wire.kafka import (
    FetchPartition,
    FetchResult,
    FetchTopic,
    TopicRef,
    fetch_response_size,
    read_fetch_request,
    read_fetch_response,
    write_fetch_request,
    write_fetch_response,
)

VERSIONS = range(4, 18)
every_version = pytest.mark.parametrize("version", VERSIONS)

PARTITIONS = {
    "events": [FetchPartition(0, 4, 2**40, 3, 17, 1 << 20), FetchPartition(9, -1, 0, -1, -1, 0)],
    "größe": [FetchPartition(i, i, i, i, i, i) for i in range(200)],
    "none": [],
}
FORGOTTEN = {"old": [0, 1, 2**31 - 1], "older": []}


V = TypeVar("V")


def id_of(name: str) -> UUID:
    return uuid5(UUID(int=5), name)


def by_ref(topics: Iterable[tuple[str, V]], version: int) -> list[tuple[TopicRef, V]]:
    """Topics as a version names them."""
    return [(id_of(name) if version >= 13 else name, each) for name, each in topics]


def their_ref(name: str, version: int) -> dict[str, Any]:
    return {"topic_id": id_of(name)} if version >= 13 else {"topic": name}


@dataclass
class Records:
    """Stands for a slice of a log."""

    data: bytes

    @property
    def size(self) -> int:
        return len(self.data)


RESULTS: list[tuple[str, list[FetchResult[Records]]]] = [
    (
        "events",
        [
            FetchResult(0, 0, 2**40, 5, 3, [(1, 2), (3, 2**62)], 7, Records(b"batch" * 40)),
            FetchResult(1, 3),
            FetchResult(2, 0, 9, 9, 0, [], -1, Records(b"")),
            FetchResult(3, 0, 9, 9, 0, None, -1, Records(b"last")),
        ],
    ),
    ("größe", []),
]


def our_request(version: int) -> bytes:
    return write_fetch_request(
        version,
        topics=dict(by_ref(PARTITIONS.items(), version)),
        replica_id=-1,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=2**31 - 1,
        isolation_level=1,
        session_id=77,
        session_epoch=3,
        forgotten=dict(by_ref(FORGOTTEN.items(), version)),
        rack_id="rack-1",
    )


def their_request(version: int, **tags: Any) -> bytes:
    theirs = kafka_python_type("FetchRequest")
    topic, forgotten = theirs.FetchTopic, theirs.ForgottenTopic
    if version < 15:
        tags["replica_id"] = -1
    message = theirs(
        version=version,
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=2**31 - 1,
        isolation_level=1,
        session_id=77,
        session_epoch=3,
        topics=[
            topic(
                version=version,
                **their_ref(name, version),
                partitions=[
                    topic.FetchPartition(
                        version=version,
                        partition=p.index,
                        current_leader_epoch=p.current_leader_epoch,
                        fetch_offset=p.fetch_offset,
                        last_fetched_epoch=p.last_fetched_epoch,
                        log_start_offset=p.log_start_offset,
                        partition_max_bytes=p.partition_max_bytes,
                    )
                    for p in partitions
                ],
            )
            for name, partitions in PARTITIONS.items()
        ],
        forgotten_topics_data=[
            forgotten(version=version, **their_ref(name, version), partitions=indexes)
            for name, indexes in FORGOTTEN.items()
            if version >= 7
        ],
        rack_id="rack-1",
        **tags,
    )
    return bytes(message.encode())


def as_version(p: FetchPartition, version: int) -> FetchPartition:
    """What is left of a partition in a version."""
    return FetchPartition(
        p.index,
        p.current_leader_epoch if version >= 9 else -1,
        p.fetch_offset,
        p.last_fetched_epoch if version >= 12 else -1,
        p.log_start_offset if version >= 5 else -1,
        p.partition_max_bytes,
    )


@every_version
def test_our_requests_are_those_of_kafka_python(version: int) -> None:
    assert our_request(version) == their_request(version)


@every_version
def test_a_request_is_read(version: int) -> None:
    request = read_fetch_request(memoryview(their_request(version)), version)
    assert (request.replica_id, request.max_wait_ms, request.min_bytes) == (-1, 500, 1)
    assert (request.max_bytes, request.isolation_level) == (2**31 - 1, 1)
    assert (request.session_id, request.session_epoch) == ((77, 3) if version >= 7 else (0, -1))
    assert request.topics == [
        FetchTopic(topic, [as_version(p, version) for p in partitions])
        for topic, partitions in by_ref(PARTITIONS.items(), version)
    ]
    assert request.by_id == (version >= 13)
    assert request.forgotten == (by_ref(FORGOTTEN.items(), version) if version >= 7 else [])
    assert request.rack_id == ("rack-1" if version >= 11 else "")


def test_a_known_but_unused_tag_and_unknown_ones_are_skipped() -> None:
    plain = read_fetch_request(memoryview(our_request(12)), 12)
    assert read_fetch_request(memoryview(their_request(12, cluster_id="cluster")), 12) == plain
    one = write_fetch_request(12, topics={"t": [FetchPartition(1, 2, 3, 4, 5, 6)]})
    assert one.endswith(b"\0\0\0\x06" + b"\0" + b"\0" + b"\x01\x01" + b"\0")
    tagged = one[:-5] + b"\x01\x09\x00" + b"\x01\x09\x01x" + b"\x01\x01" + b"\x02\x00\x00\x63\x01y"
    assert read_fetch_request(memoryview(tagged), 12) == read_fetch_request(memoryview(one), 12)


def test_a_replica_is_read_from_its_tag_and_its_directory_is_skipped() -> None:
    theirs = kafka_python_type("FetchRequest")
    state = theirs.ReplicaState(version=17, replica_id=4, replica_epoch=9)
    tagged = their_request(17, cluster_id="cluster", replica_state=state)
    assert len(tagged) > len(our_request(17))
    plain = read_fetch_request(memoryview(our_request(17)), 17)
    read = read_fetch_request(memoryview(tagged), 17)
    assert (plain.replica_id, read.replica_id) == (-1, 4)
    read.replica_id = -1
    assert read == plain


def test_a_replica_tag_that_is_too_short_is_refused() -> None:
    plain = bytes(our_request(17))
    assert plain.endswith(b"\0")
    with pytest.raises(ProtocolError):
        read_fetch_request(memoryview(plain[:-1] + b"\x01\x01\x03\0\0\x04"), 17)


@pytest.mark.parametrize("version", [13, 15, 17])
def test_a_request_that_ends_inside_an_id_is_refused(version: int) -> None:
    whole = write_fetch_request(version, topics={id_of("t"): [FetchPartition(1, 2, 3, 4, 5, 6)]})
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            read_fetch_request(memoryview(whole[:size]), version)
    with pytest.raises(ProtocolError, match="left over"):
        read_fetch_request(memoryview(whole + b"x"), version)


def their_response(version: int) -> bytes:
    theirs = kafka_python_type("FetchResponse")
    topic = theirs.FetchableTopicResponse
    partition = topic.PartitionData
    message = theirs(
        version=version,
        throttle_time_ms=9,
        error_code=71,
        session_id=5,
        responses=[
            topic(
                version=version,
                **their_ref(name, version),
                partitions=[
                    partition(
                        version=version,
                        partition_index=r.index,
                        error_code=r.error_code,
                        high_watermark=r.high_watermark,
                        last_stable_offset=r.last_stable_offset,
                        log_start_offset=r.log_start_offset,
                        aborted_transactions=None
                        if r.aborted is None
                        else [
                            partition.AbortedTransaction(
                                version=version, producer_id=producer_id, first_offset=first_offset
                            )
                            for producer_id, first_offset in r.aborted
                        ],
                        preferred_read_replica=r.preferred_read_replica,
                        records=b"" if r.records is None else r.records.data,
                    )
                    for r in results
                ],
            )
            for name, results in RESULTS
        ],
    )
    return bytes(message.encode())


def our_pieces(version: int) -> list[bytes | Records]:
    return write_fetch_response(
        version, throttle_time_ms=9, error_code=71, session_id=5, topics=by_ref(RESULTS, version)
    )


@every_version
def test_our_responses_are_those_of_kafka_python(version: int) -> None:
    pieces = our_pieces(version)
    whole = b"".join(piece if isinstance(piece, bytes) else piece.data for piece in pieces)
    assert whole == their_response(version)
    assert fetch_response_size(pieces) == len(whole)


@every_version
def test_records_are_pieces_of_their_own_and_empty_ones_none(version: int) -> None:
    records = [piece for piece in our_pieces(version) if not isinstance(piece, bytes)]
    (_, results), _ = RESULTS
    assert records[0] is results[0].records
    assert records[1] is results[3].records
    assert len(records) == 2


@every_version
def test_an_answer_without_topics_is_bytes_alone(version: int) -> None:
    pieces = write_fetch_response(version, topics=list[tuple[TopicRef, list[FetchResult[Records]]]]())
    assert len(pieces) == 1 and isinstance(pieces[0], bytes)
    assert read_fetch_response(memoryview(pieces[0]), version).topics == []


@every_version
def test_a_response_is_read_without_copying_records(version: int) -> None:
    frame = their_response(version)
    response = read_fetch_response(memoryview(frame), version)
    assert response.throttle_time_ms == 9
    assert (response.error_code, response.session_id) == ((71, 5) if version >= 7 else (0, 0))
    assert [topic for topic, _ in response.topics] == [topic for topic, _ in by_ref(RESULTS, version)]
    for ours, theirs in zip(RESULTS[0][1], response.topics[0][1], strict=True):
        assert theirs.records is not None and theirs.records.obj is frame
        assert bytes(theirs.records) == (ours.records.data if ours.records else b"")
        for name in ("index", "error_code", "aborted", "high_watermark", "last_stable_offset"):
            assert getattr(theirs, name) == getattr(ours, name), name
        assert theirs.log_start_offset == (ours.log_start_offset if version >= 5 else -1)
        assert theirs.preferred_read_replica == (ours.preferred_read_replica if version >= 11 else -1)


def test_tagged_answers_of_other_brokers_are_read_over() -> None:
    whole = kio_type("FetchResponse", 12)
    topic = whole.__dataclass_fields__["responses"].type.__args__[0]
    partition = topic.__dataclass_fields__["partitions"].type.__args__[0]
    leader = partition.__dataclass_fields__["current_leader"].type
    entity = whole(
        throttle_time=datetime.timedelta(0),
        error_code=ErrorCode(0),
        session_id=0,
        responses=(
            topic(
                topic="t",
                partitions=(
                    partition(
                        partition_index=1,
                        error_code=ErrorCode(6),
                        high_watermark=-1,
                        current_leader=leader(leader_id=2, leader_epoch=8),
                        aborted_transactions=None,
                        records=None,
                    ),
                ),
            ),
        ),
    )
    buffer = io.BytesIO()
    entity_writer(whole)(buffer, entity)
    response = read_fetch_response(memoryview(buffer.getvalue()), 12)
    assert response.topics == [("t", [FetchResult(1, 6)])]


@pytest.mark.parametrize("count", [-1, -2, -(2**31)])
def test_a_negative_count_is_refused(count: int) -> None:
    head = struct.pack(">iiiib", -1, 0, 0, 0, 0)
    for body in (struct.pack(">i", count), struct.pack(">ih1si", 1, 1, b"t", count)):
        with pytest.raises(ProtocolError, match="array"):
            read_fetch_request(memoryview(head + body), 4)
