"""The cache of sealed segments, and the index made again from a segment; on a simulated disk."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Coroutine
from typing import Any, TypeVar

import pytest

from tailrace.model import LogDamaged
from tailrace.records import Batch, build_batch, read_batch
from tailrace.runtime import BufferPool
from tailrace.storage.segment.cache import SegmentCache, read_file, scan_segment
from tailrace.storage.segment.index import IndexState, SpanIndex, write_footers, write_headers
from tailrace.storage.segment.segment import Segment
from tailrace.testing.simulation import SimulatedDisk, SimulatedLoop

_T = TypeVar("_T")
INTERVAL = 200


def play(work: Coroutine[Any, Any, _T]) -> _T:
    with SimulatedLoop() as loop:
        return loop.run(work)


def new_disk() -> SimulatedDisk:
    return SimulatedDisk(random.Random(5))


def new_cache(disk: SimulatedDisk, *, bytes_max: int = 1 << 20) -> SegmentCache:
    return SegmentCache(disk, BufferPool(), bytes_max=bytes_max)


def batches_from(offset: int, count: int = 6, *, value_bytes: int = 50) -> list[Batch]:
    return [
        read_batch(build_batch([(place, None, bytes(value_bytes), ())], base_offset=place))
        for place in range(offset, offset + count)
    ]


def index_of(base: int, batches: list[Batch]) -> SpanIndex:
    index = SpanIndex(base, INTERVAL)
    for batch in batches:
        index.add(batch)
    index.seal(batches[-1].next_offset)
    return index


async def put(disk: SimulatedDisk, path: str, data: bytes) -> None:
    file = await disk.create(path)
    await file.write(0, [data])
    file.close()


async def sealed(disk: SimulatedDisk, base: int = 0, *, count: int = 6) -> Segment:
    """A sealed segment with its files, closed."""
    batches = batches_from(base, count)
    index = index_of(base, batches)
    places, times = index.write_entries(0)
    state = IndexState(len(index) + 1).cut(index)
    headers, footers = write_headers(base), write_footers(state, batches[-1].next_offset)
    await put(disk, f"{base}.log", b"".join(batch.data for batch in batches))
    await put(disk, f"{base}.index", headers[0] + places + footers[0])
    await put(disk, f"{base}.timeindex", headers[1] + times + footers[1])
    segment = Segment(base, f"{base}.log", None, None, 0)
    segment.length = index.end
    segment.sealed = segment.persisted_whole = True
    return segment


def columns(index: SpanIndex | None) -> tuple[list[int], ...]:
    assert index is not None
    return tuple(map(list, (index.offsets, index.positions, index.checksums, index.times, index.singles)))


# ---- opening


def test_a_segment_is_opened_with_its_index(caplog: pytest.LogCaptureFixture) -> None:
    async def main(disk: SimulatedDisk) -> None:
        segment = await sealed(disk)
        await new_cache(disk).open(segment, interval_bytes=INTERVAL)
        assert segment.ready
        assert columns(segment.index) == columns(index_of(0, batches_from(0)))

    play(main(new_disk()))
    assert not caplog.records


@pytest.mark.parametrize("harm", ["missing", "flipped", "cut", "time missing"])
def test_an_index_that_is_missing_or_wrong_is_made_again(harm: str, caplog: pytest.LogCaptureFixture) -> None:
    async def main(disk: SimulatedDisk) -> None:
        segment = await sealed(disk)
        if harm == "missing":
            await disk.remove("0.index")
        elif harm == "time missing":
            await disk.remove("0.timeindex")
        elif harm == "flipped":
            disk.flip_bit("0.index", position=20, bit=1)
        else:
            await (await disk.open("0.timeindex")).truncate(30)
        await new_cache(disk).open(segment, interval_bytes=INTERVAL)
        assert columns(segment.index) == columns(index_of(0, batches_from(0)))

    play(main(new_disk()))
    assert "index made again: 0.log" in caplog.text


def test_a_segment_shorter_than_its_index_says_is_damage() -> None:
    async def main(disk: SimulatedDisk) -> None:
        segment, cache = await sealed(disk), new_cache(disk)
        segment.length -= 1
        with pytest.raises(LogDamaged, match=r"0\.log has \d+ bytes, and \d+ were acknowledged"):
            await cache.open(segment, interval_bytes=INTERVAL)

    play(main(new_disk()))


def test_what_lies_behind_the_end_that_the_index_knows_is_no_part_of_it() -> None:
    async def main(disk: SimulatedDisk) -> None:
        segment = await sealed(disk)
        whole, segment.length = segment.length, segment.length + 500
        await new_cache(disk).open(segment, interval_bytes=INTERVAL)
        assert segment.length == whole

    play(main(new_disk()))


def test_an_open_segment_is_not_opened_again() -> None:
    async def main(disk: SimulatedDisk) -> None:
        segment, cache = await sealed(disk), new_cache(disk)
        await cache.open(segment, interval_bytes=INTERVAL)
        file, index, calls = segment.file, segment.index, disk.calls
        await cache.open(segment, interval_bytes=INTERVAL)
        assert (segment.file, segment.index, disk.calls) == (file, index, calls)

    play(main(new_disk()))


@pytest.mark.parametrize("seed", range(5))
def test_readers_who_come_together_open_it_once(seed: int) -> None:
    async def main(disk: SimulatedDisk) -> None:
        segment, cache = await sealed(disk), new_cache(disk)
        trace: list[str] = []
        disk.log = trace.append
        await asyncio.gather(*(cache.open(segment, interval_bytes=INTERVAL) for _ in range(6)))
        assert segment.ready
        assert sum(" open 0." in line for line in trace) == 3

    play(main(SimulatedDisk(random.Random(seed))))


def test_a_segment_that_cannot_be_opened_fails_every_reader() -> None:
    async def main(disk: SimulatedDisk) -> None:
        segment, cache = await sealed(disk), new_cache(disk)
        await disk.remove("0.log")
        openings = (cache.open(segment, interval_bytes=INTERVAL) for _ in range(3))
        outcomes = await asyncio.gather(*openings, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [FileNotFoundError] * 3

    play(main(new_disk()))


# ---- closing


def test_the_least_recently_read_is_closed_first() -> None:
    async def main(disk: SimulatedDisk) -> None:
        segments = [await sealed(disk, base) for base in (0, 10, 20)]
        cache = new_cache(disk, bytes_max=2 * index_of(0, batches_from(0)).memory_bytes)
        await cache.open(segments[0], interval_bytes=INTERVAL)
        await cache.open(segments[1], interval_bytes=INTERVAL)
        cache.touch(segments[0])
        await cache.open(segments[2], interval_bytes=INTERVAL)
        assert [segment.ready for segment in segments] == [True, False, True]
        await cache.open(segments[1], interval_bytes=INTERVAL)
        assert [segment.ready for segment in segments] == [False, True, True]

    play(main(new_disk()))


def test_the_one_just_opened_stays_whatever_the_bound() -> None:
    async def main(disk: SimulatedDisk) -> None:
        segments, cache = [await sealed(disk, base) for base in (0, 10)], new_cache(disk, bytes_max=0)
        for segment in segments:
            await cache.open(segment, interval_bytes=INTERVAL)
            assert segment.ready
        assert not segments[0].ready

    play(main(new_disk()))


def test_only_so_many_files_are_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.storage.segment.cache._OPEN_FILES_MAX", 3)

    async def main(disk: SimulatedDisk) -> None:
        segments, cache = [await sealed(disk, base) for base in range(0, 60, 10)], new_cache(disk)
        for segment in segments:
            await cache.open(segment, interval_bytes=INTERVAL)
        assert [segment.ready for segment in segments] == [False] * 3 + [True] * 3

    play(main(new_disk()))


def test_a_forgotten_segment_makes_room_and_is_left_alone() -> None:
    async def main(disk: SimulatedDisk) -> None:
        first, second, third = [await sealed(disk, base) for base in (0, 10, 20)]
        cache = new_cache(disk, bytes_max=2 * index_of(0, batches_from(0)).memory_bytes)
        await cache.open(first, interval_bytes=INTERVAL)
        await cache.open(second, interval_bytes=INTERVAL)
        cache.forget(first)
        cache.forget(first)
        cache.touch(first)
        await cache.open(third, interval_bytes=INTERVAL)
        assert (first.ready, second.ready, third.ready) == (True, True, True)

    play(main(new_disk()))


def test_one_whose_index_is_not_on_disk_yet_is_never_closed() -> None:
    async def main(disk: SimulatedDisk) -> None:
        segments, cache = [await sealed(disk, base) for base in (0, 10)], new_cache(disk, bytes_max=0)
        segments[0].persisted_whole = False
        for segment in segments:
            await cache.open(segment, interval_bytes=INTERVAL)
        assert segments[0].ready

    play(main(new_disk()))


# ---- scanning


def scan(data: bytes, *, base: int = 0, length: int | None = None, seal: bool = True) -> SpanIndex:
    async def main(disk: SimulatedDisk) -> SpanIndex:
        await put(disk, "a.log", data)
        file = await disk.open("a.log")
        size = len(data) if length is None else length
        return await scan_segment(file, "a.log", base=base, length=size, interval_bytes=INTERVAL, seal=seal)

    return play(main(new_disk()))


def joined(batches: list[Batch]) -> bytes:
    return b"".join(batch.data for batch in batches)


def test_a_scan_makes_the_index_that_appending_made() -> None:
    batches = batches_from(7, 20)
    assert columns(scan(joined(batches), base=7)) == columns(index_of(7, batches))


def test_a_scan_ends_where_it_is_told() -> None:
    batches = batches_from(0, 9)
    found = scan(joined(batches) + b"garbage", length=sum(batch.size for batch in batches[:5]))
    assert columns(found) == columns(index_of(0, batches[:5]))


def test_a_scan_may_leave_the_last_span_open() -> None:
    batches = batches_from(0, 3)
    found = scan(joined(batches), seal=False)
    assert found.end > found.closed_position
    found.close_open(3)
    assert columns(found) == columns(index_of(0, batches))


def test_batches_larger_than_a_piece_are_scanned(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.storage.segment.cache._PIECE_BYTES", 300)
    batches = [*batches_from(0, 4), *batches_from(4, 2, value_bytes=5000), *batches_from(6, 4)]
    assert columns(scan(joined(batches))) == columns(index_of(0, batches))


@pytest.mark.parametrize("piece_bytes", [100, 300, 1 << 20])
def test_a_scan_stops_at_damage_and_names_the_place(
    piece_bytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.storage.segment.cache._PIECE_BYTES", piece_bytes)
    batches = batches_from(0, 8)
    size = batches[0].size
    for place in (0, 8, 12, 16, 17, 25, size - 1):
        if place == 12:
            continue  # the leader epoch is outside of the batch's CRC: it takes an index to prove it
        data = bytearray(joined(batches))
        data[3 * size + place] ^= 0x80
        with pytest.raises(
            LogDamaged, match=rf"a\.log: no whole batch at byte {3 * size} \(offset 3 or later\)"
        ):
            scan(bytes(data))


def test_a_segment_shorter_than_it_should_be_is_damage() -> None:
    batches = batches_from(0, 4)
    for missing in (1, batches[0].size - 1, batches[0].size, len(joined(batches))):
        with pytest.raises(LogDamaged):
            scan(joined(batches)[:-missing], length=len(joined(batches)))


def test_offsets_that_go_back_are_damage() -> None:
    batches = batches_from(0, 3)
    with pytest.raises(LogDamaged, match="offset 2 or later"):
        scan(joined([batches[0], batches[1], batches[0]]))
    with pytest.raises(LogDamaged):
        scan(joined(batches), base=1)


def test_an_empty_segment_has_no_span() -> None:
    assert len(scan(b"")) == 0


# ---- whole files


def test_a_small_file_is_read_whole() -> None:
    async def main(disk: SimulatedDisk) -> None:
        await put(disk, "a", b"abc")
        await put(disk, "b", b"")
        assert await read_file(disk, "a") == b"abc"
        assert await read_file(disk, "a", fresh=True) == b"abc"
        assert await read_file(disk, "b") == b""
        assert await read_file(disk, "c") is None

    play(main(new_disk()))
