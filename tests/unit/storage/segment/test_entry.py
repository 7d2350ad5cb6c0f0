"""Journal entries as bytes: round trips over generated entries, and every cut and every flipped bit."""

from __future__ import annotations

import struct
from uuid import UUID

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import Offset, PartitionId
from tailrace.records import HEADER_BYTES, BatchError, build_batch, read_batch
from tailrace.storage.segment.entry import (
    ENTRY_BYTES,
    LOOSE,
    REFERENCED,
    Append,
    Create,
    Delete,
    Entry,
    EntryError,
    Trim,
    Truncate,
    read_entries,
    write_entry,
)

lives = st.integers(1, (1 << 64) - 1)
offsets = st.integers(0, (1 << 63) - 1).map(Offset)
positions = st.integers(0, (1 << 31) - 1)
partition_ids = st.builds(PartitionId, st.uuids(), st.integers(0, (1 << 31) - 1))


@st.composite
def appends(draw: st.DrawFn) -> Append:
    values = draw(st.lists(st.binary(max_size=40), min_size=1, max_size=4))
    data = build_batch(
        [(draw(st.integers(0, 1 << 40)), None, value, ()) for value in values],
        base_offset=draw(st.integers(0, 1 << 40)),
        leader_epoch=draw(st.integers(0, 100)),
    )
    flags = draw(st.sampled_from([0, LOOSE, REFERENCED, REFERENCED | LOOSE]))
    return Append(draw(lives), read_batch(data), draw(offsets), draw(positions), flags)


entries = st.one_of(
    appends(),
    st.builds(Create, lives, partition_ids),
    st.builds(Truncate, lives, offsets, offsets, positions),
    st.builds(Trim, lives, offsets, st.one_of(st.just(-1), offsets)),
    st.builds(Delete, lives),
)

EXAMPLES: list[Entry] = [
    Append(3, read_batch(build_batch([(5, b"k", b"value", ())], base_offset=9)), 7, 100),
    Append(3, read_batch(build_batch([(5, b"k", b"value", ())], base_offset=10)), 7, 200, REFERENCED),
    Create(4, PartitionId(UUID(int=77), 2)),
    Truncate(3, Offset(9), 7, 100),
    Trim(3, Offset(8), 11),
    Delete(4),
]


def write(*written: Entry) -> bytes:
    parts: list[bytes | memoryview] = []
    for entry in written:
        write_entry(entry, parts)
    return b"".join(parts)


def facts(entry: Entry) -> tuple[object, ...]:
    """Everything about an entry that its bytes hold."""
    if isinstance(entry, Append):
        data = entry.batch.data[:HEADER_BYTES] if entry.flags & REFERENCED else entry.batch.data
        return (entry.kind, entry.life, entry.segment, entry.position, entry.flags, bytes(data))
    if isinstance(entry, Create):
        return (entry.kind, entry.life, entry.partition_id)
    if isinstance(entry, Truncate):
        return (entry.kind, entry.life, entry.offset, entry.segment, entry.position)
    if isinstance(entry, Trim):
        return (entry.kind, entry.life, entry.offset, entry.segment)
    return (entry.kind, entry.life)


def header(kind: int, *, flags: int = 0, zero: int = 0, length: int = 0) -> bytes:
    return struct.pack("<BBHIQqI", kind, flags, zero, length, 1, 0, 0)


@given(st.lists(entries, max_size=6))
def test_what_is_written_is_read(written: list[Entry]) -> None:
    data = write(*written)
    found = list(read_entries(memoryview(data), len(written)))
    assert list(map(facts, found)) == list(map(facts, written))


@given(st.lists(entries, min_size=1, max_size=3))
def test_every_cut_is_refused(written: list[Entry]) -> None:
    whole = write(*written)
    for length in range(len(whole)):
        with pytest.raises((EntryError, BatchError)):
            list(read_entries(memoryview(whole)[:length], len(written)))


@pytest.mark.parametrize("entry", EXAMPLES, ids=repr)
def test_a_flipped_bit_is_another_entry_or_refused(entry: Entry) -> None:
    """It is the round's checksum that proves an entry: here only the layout is checked, without a mishap."""
    whole = write(entry)
    for bit in range(8 * len(whole)):
        flipped = bytearray(whole)
        flipped[bit // 8] ^= 1 << bit % 8
        try:
            found = list(read_entries(memoryview(flipped), 1))
        except (EntryError, BatchError):
            continue
        assert len(found) == 1


@given(st.binary(max_size=200), st.integers(0, 5))
def test_garbage_is_refused_or_read_but_nothing_else(data: bytes, count: int) -> None:
    try:
        found = list(read_entries(memoryview(data), count))
    except (EntryError, BatchError):
        return
    assert len(found) == count


@pytest.mark.parametrize("count", [0, 1, 3])
def test_the_count_must_be_right(count: int) -> None:
    with pytest.raises(EntryError):
        list(read_entries(memoryview(write(Delete(1), Delete(2))), count))


@pytest.mark.parametrize(
    "data",
    [
        header(0),
        header(6),
        header(255),
        header(2, length=0),
        header(2, length=19) + bytes(19),
        header(2, length=21) + bytes(21),
        header(3, length=7) + bytes(7),
        header(4, length=9) + bytes(9),
        header(5, length=1) + bytes(1),
        header(5, zero=1),
        header(5, length=0xFFFFFFFF),
        header(1, length=60) + bytes(60),
        header(1, length=61) + bytes(61),
        header(1, flags=REFERENCED, length=60) + bytes(60),
        header(1, flags=REFERENCED, length=62) + bytes(62),
    ],
)
def test_an_entry_that_makes_no_sense_is_refused(data: bytes) -> None:
    with pytest.raises((EntryError, BatchError)):
        list(read_entries(memoryview(data), 1))


def test_a_batch_is_not_copied_on_its_way_out() -> None:
    batch = read_batch(build_batch([(1, None, b"x" * 1000, ())]))
    parts: list[bytes | memoryview] = []
    write_entry(Append(1, batch, 0, 0), parts)
    assert parts[1] is batch.data


def test_a_batch_is_a_view_of_what_was_read() -> None:
    data = bytearray(write(EXAMPLES[0]))
    (found,) = read_entries(memoryview(data), 1)
    assert isinstance(found, Append)
    assert found.batch.data.obj is data


def test_a_referenced_batch_leaves_only_its_header() -> None:
    batch = read_batch(build_batch([(1, None, b"x" * 1000, ())]))
    data = write(Append(1, batch, 0, 0, REFERENCED))
    assert len(data) == ENTRY_BYTES + HEADER_BYTES
    (found,) = read_entries(memoryview(data), 1)
    assert isinstance(found, Append)
    assert (found.batch.size, found.batch.crc) == (batch.size, batch.crc)


def test_a_batch_of_exactly_a_header_is_read_inline_too() -> None:
    """A batch that compaction emptied is as long as the header of a referenced one."""
    source = bytes(build_batch([(1, None, b"", ())], base_offset=4))[:HEADER_BYTES]
    emptied = bytearray(source)
    struct.pack_into(">i", emptied, 8, HEADER_BYTES - 12)
    (found,) = read_entries(memoryview(write(Append(1, read_batch(emptied), 0, 0))), 1)
    assert isinstance(found, Append)
    assert bytes(found.batch.data) == bytes(emptied)


def test_entries_read_like_a_status_line() -> None:
    assert repr(EXAMPLES[0]).startswith("<append inline life 3 at 7:100 <Batch")
    assert repr(EXAMPLES[1]).startswith("<append referenced life 3 at 7:200 <Batch")
