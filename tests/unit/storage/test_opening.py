"""Looking into batches: what is found, and that a large one does not hold up the loop."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.model import Offset
from tailrace.records import Batch, BatchError, Compression, Record, UndecodableBatch, build_batch, read_batch
from tailrace.storage.opening import find_record_at, is_costly, visit_records

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
        turns = 0

        async def count_turns() -> None:
            nonlocal turns
            while True:
                turns += 1
                await asyncio.sleep(0)

        counting = asyncio.create_task(count_turns())
        await visit_records(many(20_000, compression=compression), lambda _: False)
        counting.cancel()
        assert turns >= 20_000 // 500

    asyncio.run(main())


def test_only_a_few_batches_are_open_decompressed_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    is_open = most = 0
    batch = many(2_000, compression=Compression.ZSTD)

    def records_of(opened: Batch) -> object:
        nonlocal is_open, most
        is_open += 1
        most = max(most, is_open)
        yield from opened.records()
        is_open -= 1

    async def main() -> None:
        await asyncio.gather(
            *(visit_records(batch, lambda _: False, records_of=records_of) for _ in range(8))  # type: ignore[arg-type]
        )

    asyncio.run(main())
    assert most <= 2 and is_open == 0


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
