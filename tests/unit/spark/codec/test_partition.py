"""Keys to partitions, in both twins: as the client's own partitioner says, key by key."""

from __future__ import annotations

from types import ModuleType

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.spark.codec import partition_rows
from tailrace.wire.kafka.partitioner import partition_of_key

KEY = st.none() | st.binary(max_size=20) | st.integers(1000, 1100).map(lambda size: b"\x9c" * size)


@settings(deadline=None)
@given(st.lists(KEY, max_size=12), st.integers(1, 100), st.integers(0, 1000), st.integers(0, 3))
def test_rows_go_where_the_client_sends_them(
    twin: ModuleType, keys: list[bytes | None], partitions: int, turn: int, skipped: int
) -> None:
    found = partition_rows(pa.array(keys, pa.binary()).slice(skipped), partitions, turn=turn)
    assert found.tolist() == [
        turn % partitions if key is None else partition_of_key(key, partitions=partitions)
        for key in keys[skipped:]
    ]


def test_agrees_with_the_java_client(twin: ModuleType) -> None:
    # murmur2 of these, in Java's own tests, is -973932308, -790332482, -985981536 and -1486304829.
    keys = pa.array([b"21", b"foobar", b"a-little-bit-long-string", b"a-little-bit-longer-string"])
    hashes = [-973932308, -790332482, -985981536, -1486304829]
    assert partition_rows(keys, 1000).tolist() == [(number & 0x7FFFFFFF) % 1000 for number in hashes]


def test_text_is_hashed_as_its_bytes(twin: ModuleType) -> None:
    texts = pa.array(["ä", "b", None])
    assert partition_rows(texts, 7).tolist() == partition_rows(texts.cast(pa.binary()), 7).tolist()


def test_chunks_are_taken_together(twin: ModuleType) -> None:
    chunked = pa.chunked_array([[b"a", b"b"], [b"c"]])
    assert partition_rows(chunked, 9).tolist() == partition_rows(pa.array([b"a", b"b", b"c"]), 9).tolist()


@pytest.mark.parametrize("partitions", [0, -1])
def test_no_partitions_are_refused(partitions: int) -> None:
    with pytest.raises(ValueError, match="at least one partition"):
        partition_rows(pa.array([b"a"]), partitions)
