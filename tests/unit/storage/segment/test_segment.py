"""Reading a segment, planned by its index: against a plain list of batches, over generated segments."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.model import LogDamaged, LogTruncated
from tailrace.records import Batch, build_batch, iter_batches, read_batch
from tailrace.runtime import BufferPool, SyncError
from tailrace.runtime.disk import Buffer
from tailrace.storage import Slice
from tailrace.storage.segment.index import SpanIndex
from tailrace.storage.segment.segment import (
    FileExtent,
    ReadPlan,
    Segment,
    needs_walk,
    plan_read,
    slice_of,
    walk,
)

BASE = 500


class MemoryFile:
    """Bytes behind the file port; `cold` makes immediate reads wait."""

    path = "p/500.log"

    def __init__(self, data: bytes = b"", *, cold: bool = False) -> None:
        self.data = bytearray(data)
        self.cold = cold
        self.syncs: list[bool] = []  # whether each was in bulk
        self.sync_errors: list[Exception] = []
        self.read_error: OSError | None = None

    def size(self) -> int:
        return len(self.data)

    def read_nowait(self, position: int, buffer: memoryview) -> int | None:
        return None if self.cold else self._fill(position, buffer)

    async def read(self, position: int, buffer: memoryview) -> int:
        await asyncio.sleep(0)
        if self.read_error is not None:
            raise self.read_error
        return self._fill(position, buffer)

    def _fill(self, position: int, buffer: memoryview) -> int:
        data = self.data[position : position + len(buffer)]
        buffer[: len(data)] = data
        return len(data)

    async def write(self, position: int, buffers: Sequence[Buffer], *, sync: bool = False) -> None:
        raise NotImplementedError

    async def sync(self, *, bulk: bool = False) -> None:
        self.syncs.append(bulk)
        await asyncio.sleep(0)
        if self.sync_errors:
            raise self.sync_errors.pop()

    async def truncate(self, size: int) -> None:
        raise NotImplementedError

    async def reserve(self, end: int) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Nothing to close."""


@dataclass(frozen=True, slots=True)
class Draft:
    count: int = 1
    gap: int = 0
    value_bytes: int = 20


drafts = st.builds(
    Draft,
    st.integers(1, 4),
    st.sampled_from([0, 0, 0, 1, 6]),
    st.sampled_from([0, 20, 20, 150, 150, 900, 70_000]),
)


def batches_of(made: list[Draft]) -> list[Batch]:
    found, offset = [], BASE
    for number, draft in enumerate(made):
        offset += draft.gap
        value = (b"%03d" % number * (draft.value_bytes // 3 + 1))[: draft.value_bytes]
        found.append(read_batch(build_batch([(0, None, value, ())] * draft.count, base_offset=offset)))
        offset += draft.count
    return found


def segment_of(batches: list[Batch], interval_bytes: int, *, cold: bool = False) -> Segment:
    index = SpanIndex(BASE, interval_bytes)
    for batch in batches:
        index.add(batch)
    index.seal(batches[-1].next_offset)
    file = MemoryFile(b"".join(batch.data for batch in batches), cold=cold)
    return Segment(BASE, file.path, file, index, 0)


def find(segment: Segment, offset: int, *, bytes_max: int, limit: int) -> ReadPlan | None:
    """What a log does to find a slice: plan, walk where the plan asks for it, go on in the next span."""
    assert segment.file is not None
    plan = plan_read(segment, offset, bytes_max=bytes_max, limit=limit)
    while plan is not None and needs_walk(plan, offset, bytes_max=bytes_max, limit=limit):
        begin, end = plan.index.positions[plan.first], plan.index.positions[plan.first + 1]
        span = memoryview(bytearray(end - begin))
        segment.file.read_nowait(begin, span)
        walked = walk(plan, offset, span, bytes_max=bytes_max, limit=limit)
        if walked is not None:
            return walked
        offset = plan.index.offsets[plan.first + 1] + segment.base
        plan = plan_read(segment, offset, bytes_max=bytes_max, limit=limit)
    return plan


def load(found: Slice) -> bytes:
    return asyncio.run(found.load())


def read(
    segment: Segment, offset: int, *, bytes_max: int, limit: int, piece_bytes_max: int = 1 << 20
) -> Slice:
    plan = find(segment, offset, bytes_max=bytes_max, limit=limit)
    assert plan is not None
    return slice_of(plan, BufferPool(), piece_bytes_max=piece_bytes_max)


# ---- against a plain list


@given(
    st.lists(drafts, min_size=1, max_size=20),
    st.sampled_from([1, 200, 1000, 1 << 20]),
    st.data(),
    st.sampled_from([1, 500, 3000, 1 << 20]),
)
@settings(max_examples=200)
def test_a_read_gives_the_batches_of_a_plain_list(
    made: list[Draft], interval_bytes: int, data: st.DataObject, piece_bytes_max: int
) -> None:
    batches = batches_of(made)
    segment = segment_of(batches, interval_bytes)
    limit = data.draw(st.sampled_from([batch.next_offset for batch in batches]), label="limit")
    offset = data.draw(st.integers(BASE, limit - 1), label="offset")
    bytes_max = data.draw(st.one_of(st.integers(0, 3000), st.integers(0, 200_000)), label="bytes_max")
    naive = [batch for batch in batches if batch.next_offset > offset and batch.next_offset <= limit]
    found = read(segment, offset, bytes_max=bytes_max, limit=limit, piece_bytes_max=piece_bytes_max)
    loaded = load(found)
    count = len(list(iter_batches(loaded)))
    assert loaded == b"".join(batch.data for batch in naive[:count])
    assert count >= 1
    following = next((b.base_offset for b in batches if b.base_offset >= naive[count - 1].next_offset), limit)
    assert naive[count - 1].next_offset <= found.next_offset <= following, (
        "it may lead over a gap, no further"
    )
    assert found.size == len(loaded) == sum(extent.size for extent in found.extents)
    assert count == 1 or found.size <= bytes_max
    if count < len(naive):
        check_stop(segment, batches, naive[count - 1], naive[count], found.size, bytes_max, limit)


def check_stop(
    segment: Segment,
    batches: list[Batch],
    last: Batch,
    following: Batch,
    size: int,
    bytes_max: int,
    limit: int,
) -> None:
    """A read ends early only where the next batch, or else the next span with it, is too much."""
    index = segment.index
    assert index is not None
    position = sum(batch.size for batch in batches[: batches.index(last) + 1])
    if position not in index.positions:
        assert size + following.size > bytes_max
        return
    span = list(index.positions).index(position)
    first = next(n for n in reversed(range(span)) if position - size >= index.positions[n])
    too_large = index.positions[span + 1] - index.positions[first] > bytes_max
    assert too_large or index.offsets[span + 1] + BASE > limit


@given(st.lists(drafts, min_size=1, max_size=12), st.sampled_from([1, 300, 1 << 20]))
@settings(max_examples=50)
def test_reading_on_gives_every_batch_once(made: list[Draft], interval_bytes: int) -> None:
    batches = batches_of(made)
    segment = segment_of(batches, interval_bytes)
    end = batches[-1].next_offset
    for bytes_max in (0, 400, 1 << 20):
        offset, loaded = BASE, b""
        while offset < end:
            found = read(segment, offset, bytes_max=bytes_max, limit=end)
            assert found.next_offset > offset
            offset, loaded = found.next_offset, loaded + load(found)
        assert loaded == b"".join(batch.data for batch in batches)


def test_a_reader_that_goes_on_at_a_span_needs_no_walk() -> None:
    segment = segment_of(batches_of([Draft(2)] * 10), 1)
    plan = plan_read(segment, BASE + 4, bytes_max=300, limit=BASE + 20)
    assert plan is not None
    assert not needs_walk(plan, BASE + 4, bytes_max=300, limit=BASE + 20)
    assert needs_walk(plan, BASE + 5, bytes_max=300, limit=BASE + 20)


def test_a_large_batch_is_never_walked() -> None:
    segment = segment_of(batches_of([Draft(3, value_bytes=70_000)]), 1)
    plan = plan_read(segment, BASE + 2, bytes_max=10, limit=BASE + 3)
    assert plan is not None
    assert not needs_walk(plan, BASE + 2, bytes_max=10, limit=BASE + 3)


def test_a_segment_that_ends_before_an_offset_holds_nothing() -> None:
    segment = segment_of(batches_of([Draft(2), Draft(2)]), 1)
    assert plan_read(segment, BASE + 4, bytes_max=100, limit=BASE + 50) is None


def test_nothing_of_a_gap_at_the_end_of_a_limit_is_found() -> None:
    segment = segment_of(batches_of([Draft(2), Draft(2, gap=6)]), 1 << 20)
    assert find(segment, BASE + 3, bytes_max=100, limit=BASE + 2) is None


# ---- extents


def test_pieces_are_no_larger_than_asked_or_one_span() -> None:
    segment = segment_of(batches_of([Draft(1, value_bytes=150)] * 30), 400)
    index = segment.index
    assert index is not None
    widest = max(b - a for a, b in zip(index.positions, index.positions[1:], strict=False))
    for piece_bytes_max in (1, 1000, 2500):
        found = read(segment, BASE, bytes_max=1 << 20, limit=BASE + 30, piece_bytes_max=piece_bytes_max)
        assert max(extent.size for extent in found.extents) <= max(piece_bytes_max, widest)
        assert len(load(found)) == index.end


def test_a_cold_extent_is_loaded_by_waiting() -> None:
    batches = batches_of([Draft(), Draft()])
    (extent,) = read(segment_of(batches, 1 << 20, cold=True), BASE, bytes_max=1 << 20, limit=BASE + 2).extents
    assert extent.load_nowait() is None
    assert asyncio.run(extent.load()) == b"".join(batch.data for batch in batches)


def test_a_released_buffer_serves_the_next_read() -> None:
    segment, pool = segment_of(batches_of([Draft()]), 1), BufferPool()
    plan = find(segment, BASE, bytes_max=100, limit=BASE + 1)
    assert plan is not None
    first, second = FileExtent(plan, pool), FileExtent(plan, pool)
    view = first.load_nowait()
    assert view is not None
    buffer = view.obj
    first.release()
    first.release()
    again = second.load_nowait()
    assert again is not None
    assert again.obj is buffer
    third = FileExtent(plan, pool).load_nowait()
    assert third is not None
    assert third.obj is not buffer


@pytest.mark.parametrize("cold", [False, True])
def test_any_flipped_byte_is_damage_and_never_served(cold: bool) -> None:
    segment = segment_of(batches_of([Draft(2), Draft(1, value_bytes=40)]), 1 << 20, cold=cold)
    file = segment.file
    assert isinstance(file, MemoryFile)
    for place in range(len(file.data)):
        file.data[place] ^= 0x10
        found = read_whole(segment)
        with pytest.raises(LogDamaged, match=r"offsets 500 to 502\) are not what was written"):
            load(found)
        file.data[place] ^= 0x10
    assert load(read_whole(segment)) == file.data


def read_whole(segment: Segment) -> Slice:
    """All spans, planned without looking at their bytes."""
    index, file = segment.index, segment.file
    assert index is not None
    assert file is not None
    plan = ReadPlan(file, index, segment, 0, len(index), 0, index.end, index.closed_offset)
    return slice_of(plan, BufferPool(), piece_bytes_max=1 << 20)


def test_a_file_that_ends_early_is_damage() -> None:
    segment = segment_of(batches_of([Draft(2), Draft()]), 1 << 20)
    assert isinstance(segment.file, MemoryFile)
    del segment.file.data[-1]
    with pytest.raises(LogDamaged):
        load(read_whole(segment))


def test_a_read_that_the_disk_refuses_is_damage_that_names_the_file() -> None:
    segment = segment_of(batches_of([Draft()]), 1, cold=True)
    assert isinstance(segment.file, MemoryFile)
    segment.file.read_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(LogDamaged, match=r"p/500.log cannot be read: Input/output error"):
        load(read_whole(segment))


def test_an_immediate_read_that_the_disk_refuses_is_left_to_one_that_waits() -> None:
    class Refusing(MemoryFile):
        def read_nowait(self, position: int, buffer: memoryview) -> int | None:
            raise OSError(errno.EIO, "Input/output error")

    segment = segment_of(batches_of([Draft()]), 1)
    assert isinstance(segment.file, MemoryFile)
    segment.file = Refusing(bytes(segment.file.data))
    plan = find(segment, BASE, bytes_max=100, limit=BASE + 1)
    assert plan is not None
    assert FileExtent(plan, BufferPool()).load_nowait() is None
    segment.file.read_error = OSError(errno.EIO, "Input/output error")
    with pytest.raises(LogDamaged, match="cannot be read"):
        load(read_whole(segment))


def test_a_failed_check_gives_the_buffer_back() -> None:
    segment, pool = segment_of(batches_of([Draft()]), 1), BufferPool()
    plan = find(segment, BASE, bytes_max=100, limit=BASE + 1)
    assert plan is not None
    assert isinstance(segment.file, MemoryFile)
    marked = pool.take(100)
    pool.give(marked)
    segment.file.data[40] ^= 1
    with pytest.raises(LogDamaged):
        FileExtent(plan, pool).load_nowait()
    assert pool.take(100) is marked


def test_bytes_that_a_truncation_took_are_no_damage() -> None:
    segment = segment_of(batches_of([Draft(), Draft()]), 1)
    found = read_whole(segment)
    assert segment.index is not None
    assert isinstance(segment.file, MemoryFile)
    segment.index = segment.index.cut(segment.index.positions[1], offset=BASE + 1)
    segment.cuts = segment.index.cuts
    del segment.file.data[segment.index.end :]
    with pytest.raises(LogTruncated, match="truncated while it was read"):
        load(found)


@pytest.mark.parametrize("now", ["open", "closed", "opened again"])
def test_damage_is_damage_whether_or_not_the_segment_was_closed_meanwhile(now: str) -> None:
    segment = segment_of(batches_of([Draft(), Draft()]), 1)
    found = read_whole(segment)
    assert isinstance(segment.file, MemoryFile)
    segment.file.data[40] ^= 1
    if now == "closed":
        segment.file = segment.index = None
    elif now == "opened again":
        again = segment_of(batches_of([Draft(), Draft()]), 1)
        segment.file, segment.index = again.file, again.index
    with pytest.raises(LogDamaged):
        load(found)


# ---- syncing


def test_syncs_are_one_at_a_time_and_a_failure_is_final() -> None:
    """Of two syncs under way only one may be told of a failure."""

    async def main() -> None:
        segment = segment_of(batches_of([Draft()]), 1)
        file = segment.file
        assert isinstance(file, MemoryFile)
        file.sync_errors = [SyncError(errno.EIO, "Input/output error")]
        outcomes = await asyncio.gather(
            segment.sync(), segment.sync(), segment.sync(), return_exceptions=True
        )
        assert [type(outcome) for outcome in outcomes] == [SyncError] * 3
        assert len(file.syncs) == 1
        with pytest.raises(SyncError):
            await segment.sync()
        assert len(file.syncs) == 1

    asyncio.run(main())


@pytest.mark.parametrize(
    ("unsynced", "asked", "bulk"),
    [(0, False, False), (1 << 20, False, False), ((1 << 20) + 1, False, True), (0, True, True)],
)
def test_much_is_synced_in_bulk(unsynced: int, asked: bool, bulk: bool) -> None:
    async def main() -> None:
        segment = segment_of(batches_of([Draft()]), 1)
        assert isinstance(segment.file, MemoryFile)
        segment.unsynced_bytes = unsynced
        await segment.sync(bulk=asked)
        assert segment.file.syncs == [bulk]
        assert segment.unsynced_bytes == 0

    asyncio.run(main())


def test_bytes_written_during_a_sync_count_for_the_next() -> None:
    async def main() -> None:
        segment = segment_of(batches_of([Draft()]), 1)
        segment.unsynced_bytes = 10
        syncing = asyncio.ensure_future(segment.sync())
        await asyncio.sleep(0)
        segment.unsynced_bytes += 7
        await syncing
        assert segment.unsynced_bytes == 7

    asyncio.run(main())
