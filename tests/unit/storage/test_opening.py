"""Looking into batches: what is found, and that a large one does not hold up the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest
from tests.turns import counted_turns

from tailrace.model import Offset
from tailrace.records import (
    DECOMPRESSED_BYTES_MAX,
    Batch,
    BatchError,
    Compression,
    Record,
    UndecodableBatch,
    Visible,
    build_batch,
    read_batch,
)
from tailrace.storage import opening
from tailrace.storage.opening import find_record_at, is_costly, open_nowait, open_records, visit_records

MANY = 200_000


def found(batch: Batch, timestamp_ms: int) -> tuple[Offset, int] | None:
    return asyncio.run(find_record_at(batch, timestamp_ms))


def many(count: int = MANY, *, compression: Compression = Compression.NONE) -> Batch:
    return read_batch(build_batch([(n, b"k", b"", ()) for n in range(count)], compression=compression))


def test_finds_the_first_record_at_a_time_though_timestamps_go_back() -> None:
    batch = read_batch(build_batch([(t, None, b"v", ()) for t in (100, 300, 50, 200, 400)], base_offset=10))
    assert found(batch, 0) == (10, 100)
    assert found(batch, 100) == (10, 100)
    assert found(batch, 101) == (11, 300)
    assert found(batch, 301) == (14, 400)
    assert found(batch, 401) is None


def test_finds_by_append_time() -> None:
    batch = read_batch(build_batch([(1, None, b"v", ())] * 3, base_offset=10, log_append_time_ms=500))
    assert found(batch, 500) == (10, 500)
    assert found(batch, 501) is None


def test_finds_nothing_where_the_header_promises_more_than_the_records_hold() -> None:
    batch = read_batch(build_batch([(5, None, b"v", ())]))
    batch.max_timestamp = 9000
    assert found(batch, 8000) is None


def test_finds_nothing_before_the_start() -> None:
    batch = many(10)
    assert asyncio.run(find_record_at(batch, 0, start=7)) == (7, 7)


@pytest.mark.parametrize("compression", list(Compression))
def test_every_record_is_visited_whatever_the_codec(compression: Compression) -> None:
    offsets: list[int] = []

    def visit(record: Record) -> bool:
        offsets.append(record.offset)
        return record.offset == 1_500

    asyncio.run(visit_records(many(2_000, compression=compression), visit))
    assert offsets == list(range(1_501))


@pytest.mark.parametrize("compression", [Compression.NONE, Compression.ZSTD, Compression.GZIP])
def test_others_get_turns_while_a_large_batch_is_looked_through(compression: Compression) -> None:
    async def main() -> None:
        batch = many(20_000, compression=compression)
        async with counted_turns() as turns:
            await visit_records(batch, lambda _: False)
        assert len(turns) >= 20_000 // 500

    asyncio.run(main())


@pytest.mark.parametrize("how", ["visited", "opened"])
def test_a_large_batch_is_decompressed_by_a_thread_and_no_more_of_it_in_the_loop(
    monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    sizes_in_loop: list[int] = []
    inflate = opening.inflate

    def noted(batch: Batch, *, bytes_max: int = 1 << 60) -> Batch:
        if threading.current_thread() is threading.main_thread():
            sizes_in_loop.append(bytes_max)
        return inflate(batch, bytes_max=min(bytes_max, DECOMPRESSED_BYTES_MAX))

    async def main() -> None:
        batch = read_batch(build_batch([(0, b"k", bytes(1 << 20), ())], compression=Compression.ZSTD))
        if how == "visited":
            await visit_records(batch, lambda _: False)
        else:
            await open_records(Visible(batch, 0, batch.base_offset, batch.next_offset))

    monkeypatch.setattr(opening, "inflate", noted)
    asyncio.run(main())
    assert sizes_in_loop == [256 * 1024], "a bounded part, to see that it is large"


def test_only_a_few_large_batches_are_open_decompressed_at_a_time() -> None:
    count, is_open, most = 60_000, 0, 0
    batch = many(count, compression=Compression.ZSTD)

    def visit(record: Record) -> bool:
        nonlocal is_open, most
        is_open += (record.offset == 0) - (record.offset == count - 1)
        most = max(most, is_open)
        return False

    async def main() -> None:
        await asyncio.gather(*(visit_records(batch, visit) for _ in range(8)))

    asyncio.run(main())
    assert most == 2 and is_open == 0


def shown(batch: Batch, first: int, end: int) -> Visible:
    return Visible(batch, first, end, 0)


@pytest.mark.parametrize("compression", list(Compression))
@pytest.mark.parametrize(("first", "end"), [(0, 2_000), (3, 9), (1_700, 1_702)])
def test_the_visible_records_are_opened_at_once_or_beside(
    compression: Compression, first: int, end: int
) -> None:
    visible = shown(many(2_000, compression=compression), first, end)
    opened = asyncio.run(open_records(visible))
    assert [record.offset for record in opened.records] == list(range(first, end))
    assert (opened.size > 0) == (compression is not Compression.NONE)
    at_once = open_nowait(visible)
    assert (at_once is None) == (first == 1_700), "those before the first are decoded too"
    if at_once is not None:
        assert at_once.size == opened.size
        assert [record.offset for record in at_once.records] == list(range(first, end))


@pytest.mark.parametrize("compression", [each for each in Compression if each is not Compression.NONE])
def test_a_batch_that_decompresses_to_much_is_not_opened_at_once(compression: Compression) -> None:
    batch = read_batch(build_batch([(0, b"k", bytes(4 << 20), ())], compression=compression))
    visible = shown(batch, 0, 1)
    assert open_nowait(visible) is None
    opened = asyncio.run(open_records(visible))
    assert opened.size > 4 << 20
    assert [len(record.value or b"") for record in opened.records] == [4 << 20]


def test_others_get_turns_until_the_first_record_of_a_large_batch_is_there() -> None:
    async def main() -> None:
        batch = many(20_000)
        async with counted_turns() as turns:
            opened = await open_records(shown(batch, 19_999, 20_000))
        assert len(turns) >= 19_999 // 500
        assert [record.offset for record in opened.records] == [19_999]

    asyncio.run(main())


def test_a_batch_that_makes_no_sense_is_told_apart() -> None:
    data = build_batch([(5, b"k", b"v" * 1_000, ())] * 100, compression=Compression.ZSTD)
    data[70:] = b"\xff" * len(data[70:])
    batch = read_batch(data)
    with pytest.raises(UndecodableBatch):
        found(batch, 0)
    with pytest.raises(BatchError):
        asyncio.run(visit_records(batch, lambda _: False))


def test_small_plain_batches_are_cheap_and_others_costly() -> None:
    assert not is_costly(many(10)) and is_costly(many(1_000))
    assert is_costly(many(400, compression=Compression.GZIP))
    assert not is_costly(many(3, compression=Compression.ZSTD))
