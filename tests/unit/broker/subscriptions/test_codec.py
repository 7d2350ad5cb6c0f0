"""Records of `__tailrace_cursors`: fixed bytes, round trips, sizes, and damage of every kind."""

from __future__ import annotations

import random
from collections.abc import Callable
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.internal import MalformedFields
from tailrace.broker.subscriptions.codec import (
    DefinitionKey,
    SlotKey,
    read_acks,
    read_definition,
    read_delta,
    read_key,
    read_snapshot,
    write_acks,
    write_acks_key,
    write_cursor_key,
    write_definition,
    write_definition_key,
    write_delta,
    write_snapshot,
)
from tailrace.broker.subscriptions.stored import (
    AcksKey,
    CursorDelta,
    CursorKey,
    CursorSnapshot,
    StoredAcks,
    StoredSubscription,
)
from tailrace.model import BrokerError, ErrorCode

TOPIC_ID = UUID("3f2a9c0d-1e2b-4c5d-8e9f-001122334455")
NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
OFFSETS = st.integers(0, (1 << 62) - 1)
KEY = CursorKey("billing", TOPIC_ID, 3)


@st.composite
def progress(draw: st.DrawFn, *, times_min: int) -> tuple[int, list[tuple[int, int]], dict[int, int]]:
    position = place = draw(OFFSETS)
    ranges = []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 1000), st.integers(1, 1 << 40)), max_size=5)):
        ranges.append((place + gap, place + gap + length))
        place += gap + length
    beyond = st.integers(position, position + 1000)
    failures = draw(st.dictionaries(beyond, st.integers(times_min, (1 << 31) - 1), max_size=5))
    return position, ranges, failures


@st.composite
def snapshots(draw: st.DrawFn) -> CursorSnapshot:
    position, ranges, failures = draw(progress(times_min=1))
    return CursorSnapshot(
        version=draw(st.integers(1, (1 << 63) - 1)),
        epoch=draw(st.integers(0, (1 << 31) - 1)),
        position=position,
        ranges=tuple(ranges),
        failures=failures,
        limit=draw(st.none() | OFFSETS),
    )


# Bytes that must never change


def test_the_key_of_a_definition() -> None:
    assert write_definition_key("ab") == b"\x01\x00\x02ab"


def test_the_key_of_a_cursor_but_for_its_slot() -> None:
    assert write_cursor_key(KEY) == b"\x02\x00\x07billing" + TOPIC_ID.bytes + b"\x00\x00\x00\x03"


def test_the_value_of_a_definition() -> None:
    stored = StoredSubscription(
        name="s", topic="orders", topic_id=TOPIC_ID, settings={"mode": "shared"}, created_ms=258
    )
    expected = (
        b"\x01\x00\x06orders"
        + TOPIC_ID.bytes
        + b"\x00\x00\x00\x00\x00\x00\x01\x02"
        + b"\x00\x00\x00\x01\x00\x04mode\x00\x06shared"
    )
    assert write_definition(stored) == expected


def test_the_value_of_a_snapshot() -> None:
    snapshot = CursorSnapshot(
        version=16, epoch=2, position=5, ranges=((7, 9), (10, 20)), failures={5: 3, 9: 1}, limit=30
    )
    # Varints are zigzag: every number below 64 is twice itself.
    expected = bytes([1, 32, 4, 62, 10, 4, 4, 4, 2, 20, 4, 0, 6, 8, 2])
    assert write_snapshot(snapshot) == expected


def test_the_value_of_a_delta() -> None:
    delta = CursorDelta(position=5, ranges=[(7, 9)], failures={6: 0})
    assert write_delta(delta, version=17) == bytes([1, 34, 10, 2, 4, 4, 2, 2, 0])


# Round trips


@given(NAMES, st.uuids(), st.integers(0, (1 << 31) - 1), st.integers(0, 15))
def test_keys_come_back(name: str, topic_id: UUID, partition: int, slot: int) -> None:
    cursor = CursorKey(name, topic_id, partition)
    assert read_key(write_definition_key(name)) == DefinitionKey(name)
    assert read_key(write_cursor_key(cursor) + bytes((slot,))) == SlotKey(cursor, slot)


@given(NAMES, NAMES, st.uuids(), st.dictionaries(NAMES, NAMES, max_size=5), st.integers(0, (1 << 63) - 1))
def test_definitions_come_back(
    name: str, topic: str, topic_id: UUID, settings: dict[str, str], created_ms: int
) -> None:
    stored = StoredSubscription(
        name=name, topic=topic, topic_id=topic_id, settings=settings, created_ms=created_ms
    )
    assert read_definition(name, write_definition(stored)) == stored


@given(snapshots())
def test_snapshots_come_back(snapshot: CursorSnapshot) -> None:
    assert read_snapshot(write_snapshot(snapshot)) == snapshot


@given(progress(times_min=0), st.integers(1, (1 << 63) - 1))
def test_deltas_come_back(parts: tuple[int, list[tuple[int, int]], dict[int, int]], version: int) -> None:
    position, ranges, failures = parts
    delta = CursorDelta(position=position, ranges=ranges, failures=failures)
    assert read_delta(write_delta(delta, version=version)) == (version, delta)


def test_what_the_position_covers_is_not_written() -> None:
    delta = CursorDelta(position=10, ranges=[(3, 5), (8, 12), (14, 15)], failures={4: 2, 10: 1})
    _, read = read_delta(write_delta(delta, version=1))
    assert read == CursorDelta(position=10, ranges=[(10, 12), (14, 15)], failures={10: 1})


# Sizes


def test_one_message_acknowledged_in_order_is_small_even_after_a_trillion() -> None:
    position = 10**12
    delta = CursorDelta(position=position, ranges=[(position - 1, position)], failures={})
    value = write_delta(delta, version=10**12)
    assert len(value) <= 16
    assert len(write_cursor_key(KEY)) + 1 + len(value) < 60


def test_a_hole_in_every_second_place_costs_two_bytes_each() -> None:
    ranges = tuple((2 * index + 1, 2 * index + 2) for index in range(10_000))
    snapshot = CursorSnapshot(version=1, epoch=0, position=0, ranges=ranges)
    assert len(write_snapshot(snapshot)) < 20_020
    assert read_snapshot(write_snapshot(snapshot)).ranges == ranges


# Damage


def test_keys_of_kinds_we_do_not_have_are_passed_over() -> None:
    assert read_key(b"\x04whatever") is None
    assert read_key(b"\x7f") is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00\x00\x01a",  # kinds begin with 1
        b"\xff\x00\x01a",
        b"\x01",
        b"\x01\x00\x05a",  # cut off
        b"\x01\xff\xff",  # null
        b"\x01\x00\x01\xff",  # not UTF-8
        b"\x01\x00\x01a!",  # something follows
        write_cursor_key(KEY),  # no slot
        write_cursor_key(KEY) + b"\x10",  # there are 16
        write_cursor_key(KEY) + b"\xff",
        write_cursor_key(KEY) + b"\x00\x00",
        write_cursor_key(KEY._replace(partition=-1)) + b"\x00",
    ],
)
def test_a_damaged_key_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedFields) as refused:
        read_key(raw)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


def _definition() -> bytes:
    stored = StoredSubscription(
        name="s", topic="orders", topic_id=TOPIC_ID, settings={"mode": "shared", "x": ""}, created_ms=1
    )
    return write_definition(stored)


def _snapshot() -> bytes:
    return write_snapshot(
        CursorSnapshot(
            version=300, epoch=1, position=70, ranges=((80, 90), (99, 200)), failures={71: 2, 95: 1}, limit=7
        )
    )


def _delta() -> bytes:
    return write_delta(CursorDelta(position=70, ranges=[(80, 90)], failures={71: 2}), version=300)


VALUES: list[tuple[bytes, Callable[[bytes], object]]] = [
    (_definition(), lambda raw: read_definition("s", raw)),
    (_snapshot(), read_snapshot),
    (_delta(), read_delta),
]


@pytest.mark.parametrize(("sound", "read"), VALUES, ids=["definition", "snapshot", "delta"])
def test_a_value_cut_off_anywhere_or_followed_by_something_is_refused(
    sound: bytes, read: Callable[[bytes], object]
) -> None:
    read(sound)
    for cut in range(len(sound)):
        with pytest.raises(MalformedFields):
            read(sound[:cut])
    with pytest.raises(MalformedFields):
        read(sound + b"\x00")


@pytest.mark.parametrize(("sound", "read"), VALUES, ids=["definition", "snapshot", "delta"])
@pytest.mark.parametrize("format_", [0, 2, 255])
def test_a_value_of_a_format_that_we_do_not_know_is_refused(
    sound: bytes, read: Callable[[bytes], object], format_: int
) -> None:
    with pytest.raises(MalformedFields):
        read(bytes((format_,)) + sound[1:])


@pytest.mark.parametrize(("sound", "read"), VALUES, ids=["definition", "snapshot", "delta"])
def test_random_damage_is_refused_or_gives_something_sound(
    sound: bytes, read: Callable[[bytes], object]
) -> None:
    rng = random.Random(6)
    for _ in range(2000):
        raw = bytearray(sound)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            found = read(bytes(raw))
        except MalformedFields:
            continue
        if isinstance(found, tuple):
            _, found = found
        if isinstance(found, CursorSnapshot | CursorDelta):
            _check_sound(found)


def _check_sound(found: CursorSnapshot | CursorDelta) -> None:
    place = found.position
    assert place >= 0
    for start, end in found.ranges:
        assert place <= start < end < 1 << 63
        place = end
    assert all(found.position <= offset < 1 << 63 for offset in found.failures)


@pytest.mark.parametrize(
    "raw",
    [
        bytes([1, 0, 0, 0, 0]),  # version 0: nothing was written yet
        bytes([1, 1, 0, 0, 0]),  # version -1
        bytes([1, 2, 1, 0, 0]),  # position -1
        bytes([1, 2, 0, 2, 1, 2, 0]),  # a range before the position
        bytes([1, 2, 0, 2, 0, 0, 0]),  # an empty range
        bytes([1, 2, 0, 126, 0, 2, 0]),  # 63 ranges in two bytes
        bytes([1, 2, 0, 0, 2, 1, 2]),  # a failure before the position
        bytes([1, 2, 0, 0, 4, 0, 2, 0, 2]),  # the same offset twice
        bytes([1, 2, 0, 0, 2, 0, 1]),  # failed -1 times
        bytes([1, 2]) + b"\xfe" + b"\xff" * 8 + b"\x01" + bytes([2, 2, 2, 0]),  # beyond the last offset
    ],
)
def test_a_delta_that_cannot_be_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedFields):
        read_delta(raw)


def test_a_setting_that_is_there_twice_is_refused() -> None:
    raw = _definition()[:-3]  # without the name and value of the last setting
    raw = raw[: raw.rindex(b"\x00\x04mode")]
    with pytest.raises(MalformedFields):
        read_definition("s", raw + b"\x00\x01x\x00\x00" + b"\x00\x01x\x00\x00")


def test_a_name_that_does_not_fit_its_length_is_refused_when_written() -> None:
    with pytest.raises(BrokerError):
        write_definition_key("x" * 40_000)


def test_ranges_out_of_order_are_a_bug_of_the_caller() -> None:
    with pytest.raises(AssertionError):
        write_delta(CursorDelta(position=0, ranges=[(8, 9), (5, 6)], failures={}), version=1)


# Acknowledgements of transactions


def test_acknowledgements_of_a_transaction_are_these_bytes() -> None:
    key = AcksKey(KEY, 0x1122334455, 7)
    assert write_acks_key(key) == bytes.fromhex(
        "03 0007 62696c6c696e67 3f2a9c0d1e2b4c5d8e9f001122334455 00000003 0000001122334455 0007"
    )
    acks = StoredAcks(epoch=2, ranges=((5, 6), (8, 10)))
    assert write_acks(acks) == bytes.fromhex("01 04 04 0a 02 04 04")
    assert read_key(write_acks_key(key)) == key
    assert read_acks(write_acks(acks)) == acks
    assert acks.offsets == [5, 8, 9]


@pytest.mark.parametrize("size", range(45))
def test_a_key_of_acknowledgements_that_ends_early_is_refused(size: int) -> None:
    whole = write_acks_key(AcksKey(KEY, 1, 2))
    assert len(whole) == 40
    data = whole[:size] if size < len(whole) else whole + bytes(size - len(whole) + 1)
    with pytest.raises(MalformedFields):
        read_key(data)


@pytest.mark.parametrize(
    "data",
    [
        "",
        "02 00 00",  # a format that nobody knows
        "01 00",
        "01 00 02",  # a count without ranges
        "01 00 02 00 00",  # an empty range
        "01 01 00",  # an epoch below 0
        "01 00 00 00",  # a byte too many
        "01 00 02 00 82897a",  # a million messages and one
    ],
)
def test_acknowledgements_that_make_no_sense_are_refused(data: str) -> None:
    with pytest.raises(MalformedFields):
        read_acks(bytes.fromhex(data))
