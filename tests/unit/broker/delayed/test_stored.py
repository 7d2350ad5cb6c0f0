"""Records of the delayed topic: what is written is read back, and anything else is refused."""

from __future__ import annotations

from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.delayed.stored import (
    CHOSEN_WHEN_DUE,
    Intent,
    StoredMessage,
    intent_key,
    message_key,
    read_intent,
    read_key,
    read_message,
    write_intent,
    write_message,
    write_tombstones,
)
from tailrace.broker.internal import MalformedFields
from tailrace.broker.publishing import NewMessage
from tailrace.model import PartitionId
from tailrace.records import NewRecord, Record, build_batch, read_batch

TOPIC = UUID(int=0x1234)
TARGET = PartitionId(TOPIC, 3)


def as_read(record: NewRecord, *, offset: int) -> Record:
    """The record as a log gives it back."""
    (found,) = read_batch(build_batch([record], base_offset=offset)).records()
    return found


headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=5)), max_size=4)


@given(
    key=st.none() | st.binary(max_size=20),
    value=st.none() | st.binary(max_size=20),
    headers=headers,
    due_ms=st.integers(0, 1 << 62),
    partition=st.integers(CHOSEN_WHEN_DUE, 1 << 20),
    offset=st.integers(0, 1 << 62),
)
def test_a_message_is_read_back(
    key: bytes | None,
    value: bytes | None,
    headers: list[tuple[str, bytes | None]],
    due_ms: int,
    partition: int,
    offset: int,
) -> None:
    message = NewMessage(key, value, tuple(headers))
    stored = StoredMessage(due_ms, PartitionId(TOPIC, partition), message)
    record = as_read(write_message(offset, stored, time_ms=5), offset=offset)
    assert record.value is not None  # it would be a tombstone
    assert read_message(record) == stored
    assert read_key(record.key) == offset


def test_a_header_of_our_own_name_is_the_publishers() -> None:
    message = NewMessage(b"k", b"v", (("_delayed", b"mine"),))
    record = as_read(write_message(4, StoredMessage(9, TARGET, message), time_ms=5), offset=4)
    assert read_message(record).message == message


@given(st.integers(0, 1 << 62), st.lists(st.integers(0, 1 << 62), max_size=50))
def test_an_intent_is_read_back(end_offset: int, offsets: list[int]) -> None:
    _, key, value, _ = write_intent(TARGET, Intent(end_offset, offsets), time_ms=5)
    assert isinstance(key, bytes) and isinstance(value, bytes)
    assert read_key(key) == TARGET
    found = read_intent(value)
    assert (found.end_offset, list(found.offsets)) == (end_offset, offsets)


def test_a_tombstone_has_a_key_and_nothing_else() -> None:
    assert write_tombstones([b"a"], time_ms=5) == [(5, b"a", None, ())]


GOOD = as_read(write_message(4, StoredMessage(9, TARGET, NewMessage(b"k", b"v", ())), time_ms=5), offset=4)
ENVELOPE = GOOD.headers[-1][1] or b""


@pytest.mark.parametrize(
    "record",
    [
        GOOD._replace(offset=5),  # another one's key
        GOOD._replace(key=None),
        GOOD._replace(headers=()),
        GOOD._replace(headers=(("_delayed", None),)),
        GOOD._replace(headers=(("other", ENVELOPE),)),
        GOOD._replace(headers=(("_delayed", ENVELOPE[:29]),)),
        GOOD._replace(headers=(("_delayed", b"\2" + ENVELOPE[1:]),)),  # a version to come
        GOOD._replace(headers=(("_delayed", ENVELOPE[:1] + b"\4" + ENVELOPE[2:]),)),  # a flag to come
        GOOD._replace(headers=(("_delayed", ENVELOPE[:2] + b"\xff" + ENVELOPE[3:]),)),  # due before 1970
    ],
)
def test_what_is_no_message_is_refused(record: Record) -> None:
    with pytest.raises(MalformedFields):
        read_message(record)


@pytest.mark.parametrize(
    "key", [None, b"", b"M", message_key(1)[:-1], message_key(1) + b"x", b"I", intent_key(TARGET)[:-1]]
)
def test_what_is_no_key_is_refused(key: bytes | None) -> None:
    with pytest.raises(MalformedFields):
        read_key(key)


def test_a_kind_of_record_to_come_is_passed_over() -> None:
    assert read_key(b"Z-something") is None


def intent_bytes() -> bytes:
    value = write_intent(TARGET, Intent(7, [1, 2]), time_ms=5)[2]
    assert isinstance(value, bytes)
    return value


@pytest.mark.parametrize(
    "data",
    [
        *(intent_bytes()[:size] for size in range(len(intent_bytes()))),
        intent_bytes() + b"\0",
        b"\2" + intent_bytes()[1:],
        intent_bytes()[:9] + b"\x7f\xff\xff\xff" + intent_bytes()[13:],  # a count that lies
        intent_bytes()[:9] + b"\xff\xff\xff\xff" + intent_bytes()[13:],
    ],
)
def test_what_is_no_intent_is_refused(data: bytes) -> None:
    with pytest.raises(MalformedFields):
        read_intent(data)
