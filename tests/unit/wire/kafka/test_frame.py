"""Headers of requests and responses: against kafka-python, round trips, and every way to be wrong."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.kafka.oracle import kafka_python_knows, kafka_python_type

from tailrace.model import ProtocolError
from tailrace.wire.kafka import (
    APIS,
    RequestHeader,
    read_request_header,
    read_response_head,
    write_request,
    write_request_head,
    write_response_head,
)

HEADERS = [
    (key, version) for key, api in APIS.items() for version in range(api.min_version, api.max_version + 1)
]


@pytest.mark.parametrize("client_id", [None, "", "rdkafka", "größe"])
def test_a_request_header_of_every_version_comes_back(client_id: str | None) -> None:
    for key, version in HEADERS:
        request = write_request(key, version, 77, client_id, b"body")
        assert struct.unpack_from(">i", request) == (len(request) - 4,)
        header, body = read_request_header(memoryview(request)[4:])
        assert header == RequestHeader(key, version, 77, client_id)
        assert bytes(body) == b"body"


def _is_known_to_kafka_python(header: tuple[int, int]) -> bool:
    return kafka_python_knows(APIS[header[0]].name)


def test_a_request_is_framed_as_kafka_python_frames_it() -> None:
    for key, version in filter(_is_known_to_kafka_python, HEADERS):
        theirs = kafka_python_type(APIS[key].name + "Request")(version=version)
        theirs.with_header(correlation_id=5, client_id="me")
        whole = bytes(theirs.encode(header=True, framed=True))
        body = bytes(theirs.encode())
        assert write_request(key, version, 5, "me", body) == whole
        assert write_request_head(key, version, 5, "me", len(body)) + body == whole


def test_a_response_is_framed_as_kafka_python_frames_it() -> None:
    for key, version in filter(_is_known_to_kafka_python, HEADERS):
        theirs = kafka_python_type(APIS[key].name + "Response")(version=version)
        theirs.with_header(correlation_id=5)
        whole = bytes(theirs.encode(header=True, framed=True))
        body = bytes(theirs.encode())
        assert write_response_head(key, version, 5, len(body)) + body == whole
        correlation_id, rest = read_response_head(key, version, memoryview(whole)[4:])
        assert (correlation_id, bytes(rest)) == (5, body)


def test_answers_to_api_versions_never_have_tags_in_the_header() -> None:
    assert [len(write_response_head(18, version, 1, 0)) for version in range(5)] == [8] * 5
    assert len(write_response_head(3, 9, 1, 0)) == 9


def test_unknown_tags_of_a_header_are_skipped() -> None:
    plain = write_request(3, 9, 1, "me", b"")
    header, body = read_request_header(memoryview(plain[4:-1] + b"\x02\x00\x01x\x63\x02yz" + b"body"))
    assert (header.client_id, bytes(body)) == ("me", b"body")
    assert read_response_head(3, 9, memoryview(b"\0\0\0\x01\x01\x07\x00ab")) == (1, memoryview(b"ab"))


@pytest.mark.parametrize(
    ("key", "version"), [(3, 13), (3, -1), (0, 2), (0, 13), (1, 3), (99, 0), (-1, 0), (17, 2)]
)
def test_what_is_not_served_is_refused(key: int, version: int) -> None:
    frame = memoryview(struct.pack(">hhih", key, version, 1, -1) + bytes(20))
    with pytest.raises(ProtocolError, match="not served"):
        read_request_header(frame)


@pytest.mark.parametrize("version", [5, 99, 0x7FFF, -1])
def test_api_versions_of_an_unknown_version_can_be_answered(version: int) -> None:
    frame = memoryview(struct.pack(">hhih", 18, version, 42, 3) + b"\xff\xfe\xfd")
    header, body = read_request_header(frame)
    assert header == RequestHeader(18, version, 42, None)
    assert bytes(body) == b""


def test_every_truncated_request_header_is_refused() -> None:
    whole = memoryview(write_request(3, 9, 1, "client", b""))[4:]
    for size in range(len(whole)):
        with pytest.raises(ProtocolError):
            read_request_header(whole[:size])


@pytest.mark.parametrize(
    "tags", [b"\x01\x00\x7f", b"\x02\x00\x00", b"\xff\xff\xff\xff\x0f", b"\xff\xff\xff\xff\x7f"]
)
def test_bad_tags_of_a_response_header_are_refused(tags: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_response_head(3, 9, memoryview(b"\0\0\0\x01" + tags))


def test_every_truncated_response_header_is_refused() -> None:
    for size in range(5):
        with pytest.raises(ProtocolError):
            read_response_head(3, 9, memoryview(b"\0\0\0\x01\0")[:size])


@pytest.mark.parametrize(
    ("version", "tail"),
    [
        (8, struct.pack(">h", -2)),
        (9, struct.pack(">h", -2) + b"\0"),
        (9, struct.pack(">h", -32768) + b"\0"),
        (8, struct.pack(">h", 2) + b"x"),
        (9, struct.pack(">h", 32767) + b"x"),
        (9, struct.pack(">h", 2) + b"\xc3\x28" + b"\0"),
        (9, struct.pack(">h", -1) + b"\xff\xff\xff\xff\x7f"),
        (9, struct.pack(">h", -1) + b"\xff\xff\xff\xff\x0f"),
        (9, struct.pack(">h", -1) + b"\x01\x00\x7f"),
    ],
    ids=[
        "negative",
        "negative, flexible",
        "most negative",
        "too long",
        "too long, flexible",
        "not UTF-8",
        "wide varint",
        "many tags",
        "long tag",
    ],
)
def test_a_bad_end_of_a_header_is_refused(version: int, tail: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_request_header(memoryview(struct.pack(">hhi", 3, version, 1) + tail))


@given(st.binary(max_size=40))
def test_any_bytes_are_a_header_or_refused(data: bytes) -> None:
    try:
        _, body = read_request_header(memoryview(data))
    except ProtocolError:
        return
    assert len(body) <= len(data)
