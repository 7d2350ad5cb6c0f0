"""Whatever a stranger sends: mutated, cut, joined and random frames are read or refused, nothing else."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import BrokerError, ErrorCode, ProtocolError
from tailrace.wire.native import (
    FrameReader,
    MessageType,
    read_entries,
    read_error,
    read_frame,
    read_offsets,
    read_properties,
    record_of_properties,
    write_data,
    write_data_prefix,
    write_entries,
    write_error,
    write_frame,
)

BATCH = write_entries([(b"_key=k\0colour=red\0", b"first"), (b"", b"second"), (b"_null=1\0", b"")])
PREFIX = write_data_prefix(subscription="s", topic="t", partition=0, epoch=1)
VALID = {
    "publish": write_frame(
        2, sequence=1, properties={"_topic": "t", "_key": "k", "größe": "x"}, body=b"body"
    ),
    "batch": write_frame(38, sequence=2, properties={"_topic": "t", "_count": "3"}, body=BATCH),
    "ack": write_frame(8, sequence=3, properties={"_subscription": "s", "_offsets": "5,7-9,11"}),
    "error": write_error(4, code=ErrorCode.INVALID_REQUEST, message="no"),
    "empty": write_frame(7),
    "data": write_data(
        PREFIX, offset=5, timestamp=9, count=1, id_prefix="a-0-", key=b"\0", value=None, headers=[("a", None)]
    ),
}

every_frame = pytest.mark.parametrize("valid", VALID.values(), ids=VALID)


def read_all(content: bytes) -> bool:
    """Everything a listener or a client does with a frame. False if it is refused; other errors go up."""
    try:
        frame = read_frame(memoryview(content))
    except ProtocolError:
        return False
    try:
        record_of_properties(frame.properties, frame.body)
        if "_offsets" in frame.properties:
            read_offsets(frame.properties["_offsets"])
    except BrokerError:
        pass  # answered, and the connection goes on
    if frame.type == MessageType.ERROR:
        read_error(frame)
    try:
        for properties, body in read_entries(frame.body, 3):
            record_of_properties(read_properties(properties), body)
    except (ProtocolError, BrokerError):
        pass
    return True


@every_frame
def test_a_valid_frame_is_read_and_every_truncation_of_it_refused(valid: bytes) -> None:
    assert read_all(valid[4:])
    for size in range(len(valid) - 4):
        assert not read_all(valid[4 : 4 + size]), size


@every_frame
def test_mutations_are_read_or_refused(valid: bytes) -> None:
    content = valid[4:]
    dice = random.Random(valid)
    for at in range(len(content)):
        for byte in (0x00, 0x3D, 0x7F, 0x80, 0xFF, dice.randrange(256)):
            read_all(content[:at] + bytes((byte,)) + content[at + 1 :])
        for number in (0, 1, 2**31 - 1, 2**31, 2**32 - 1, len(content)):
            read_all(content[:at] + struct.pack(">I", number) + content[at + 4 :])
    for _ in range(300):
        begin, end = sorted(dice.randrange(len(content) + 1) for _ in range(2))
        read_all(content[:begin] + content[end:])
        read_all(content[:end] + content[begin:])
        mutated = bytearray(content)
        for _ in range(dice.randint(2, 8)):
            mutated[dice.randrange(len(mutated))] = dice.randrange(256)
        read_all(bytes(mutated))


@settings(max_examples=200)
@given(properties=st.binary(max_size=60), body=st.binary(max_size=60))
def test_sound_frames_of_random_content_are_read_or_refused(properties: bytes, body: bytes) -> None:
    head = struct.pack(">IqqI", 38, 1, 0, len(properties))
    read_all(head + properties + struct.pack(">I", len(body)) + body)


@settings(max_examples=200)
@given(content=st.binary(max_size=100))
def test_random_bytes_are_read_or_refused(content: bytes) -> None:
    read_all(content)


def test_a_stream_of_mutated_frames_is_read_or_refused() -> None:
    dice = random.Random(11)
    stream = b"".join(VALID.values())
    for _ in range(500):
        mutated = bytearray(stream)
        for _ in range(dice.randint(1, 4)):
            mutated[dice.randrange(len(mutated))] = dice.randrange(256)
        reader, at = FrameReader(1000), 0
        try:
            while at < len(mutated):
                step = dice.randint(1, 100)
                reader.feed(mutated[at : at + step])
                at += step
                while reader.next_frame() is not None:
                    pass
        except ProtocolError:
            continue
