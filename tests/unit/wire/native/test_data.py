"""DATA frames: the fast writer says what the slow way would say."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from tests.unit.wire.native import generated

from tailrace.wire.native import (
    Frame,
    FrameReader,
    Header,
    MessageType,
    read_frame,
    record_of_properties,
    write_data,
    write_data_prefix,
)

PREFIX = write_data_prefix(subscription="workers", topic="events", partition=3, epoch=2)
SHARED = {"_subscription": "workers", "_topic": "events", "_partition": "3", "_epoch": "2"}


def data(
    *,
    key: bytes | None = None,
    value: bytes | memoryview | None = b"v",
    headers: list[Header] | tuple[Header, ...] = (),
    pull: int | None = None,
) -> bytes:
    return write_data(
        PREFIX,
        offset=41,
        timestamp=1000,
        count=2,
        id_prefix="3f2a9c0d1e2b-3-",
        key=key,
        value=value,
        headers=headers,
        pull=pull,
    )


def test_a_message_has_its_place_and_its_count() -> None:
    expected = {**SHARED, "_id": "3f2a9c0d1e2b-3-41", "_delivery": "2"}
    assert read_frame(data()[4:]) == Frame(MessageType.DATA, 41, 1000, expected, b"v")


def test_a_message_that_was_pulled_names_the_request() -> None:
    assert read_frame(data(pull=9)[4:]).properties["_pull"] == "9"


@given(
    key=st.none() | generated.binaries,
    value=st.none() | st.binary(max_size=20),
    headers=generated.headers | generated.plain_headers,
)
def test_the_record_comes_back(key: bytes | None, value: bytes | None, headers: list[Header]) -> None:
    whole = data(key=key, value=value, headers=tuple(headers))
    frame = read_frame(whole[4:])
    assert int.from_bytes(whole[:4], "big") == len(whole) - 4
    assert record_of_properties(frame.properties, frame.body) == (key, value, headers)
    assert {name: frame.properties[name] for name in SHARED} == SHARED


def test_a_view_is_a_value_too() -> None:
    assert data(value=memoryview(b"v")) == data(value=b"v")


def test_a_record_of_another_listener_is_delivered_whatever_its_size() -> None:
    """A key of a megabyte, and more headers than there may be properties."""
    headers: list[Header] = [(f"h{at}", b"\xff" * 100) for at in range(1000)]
    reader = FrameReader(10_000_000)
    reader.feed(data(key=b"k" * 1_000_000, headers=headers))
    frame = reader.next_frame()
    assert frame is not None
    assert record_of_properties(frame.properties, frame.body) == (b"k" * 1_000_000, b"v", headers)
