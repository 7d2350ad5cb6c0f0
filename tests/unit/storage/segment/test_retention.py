"""Retention: the rule as a table, and through the engine on a simulated disk with a clock that is moved."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from uuid import UUID

import pytest

from tailrace.model import Epoch, Offset, OffsetOutOfRange, PartitionId
from tailrace.records import build_batch, iter_batches, read_batch
from tailrace.storage import LogConfig
from tailrace.storage.api import NO_LIMIT
from tailrace.storage.retention import SegmentFacts, plan_retention
from tailrace.storage.segment import DirectoryConfig, SegmentLog, SegmentStorage
from tailrace.storage.segment.index import NO_TIMESTAMP
from tailrace.testing import FakeClock
from tailrace.testing.simulation import SimulatedDisk, SimulatedLoop

NOW_MS = 1_000_000
HOUR_MS = 3_600_000
FIRST = PartitionId(UUID(int=1), 0)

# ---- the rule

Times = list[int | None]


def plan(
    times: Times,
    *,
    sizes: list[int] | None = None,
    retention_ms: int = NO_LIMIT,
    retention_bytes: int = NO_LIMIT,
    start: int = 0,
    final_before: int | None = None,
    archived_before: int = 0,
    wait_ms: int = 0,
    wait_bytes: int = NO_LIMIT,
) -> int | None:
    """Segments of ten offsets each, 100 bytes long, with these greatest timestamps."""
    facts = [
        SegmentFacts(
            base=10 * place,
            next_base=10 * place + 10,
            bytes=sizes[place] if sizes else 100,
            max_timestamp=max_timestamp,
        )
        for place, max_timestamp in enumerate(times)
    ]
    config = LogConfig(
        retention_ms=retention_ms,
        retention_bytes=retention_bytes,
        archive_wait_ms=wait_ms,
        archive_wait_bytes=wait_bytes,
    )
    return plan_retention(
        facts,
        config,
        now_ms=NOW_MS,
        start=Offset(start),
        final_before=Offset(10 * len(times) if final_before is None else final_before),
        archived_before=Offset(archived_before),
    )


OLD, EDGE, FRESH, FUTURE = NOW_MS - 501, NOW_MS - 500, NOW_MS - 499, NOW_MS + 10**9


@pytest.mark.parametrize(
    ("times", "trim_to"),
    [
        ([], None),
        ([OLD, OLD, FRESH], 20),
        ([OLD, FRESH, OLD], 10),
        ([FRESH, OLD, OLD], None),
        ([EDGE, FRESH], None),
        ([FUTURE, OLD, FRESH], None),
        ([OLD, FUTURE, OLD], 10),
        ([None, OLD, FRESH], None),
        ([OLD, None, FRESH], 10),
        ([OLD, OLD, OLD], 30),
        ([OLD], 10),
    ],
)
def test_by_time_the_oldest_go_until_one_may_not(times: Times, trim_to: int | None) -> None:
    assert plan(times, retention_ms=500) == trim_to


@pytest.mark.parametrize(
    ("bytes_max", "trim_to"),
    [(1000, None), (400, None), (399, None), (300, 10), (299, 10), (200, 20), (100, 30), (99, 30), (0, 30)],
)
def test_by_size_what_is_left_still_fills_the_bound(bytes_max: int, trim_to: int | None) -> None:
    assert plan([FUTURE] * 4, retention_bytes=bytes_max) == trim_to


def test_by_size_the_newest_never_goes() -> None:
    assert plan([FUTURE], retention_bytes=0) is None


def test_unreadable_segments_go_by_size_only() -> None:
    assert plan([None, None], retention_ms=500, retention_bytes=100) == 10


def test_a_large_segment_stays_until_it_is_wholly_too_much() -> None:
    assert plan([FUTURE] * 3, sizes=[100, 10, 10], retention_bytes=21) is None
    assert plan([FUTURE] * 3, sizes=[100, 10, 10], retention_bytes=20) == 10


def test_either_reason_is_enough() -> None:
    assert plan([OLD, FRESH, FRESH], retention_ms=500, retention_bytes=100) == 20


def test_without_limits_nothing_goes() -> None:
    assert plan([OLD, OLD], retention_ms=NO_LIMIT) is None


def test_what_compaction_emptied_goes_but_not_the_newest() -> None:
    assert plan([NO_TIMESTAMP] * 3, sizes=[0, 0, 0]) == 20
    assert plan([FUTURE, NO_TIMESTAMP, FUTURE], sizes=[100, 0, 100]) is None


def test_the_start_never_moves_back() -> None:
    assert plan([OLD, FRESH], retention_ms=500, start=10) is None
    assert plan([OLD, FRESH], retention_ms=500, start=15) is None
    assert plan([OLD, FRESH], retention_ms=500, start=5) == 10


def test_a_segment_stays_while_one_of_its_records_is_not_final() -> None:
    assert plan([OLD, OLD], retention_ms=500, final_before=20) == 20
    assert plan([OLD, OLD], retention_ms=500, final_before=19) == 10
    assert plan([OLD, OLD], retention_ms=500, final_before=9) is None
    assert plan([FRESH] * 4, retention_bytes=100, final_before=19) == 10
    assert plan([NO_TIMESTAMP] * 3, sizes=[0, 0, 0], final_before=10) == 10


LATE, LATER = NOW_MS - 600, NOW_MS - 601  # due for 100 ms and for 101 ms, where retention is 500 ms


@pytest.mark.parametrize(
    ("times", "archived", "trim_to"),
    [
        ([OLD, OLD, FRESH], 0, None),
        ([OLD, OLD, FRESH], 9, None),
        ([OLD, OLD, FRESH], 10, 10),
        ([OLD, OLD, FRESH], 30, 20),
        ([LATE, LATE, FRESH], 0, None),
        ([LATER, LATE, FRESH], 0, 10),
        ([LATER, LATER, FRESH], 0, 20),
        ([LATE, LATER, FRESH], 0, None),  # the oldest go first
        ([LATER, LATER, OLD], 0, 20),
    ],
)
def test_by_time_what_is_not_archived_waits_so_long(times: Times, archived: int, trim_to: int | None) -> None:
    assert plan(times, retention_ms=500, archived_before=archived, wait_ms=100) == trim_to


@pytest.mark.parametrize(
    ("bytes_max", "trim_to"), [(200, None), (199, 10), (100, 10), (99, 20), (0, 20), (NO_LIMIT, None)]
)
def test_of_what_is_not_archived_so_many_bytes_wait(bytes_max: int, trim_to: int | None) -> None:
    assert plan([OLD, OLD, FRESH], retention_ms=500, wait_ms=100, wait_bytes=bytes_max) == trim_to
    assert plan([FRESH] * 3, retention_bytes=100, wait_ms=10_000, wait_bytes=bytes_max) == trim_to


def test_what_is_archived_does_not_count_among_the_bytes_that_wait() -> None:
    assert plan([OLD, OLD, FRESH], retention_ms=500, wait_ms=100, wait_bytes=100, archived_before=10) == 10


@pytest.mark.parametrize(
    ("times", "trim_to"),
    [
        # The bound of 200 bytes was filled behind the first segment when the third one was written.
        ([0, 0, NOW_MS - 100, NOW_MS], None),
        ([0, 0, NOW_MS - 101, NOW_MS], 10),
        ([0, 0, FUTURE, NOW_MS - 101, NOW_MS], 20),  # what one record claims does not keep it
        ([0, 0, None, NOW_MS - 101], 20),
        ([0, 0, None, None], None),  # written to just now
        ([0, 0, NOW_MS - 101, NOW_MS - 101, NOW_MS], 20),
    ],
)
def test_by_size_the_wait_counts_from_when_the_bound_was_filled(times: Times, trim_to: int | None) -> None:
    assert plan(times, retention_bytes=200, wait_ms=100) == trim_to


def test_segments_that_compaction_emptied_do_not_wait() -> None:
    assert plan([NO_TIMESTAMP] * 3, sizes=[0, 0, 0], wait_ms=100) == 20


# ---- through the engine

LOG = LogConfig(segment_bytes=300, index_interval_bytes=100, retention_ms=HOUR_MS)
DIRECTORY = DirectoryConfig(
    free_bytes_min=0,
    journal_file_bytes=16 * 1024,
    journal_bytes_max=48 * 1024,
    checkpoint_bytes=16 * 1024,
    round_bytes_max=4000,
)


class Rig:
    """One engine with one log, whose batches of about 100 bytes hold one record each."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(random.Random(0))
        self.clock = FakeClock()

    async def open(self, config: LogConfig = LOG) -> Rig:
        self.storage = SegmentStorage(
            self.disk, "sim", config=DIRECTORY, clock=self.clock, rng=random.Random(0)
        )
        await self.storage.start()
        if self.storage.get(FIRST) is None:
            await self.storage.create(FIRST, config)
        self.storage.configure(FIRST, config)
        return self

    @property
    def log(self) -> SegmentLog:
        log = self.storage.get(FIRST)
        assert log is not None
        return log

    async def fill(self, count: int, *, ahead_ms: int = 0, timestamp: int | None = None) -> None:
        for _ in range(count):
            time_ms = self.clock.now_ms() + ahead_ms if timestamp is None else timestamp
            batch = read_batch(build_batch([(time_ms, None, b"v" * 30, ())]))
            self.log.append(batch, leader_epoch=Epoch(0))
        await self.log.wait_durable(self.log.end_offset)
        await self.storage.checkpoint()

    async def maintain(self) -> None:
        await self.storage.maintain()
        await self.storage.checkpoint()

    def segments(self) -> list[int]:
        """Base offsets of the segment files that are there."""
        names = [path.rpartition("/")[2] for path in self.disk.paths() if path.startswith(self.log.path)]
        bases = {name[:20] for name in names if name.endswith(".log")}
        assert all(name[:20] in bases for name in names if name.endswith("index"))
        return sorted(int(name[:20]) for name in names if name.endswith(".log"))

    async def offsets(self) -> list[int]:
        found: list[int] = []
        place = self.log.start_offset
        while place < self.log.durable_offset:
            piece = await self.log.read(place, bytes_max=1 << 20, up_to=self.log.durable_offset)
            found += [batch.base_offset for batch in iter_batches(await piece.load())]
            place = piece.next_offset
        return found


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario()

    with SimulatedLoop() as loop:
        loop.run(main())


def test_expired_segments_go_and_the_start_moves() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(5)
        assert rig.segments() == [0, 3]
        rig.clock.advance(HOUR_MS)
        await rig.maintain()
        assert rig.log.start_offset == 0
        await rig.fill(6)  # the first of them in the segment of old ones, which therefore stays
        rig.clock.advance(1)
        await rig.maintain()
        assert rig.log.start_offset == rig.segments()[0] == 3
        assert await rig.offsets() == list(range(3, 11))
        with pytest.raises(OffsetOutOfRange):
            await rig.log.read(Offset(2), bytes_max=1, up_to=rig.log.durable_offset)

    play(scenario)


def test_expired_segments_stay_until_they_are_final() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(7)
        rig.clock.advance(HOUR_MS + 1)
        for final_before, start in ((2, 0), (4, 3), (6, 6), (7, 7)):
            rig.log.final_before = partial(Offset, final_before)
            await rig.maintain()
            assert rig.log.start_offset == start

    play(scenario)


def test_a_log_that_expired_whole_is_empty_and_its_files_are_gone() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(7)
        rig.clock.advance(HOUR_MS + 1)
        await rig.maintain()
        assert (rig.log.start_offset, rig.log.end_offset) == (7, 7)
        assert rig.segments() == [7]
        assert rig.log.size_bytes == 0
        await rig.fill(1)
        assert await rig.offsets() == [7]

    play(scenario)


def test_a_timestamp_of_the_future_keeps_everything_after_it() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(3)
        await rig.fill(1, ahead_ms=100 * HOUR_MS)
        await rig.fill(5)
        rig.clock.advance(50 * HOUR_MS)
        await rig.maintain()
        assert 0 < rig.log.start_offset <= 3
        assert await rig.offsets() == list(range(rig.log.start_offset, 9))

    play(scenario)


def test_a_log_past_its_size_loses_its_oldest_segments() -> None:
    async def scenario() -> None:
        rig = await Rig().open(replace(LOG, retention_ms=NO_LIMIT, retention_bytes=500))
        await rig.fill(20)
        segment_bytes = rig.log.segments[0].length
        await rig.maintain()
        assert 500 <= rig.log.size_bytes < 500 + segment_bytes
        assert await rig.offsets() == list(range(rig.log.start_offset, 20))
        assert rig.segments() == list(rig.log.segments)

    play(scenario)


def test_without_delete_nothing_goes() -> None:
    async def scenario() -> None:
        rig = await Rig().open(replace(LOG, delete=False, retention_bytes=0))
        await rig.fill(6)
        rig.clock.advance(100 * HOUR_MS)
        await rig.maintain()
        assert await rig.offsets() == list(range(6))

    play(scenario)


def test_what_is_appended_meanwhile_stays() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(7)
        rig.clock.advance(HOUR_MS + 1)
        batch = read_batch(build_batch([(rig.clock.now_ms(), None, b"fresh", ())]))
        rig.log.append(batch, leader_epoch=Epoch(0))
        assert rig.segments() == [0, 3, 6]
        await rig.maintain()
        assert await rig.offsets() == [6, 7]  # what it came to lie beside stays as well

    play(scenario)


def test_retention_outlives_a_restart() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(6)
        rig.clock.advance(HOUR_MS + 1)
        await rig.fill(4)
        await rig.storage.maintain()
        start, offsets = rig.log.start_offset, await rig.offsets()
        assert start > 0
        await rig.storage.close()
        await rig.open()
        assert rig.log.start_offset == start
        assert await rig.offsets() == offsets
        assert rig.segments()[0] == start

    play(scenario)


def test_a_clock_that_is_set_does_not_expire_anything() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(6)
        rig.clock.set_back(-100 * HOUR_MS)
        await rig.maintain()
        assert rig.log.start_offset == 0

    play(scenario)


def test_records_without_a_timestamp_stay_for_their_time_from_the_last_write_on() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(2, timestamp=-1)
        rig.clock.advance(HOUR_MS)
        await rig.fill(1, timestamp=-1)
        assert rig.segments() == [0]
        rig.clock.advance(HOUR_MS)
        await rig.maintain()
        assert await rig.offsets() == [0, 1, 2]
        rig.clock.advance(1)
        await rig.maintain()
        assert await rig.offsets() == []

    play(scenario)


def test_after_a_restart_records_without_a_timestamp_stay_for_their_time() -> None:
    async def scenario() -> None:
        rig = await Rig().open()
        await rig.fill(5, timestamp=-1)
        await rig.storage.close()
        await rig.open()
        await rig.maintain()
        assert await rig.offsets() == [0, 1, 2, 3, 4]
        rig.clock.advance(HOUR_MS + 1)
        await rig.maintain()
        assert await rig.offsets() == []

    play(scenario)
