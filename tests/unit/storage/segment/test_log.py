"""One partition's log on a simulated disk: what the conformance suite cannot see from outside."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from uuid import UUID

import pytest
from tests.time_limit import deadline

from tailrace.model import (
    BrokerError,
    Epoch,
    ErrorCode,
    LogBusy,
    LogDamaged,
    LogTruncated,
    Offset,
    OffsetOutOfRange,
    PartitionId,
    StorageError,
)
from tailrace.records import Batch, build_batch, iter_batches, read_batch
from tailrace.storage import LogConfig, ProducerStates
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.storage.segment.reading import LogReader, Step
from tailrace.testing.simulation import SimulatedClock, SimulatedDisk, SimulatedLoop

CONFIG = DirectoryConfig(
    journal_file_bytes=256 * 1024,
    journal_bytes_max=3 * 256 * 1024,
    checkpoint_bytes=256 * 1024,
    round_bytes_max=20_000,
    free_bytes_min=0,
)
NO_TAIL = DirectoryConfig(
    journal_file_bytes=256 * 1024,
    journal_bytes_max=3 * 256 * 1024,
    checkpoint_bytes=256 * 1024,
    round_bytes_max=20_000,
    tail_bytes_max=0,
    free_bytes_min=0,
)
FIRST = PartitionId(UUID(int=7), 0)


def batch(
    count: int = 1,
    *,
    offset: int = 0,
    epoch: int = 0,
    value: bytes = b"v" * 40,
    producer: int = -1,
    sequence: int = -1,
) -> Batch:
    data = build_batch(
        [(offset, None, value, ())] * count,
        base_offset=offset,
        leader_epoch=epoch,
        producer_id=producer,
        producer_epoch=min(producer, 0),
        base_sequence=sequence,
    )
    return read_batch(data)


Scenario = Callable[[SegmentStorage, SegmentLog], Awaitable[None]]


def play(
    scenario: Scenario,
    *,
    config: DirectoryConfig = CONFIG,
    log_config: LogConfig | None = None,
    seed: int = 1,
    disk: SimulatedDisk | None = None,
) -> SimulatedDisk:
    """Run a scenario over a new log, or over the one that `disk` already holds."""

    async def main() -> None:
        storage = SegmentStorage(found, "sim", config=config, clock=SimulatedClock(loop), rng=found.rng)
        await storage.start()
        log = storage.get(FIRST)
        if log is None:
            log = await storage.create(FIRST, log_config or LogConfig())
            await storage.wait_applied()
        await scenario(storage, log)

    found = disk or SimulatedDisk(random.Random(seed))
    with SimulatedLoop() as loop:
        loop.run(main())
    return found


async def append(log: SegmentLog, count: int, *, epoch: int = 0) -> None:
    """So many batches of one record each, durably."""
    for _ in range(count):
        log.append(batch(), leader_epoch=Epoch(epoch))
    await log.wait_durable(log.end_offset)


async def offsets(log: SegmentLog, start: int = 0) -> list[tuple[int, int]]:
    """Offset and epoch of every batch, read one at a time."""
    found, place = [], Offset(start)
    while place < log.durable_offset:
        piece = await log.read(place, bytes_max=1, up_to=log.durable_offset)
        found += [(int(b.base_offset), int(b.leader_epoch)) for b in iter_batches(await piece.load())]
        assert piece.next_offset > place, f"a read at {place} leads nowhere"
        place = piece.next_offset
    return found


# ---- places


def test_a_segment_is_full_when_the_next_batch_would_pass_its_size() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 10)
        await storage.wait_applied()
        assert list(log.segments) == [0, 3, 6, 9]
        assert all(segment.length <= 3 * batch().size for segment in log.segments.values())
        assert await offsets(log) == [(n, 0) for n in range(10)]

    play(scenario, log_config=LogConfig(segment_bytes=3 * batch().size))


def test_a_batch_larger_than_a_segment_has_one_of_its_own() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        for size in (10, 5000, 10):
            log.append(batch(value=bytes(size)), leader_epoch=Epoch(0))
        await log.wait_durable(Offset(3))
        await storage.wait_applied()
        assert list(log.segments) == [0, 1, 2]

    play(scenario, log_config=LogConfig(segment_bytes=1000))


def test_an_old_segment_is_rolled_by_the_next_append() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 2)
        await asyncio.sleep(59)
        await storage.maintain()
        await append(log, 1)
        await asyncio.sleep(2)
        await storage.maintain()
        await append(log, 2)
        await storage.wait_applied()
        assert list(log.segments) == [0, 3]

    play(scenario, log_config=LogConfig(segment_ms=60_000, retention_ms=-1))


def test_an_empty_segment_does_not_age() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await asyncio.sleep(1000)
        await storage.maintain()
        await append(log, 1)
        await storage.wait_applied()
        assert list(log.segments) == [0]

    play(scenario, log_config=LogConfig(segment_ms=60_000))


@pytest.mark.parametrize("start", [0, 5, 1 << 31, 5_000_000_000, 1 << 60])
def test_a_follower_may_begin_anywhere(start: int) -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        for place in (start, start + 3, start + 6):
            log.append(batch(3, offset=place))
        await log.wait_durable(Offset(start + 9))
        await storage.checkpoint()
        assert await offsets(log, start) == [(start, 0), (start + 3, 0), (start + 6, 0)]

    play(scenario, config=NO_TAIL, log_config=LogConfig(index_interval_bytes=100))


def test_a_batch_that_is_far_ahead_begins_another_segment() -> None:
    """Offsets within a segment are kept in 32 bits."""

    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        for place in (0, 10, 3_000_000_000, 9_000_000_000):
            log.append(batch(offset=place))
        await log.wait_durable(Offset(9_000_000_001))
        await storage.checkpoint()
        assert list(log.segments) == [0, 3_000_000_000, 9_000_000_000]
        assert [o for o, _ in await offsets(log)] == [0, 10, 3_000_000_000, 9_000_000_000]

    play(scenario, config=NO_TAIL, log_config=LogConfig(index_interval_bytes=100))


def test_a_followers_batch_below_the_end_is_refused() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 3)
        with pytest.raises(BrokerError, match="ends at 3") as refused:
            log.append(batch(offset=2))
        assert refused.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert log.end_offset == 3

    play(scenario)


# ---- what an append is refused for


def test_a_batch_over_the_journals_bound_is_refused() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        with pytest.raises(BrokerError, match="raise journal_file_bytes") as refused:
            log.append(batch(value=bytes(CONFIG.batch_bytes_max)), leader_epoch=Epoch(0))
        assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE
        await append(log, 1)
        assert await offsets(log) == [(0, 0)]

    play(scenario)


def test_more_than_may_wait_is_refused_until_some_is_durable() -> None:
    config = DirectoryConfig(
        journal_file_bytes=256 * 1024,
        journal_bytes_max=3 * 256 * 1024,
        round_bytes_max=20_000,
        queue_bytes_max=10_000,
        free_bytes_min=0,
    )

    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        taken = 10_000 // batch().size
        for _ in range(taken):
            log.append(batch(), leader_epoch=Epoch(0))
        with pytest.raises(LogBusy) as refused:
            log.append(batch(), leader_epoch=Epoch(0))
        assert refused.value.retriable
        assert storage.directory.queued_bytes <= 10_000
        assert log.end_offset == taken
        await log.wait_durable(Offset(taken))
        assert storage.directory.queued_bytes == 0
        await append(log, 1)
        assert len(await offsets(log)) == taken + 1

    play(scenario, config=config)


def test_a_refused_append_changes_nothing() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 2)
        directory = storage.directory
        before = (log.end_offset, directory.tail_bytes, directory.queued_bytes, log.epochs.copy())
        directory.queue_bytes_max = 0
        for refused in (
            batch(producer=3, sequence=0),
            batch(offset=1),
            batch(value=bytes(CONFIG.batch_bytes_max)),
        ):
            with pytest.raises(BrokerError):
                log.append(refused, leader_epoch=Epoch(9))
        assert (log.end_offset, directory.tail_bytes, directory.queued_bytes, log.epochs) == before
        assert 3 not in log.producers

    play(scenario)


def test_a_closed_log_refuses_and_stays_closed() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        log.append(batch(), leader_epoch=Epoch(0))
        await log.close()
        assert log.durable_offset == 1
        await log.close()
        with pytest.raises(StorageError, match="closed"):
            log.append(batch(), leader_epoch=Epoch(0))
        with pytest.raises(StorageError, match="closed"):
            await log.read(Offset(0), bytes_max=10, up_to=log.durable_offset)
        with pytest.raises(StorageError, match="closed"):
            await log.wait_durable(Offset(2))

    play(scenario)


# ---- waiting


def test_a_waiter_whose_offset_is_cut_off_is_told() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 3)
        async with storage.directory.apply_lock:
            log.append(batch(2), leader_epoch=Epoch(0))
            cut_off = asyncio.ensure_future(log.wait_durable(Offset(5)))
            ahead = asyncio.ensure_future(log.wait_durable(Offset(9)))
            await asyncio.sleep(0)
            await log.truncate(Offset(2))
            # By then it was durable, or it never will be.
            outcome = (await asyncio.gather(cut_off, return_exceptions=True))[0]
            assert outcome is None or isinstance(outcome, LogTruncated)
            assert not ahead.done()
        await append(log, 7)
        await ahead

    for seed in range(20):
        play(scenario, seed=seed)


def test_waiters_are_served_in_order_of_offset() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        served: list[int] = []

        async def wait(end: int) -> None:
            await log.wait_durable(Offset(end))
            served.append(end)

        waiting = [asyncio.ensure_future(wait(end)) for end in (5, 1, 3, 3)]
        await asyncio.sleep(0)
        await append(log, 2)
        await asyncio.sleep(0)
        assert served == [1]
        await append(log, 3)
        await asyncio.gather(*waiting)
        assert served == [1, 3, 3, 5]

    play(scenario)


def test_waiters_that_gave_up_are_forgotten() -> None:
    """A reader that waits with a deadline, again and again, must not fill the memory of an idle log."""

    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        for _ in range(200):
            with pytest.raises(TimeoutError):
                await asyncio.wait_for(log.wait_durable(Offset(1)), 0.5)
        assert len(log._waiters) < 100

    play(scenario)


# ---- reading


def test_a_limit_decides_whether_what_is_not_durable_is_read() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 2)
        log.append(batch(), leader_epoch=Epoch(0))
        assert (log.durable_offset, log.end_offset) == (2, 3)
        for offset, up_to, size, next_offset in (
            (2, 2, 0, 2),
            (3, 2, 0, 3),
            (0, 2, 2 * batch().size, 2),
            (2, 3, batch().size, 3),
            (0, 3, 3 * batch().size, 3),
            (3, 3, 0, 3),
        ):
            found = log.read_nowait(Offset(offset), bytes_max=10_000, up_to=Offset(up_to))
            assert found is not None
            assert (found.size, found.next_offset) == (size, next_offset)
        with pytest.raises(OffsetOutOfRange) as refused:
            log.read_nowait(Offset(4), bytes_max=100, up_to=log.durable_offset)
        assert (refused.value.start, refused.value.end) == (0, 2)

    play(scenario)


@pytest.mark.parametrize("looks", ["read", "find_timestamp"])
def test_a_truncation_beside_a_cold_reader_shows_it_nothing_that_is_not_durable(
    looks: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit was said of other batches than those that take the offsets below it."""
    fulfil = LogReader._fulfil

    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 20)
        await storage.close()

    async def race(storage: SegmentStorage, log: SegmentLog) -> None:
        async def cut(reader: LogReader, step: Step) -> memoryview | None:
            """While the reader waits for the disk, other batches take the offsets from 8 on."""
            monkeypatch.setattr(LogReader, "_fulfil", fulfil)
            found, is_cut = await fulfil(reader, step), asyncio.Event()
            log.on_change = is_cut.set
            cutting.append(asyncio.ensure_future(log.truncate(Offset(8))))
            await is_cut.wait()
            for _ in range(12):
                log.append(batch(offset=5), leader_epoch=Epoch(1))
            assert (log.durable_offset, log.end_offset) == (8, 20)
            return found

        cutting: list[asyncio.Future[None]] = []
        monkeypatch.setattr(LogReader, "_fulfil", cut)
        if looks == "read":
            piece = await log.read(Offset(9), bytes_max=1 << 20, up_to=Offset(20))
            shown = piece.next_offset
            assert {int(each.leader_epoch) for each in iter_batches(await piece.load())} <= {1}
        else:
            found = await log.find_timestamp(5, up_to=Offset(20))
            shown = Offset(9) if found is None else Offset(found.offset + 1)
        assert shown <= max(log.durable_offset, 9)
        await asyncio.gather(*cutting)
        assert len(cutting) == 1

    disk = play(fill, config=NO_TAIL, log_config=LogConfig(segment_bytes=1500))  # one of two is cold
    disk.kill()
    play(race, config=NO_TAIL, disk=disk)


@pytest.mark.parametrize("seed", range(8))
def test_hot_and_cold_reads_agree(seed: int) -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        rng = random.Random(seed)
        for _ in range(80):
            log.append(batch(rng.randrange(1, 4), value=bytes(rng.randrange(120))), leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)
        wanted = {n: await raw(log, n, bytes_max=700) for n in range(log.end_offset)}
        await storage.checkpoint()
        assert len(log.tail) < 10
        for offset, data in wanted.items():
            found = await raw(log, offset, bytes_max=700)
            assert found
            assert found.startswith(data) or data.startswith(found)

    play(
        scenario,
        config=NO_TAIL,
        log_config=LogConfig(segment_bytes=2000, index_interval_bytes=300),
        seed=seed,
    )


async def raw(log: SegmentLog, offset: int, *, bytes_max: int) -> bytes:
    return await (await log.read(Offset(offset), bytes_max=bytes_max, up_to=log.durable_offset)).load()


@pytest.mark.parametrize("bytes_max", [1, 250, 100_000])
@pytest.mark.parametrize("cold", [False, True])
def test_damaged_bytes_are_served_to_no_read_wherever_it_begins_or_ends(bytes_max: int, cold: bool) -> None:
    """Small batches share a span: a read that begins or ends inside one is checked like any other."""

    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        for number in range(16):
            log.append(batch(value=b"%02d" % number * (1 if number % 5 else 40)), leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)
        await storage.wait_applied()
        whole = {offset: await raw(log, offset, bytes_max=1) for offset in range(16)}
        assert log.applied_segment is not None and log.applied_segment.index is not None
        index, path = log.applied_segment.index, log.segment_path(0)
        closed = Offset(index.closed_offset)
        assert log.tail.first_offset == closed, "the files are read up to there"
        for position in range(0, index.closed_position, 5):
            disk.flip_bit(path, position=position, bit=position % 8)
            refused = 0
            for offset in map(Offset, range(closed)):
                try:
                    found = await served(log, offset)
                except LogDamaged:
                    refused += 1
                else:
                    for each in iter_batches(found):
                        assert bytes(each.data) == whole.get(each.base_offset), (
                            f"byte {position}, from {offset}"
                        )
            assert refused, f"byte {position} is damaged, and all that holds it was served"
            disk.flip_bit(path, position=position, bit=position % 8)

    async def served(log: SegmentLog, offset: Offset) -> bytes:
        piece = None
        if not cold:
            piece = log.read_nowait(offset, bytes_max=bytes_max, up_to=log.durable_offset)
        if piece is None:
            piece = await log.read(offset, bytes_max=bytes_max, up_to=log.durable_offset)
        return bytes(await piece.load())

    disk = SimulatedDisk(random.Random(1))
    disk.cold_chance = 1.0 if cold else 0.0
    play(scenario, config=NO_TAIL, log_config=LogConfig(index_interval_bytes=400), disk=disk)


def test_a_gap_that_a_truncation_left_at_the_end_leads_to_the_end() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        log.append(batch(5, offset=0))
        log.append(batch(5, offset=10))
        await log.wait_durable(Offset(15))
        await log.truncate(Offset(7))
        assert (log.end_offset, log.durable_offset) == (7, 7)
        for settle in (False, True):
            if settle:
                await storage.checkpoint()
            found = await log.read(Offset(5), bytes_max=100, up_to=log.durable_offset)
            assert (found.size, found.next_offset) == (0, 7)
            assert await asyncio.wait_for(log.find_timestamp(1 << 40, up_to=log.durable_offset), 10) is None
        await append(log, 1)
        assert [o for o, _ in await offsets(log)] == [0, 7]

    for config in (CONFIG, NO_TAIL):
        play(scenario, config=config)


@pytest.mark.parametrize(
    "interval_bytes",
    [100, 1 << 20],
    ids=["many spans", "one span"],
)
def test_a_truncation_into_a_gap_between_segments_leaves_both_sides_readable(interval_bytes: int) -> None:
    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        for place in (0, 20):
            log.append(batch(5, offset=place))
        await log.wait_durable(Offset(25))
        await storage.checkpoint()
        await log.truncate(Offset(7))
        await append(log, 10)
        await storage.checkpoint()
        assert [o for o, _ in await offsets(log)] == wanted

    async def look(storage: SegmentStorage, log: SegmentLog) -> None:
        for start in (0, 4, 5, 6, 7):
            assert [o for o, _ in await offsets(log, start)] == [o for o in wanted if o > start - 5]

    wanted = [0, *range(7, 17)]
    log_config = LogConfig(segment_bytes=400, index_interval_bytes=interval_bytes)
    disk = play(fill, config=NO_TAIL, log_config=log_config)
    disk.kill()
    play(look, config=NO_TAIL, disk=disk)


@pytest.mark.parametrize("seed", range(10))
def test_a_time_is_found_while_batches_leave_memory(seed: int) -> None:
    """They go from the tail to the files behind the back of a lookup that has passed the files already."""

    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        for timestamp in [0] * 12 + [5] * 6:
            if timestamp and log.end_offset == 12:
                await log.wait_durable(Offset(12))
                await storage.checkpoint()
            made = read_batch(build_batch([(timestamp, None, bytes(900), ())]))
            log.append(made, leader_epoch=Epoch(0))
        await log.wait_durable(Offset(18))
        assert await log.find_timestamp(5, up_to=log.durable_offset) == (12, 5)

    config = DirectoryConfig(
        journal_file_bytes=256 * 1024,
        journal_bytes_max=3 * 256 * 1024,
        tail_bytes_max=0,
        apply_bytes=1,
        apply_delay_ms=1,
        index_cache_bytes=0,
        free_bytes_min=0,
    )
    play(
        scenario, config=config, log_config=LogConfig(segment_bytes=4000, index_interval_bytes=300), seed=seed
    )


@pytest.mark.parametrize("seed", range(10))
def test_a_cold_read_that_races_with_a_trim_is_answered(seed: int) -> None:
    """By the bytes, if they were found in time, or by "offset out of range"; never by a missing file."""

    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 20)
        await storage.close()

    async def race(storage: SegmentStorage, log: SegmentLog) -> None:
        async def read() -> None:
            try:
                await (await log.read(Offset(0), bytes_max=10, up_to=log.durable_offset)).load()
            except OffsetOutOfRange:
                return

        await asyncio.gather(read(), read(), log.trim(Offset(15)))

    disk = play(fill, log_config=LogConfig(segment_bytes=300), seed=seed)
    disk.kill()
    play(race, disk=disk)


@pytest.mark.parametrize("seed", range(20))
def test_a_time_that_is_looked_up_beside_a_trim_is_found_in_what_is_left(seed: int) -> None:
    async def fill(storage: SegmentStorage, log: SegmentLog) -> None:
        for timestamp in range(30):
            made = read_batch(build_batch([(timestamp, None, bytes(60), ())]))
            log.append(made, leader_epoch=Epoch(0))
        await log.wait_durable(log.end_offset)
        await storage.close()

    async def race(storage: SegmentStorage, log: SegmentLog) -> None:
        async def trim() -> None:
            for offset in (4, 9, 14):
                await log.trim(Offset(offset))
                await storage.wait_applied()

        (late, early), _ = await asyncio.gather(
            asyncio.gather(
                log.find_timestamp(25, up_to=log.durable_offset),
                log.find_timestamp(0, up_to=log.durable_offset),
            ),
            trim(),
        )
        assert late == (25, 25)
        assert early is not None and early.offset == early.timestamp_ms <= 14

    disk = play(fill, log_config=LogConfig(segment_bytes=300, index_interval_bytes=100), seed=seed)
    disk.kill()
    disk.cold_chance = disk.slow_chance = 0.5
    play(race, disk=disk, config=replace(CONFIG, apply_delay_ms=0, apply_bytes=1))


# ---- truncation


def test_appends_are_refused_while_a_truncation_looks_for_its_place() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        disk = storage._disk
        assert isinstance(disk, SimulatedDisk)
        await append(log, 30)
        await storage.checkpoint()
        disk.cold_chance = 1.0
        cutting = asyncio.ensure_future(log.truncate(Offset(3)))
        await asyncio.sleep(0)
        with pytest.raises(LogBusy, match="being truncated; try again"):
            log.append(batch(), leader_epoch=Epoch(1))
        await cutting
        assert log.append(batch(), leader_epoch=Epoch(1)) == 3

    play(scenario, config=NO_TAIL, log_config=LogConfig(segment_bytes=500, index_interval_bytes=200))


@pytest.mark.parametrize(("first", "second"), [(50, 30), (50, 49), (45, 10), (20, 0)])
def test_two_truncations_before_either_is_applied(first: int, second: int) -> None:
    """What the first one leaves in its last span must not come back over what the second one took."""

    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 60)
        await storage.wait_applied()
        async with storage.directory.apply_lock:  # the applier waits
            await log.truncate(Offset(first))
            await log.truncate(Offset(second))
        await storage.wait_applied()
        await append(log, 60, epoch=1)
        assert await offsets(log) == [(n, int(n >= second)) for n in range(second + 60)]

    play(scenario, config=NO_TAIL, log_config=LogConfig(index_interval_bytes=1000))


@pytest.mark.parametrize(("first", "second"), [(58, 57), (58, 30), (1, 0)])
@pytest.mark.parametrize("more", [0, 7])
def test_what_the_second_of_two_truncations_took_does_not_come_back_before_a_gap(
    first: int, second: int, more: int
) -> None:
    """A leader that compacted goes on behind what the first one leaves in its last span."""
    after = first + more

    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 60)
        await storage.wait_applied()
        async with storage.directory.apply_lock:  # the applier waits
            await log.truncate(Offset(first))
            await log.truncate(Offset(second))
            log.append(batch(offset=after, epoch=1))
            await log.wait_durable(Offset(after + 1))
        await storage.wait_applied()
        assert await offsets(log) == [*((n, 0) for n in range(second)), (after, 1)]

    play(scenario, config=NO_TAIL, log_config=LogConfig(index_interval_bytes=1000))


def test_what_a_truncation_took_is_not_read_before_it_is_applied() -> None:
    """A leader that compacted leaves a gap behind the cut, where the files still hold the undone batches."""

    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 20)
        await storage.wait_applied()
        async with storage.directory.apply_lock:
            await log.truncate(Offset(5))
            log.append(batch(offset=12, epoch=1))
            await log.wait_durable(Offset(13))
            for start in range(5, 13):
                assert await offsets(log, start) == [(12, 1)]
            assert await log.find_timestamp(6, up_to=log.durable_offset) == (12, 12)

    play(scenario, config=NO_TAIL, log_config=LogConfig(index_interval_bytes=100))


def test_a_time_is_not_looked_up_among_what_a_truncation_took() -> None:
    """The files still know a late time behind the cut; the first record that reaches it is in memory now."""

    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        for timestamp in (1, 1, 60, 60, 60):
            log.append(read_batch(build_batch([(timestamp, None, bytes(200), ())])), leader_epoch=Epoch(0))
        await log.wait_durable(Offset(5))
        await storage.wait_applied()
        async with storage.directory.apply_lock:
            await log.truncate(Offset(0))
            for timestamp in (51, 52, 53):
                log.append(read_batch(build_batch([(timestamp, None, b"", ())])), leader_epoch=Epoch(1))
            await log.wait_durable(Offset(3))
            assert await log.find_timestamp(40, up_to=log.durable_offset) == (0, 51)
            assert await log.find_timestamp(60, up_to=log.durable_offset) is None

    play(scenario, config=NO_TAIL, log_config=LogConfig(segment_bytes=600, index_interval_bytes=100))


def test_a_truncation_looks_at_no_snapshot_of_an_undone_history() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        for sequence in range(60):
            log.append(batch(producer=1, sequence=sequence), leader_epoch=Epoch(0))
        await log.wait_durable(Offset(60))
        await storage.checkpoint()
        async with storage.directory.apply_lock:
            await log.truncate(Offset(50))
            for sequence in range(20):
                log.append(batch(producer=2, sequence=sequence), leader_epoch=Epoch(0))
            await log.truncate(Offset(65))
        assert log.producers == await replayed(log)

    play(scenario)


async def replayed(log: SegmentLog) -> ProducerStates:
    """The producers as the visible batches make them."""
    producers, place = ProducerStates(), log.start_offset
    while place < log.durable_offset:
        piece = await log.read(place, bytes_max=1 << 20, up_to=log.durable_offset)
        for each in iter_batches(await piece.load()):
            producers.apply(each)
        place = piece.next_offset
    return producers


@pytest.mark.parametrize("seed", range(6))
def test_producers_after_a_truncation_are_those_of_the_remaining_batches(seed: int) -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        rng = random.Random(seed)
        for _ in range(12):
            for _ in range(rng.randrange(1, 10)):
                sequence = rng.randrange(1000)
                made = batch(rng.randrange(1, 3), producer=rng.randrange(4), sequence=sequence)
                log.append(made, leader_epoch=Epoch(0))
            if rng.random() < 0.6:
                await log.wait_durable(log.end_offset)
            if rng.random() < 0.3:
                await storage.checkpoint()
            await log.truncate(Offset(max(0, log.end_offset - rng.randrange(8))))
            await log.wait_durable(log.end_offset)
            assert log.producers == await replayed(log)

    play(scenario, seed=seed)


def test_truncations_within_a_gap_are_recovered_from() -> None:
    async def cut(storage: SegmentStorage, log: SegmentLog) -> None:
        for place in (0, 20):
            log.append(batch(5, offset=place))
        await log.wait_durable(Offset(25))
        await log.truncate(Offset(12))
        await storage.checkpoint()
        await log.truncate(Offset(9))
        await storage.wait_applied()

    async def look(storage: SegmentStorage, log: SegmentLog) -> None:
        assert (log.start_offset, log.end_offset) == (0, 9)
        await append(log, 1)
        assert [o for o, _ in await offsets(log)] == [0, 9]

    disk = play(cut)
    disk.kill()
    with deadline(5):
        play(look, disk=disk)


def test_truncating_at_the_end_does_nothing_and_below_the_start_is_refused() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 5)
        lsn = storage.directory.durable_lsn
        await log.truncate(Offset(5))
        await log.truncate(Offset(99))
        assert storage.directory.durable_lsn == lsn
        await log.trim(Offset(3))
        with pytest.raises(OffsetOutOfRange):
            await log.truncate(Offset(2))
        assert log.end_offset == 5

    play(scenario)


# ---- trimming


def test_trimming_everything_gives_all_files_back() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 10)
        await log.trim(Offset(10))
        await storage.checkpoint()
        assert list(log.segments) == [10]
        assert log.size_bytes == 0
        names = await storage.directory.disk.list(log.path)
        assert [name for name in names if name.endswith(".log")] == ["00000000000000000010.log"]
        await append(log, 2)
        assert await offsets(log, 10) == [(10, 0), (11, 0)]

    play(scenario, log_config=LogConfig(segment_bytes=300))


def test_trimming_past_what_is_durable_is_refused() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 3)
        log.append(batch(), leader_epoch=Epoch(0))
        with pytest.raises(OffsetOutOfRange):
            await log.trim(Offset(4))
        await log.trim(Offset(3))
        await log.trim(Offset(1))
        assert log.start_offset == 3

    play(scenario)


# ---- looking


def test_a_log_reads_like_a_status_line() -> None:
    async def scenario(storage: SegmentStorage, log: SegmentLog) -> None:
        await append(log, 3)
        log.append(batch(), leader_epoch=Epoch(0))
        assert repr(log) == f"<SegmentLog {FIRST}-1 0 to 4, durable to 3>"

    play(scenario)
