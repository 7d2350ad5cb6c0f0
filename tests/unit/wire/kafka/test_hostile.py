"""Whatever a stranger sends: truncated, mutated, random and lying bytes give a message or a ProtocolError."""

from __future__ import annotations

import random
import struct
import tracemalloc
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.unit.wire.kafka.generated import MESSAGE_TYPES, full, versions_of

from tailrace.model import ProtocolError
from tailrace.wire.kafka import (
    APIS,
    FetchPartition,
    FetchResult,
    Message,
    ProduceResult,
    TopicRef,
    decode,
    encode,
    read_fetch_request,
    read_fetch_response,
    read_produce_request,
    read_produce_response,
    write_fetch_request,
    write_fetch_response,
    write_produce_request,
    write_produce_response,
)
from tailrace.wire.kafka.messages.create_topics import CreateTopicsRequest
from tailrace.wire.kafka.messages.heartbeat import HeartbeatRequest
from tailrace.wire.kafka.messages.metadata import MetadataRequest

Reader = Callable[[memoryview], object]


class _Records:
    size = 4


def _compiled(message_type: type[Message], version: int) -> tuple[Reader, bytes]:
    return lambda data: decode(message_type, version, data), encode(full(message_type, version), version)


def _produce(version: int) -> list[tuple[Reader, bytes]]:
    request = write_produce_request(
        version, transactional_id="t", acks=1, timeout_ms=1, topics={"a": {0: b"rec", 1: b""}, "b": {2: b"x"}}
    )
    response = write_produce_response(version, [("a", [ProduceResult(0, 1, error_message="e")])])
    return [
        (lambda data: read_produce_request(data, version), b"".join(request)),
        (lambda data: read_produce_response(data, version), response),
    ]


def _fetch(version: int) -> list[tuple[Reader, bytes]]:
    partition = FetchPartition(1, 2, 3, 4, 5, 6)
    first: TopicRef = UUID(int=1) if version >= 13 else "a"
    second: TopicRef = UUID(int=2) if version >= 13 else "f"
    request = write_fetch_request(
        version, topics={first: [partition] * 2}, forgotten={second: [1]}, rack_id="r"
    )
    pieces = write_fetch_response(
        version, topics=[(first, [FetchResult(0, aborted=[(1, 2)], records=_Records()), FetchResult(1)])]
    )
    response = b"".join(piece if isinstance(piece, bytes) else b"data" for piece in pieces)
    return [
        (lambda data: read_fetch_request(data, version), request),
        (lambda data: read_fetch_response(data, version), response),
    ]


CASES: list[Any] = [
    pytest.param(*_compiled(message_type, version), id=f"{message_type.__name__}-{version}")
    for message_type in MESSAGE_TYPES
    for version in versions_of(message_type)
]
for api, make in ((APIS[0], _produce), (APIS[1], _fetch)):
    for version in range(api.min_version, api.known_max + 1):
        for direction, case in zip(("Request", "Response"), make(version), strict=True):
            CASES.append(pytest.param(*case, id=f"{api.name}{direction}-{version}"))


def _may_be_longer(case_id: str) -> bool:
    return "Request-" in case_id and not case_id.startswith(("Produce", "Fetch"))


every_case = pytest.mark.parametrize(("read", "valid"), CASES)


def read_or_refuse(read: Reader, data: bytes) -> bool:
    """True if it was a message. Anything but a ProtocolError goes up, and fails the test."""
    try:
        read(memoryview(data))
    except ProtocolError:
        return False
    return True


@every_case
def test_every_truncation_is_refused(read: Reader, valid: bytes) -> None:
    assert read_or_refuse(read, valid)
    for size in range(len(valid)):
        assert not read_or_refuse(read, valid[:size]), size


@pytest.mark.parametrize(("read", "valid"), [case for case in CASES if not _may_be_longer(case.id)])
def test_every_addition_is_refused(read: Reader, valid: bytes) -> None:
    assert not read_or_refuse(read, valid + b"\0")
    assert not read_or_refuse(read, valid + valid + b"\0")


@pytest.mark.parametrize(("read", "valid"), [case for case in CASES if _may_be_longer(case.id)])
def test_bytes_behind_a_request_are_let_pass(read: Reader, valid: bytes) -> None:
    """As Kafka does, since librdkafka sends such: see the codec."""
    assert read(memoryview(valid + b"\0\0\0")) == read(memoryview(valid))


def test_all_topics_as_librdkafka_asks_for_them() -> None:
    asked = decode(MetadataRequest, 11, bytes(7))
    assert asked.topics is None and not asked.allow_auto_topic_creation


@every_case
def test_mutations_are_read_or_refused(read: Reader, valid: bytes) -> None:
    dice = random.Random(valid)
    for at in range(len(valid)):
        for byte in (0x00, 0x7F, 0x80, 0xFF, dice.randrange(256)):
            read_or_refuse(read, valid[:at] + bytes((byte,)) + valid[at + 1 :])
        for number in (2**31 - 1, -1, -2, -(2**31), 2**16):
            read_or_refuse(read, valid[:at] + struct.pack(">i", number) + valid[at + 4 :])
    for _ in range(20):
        cut = sorted(dice.randrange(len(valid) + 1) for _ in range(2))
        read_or_refuse(read, valid[: cut[0]] + valid[cut[1] :])
        read_or_refuse(read, valid[: cut[1]] + valid[cut[0] :])


@settings(max_examples=200)
@given(case=st.sampled_from(CASES), data=st.binary(max_size=200))
def test_random_bytes_are_read_or_refused(case: Any, data: bytes) -> None:
    read, _ = case.values
    read_or_refuse(read, data)


@every_case
def test_long_noise_is_read_or_refused(read: Reader, valid: bytes) -> None:
    dice = random.Random(valid)
    for size in (10, 100, 1000):
        read_or_refuse(read, dice.randbytes(size))
        read_or_refuse(read, bytes(size))
        read_or_refuse(read, b"\xff" * size)
        read_or_refuse(read, b"\x01" * size)


LIES = {
    "classic count": (MetadataRequest, 8, struct.pack(">i", 2**31 - 1) + bytes(100)),
    "count one too many": (MetadataRequest, 1, struct.pack(">i", 51) + bytes(100)),
    "count below null": (MetadataRequest, 1, struct.pack(">i", -2)),
    "compact count": (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f" + bytes(100)),
    "wide varint": (MetadataRequest, 9, b"\xff\xff\xff\xff\x1f" + bytes(100)),
    "endless varint": (MetadataRequest, 9, b"\x80" * 100),
    "null where there is none": (CreateTopicsRequest, 5, b"\0" + bytes(6)),
    "null string": (HeartbeatRequest, 3, struct.pack(">h", -1) + bytes(20)),
    "length below null": (HeartbeatRequest, 3, bytes(8) + struct.pack(">h", -2)),
    "long string": (HeartbeatRequest, 3, struct.pack(">h", 32767) + bytes(20)),
    "long compact string": (HeartbeatRequest, 4, b"\xff\xff\xff\xff\x0f" + bytes(20)),
    "not UTF-8": (HeartbeatRequest, 3, struct.pack(">h", 2) + b"\xc3\x28" + bytes(8)),
    "surrogate": (HeartbeatRequest, 3, struct.pack(">h", 3) + b"\xed\xa0\x80" + bytes(8)),
    "overlong UTF-8": (HeartbeatRequest, 3, struct.pack(">h", 2) + b"\xc0\x80" + bytes(8)),
    "many tags": (HeartbeatRequest, 4, b"\x01\0\0\0\0\x01\0" + b"\xff\xff\xff\xff\x0f" + bytes(20)),
    "long tag": (HeartbeatRequest, 4, b"\x01\0\0\0\0\x01\0" + b"\x01\x00\x7f" + bytes(20)),
}


@pytest.mark.parametrize(("message_type", "version", "data"), LIES.values(), ids=LIES)
def test_a_lie_is_refused_before_anything_is_made_of_it(
    message_type: type[Message], version: int, data: bytes
) -> None:
    read_or_refuse(lambda view: decode(message_type, version, view), data)  # compiles
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError):
            decode(message_type, version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 20_000


def test_a_refusal_names_message_version_and_field() -> None:
    with pytest.raises(ProtocolError, match=r"MetadataRequest version 8.*topics"):
        decode(MetadataRequest, 8, struct.pack(">i", 1000))


@pytest.mark.parametrize("version", [8, 9])
def test_a_frame_of_smallest_elements_costs_a_multiple_of_its_size(version: int) -> None:
    count = 50_000
    data = struct.pack(">i", count) + bytes(2 * count + 3)
    if version == 9:
        data = b"\xd1\x86\x03" + b"\x01\x00" * count + bytes(4)
    read_or_refuse(lambda view: decode(MetadataRequest, version, view), b"")
    tracemalloc.start()
    try:
        message = decode(MetadataRequest, version, data)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert message.topics is not None and len(message.topics) == count
    assert peak < 50 * len(data)
