"""Entries of a batch: their bytes, round trips, and counts and lengths that lie."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import ProtocolError
from tailrace.wire.native import Entry, read_entries, write_entries

ENTRIES: list[Entry] = [(b"", b"a"), (b"_key=k\0", b"b"), (b"", b""), (b"x=y\0", b"")]
BODY = write_entries(ENTRIES)


def test_entries_have_the_documented_bytes() -> None:
    assert write_entries(ENTRIES[:2]) == bytes(7) + b"\x01a" + b"\0\0\0\x07_key=k\0" + b"\0\0\0\x01b"


@given(entries=st.lists(st.tuples(st.binary(max_size=10), st.binary(max_size=10)), min_size=1, max_size=20))
def test_entries_come_back(entries: list[Entry]) -> None:
    body = write_entries(entries)
    assert read_entries(body, len(entries)) == entries
    assert [(bytes(a), bytes(b)) for a, b in read_entries(memoryview(body), len(entries))] == entries


def test_the_entries_of_a_view_are_views_of_the_same_buffer() -> None:
    buffer = bytearray(BODY)
    entries = read_entries(memoryview(buffer), 4)
    at = buffer.index(b"_key=k")
    buffer[at + 5] = ord("K")
    assert bytes(entries[1][0]) == b"_key=K\0"


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 5, 6, 2**31, 2**63])
def test_another_count_than_there_are_is_refused(count: int) -> None:
    with pytest.raises(ProtocolError, match=r"batch"):
        read_entries(BODY, count)


def test_no_entries_are_no_batch() -> None:
    with pytest.raises(ProtocolError, match="0 bytes cannot have 0 messages"):
        read_entries(b"", 0)


def test_every_truncation_and_addition_is_refused() -> None:
    for size in range(len(BODY)):
        with pytest.raises(ProtocolError):
            read_entries(memoryview(BODY)[:size], 4)
    with pytest.raises(ProtocolError, match="end at byte"):
        read_entries(BODY + b"\0", 4)


@pytest.mark.parametrize("change", [-1, 1, 8, 1000, 2**31, 2**32 - 20])
@pytest.mark.parametrize("at", [0, 4, 9, 20, 25, 29, 33, 41])
def test_a_wrong_length_is_refused(at: int, change: int) -> None:
    (right,) = struct.unpack_from(">I", BODY, at)
    wrong = BODY[:at] + struct.pack(">I", (right + change) % 2**32) + BODY[at + 4 :]
    with pytest.raises(ProtocolError):
        read_entries(wrong, 4)


def test_a_count_that_cannot_be_is_refused_before_anything_is_read() -> None:
    body = bytes(80)
    tracemalloc.start()
    try:
        with pytest.raises(ProtocolError, match="80 bytes cannot have 11 messages"):
            read_entries(body, 11)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < 10_000
