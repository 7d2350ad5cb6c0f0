"""Records of `__transaction_state`: Kafka's bytes, ours come back, and malformed bytes are refused."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.internal import MalformedFields
from tailrace.broker.transactions.codec import read_key, read_value, write_key, write_value
from tailrace.broker.transactions.state import Ended, Identity, StoredTransaction, TransactionState
from tailrace.model import TopicPartition

ID = st.integers(0, (1 << 63) - 1)
IDENTITIES = st.builds(Identity, ID, st.integers(0, 32767))
TIMES = st.integers(-1, (1 << 63) - 1)
PARTITIONS = st.builds(TopicPartition, st.text(st.characters(codec="utf-8"), max_size=9), st.integers(0, 99))
STORED = st.builds(
    StoredTransaction,
    producer_id=ID,
    epoch=st.integers(0, 32767),
    state=st.sampled_from(TransactionState),
    timeout_ms=st.integers(1, 900_000),
    updated_ms=TIMES,
    started_ms=TIMES,
    partitions=st.frozensets(PARTITIONS, max_size=20),
    previous_producer_id=st.integers(-1, 99),
    next_producer_id=st.integers(-1, 99),
    client_version=st.integers(0, 3),
    before=st.none() | IDENTITIES,
    ended=st.none() | st.builds(Ended, IDENTITIES, st.booleans()),
)

PLAIN = StoredTransaction(
    producer_id=0x0102030405060708,
    epoch=9,
    state=TransactionState.ONGOING,
    timeout_ms=60_000,
    updated_ms=0x11,
    started_ms=0x22,
    partitions=frozenset([TopicPartition("t", 1), TopicPartition("t", 0)]),
)
V0 = bytes.fromhex(
    "0000 0102030405060708 0009 0000ea60 01"
    "00000001 0001 74 00000002 00000000 00000001"
    "0000000000000011 0000000000000022"
)
V1 = bytes.fromhex(
    "0001 0102030405060708 0009 0000ea60 01"
    "02 02 74 03 00000000 00000001 00"
    "0000000000000011 0000000000000022 00"
)


@given(STORED)
def test_what_is_written_comes_back(stored: StoredTransaction) -> None:
    assert read_value(write_value(stored)) == stored


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=40))
def test_a_key_comes_back(transactional_id: str) -> None:
    assert read_key(write_key(transactional_id)) == transactional_id


def test_the_bytes_are_kafkas() -> None:
    assert write_key("pay") == bytes.fromhex("0000 0003 706179")
    assert write_value(PLAIN) == V1
    assert read_value(V0) == read_value(V1) == PLAIN


def test_kafkas_tags_are_written_and_unknown_ones_are_passed_over() -> None:
    raw = V1[:-1] + bytes.fromhex(
        "05 0008 0000000000000007 0108 0000000000000008 0202 0002 0302 0001 0f03 aabbcc"
    )
    stored = read_value(raw)
    assert (stored.previous_producer_id, stored.next_producer_id, stored.client_version) == (7, 8, 2)
    tags = "03 0008 0000000000000007 0108 0000000000000008 0202 0002"
    assert write_value(stored) == V1[:-1] + bytes.fromhex(tags)


def test_null_is_no_partition() -> None:
    assert read_value(V0.replace(V0[17:36], b"\xff\xff\xff\xff")).partitions == frozenset()


def test_a_key_of_a_later_version_is_passed_over() -> None:
    assert read_key(b"\x00\x01whatever") is None
    with pytest.raises(MalformedFields):
        read_key(b"\xff\xff\x00\x00")


@pytest.mark.parametrize("raw", [V0, V1, write_value(PLAIN) + b"\0"])
def test_every_prefix_and_trailing_bytes_are_refused(raw: bytes) -> None:
    for end in range(len(raw) - (raw not in (V0, V1))):
        if raw[:end] not in (V0, V1):
            with pytest.raises(MalformedFields):
                read_value(raw[:end])
    with pytest.raises(MalformedFields):
        read_value(raw + b"\0")


@pytest.mark.parametrize(
    ("at", "bytes_"), [(0, "0002"), (2, "ff"), (10, "ffff"), (16, "06"), (17, "ffffffffff"), (18, "00")]
)
def test_impossible_values_are_refused(at: int, bytes_: str) -> None:
    raw = bytes.fromhex(bytes_)
    with pytest.raises(MalformedFields):
        read_value(V1[:at] + raw + V1[at + len(raw) :])


@given(st.binary(max_size=80))
def test_any_bytes_are_a_value_or_malformed(raw: bytes) -> None:
    with contextlib.suppress(MalformedFields):
        read_value(raw)
