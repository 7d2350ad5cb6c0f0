"""A start with a clock years ahead: nothing expires until a person confirms the time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.model import Epoch, PartitionId, StorageError
from tailrace.records import build_batch, read_batch
from tailrace.runtime import SystemClock
from tailrace.storage import LogConfig
from tailrace.storage.segment import DirectoryConfig, SegmentStorage
from tailrace.storage.segment.last_seen import (
    GAP_MS_MAX,
    WRITE_EVERY_MS,
    confirm_clock,
    is_plausible,
    read_seen,
    write_seen,
)
from tailrace.testing.clock import FakeClock

DAY_MS = 86_400_000
START_MS = 1_750_000_000_000
PARTITION = PartitionId(UUID(int=1), 0)
CONFIG = DirectoryConfig(
    journal_file_bytes=64 * 1024, journal_bytes_max=1 << 20, round_bytes_max=16 * 1024, free_bytes_min=0
)
LOG = LogConfig(segment_bytes=200, retention_ms=7 * DAY_MS, producer_idle_ms=DAY_MS)


async def fill(path: Path, clock: FakeClock) -> None:
    storage = await SegmentStorage.open(path, config=CONFIG, clock=clock)
    log = await storage.create(PARTITION, LOG)
    for _ in range(5):
        log.append(read_batch(build_batch([(clock.now_ms(), None, bytes(100), ())])), leader_epoch=Epoch(0))
    await log.wait_durable(log.end_offset)
    await storage.close()


async def records_left(path: Path, clock: FakeClock) -> int:
    """Start, do what housekeeping does, stop."""
    storage = await SegmentStorage.open(path, config=CONFIG, clock=clock)
    log = storage.get(PARTITION)
    assert log is not None
    storage.configure(PARTITION, LOG)
    for _ in range(3):
        await storage.maintain()
        clock.advance(WRITE_EVERY_MS)
    left = log.end_offset - log.start_offset
    await storage.close()
    return left


def test_a_start_ten_years_ahead_expires_nothing_however_often(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path, FakeClock(START_MS)))
    for _ in range(3):
        clock = FakeClock(START_MS + 3650 * DAY_MS)
        assert asyncio.run(records_left(tmp_path, clock)) == 5
        assert clock.ahead_ms == 3650 * DAY_MS


def test_a_node_that_was_off_for_a_holiday_expires_what_is_due(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path, FakeClock(START_MS)))
    clock = FakeClock(START_MS + 30 * DAY_MS)
    assert asyncio.run(records_left(tmp_path, clock)) == 0
    assert clock.ahead_ms == 0


def test_a_node_that_ran_all_the_time_is_believed(tmp_path: Path) -> None:
    """It writes the time down while it runs, though nothing is appended and no checkpoint is due."""

    async def main() -> None:
        clock = FakeClock(START_MS)
        storage = await SegmentStorage.open(tmp_path, config=CONFIG, clock=clock)
        clock.advance(400 * DAY_MS)
        await storage._last_seen.write_due()
        await storage._let_go()  # as if it were killed: a stop in good order writes the time down too

    asyncio.run(fill(tmp_path, FakeClock(START_MS)))
    asyncio.run(main())
    clock = FakeClock(START_MS + 401 * DAY_MS)
    assert asyncio.run(records_left(tmp_path, clock)) == 0


def test_a_clock_that_went_back_is_believed_and_expires_nothing(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path, FakeClock(START_MS)))
    clock = FakeClock(START_MS - 3650 * DAY_MS)
    assert asyncio.run(records_left(tmp_path, clock)) == 5
    assert clock.ahead_ms == 0


def test_time_passes_for_a_clock_that_is_held(tmp_path: Path) -> None:
    async def main() -> None:
        clock = FakeClock(START_MS + 3650 * DAY_MS)
        storage = await SegmentStorage.open(tmp_path, config=CONFIG, clock=clock)
        storage.configure(PARTITION, LOG)
        log = storage.get(PARTITION)
        assert log is not None
        clock.advance(8 * DAY_MS)
        await storage.maintain()
        assert log.start_offset == log.end_offset, "a week of running is a week, whatever the day"
        await storage.close()

    asyncio.run(fill(tmp_path, FakeClock(START_MS)))
    asyncio.run(main())


def test_a_person_confirms_the_clock(tmp_path: Path) -> None:
    asyncio.run(fill(tmp_path, FakeClock(START_MS)))
    before_ms, now_ms = asyncio.run(confirm_clock(tmp_path))
    assert before_ms is not None and before_ms >= START_MS
    clock = FakeClock(now_ms)
    assert asyncio.run(records_left(tmp_path, clock)) == 0
    assert clock.ahead_ms == 0


def test_the_clock_of_a_running_broker_is_not_confirmed(tmp_path: Path) -> None:
    async def main() -> None:
        storage = await SegmentStorage.open(tmp_path, config=CONFIG)
        with pytest.raises(StorageError, match="in use by pid"):
            await confirm_clock(tmp_path)
        await storage.close()

    asyncio.run(main())


@pytest.mark.parametrize("content", [None, b"", b"TRCLOCK1", bytes(20), b"x" * 21])
def test_without_a_readable_file_the_machine_is_believed(tmp_path: Path, content: bytes | None) -> None:
    asyncio.run(fill(tmp_path, FakeClock(START_MS)))
    if content is None:
        (tmp_path / "CLOCK").unlink()
    else:
        (tmp_path / "CLOCK").write_bytes(content)
    clock = FakeClock(START_MS + 3650 * DAY_MS)
    assert asyncio.run(records_left(tmp_path, clock)) == 0


def test_every_byte_of_the_file_counts() -> None:
    data = write_seen(START_MS)
    assert read_seen(data) == START_MS
    for place in range(len(data)):
        wrong = bytearray(data)
        wrong[place] ^= 1
        assert read_seen(bytes(wrong)) is None, place
    assert read_seen(data + b"\0") is None
    assert read_seen(data[:-1]) is None


def test_a_month_is_plausible_and_a_moment_more_is_not() -> None:
    assert is_plausible(START_MS + GAP_MS_MAX, seen_ms=START_MS)
    assert not is_plausible(START_MS + GAP_MS_MAX + 1, seen_ms=START_MS)
    assert is_plausible(START_MS, seen_ms=None)


def test_the_system_clock_goes_on_from_where_it_is_held() -> None:
    clock = SystemClock()
    clock.hold(START_MS)
    assert START_MS <= clock.steady_ms() < START_MS + DAY_MS
    assert clock.now_ms() - clock.steady_ms() == pytest.approx(clock.ahead_ms, abs=60_000)
