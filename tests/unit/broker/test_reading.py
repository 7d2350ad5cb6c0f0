"""Pages of records: random partitions in memory, read to the end page by page; bounds and damage."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Sequence

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tests.turns import counted_turns

from tailrace.broker import NewTopic, Partition
from tailrace.broker.reading import (
    Cursor,
    Found,
    Page,
    PageLimits,
    read_page,
)
from tailrace.broker.unreadable import Unreadable
from tailrace.model import LogDamaged, Offset, OffsetOutOfRange
from tailrace.records import BatchFields, Compression, NewRecord, build_batch, crc32c, read_batch
from tailrace.storage.api import Slice
from tailrace.storage.opening import Opened, inflate

from .conftest import Play, Rig, opened

MANY = 10**9


def limits(
    *,
    records: int = MANY,
    size: int = MANY,
    scanned: int = MANY,
    scanned_bytes: int = MANY,
    held: int = MANY,
) -> PageLimits:
    return PageLimits(
        records_max=records,
        bytes_max=size,
        scanned_max=scanned,
        scanned_bytes_max=scanned_bytes,
        held_bytes_max=held,
    )


async def partitions_of(rig: Rig, count: int = 1) -> list[Partition]:
    """Of a topic that keeps what is old: times are small here."""
    new = NewTopic(name="t", partitions=count, configs={"retention.ms": "-1"})
    return (await rig.topics.create(new)).partitions


def put(partition: Partition, times: Sequence[int], *, gap: int = 0, **fields: object) -> None:
    """Append a batch with a record for each time, after so many offsets that are not there."""
    records: list[NewRecord] = [(time, b"k", b"%d" % time, ()) for time in times]
    given: BatchFields = {"base_offset": partition.end_offset + gap, "leader_epoch": 0, **fields}  # type: ignore[typeddict-item]
    log = partition.log
    assert log is not None
    log.append(read_batch(build_batch(records, **given)))


def put_garbage(partition: Partition) -> None:
    """A batch as a producer may send it: header and checksum are right, and what it holds is no record."""
    data = build_batch([(5, b"k", b"value", ())], base_offset=partition.end_offset, leader_epoch=0)
    data[61:] = b"\xff" * len(data[61:])
    data[17:21] = crc32c(memoryview(data)[21:]).to_bytes(4, "big")
    log = partition.log
    assert log is not None
    log.append(read_batch(data))


def places(found: Sequence[Found]) -> list[tuple[int, int]]:
    return [(each.partition, each.record.offset) for each in found]


def positions(cursors: Sequence[Cursor]) -> list[int]:
    return [each.position for each in cursors]


async def read_all(partitions: Sequence[Partition], bounds: PageLimits) -> list[Page]:
    """Page after page, each from where the one before ended, until there is nothing."""
    cursors = [Cursor(each, each.start_offset) for each in partitions]
    pages: list[Page] = []
    while True:
        page = await read_page(cursors, bounds)
        if not page.records:
            return pages
        pages.append(page)
        cursors = [Cursor(each.partition, each.position) for each in cursors]


# ---- merging

times = st.lists(st.integers(0, 50), min_size=1, max_size=6)
batches = st.tuples(times, st.integers(0, 3), st.sampled_from(Compression), st.booleans())


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.lists(st.lists(batches, max_size=5), min_size=1, max_size=4),
    st.integers(1, 7),
    st.sampled_from([0, 100, MANY]),
)
def test_pages_together_are_every_record_once_and_in_the_order_of_its_partition(
    logs: list[list[tuple[list[int], int, Compression, bool]]], records: int, held: int
) -> None:
    async def main() -> None:
        async with opened() as rig:
            partitions = await partitions_of(rig, len(logs))
            expected: list[list[int]] = []
            for partition, parts in zip(partitions, logs, strict=True):
                offsets: list[int] = []
                for when, gap, codec, control in parts:
                    first = partition.end_offset + gap
                    put(partition, when, gap=gap, compression=codec, control=control)
                    offsets += [] if control else range(first, first + len(when))
                expected.append(offsets)
            pages = await read_all(partitions, limits(records=records, held=held))
            assert all(len(page.records) <= records for page in pages)
            found = [place for page in pages for place in places(page.records)]
            for index, offsets in enumerate(expected):
                assert [offset for partition, offset in found if partition == index] == offsets

    asyncio.run(asyncio.wait_for(main(), 120))


def test_records_of_several_partitions_come_by_time(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        first, second = await partitions_of(rig, 2)
        put(first, [10, 30, 50])
        put(second, [20, 30, 60])
        cursors = [Cursor(second, 0), Cursor(first, 0)]
        page = await read_page(cursors, limits(records=4))
        assert places(page.records) == [(0, 0), (1, 0), (0, 1), (1, 1)]
        assert positions(cursors) == [2, 2]
        assert (page.scanned, page.bytes) == (4, 4 * 3)

    play(scenario)


@pytest.mark.parametrize("held", [0, MANY])
def test_a_partition_whose_bytes_were_forgotten_goes_on_where_it_was(play: Play, held: int) -> None:
    async def scenario(rig: Rig) -> None:
        first, second = await partitions_of(rig, 2)
        put(first, [1, 3, 5, 7], compression=Compression.ZSTD)
        put(second, [2, 4, 6, 8])
        page = await read_page([Cursor(first, 0), Cursor(second, 0)], limits(held=held))
        assert [each.record.timestamp for each in page.records] == [1, 2, 3, 4, 5, 6, 7, 8]

    play(scenario)


def test_cursors_hold_no_more_than_they_may(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partitions = await partitions_of(rig, 20)
        for each in partitions:
            records: list[NewRecord] = [(n, None, bytes(20_000), ()) for n in range(5)]
            each.append(read_batch(build_batch(records, compression=Compression.GZIP)))
        cursors = [Cursor(each, 0) for each in partitions]
        page = await read_page(cursors, limits(records=30, held=250_000))
        assert len(page.records) == 30
        assert sum(each.held_bytes for each in cursors) < 400_000  # one more than fits, and not twenty

    play(scenario)


# ---- bounds


def test_a_page_ends_with_its_bytes_but_has_one_record(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put(partition, [100, 200, 300])  # of four bytes each
        cursor = Cursor(partition, 0)
        assert places((await read_page([cursor], limits(size=8))).records) == [(0, 0), (0, 1)]
        assert cursor.position == 2
        assert places((await read_page([cursor], limits(size=1))).records) == [(0, 2)]

    play(scenario)


def test_what_is_not_wanted_is_scanned_up_to_a_bound_and_gone_on_from(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        for first in range(0, 100, 10):
            put(partition, range(first, first + 10))
        cursor = Cursor(partition, 0)
        page = await read_page([cursor], limits(scanned=30), accept=lambda record: record.timestamp == 35)
        assert (page.records, page.scanned, cursor.position) == ([], 30, 30)
        page = await read_page([cursor], limits(scanned=30), accept=lambda record: record.timestamp == 35)
        assert (places(page.records), page.scanned, cursor.position) == ([(0, 35)], 30, 60)
        page = await read_page([cursor], limits(scanned_bytes=15), accept=lambda _: False)
        assert page.scanned == 5

    play(scenario)


def test_the_end_and_what_is_not_there(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put(partition, [1, 2])
        cursor = Cursor(partition, 2)
        assert not (await read_page([cursor], limits())).records
        put(partition, [3])
        assert places((await read_page([cursor], limits())).records) == [(0, 2)]
        with pytest.raises(OffsetOutOfRange):
            await read_page([Cursor(partition, 9)], limits())
        await partition.delete_records(2)
        with pytest.raises(OffsetOutOfRange):
            await read_page([Cursor(partition, 0)], limits())

    play(scenario)


def test_the_time_is_said_to_be_the_brokers_where_it_is(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put(partition, [1])
        put(partition, [1], log_append_time_ms=7)
        page = await read_page([Cursor(partition, 0)], limits())
        assert [(each.append_time, each.record.timestamp) for each in page.records] == [(False, 1), (True, 7)]

    play(scenario)


def test_a_page_ends_where_the_rest_was_deleted_meanwhile(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found is shown; the next read says that its place is gone."""
    read = Partition.read

    async def read_and_delete(
        self: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
    ) -> Slice:
        if offset == 500:
            await self.delete_records(1000)
        return await read(self, offset, bytes_max=bytes_max, up_to=up_to)

    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        for _ in range(4):
            put(partition, range(500))
        monkeypatch.setattr(Partition, "read", read_and_delete)
        cursor = Cursor(partition, 0)
        small = limits(size=4096)  # a batch at a time is read
        assert len((await read_page([cursor], small)).records) == 500
        assert cursor.position == 500
        with pytest.raises(OffsetOutOfRange, match="offset 500 is not in the log, which holds 1000 to 2000"):
            await read_page([Cursor(partition, cursor.position)], small)

    play(scenario)


# ---- damage


def test_what_is_no_record_is_told_with_its_place_after_what_is_before_it(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put(partition, [1, 2])
        put_garbage(partition)
        put(partition, [4])
        cursor = Cursor(partition, 0)
        assert len((await read_page([cursor], limits())).records) == 2
        with pytest.raises(Unreadable, match=r"t-0 cannot be read at offset 2: .* from offset 3") as told:
            await read_page([Cursor(partition, cursor.position)], limits())
        assert (told.value.partition, told.value.offset, told.value.next_offset) == (0, 2, 3)
        assert places((await read_page([Cursor(partition, 3)], limits())).records) == [(0, 3)]

    play(scenario)


def test_what_was_read_is_let_go_with_an_error(play: Play) -> None:
    """Not when the collector comes: an error knows the frames that it came through, and those the cursors."""

    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put_garbage(partition)
        errors = []
        try:
            await read_page([Cursor(partition, 0)], limits())
        except Unreadable as error:
            errors.append(weakref.ref(error))
        assert [each() for each in errors] == [None]

    gc.disable()
    try:
        play(scenario)
    finally:
        gc.enable()


def test_a_bad_partition_does_not_keep_the_others_from_being_read(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        bad, good = await partitions_of(rig, 2)
        put_garbage(bad)
        put(good, [1, 2])
        cursors = [Cursor(bad, 0), Cursor(good, 0)]
        assert places((await read_page(cursors, limits())).records) == [(1, 0), (1, 1)]
        assert positions(cursors) == [0, 2]

    play(scenario)


def test_damage_on_the_disk_is_told_with_its_place(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def damaged(
        self: Partition, offset: Offset, *, bytes_max: int, up_to: Offset | None = None
    ) -> Slice:
        raise LogDamaged("segment 7 is not what was written")

    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put(partition, [1])
        monkeypatch.setattr(Partition, "read", damaged)
        with pytest.raises(Unreadable, match="t-0 cannot be read at offset 0: segment 7") as told:
            await read_page([Cursor(partition, 0)], limits())
        assert told.value.next_offset is None

    play(scenario)


def test_a_page_ends_at_the_last_stable_offset(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        for _ in range(3):
            put(partition, [1, 1])
        partition.last_stable_offset = Offset(4)
        cursor = Cursor(partition, 1)
        assert places((await read_page([cursor], limits())).records) == [(0, 1), (0, 2), (0, 3)]
        assert cursor.position == 4
        assert (await read_page([cursor], limits())).records == []
        assert cursor.position == 4
        partition.last_stable_offset = partition.high_watermark
        assert places((await read_page([cursor], limits())).records) == [(0, 4), (0, 5)]

    play(scenario)


# ---- small parts


@pytest.mark.parametrize("codec", list(Compression))
def test_an_inflated_batch_is_the_same_without_compression(codec: Compression) -> None:
    batch = read_batch(build_batch([(n, b"k", b"v" * 50, ()) for n in range(9)], compression=codec))
    opened = inflate(batch)
    plain = build_batch([(n, b"k", b"v" * 50, ()) for n in range(9)])
    assert opened.data[21:] == plain[21:]
    assert (opened.compression, opened.size) == (Compression.NONE, len(plain))
    assert list(opened.records()) == list(batch.records())


def test_a_large_page_waits_for_its_permit_and_holds_nothing_meanwhile(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        partitions = await partitions_of(rig, 3)
        for number in range(30):
            records: list[NewRecord] = [(number, b"k", bytes(10_000), ())]
            log = partitions[number % 3].log
            assert log is not None
            log.append(read_batch(build_batch(records, base_offset=log.end_offset, leader_epoch=0)))
        cursors = [Cursor(each, 0) for each in partitions]
        asked: list[int] = []

        async def permit() -> None:
            asked.append(sum(each.held_bytes for each in cursors))

        page = await read_page(cursors, limits(records=6), permit=permit)
        assert len(page.records) == 6 and asked == []
        page = await read_page(cursors, limits(), permit=permit)
        assert asked == [0]
        assert sorted(places(page.records)) == [(n, offset) for n in range(3) for offset in range(2, 10)]
        assert [each.record.timestamp for each in page.records] == list(range(6, 30))

    play(scenario)


def test_what_a_permit_raises_ends_the_page(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        log = partition.log
        assert log is not None
        log.append(read_batch(build_batch([(1, None, bytes(100_000), ())], leader_epoch=0)))

        async def refuse() -> None:
            raise TimeoutError

        with pytest.raises(TimeoutError):
            await read_page([Cursor(partition, 0)], limits(), permit=refuse)

    play(scenario)


# ---- large batches


def put_large(partition: Partition, *, size: int = (64 << 20) - 1024) -> None:
    """A batch that decompresses to almost as much as any batch may, and a small one."""
    log = partition.log
    assert log is not None
    for value in (bytes(size), b"next"):
        given: BatchFields = {
            "base_offset": partition.end_offset,
            "leader_epoch": 0,
            "compression": Compression.GZIP,
        }
        records: list[NewRecord] = [(5, b"k", value, ())]
        log.append(read_batch(build_batch(records, **given)))


def test_the_loop_keeps_turning_while_a_large_batch_is_opened(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put_large(partition)
        cursor = Cursor(partition, 0)
        async with counted_turns() as turns:
            page = await read_page([cursor], limits())
        assert places(page.records) == [(0, 0), (0, 1)]
        assert page.bytes > 60 << 20
        assert len(turns) > 3  # else it had none, or the two before and after

    play(scenario)


def test_the_loop_keeps_turning_on_the_way_to_the_middle_of_a_batch(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put(partition, range(20_000))
        cursor = Cursor(partition, 19_998)
        async with counted_turns() as turns:
            page = await read_page([cursor], limits())
        assert places(page.records) == [(0, 19_998), (0, 19_999)]
        assert len(turns) >= 19_998 // 500

    play(scenario)


def test_the_loop_keeps_turning_while_a_page_of_small_records_is_read(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig, 1)
        log = partition.log
        assert log is not None
        records: list[NewRecord] = [(5, b"k", b"v", ())] * 5_000
        log.append(read_batch(build_batch(records, leader_epoch=0)))
        async with counted_turns() as turns:
            found = await read_page([Cursor(partition, 0)], limits())
        assert len(found.records) == 5_000
        assert len(turns) >= 4

    play(scenario)


def test_pages_of_large_batches_are_read_two_at_a_time(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        partitions = await partitions_of(rig, 2)
        for partition in partitions:
            put_large(partition, size=1 << 20)
        pages = [[Cursor(each, 0) for each in partitions] for _ in range(8)]
        most, hold = 0, Cursor._hold

        def noted(cursor: Cursor, opened: Opened) -> None:
            nonlocal most
            hold(cursor, opened)
            most = max(most, sum(any(each.held_bytes > 1 << 20 for each in page) for page in pages))

        monkeypatch.setattr(Cursor, "_hold", noted)
        found = await asyncio.gather(*(read_page(page, limits(held=8 << 20)) for page in pages))
        for page in found:
            assert sorted(places(page.records)) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        assert 0 < most <= 2
        assert not any(each.held_bytes > 1 << 20 for page in pages for each in page)

    play(scenario)


def test_a_page_of_large_batches_waits_for_its_permit_without_a_place(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put_large(partition, size=1 << 20)
        asked = asyncio.Event()
        go_on = asyncio.Event()

        async def permit() -> None:
            asked.set()
            await go_on.wait()

        waiting = [
            asyncio.create_task(read_page([Cursor(partition, 0)], limits(), permit=permit)) for _ in range(3)
        ]
        await asked.wait()
        assert len((await read_page([Cursor(partition, 0)], limits())).records) == 2
        go_on.set()
        assert [len((await each).records) for each in waiting] == [2, 2, 2]

    play(scenario)


def test_a_read_that_is_given_up_leaves_its_place(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        (partition,) = await partitions_of(rig)
        put_large(partition, size=1 << 20)
        for _ in range(3):
            reading = asyncio.create_task(read_page([Cursor(partition, 0)], limits()))
            for _ in range(10):
                await asyncio.sleep(0)
            reading.cancel()
            await asyncio.wait([reading])
        assert len((await read_page([Cursor(partition, 0)], limits())).records) == 2

    play(scenario)
