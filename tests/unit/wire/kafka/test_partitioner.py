"""The partition of a record: against the Java client's known hashes and aiokafka's own computation."""

from __future__ import annotations

import random

import pytest
from aiokafka.partitioner import murmur2 as theirs
from hypothesis import given
from hypothesis import strategies as st

from tailrace.wire.kafka.partitioner import StickyPartitioner, murmur2, partition_of_key


@pytest.mark.parametrize(
    ("key", "hash_"),
    [  # from the tests of the Java client, which has signed numbers
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_the_hash_is_the_java_clients(key: bytes, hash_: int) -> None:
    assert murmur2(key) == hash_ & 0xFFFFFFFF


@given(st.binary(max_size=70))
def test_the_hash_is_aiokafkas(key: bytes) -> None:
    assert murmur2(key) == theirs(key) & 0xFFFFFFFF
    assert murmur2(memoryview(key)) == murmur2(key)


@given(st.binary(max_size=20), st.integers(1, 50))
def test_a_key_has_one_partition_of_those_there_are(key: bytes, partitions: int) -> None:
    chosen = partition_of_key(key, partitions=partitions)
    assert 0 <= chosen < partitions
    assert chosen == partition_of_key(key, partitions=partitions)


def test_records_without_a_key_stick_until_a_batch_is_full() -> None:
    sticky = StickyPartitioner(bytes_per_partition=100, chooser=random.Random(1))
    chosen = [sticky.choose(lambda: [0, 1, 2], record_bytes=25) for _ in range(8)]
    assert len(set(chosen[:4])) == 1
    assert len(set(chosen[4:])) == 1
    assert chosen[0] != chosen[4]


def test_every_partition_gets_its_turn() -> None:
    sticky = StickyPartitioner(bytes_per_partition=1, chooser=random.Random(1))
    assert {sticky.choose(lambda: [0, 1, 2, 3], record_bytes=10) for _ in range(100)} == {0, 1, 2, 3}


def test_a_partition_without_a_leader_is_not_chosen() -> None:
    sticky = StickyPartitioner(bytes_per_partition=1, chooser=random.Random(1))
    assert {sticky.choose(lambda: [2], record_bytes=10) for _ in range(5)} == {2}
