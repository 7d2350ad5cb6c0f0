"""The tail against a plain list of batches: reads, cuts, evictions and what comes back in front."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.records import Batch, build_batch, iter_batches, read_batch
from tailrace.storage.segment.entry import Append
from tailrace.storage.tail import BATCH_OBJECTS_BYTES, Tail

# Counts, gaps before, bytes of values.
drafts = st.lists(
    st.tuples(st.integers(1, 4), st.sampled_from([0, 0, 0, 2, 5]), st.sampled_from([0, 10, 300, 30_000])),
    min_size=1,
    max_size=15,
)


def entries_of(made: list[tuple[int, int, int]], *, base: int = 0) -> list[Append]:
    found, offset, position = [], base, 0
    for number, (count, gap, value_bytes) in enumerate(made):
        offset += gap
        value = bytes([number]) * value_bytes
        batch = read_batch(build_batch([(number, None, value, ())] * count, base_offset=offset))
        found.append(Append(1, batch, 0, position))
        offset, position = offset + count, position + batch.size
    return found


def tail_of(entries: list[Append]) -> Tail[Append]:
    tail: Tail[Append] = Tail()
    for entry in entries:
        tail.add(entry)
    return tail


def expected(entries: list[Append], offset: int, *, bytes_max: int, up_to: int) -> list[Batch]:
    """What a read must give, found one batch after the other."""
    wanted: list[Batch] = []
    for entry in entries:
        batch = entry.batch
        if batch.next_offset <= offset:
            continue
        size = sum(known.size for known in wanted)
        if batch.next_offset > up_to or (wanted and size + batch.size > bytes_max):
            break
        wanted.append(batch)
    return wanted


@given(drafts, st.data())
def test_a_read_is_that_of_a_plain_list(made: list[tuple[int, int, int]], data: st.DataObject) -> None:
    entries = entries_of(made)
    tail = tail_of(entries)
    up_to = data.draw(st.sampled_from([entry.batch.next_offset for entry in entries]))
    offset = data.draw(st.integers(entries[0].batch.base_offset, up_to - 1))
    bytes_max = data.draw(st.one_of(st.integers(-1, 2000), st.integers(0, 200_000)))
    wanted = expected(entries, offset, bytes_max=bytes_max, up_to=up_to)
    found = tail.read(offset, bytes_max=bytes_max, up_to=up_to)
    loaded = asyncio.run(found.load())
    assert loaded == b"".join(batch.data for batch in wanted)
    assert len(loaded) == found.size == sum(extent.size for extent in found.extents)
    assert wanted
    assert found.next_offset == wanted[-1].next_offset
    assert len(wanted) == 1 or found.size <= bytes_max


def test_small_batches_are_joined_and_large_ones_are_not_copied() -> None:
    entries = entries_of([(1, 0, 100), (1, 0, 100), (1, 0, 90_000), (1, 0, 100)])
    found = tail_of(entries).read(0, bytes_max=1 << 20, up_to=4)
    assert [len(list(iter_batches(extent.load_nowait() or b""))) for extent in found.extents] == [2, 1, 1]
    assert found.extents[1].load_nowait() is entries[2].batch.data


def test_an_extent_loads_the_same_bytes_again() -> None:
    (extent,) = tail_of(entries_of([(1, 0, 10)] * 3)).read(0, bytes_max=1 << 20, up_to=3).extents
    first = extent.load_nowait()
    extent.release()
    assert first is not None
    assert extent.load_nowait() == first
    assert asyncio.run(extent.load()) == first


@given(drafts, st.data())
def test_truncation_drops_what_begins_there(made: list[tuple[int, int, int]], data: st.DataObject) -> None:
    entries = entries_of(made)
    tail = tail_of(entries)
    offset = data.draw(st.integers(0, entries[-1].batch.next_offset))
    tail.truncate(offset)
    check(tail, [entry for entry in entries if entry.batch.base_offset < offset])


@given(drafts, st.data())
def test_eviction_takes_the_oldest_and_not_more_than_it_may(
    made: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    entries = entries_of(made)
    tail = tail_of(entries)
    below = data.draw(st.integers(0, entries[-1].batch.next_offset))
    wanted = data.draw(st.integers(0, 100_000))
    gone = tail.evict(below, wanted)
    rest = entries
    while rest and rest[0].batch.next_offset <= below and size_of(entries) - size_of(rest) < wanted:
        rest = rest[1:]
    assert gone == size_of(entries) - size_of(rest)
    check(tail, rest)


@given(drafts, st.data())
def test_what_is_put_back_comes_first(made: list[tuple[int, int, int]], data: st.DataObject) -> None:
    entries = entries_of(made)
    split = data.draw(st.integers(0, len(entries)))
    tail = tail_of(entries[split:])
    tail.put_back(entries[:split])
    check(tail, entries)


@given(drafts, st.data())
def test_entries_are_listed_from_the_one_that_holds_an_offset(
    made: list[tuple[int, int, int]], data: st.DataObject
) -> None:
    entries = entries_of(made)
    offset = data.draw(st.integers(0, entries[-1].batch.next_offset + 3))
    assert tail_of(entries).entries_from(offset) == [e for e in entries if e.batch.next_offset > offset]


def test_an_empty_tail() -> None:
    tail: Tail[Append] = Tail()
    assert (len(tail), tail.bytes, tail.first_offset) == (0, 0, None)
    assert tail.evict(100, 100) == 0
    tail.truncate(0)
    assert tail.entries_from(5) == []
    found = tail.read(5, bytes_max=100, up_to=9)
    assert (list(found.extents), found.size, found.next_offset) == ([], 0, 9)


@pytest.mark.parametrize("up_to", [0, 1, 2])
def test_nothing_is_read_past_the_limit(up_to: int) -> None:
    found = tail_of(entries_of([(3, 0, 10)])).read(0, bytes_max=1000, up_to=up_to)
    assert (list(found.extents), found.size) == ([], 0)


def size_of(entries: list[Append]) -> int:
    return sum(entry.batch.size + BATCH_OBJECTS_BYTES for entry in entries)


def check(tail: Tail[Append], entries: list[Append]) -> None:
    assert tail.entries_from(0) == entries
    assert len(tail) == len(entries)
    assert tail.bytes == size_of(entries)
    assert tail.first_offset == (entries[0].batch.base_offset if entries else None)


def test_a_cleared_tail_holds_nothing() -> None:
    tail = tail_of(entries_of([(1, 10, 0), (2, 20, 0)]))
    tail.clear()
    check(tail, [])
