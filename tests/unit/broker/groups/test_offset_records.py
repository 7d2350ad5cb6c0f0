"""Records of the offsets topic: fixed bytes as Kafka writes them, round trips, and damage of every kind."""

from __future__ import annotations

import random
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.unit.broker.groups.conftest import subscription

from tailrace.broker.groups.offsets import (
    GroupKey,
    OffsetKey,
    read_group,
    read_key,
    read_offset,
    write_group,
    write_group_key,
    write_offset,
    write_offset_key,
)
from tailrace.broker.groups.stored import StoredGroup, StoredMember, StoredOffset
from tailrace.broker.groups.subscription import read_topics
from tailrace.broker.internal import FieldReader, FieldWriter, MalformedFields
from tailrace.model import BrokerError, ErrorCode, TopicPartition

NAMES = st.text(st.characters(codec="utf-8"), max_size=20)
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
TIMES = st.integers(0, (1 << 63) - 1)
TP = TopicPartition("orders", 3)

MEMBERS = st.builds(
    StoredMember,
    member_id=NAMES,
    group_instance_id=st.none() | NAMES,
    client_id=NAMES,
    client_host=NAMES,
    rebalance_timeout_ms=INT32,
    session_timeout_ms=st.integers(0, (1 << 31) - 1),
    subscription=st.binary(max_size=50),
    assignment=st.binary(max_size=50),
)


@st.composite
def groups(draw: st.DrawFn) -> StoredGroup:
    members = draw(st.lists(MEMBERS, max_size=3))
    return StoredGroup(
        protocol_type=draw(NAMES),
        generation_id=draw(st.integers(0, (1 << 31) - 1)),
        protocol_name=draw(NAMES) if members else None,
        leader=members[0].member_id if members else None,
        state_since_ms=draw(TIMES),
        members=tuple(members),
    )


# As Kafka writes them


def test_the_key_of_an_offset() -> None:
    expected = b"\x00\x01" + b"\x00\x01g" + b"\x00\x06orders" + b"\x00\x00\x00\x03"
    assert write_offset_key("g", TP) == expected


def test_the_key_of_a_group() -> None:
    assert write_group_key("g") == b"\x00\x02\x00\x01g"


def test_the_value_of_an_offset() -> None:
    stored = StoredOffset(offset=258, leader_epoch=7, metadata="hi", committed_ms=1)
    expected = b"\x00\x03" + struct.pack(">qi", 258, 7) + b"\x00\x02hi" + struct.pack(">q", 1)
    assert write_offset(stored) == expected


def test_an_offset_with_its_own_end_is_written_in_the_version_that_has_one() -> None:
    stored = StoredOffset(offset=5, metadata="", committed_ms=1, expires_ms=9)
    assert write_offset(stored) == b"\x00\x01" + struct.pack(">qhqq", 5, 0, 1, 9)
    assert read_offset(write_offset(stored)) == stored


def test_the_value_of_a_group() -> None:
    member = StoredMember(
        member_id="m",
        group_instance_id=None,
        client_id="c",
        client_host="h",
        rebalance_timeout_ms=2,
        session_timeout_ms=1,
        subscription=b"s",
        assignment=b"a",
    )
    stored = StoredGroup(
        protocol_type="consumer",
        generation_id=4,
        protocol_name="range",
        leader="m",
        state_since_ms=6,
        members=(member,),
    )
    expected = (
        b"\x00\x03\x00\x08consumer\x00\x00\x00\x04\x00\x05range\x00\x01m"
        + struct.pack(">qi", 6, 1)
        + b"\x00\x01m\xff\xff\x00\x01c\x00\x01h"
        + struct.pack(">ii", 2, 1)
        + b"\x00\x00\x00\x01s\x00\x00\x00\x01a"
    )
    assert write_group(stored) == expected


@pytest.mark.parametrize(
    ("raw", "leader_epoch", "expires_ms"),
    [
        (b"\x00\x00" + struct.pack(">qh", 5, 1) + b"x" + struct.pack(">q", 8), -1, None),
        (b"\x00\x01" + struct.pack(">qh", 5, 1) + b"x" + struct.pack(">qq", 8, 9), -1, 9),
        (b"\x00\x01" + struct.pack(">qh", 5, 1) + b"x" + struct.pack(">qq", 8, -1), -1, None),
        (b"\x00\x02" + struct.pack(">qh", 5, 1) + b"x" + struct.pack(">q", 8), -1, None),
        (b"\x00\x03" + struct.pack(">qih", 5, 4, 1) + b"x" + struct.pack(">q", 8), 4, None),
    ],
)
def test_every_version_of_an_offset_is_read(raw: bytes, leader_epoch: int, expires_ms: int | None) -> None:
    expected = StoredOffset(
        offset=5, leader_epoch=leader_epoch, metadata="x", committed_ms=8, expires_ms=expires_ms
    )
    assert read_offset(raw) == expected


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_of_a_group_is_read(version: int) -> None:
    out = FieldWriter()
    out.int16(version)
    out.string("consumer")
    out.int32(4)
    out.string("range")
    out.string("m")
    if version >= 2:
        out.int64(77)
    out.int32(1)
    out.string("m")
    if version >= 3:
        out.string("i")
    out.string("c")
    out.string("h")
    if version >= 1:
        out.int32(60)
    out.int32(10)
    out.bytes(b"s")
    out.bytes(b"a")
    stored = read_group(out.data)
    [member] = stored.members
    assert stored.state_since_ms == (77 if version >= 2 else -1)
    assert member.group_instance_id == ("i" if version >= 3 else None)
    assert member.rebalance_timeout_ms == (60 if version >= 1 else 10)
    assert (member.subscription, member.assignment) == (b"s", b"a")


# Round trips


@given(group_id=NAMES, topic=NAMES, partition=INT32)
def test_keys_come_back(group_id: str, topic: str, partition: int) -> None:
    key = TopicPartition(topic, partition)
    assert read_key(write_offset_key(group_id, key)) == OffsetKey(group_id, key)
    assert read_key(write_group_key(group_id)) == GroupKey(group_id)


@given(offset=st.integers(-1, (1 << 63) - 1), leader_epoch=INT32, metadata=NAMES, committed_ms=TIMES)
def test_offsets_come_back(offset: int, leader_epoch: int, metadata: str, committed_ms: int) -> None:
    stored = StoredOffset(
        offset=offset, leader_epoch=leader_epoch, metadata=metadata, committed_ms=committed_ms
    )
    assert read_offset(write_offset(stored)) == stored


@given(groups())
def test_groups_come_back(stored: StoredGroup) -> None:
    assert read_group(write_group(stored)) == stored


# Damage


def test_keys_of_kinds_we_do_not_have_are_passed_over() -> None:
    assert read_key(b"\x00\x03\x00\x01g") is None
    assert read_key(b"\x7f\xff") is None


@pytest.mark.parametrize(
    "raw",
    [
        b"",
        b"\x00",
        b"\xff\xff\x00\x01g",  # a version below nothing
        b"\x00\x02",
        b"\x00\x02\x00\x05g",  # cut off
        b"\x00\x02\xff\xff",  # null
        b"\x00\x02\xff\xfe",  # a length below null
        b"\x00\x02\x00\x01\xff",  # not UTF-8
        b"\x00\x02\x00\x01g!",  # something follows
        b"\x00\x01\x00\x01g\x00\x01t\x00\x00\x00",
    ],
)
def test_a_damaged_key_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedFields) as refused:
        read_key(raw)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("version", [-1, 4, 99])
def test_values_of_unknown_versions_are_refused(version: int) -> None:
    with pytest.raises(MalformedFields):
        read_offset(struct.pack(">h", version) + bytes(40))
    with pytest.raises(MalformedFields):
        read_group(struct.pack(">h", version) + bytes(40))


def _sample() -> StoredGroup:
    members = tuple(
        StoredMember(
            member_id=f"member-{index}",
            group_instance_id=None,
            client_id="c",
            client_host="h",
            rebalance_timeout_ms=1,
            session_timeout_ms=1,
            subscription=b"s" * 10,
            assignment=b"",
        )
        for index in range(3)
    )
    return StoredGroup(
        protocol_type="consumer",
        generation_id=1,
        protocol_name="range",
        leader="member-0",
        state_since_ms=0,
        members=members,
    )


@pytest.mark.parametrize("cut", range(len(write_group(_sample()))))
def test_a_group_cut_off_anywhere_is_refused(cut: int) -> None:
    with pytest.raises(MalformedFields):
        read_group(write_group(_sample())[:cut])


def test_a_count_beyond_the_bytes_is_refused_before_it_is_believed() -> None:
    raw = bytearray(write_group(_sample()))
    place = raw.index(b"member-0", raw.index(b"member-0") + 1) - 2 - 4  # the count stands before the first id
    assert struct.unpack_from(">i", raw, place) == (3,)
    for count in (-1, 1 << 30, 2**31 - 1):
        struct.pack_into(">i", raw, place, count)
        with pytest.raises(MalformedFields):
            read_group(raw)


def test_random_damage_is_refused_or_gives_a_group() -> None:
    rng = random.Random(4)
    sound = write_group(_sample())
    for _ in range(3000):
        raw = bytearray(sound)
        for _ in range(rng.randint(1, 4)):
            raw[rng.randrange(len(raw))] = rng.randrange(256)
        try:
            stored = read_group(raw)
        except MalformedFields:
            continue
        assert stored.leader in {member.member_id for member in stored.members} or not stored.members


@pytest.mark.parametrize(
    "change", [{"leader": "nobody"}, {"leader": None}, {"protocol_name": None}, {"generation_id": -1}]
)
def test_a_group_that_contradicts_itself_is_refused(change: dict[str, object]) -> None:
    fields = {name: getattr(_sample(), name) for name in StoredGroup.__slots__}
    with pytest.raises(MalformedFields):
        read_group(write_group(StoredGroup(**(fields | change))))


def test_a_name_that_does_not_fit_its_length_is_refused_when_written() -> None:
    with pytest.raises(BrokerError):
        write_group_key("x" * 40_000)
    assert FieldReader(write_group_key("x" * 32_767)[2:]).string() == "x" * 32_767


# Subscriptions


def test_the_topics_of_a_subscription_are_read_in_every_version() -> None:
    assert read_topics(subscription("a", "b")) == frozenset("ab")
    later = b"\x00\x03" + subscription("a")[2:] + b"whatever later versions add"
    assert read_topics(later) == frozenset("a")


@pytest.mark.parametrize(
    "raw", [b"", b"\x00", b"\xff\xff\x00\x00\x00\x00", b"\x00\x00\x7f\xff\xff\xff", b"\x00\x00"]
)
def test_bytes_that_are_no_subscription_have_no_topics(raw: bytes) -> None:
    assert read_topics(raw) is None
