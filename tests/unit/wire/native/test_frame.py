"""Single frames: the bytes of one, round trips, and every length wrong in both directions."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.native import generated

from tailrace.model import BrokerError, ErrorCode, ProtocolError
from tailrace.wire.native import (
    FRAME_BYTES_MIN,
    PROPERTIES_BYTES_MAX,
    Frame,
    MessageType,
    read_frame,
    write_frame,
    write_properties,
)

WHOLE = write_frame(2, sequence=7, timestamp=99, properties={"_topic": "t", "a": "b"}, body=b"body")
CONTENT = WHOLE[4:]
PROPERTIES_LENGTH_AT = 20
BODY_LENGTH_AT = len(CONTENT) - 8


def with_number(content: bytes, at: int, number: int) -> bytes:
    return content[:at] + struct.pack(">I", number) + content[at + 4 :]


def test_a_frame_has_the_documented_bytes() -> None:
    properties = b"_topic=t\0a=b\0"
    expected = struct.pack(">IIqqI", 28 + 13 + 4, 2, 7, 99, 13) + properties + struct.pack(">I", 4) + b"body"
    assert expected == WHOLE


def test_an_empty_frame_is_the_shortest() -> None:
    whole = write_frame(MessageType.HEARTBEAT)
    assert len(whole) == 4 + FRAME_BYTES_MIN
    assert read_frame(whole[4:]) == Frame(7, 0, 0, {}, b"")


@given(
    type=generated.types,
    sequence=generated.sequences,
    timestamp=generated.int64,
    properties=generated.properties,
    body=st.binary(max_size=50),
)
def test_every_frame_comes_back(
    type: int, sequence: int, timestamp: int, properties: dict[str, str], body: bytes
) -> None:
    whole = write_frame(type, sequence=sequence, timestamp=timestamp, properties=properties, body=body)
    assert struct.unpack_from(">I", whole) == (len(whole) - 4,)
    frame = read_frame(memoryview(whole)[4:])
    assert frame == Frame(type, sequence, timestamp, properties, memoryview(body))
    assert list(frame.properties) == list(properties)


def test_properties_may_be_given_encoded() -> None:
    encoded = write_properties({"_topic": "t", "a": "b"})
    assert write_frame(2, sequence=7, timestamp=99, properties=encoded, body=b"body") == WHOLE


@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_a_body_may_be_any_bytes(kind: type[bytes | bytearray | memoryview]) -> None:
    body = kind(b"body")
    assert write_frame(2, body=body) == write_frame(2, body=b"body")


def test_the_body_of_a_view_is_a_view_of_the_same_buffer() -> None:
    buffer = bytearray(CONTENT)
    frame = read_frame(memoryview(buffer))
    buffer[-4:] = b"BODY"
    assert bytes(frame.body) == b"BODY"
    assert frame.properties == {"_topic": "t", "a": "b"}


def test_a_type_that_nobody_knows_is_read() -> None:
    assert read_frame(write_frame(1234)[4:]).type == 1234


def test_a_timestamp_may_be_negative_and_a_sequence_not() -> None:
    assert read_frame(write_frame(9, timestamp=-1)[4:]).timestamp == -1
    with pytest.raises(ProtocolError, match="sequence of -1"):
        read_frame(write_frame(9, sequence=-1)[4:])


def test_every_truncation_is_refused() -> None:
    for size in range(len(CONTENT)):
        with pytest.raises(ProtocolError):
            read_frame(memoryview(CONTENT)[:size])


def test_every_addition_is_refused() -> None:
    for more in (b"\0", b"\0\0\0\0", CONTENT):
        with pytest.raises(ProtocolError, match="room for exactly"):
            read_frame(CONTENT + more)


@pytest.mark.parametrize("at", [PROPERTIES_LENGTH_AT, BODY_LENGTH_AT])
@pytest.mark.parametrize("change", [-13, -4, -1, 1, 4, 2**31, 2**32 - 100])
def test_a_wrong_length_is_refused(at: int, change: int) -> None:
    (right,) = struct.unpack_from(">I", CONTENT, at)
    with pytest.raises(ProtocolError):
        read_frame(with_number(CONTENT, at, (right + change) % 2**32))


def test_two_lengths_that_agree_with_each_other_are_not_enough() -> None:
    """The properties end in the middle, and the bytes there are no body length that adds up."""
    moved = with_number(CONTENT, PROPERTIES_LENGTH_AT, 9)
    with pytest.raises(ProtocolError, match="room for exactly"):
        read_frame(moved)


def test_properties_over_the_limit_are_refused_when_read() -> None:
    encoded = b"a=" + b"x" * PROPERTIES_BYTES_MAX + b"\0"
    content = struct.pack(">IqqI", 2, 1, 0, len(encoded)) + encoded + bytes(4)
    with pytest.raises(ProtocolError, match="over 65536"):
        read_frame(content)
    assert read_frame(content, properties_bytes_max=len(encoded)).properties["a"][0] == "x"


def test_properties_over_the_limit_are_refused_when_written() -> None:
    for properties in (b"a=" + b"x" * PROPERTIES_BYTES_MAX + b"\0", {"a": "x" * PROPERTIES_BYTES_MAX}):
        with pytest.raises(BrokerError, match=r"into (the|its) body") as caught:
            write_frame(2, properties=properties)
        assert caught.value.code == ErrorCode.INVALID_REQUEST


def test_a_frame_says_what_it_is() -> None:
    assert repr(read_frame(CONTENT)) == "<PUBLISH 7 {'_topic': 't', 'a': 'b'} 4 bytes>"
