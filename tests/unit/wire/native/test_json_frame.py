"""Frames as JSON: an inverse pair for every legal frame, and what is no frame."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import ErrorCode, ProtocolError
from tailrace.wire.native import Frame, MessageType, read_frame, write_frame
from tailrace.wire.native.json_frame import BadJsonFrame, read_json_frame, write_json_frame

TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=20)
NAMES = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0="), min_size=1, max_size=12),
    st.sampled_from(
        ["_type", "_sequence", "_body", "_encoding", "_properties", "_timestamp", "_", "__", "__a"]
    ),
    st.sampled_from(["_count", "_partition", "_offset", "type", "sequence", "body"]),
)
VALUES = st.one_of(TEXT, st.integers(-(10**20), 10**20).map(str), st.sampled_from(["007", "", "-1", "1e3"]))
FRAMES = st.builds(
    Frame,
    type=st.one_of(st.sampled_from([int(each) for each in MessageType]), st.integers(0, 2**32 - 1)),
    sequence=st.integers(0, 2**63 - 1),
    timestamp=st.integers(-(2**63), 2**63 - 1),
    properties=st.dictionaries(NAMES, VALUES, max_size=8),
    body=st.one_of(st.binary(max_size=40), TEXT.map(str.encode)),
)


@given(FRAMES)
def test_a_frame_comes_back_as_it_went(frame: Frame) -> None:
    assert read_json_frame(write_json_frame(frame)) == frame


@given(FRAMES)
def test_a_frame_of_json_can_be_sent_as_bytes(frame: Frame) -> None:
    found = read_json_frame(write_json_frame(frame))
    data = write_frame(
        found.type,
        sequence=found.sequence,
        timestamp=found.timestamp,
        properties=found.properties,
        body=found.body,
    )
    assert read_frame(data[4:]) == frame


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=6,
)


@given(
    st.dictionaries(
        st.sampled_from(
            ["type", "sequence", "timestamp", "properties", "body", "encoding", "topic", "_topic"]
        ),
        ANYTHING | st.sampled_from(["publish", "base64", "text", 1]),
    )
)
def test_any_object_is_a_frame_or_refused(row: dict[str, Any]) -> None:
    try:
        frame = read_json_frame(json.dumps(row))
    except (ProtocolError, BadJsonFrame):
        return
    assert read_json_frame(write_json_frame(frame)) == frame


@given(st.text(max_size=60) | st.binary(max_size=60))
def test_any_text_is_a_frame_or_refused(text: str | bytes) -> None:
    with pytest.raises((ProtocolError, BadJsonFrame)):
        read_json_frame(text)


def test_names_lose_and_get_back_their_underscore() -> None:
    text = (
        '{"type":"publish","sequence":7,"topic":"events","partition":3,"_sequence":5,'
        '"properties":{"colour":"red"},"body":"Hello"}'
    )
    frame = read_json_frame(text)
    assert frame == Frame(
        MessageType.PUBLISH,
        7,
        0,
        {"_topic": "events", "_partition": "3", "_sequence": "5", "colour": "red"},
        b"Hello",
    )
    assert json.loads(write_json_frame(frame)) == {**json.loads(text), "_sequence": "5"}


def test_a_body_that_is_no_text_is_base64() -> None:
    frame = Frame(MessageType.DATA, 1, 0, {}, b"\xff\x00")
    row = json.loads(write_json_frame(frame))
    assert (row["body"], row["encoding"]) == ("/wA=", "base64")


@pytest.mark.parametrize(
    "text",
    [
        "",
        "x",
        "[]",
        "1",
        "null",
        '"publish"',
        "{",
        "[" * 100_000,
        '{"sequence": -1}',
        '{"sequence": "1"}',
        '{"sequence": true}',
        '{"sequence": 1.5}',
        '{"sequence": 9223372036854775808}',
        '{"sequence": null}',
    ],
)
def test_what_cannot_be_answered_breaks_the_protocol(text: str) -> None:
    with pytest.raises(ProtocolError):
        read_json_frame(text)


@pytest.mark.parametrize(
    ("fields", "word"),
    [
        ('"body": "x"', "type"),
        ('"type": null', "type"),
        ('"type": true', "type"),
        ('"type": -1', "type"),
        ('"type": 4294967296', "type"),
        ('"type": "ack", "timestamp": "now"', "timestamp"),
        ('"type": "ack", "timestamp": 9223372036854775808', "timestamp"),
        ('"type": "ack", "properties": []', "properties"),
        ('"type": "ack", "properties": {"_topic": "x"}', "_topic"),
        ('"type": "ack", "properties": {"": "x"}', "key"),
        ('"type": "ack", "properties": {"a=b": "x"}', "a=b"),
        ('"type": "ack", "properties": {"a": "x\\u0000"}', "NUL"),
        ('"type": "ack", "properties": {"a": {}}', "a"),
        ('"type": "ack", "topic": true', "topic"),
        ('"type": "ack", "topic": 1.5', "topic"),
        ('"type": "ack", "topic": ["x"]', "topic"),
        ('"type": "ack", "topic": "x", "_topic": "y"', "twice"),
        ('"type": "ack", "body": 1', "body"),
        ('"type": "ack", "body": {"a": 1}', "body"),
        ('"type": "ack", "body": "x", "encoding": "hex"', "encoding"),
        ('"type": "ack", "body": "x", "encoding": "base64"', "base64"),
        ('"type": "ack", "body": "ä", "encoding": "base64"', "base64"),
        ('"type": "ack", "topic": "' + "x" * 70_000 + '"', "too much"),
    ],
)
def test_what_makes_no_sense_can_be_answered(fields: str, word: str) -> None:
    with pytest.raises(BadJsonFrame) as error:
        read_json_frame(f'{{"sequence": 7, {fields}}}')
    assert error.value.sequence == 7
    assert error.value.code == ErrorCode.INVALID_REQUEST
    assert word in str(error.value)


def test_a_type_that_nobody_knows_is_answered() -> None:
    with pytest.raises(BadJsonFrame) as error:
        read_json_frame('{"type": "teleport", "sequence": 7}')
    assert (error.value.sequence, error.value.code) == (7, ErrorCode.UNSUPPORTED_VERSION)
