"""Cases of retention: how much leaves at once is the engine's own choice, what may never leave is not."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path

from tailrace.model import LogBusy, Offset, OffsetOutOfRange
from tailrace.storage.api import NO_LIMIT, LogConfig
from tailrace.testing.storage_suite.history import History
from tailrace.testing.storage_suite.stage import FIRST, Cases, Stage, refused

_HOUR_MS = 3600 * 1000
_VALUE_BYTES = 400
_SEGMENT_BYTES = 1000  # a few batches each, where there are segments at all


class RetentionCases(Cases):
    """maintain and configure."""

    def test_old_batches_leave(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config(retention_ms=_HOUR_MS))
            await _fill(history, 10)
            stage.clock.advance(2 * _HOUR_MS)
            first_fresh = history.log.end_offset
            await _fill(history, 5)
            await stage.maintain()
            _check_moved(history, at_most=first_fresh)
            await _check_rest(history)

        self.run(tmp_path, scenario)

    def test_young_batches_stay(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config(retention_ms=_HOUR_MS))
            await _fill(history, 10)
            stage.clock.advance(_HOUR_MS - 1)
            await _fill(history, 5)
            await stage.maintain()
            start = history.log.start_offset
            assert start == 0, f"retention of an hour moved the start to {start} a millisecond before that"
            await history.check()

        self.run(tmp_path, scenario)

    def test_a_set_back_clock_neither_removes_nor_keeps(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config(retention_ms=_HOUR_MS))
            await _fill(history, 10)
            stage.clock.set_back(-100 * _HOUR_MS)
            await stage.maintain()
            start = history.log.start_offset
            assert start == 0, f"a clock set ahead by somebody moved the start to {start}"
            stage.clock.set_back(200 * _HOUR_MS)
            stage.clock.advance(2 * _HOUR_MS)
            await stage.maintain()
            _check_moved(history, at_most=history.log.end_offset)

        self.run(tmp_path, scenario)

    def test_surplus_bytes_leave(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config(retention_bytes=4000))
            await _fill(history, 40)
            await stage.maintain()
            _check_moved(history, at_most=history.batches[-1].base_offset)
            await _check_rest(history)

        self.run(tmp_path, scenario)

    def test_old_batches_that_are_not_final_stay(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config(retention_ms=_HOUR_MS))
            await _fill(history, 10)
            history.log.final_before = lambda: Offset(4)
            stage.clock.advance(2 * _HOUR_MS)
            await stage.maintain()
            start = history.log.start_offset
            assert start <= 4, f"records are final below 4, and retention moved the start to {start}"
            await history.check()
            history.log.final_before = lambda: history.log.end_offset
            await stage.maintain()
            _check_moved(history, at_most=10)

        self.run(tmp_path, scenario)

    def test_surplus_bytes_that_are_not_final_stay(self, tmp_path: Path) -> None:
        """An engine that has no room for more may refuse appends, with LogBusy."""

        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config(retention_bytes=4000))
            history.log.final_before = lambda: Offset(0)
            with suppress(LogBusy):
                await _fill(history, 40)
            await history.wait_durable()
            await stage.maintain()
            start = history.log.start_offset
            assert start == 0, f"no record is final, and retention moved the start to {start}"
            await history.check()
            history.log.final_before = lambda: history.log.end_offset
            await _fill(history, 20)
            await stage.maintain()
            _check_moved(history, at_most=history.batches[-1].base_offset)
            await _check_rest(history)

        self.run(tmp_path, scenario)

    def test_old_batches_wait_for_the_archive_so_long(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config(retention_ms=_HOUR_MS, wait_ms=_HOUR_MS))
            await _fill(history, 10)
            stage.clock.advance(_HOUR_MS + 1)
            await stage.maintain()
            _check_waits(history, 0)
            history.log.archived_before = Offset(6)
            await stage.maintain()
            _check_moved(history, at_most=6)
            await _check_rest(history)
            stage.clock.advance(_HOUR_MS)
            await stage.maintain()
            await stage.maintain()
            start = history.log.start_offset
            assert start == 10, f"what waited for its hour leaves, yet the log starts at {start}"

        self.run(tmp_path, scenario)

    def test_of_old_batches_so_many_bytes_wait_for_the_archive(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            config = self._config(retention_ms=_HOUR_MS, wait_ms=_HOUR_MS, wait_bytes=4000)
            history = await stage.create(config=config)
            await _fill(history, 40)
            stage.clock.advance(_HOUR_MS + 1)
            await stage.maintain()
            size = _readable_bytes(history)
            assert size <= 4000, f"4000 bytes may wait for the archive, and {size} do"
            assert size > 0, "batches left that could have waited for the archive"
            await _check_rest(history)

        self.run(tmp_path, scenario)

    def test_surplus_bytes_wait_for_the_archive(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            config = self._config(retention_bytes=4000, wait_ms=_HOUR_MS, wait_bytes=10_000)
            history = await stage.create(config=config)
            await _fill(history, 20)
            await stage.maintain()
            _check_waits(history, 0)
            history.log.archived_before = Offset(5)
            await stage.maintain()
            _check_moved(history, at_most=5)
            await _fill(history, 40)
            await stage.maintain()
            size = _readable_bytes(history)
            assert size <= 14_000 + _SEGMENT_BYTES, f"14000 bytes may be kept, and {size} are"
            await _check_rest(history)

        self.run(tmp_path, scenario)

    def test_surplus_bytes_wait_for_the_archive_so_long(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config(retention_bytes=4000, wait_ms=_HOUR_MS))
            await _fill(history, 40)
            stage.clock.advance(_HOUR_MS)
            await stage.maintain()
            _check_waits(history, 0)
            stage.clock.advance(1)
            await stage.maintain()
            _check_moved(history, at_most=history.batches[-1].base_offset)
            await _check_rest(history)

        self.run(tmp_path, scenario)

    def test_without_limits_everything_stays(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config())
            await _fill(history, 40)
            stage.clock.advance(10_000 * _HOUR_MS)
            await stage.maintain()
            await _check_kept(history)

        self.run(tmp_path, scenario)

    def test_without_delete_retention_removes_nothing(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            config = self._config(retention_ms=_HOUR_MS, retention_bytes=1000, delete=False)
            history = await stage.create(config=config)
            await _fill(history, 40)
            stage.clock.advance(2 * _HOUR_MS)
            await stage.maintain()
            await _check_kept(history)

        self.run(tmp_path, scenario)

    def test_new_settings_come_into_force(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config())
            await _fill(history, 10)
            stage.clock.advance(2 * _HOUR_MS)
            await stage.maintain()
            await _check_kept(history)
            config = self._config(retention_ms=_HOUR_MS)
            stage.engine.configure(FIRST, config)
            assert history.log.config == config, f"the settings in force are {history.log.config}"
            await _fill(history, 5)
            await stage.maintain()
            _check_moved(history, at_most=10)
            await _check_rest(history)

        self.run(tmp_path, scenario)

    def test_a_log_that_retention_emptied_goes_on(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create(config=self._config(retention_ms=_HOUR_MS))
            await _fill(history, 10)
            stage.clock.advance(100 * _HOUR_MS)
            await stage.maintain()
            await stage.maintain()
            end = history.log.end_offset
            assert end == 10, f"retention moved the end of the log from 10 to {end}"
            await _fill(history, 3)
            await history.check()

        self.run(tmp_path, scenario)

    def _config(
        self,
        *,
        retention_ms: int = NO_LIMIT,
        retention_bytes: int = NO_LIMIT,
        wait_ms: int = 0,
        wait_bytes: int = NO_LIMIT,
        delete: bool = True,
    ) -> LogConfig:
        return replace(
            self.config,
            segment_bytes=min(self.config.segment_bytes, _SEGMENT_BYTES),
            segment_ms=_HOUR_MS,
            retention_ms=retention_ms,
            retention_bytes=retention_bytes,
            archive_wait_ms=wait_ms,
            archive_wait_bytes=wait_bytes,
            delete=delete,
            compact=False,
        )


async def _fill(history: History, count: int) -> None:
    for _ in range(count):
        history.append(history.draft(value_bytes=_VALUE_BYTES))
    await history.wait_durable()


def _check_moved(history: History, *, at_most: int) -> None:
    start = history.log.start_offset
    assert start > 0, "nothing has left, though there are batches past their retention"
    assert start <= at_most, f"the log starts at {start}, and everything from {at_most} on must be kept"


def _readable_bytes(history: History) -> int:
    start = history.log.start_offset
    return sum(len(batch.data) for batch in history.batches if batch.next_offset > start)


def _check_waits(history: History, at: int) -> None:
    start = history.log.start_offset
    assert start == at, f"what is not archived waits, yet retention moved the start from {at} to {start}"


async def _check_rest(history: History) -> None:
    await history.check()
    start = history.log.start_offset
    with refused(OffsetOutOfRange, f"a read at {start - 1}, which retention removed,"):
        await history.read(start - 1)


async def _check_kept(history: History) -> None:
    start = history.log.start_offset
    assert start == 0, f"retention is off, yet the log starts at {start}"
    await history.check()
