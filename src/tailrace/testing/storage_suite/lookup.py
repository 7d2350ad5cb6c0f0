"""Cases of looking up an offset by time: timestamps go back and forth, inside a batch and between them."""

from __future__ import annotations

from pathlib import Path

from tailrace.model import Offset
from tailrace.records import Compression
from tailrace.testing.storage_suite.history import Draft, History
from tailrace.testing.storage_suite.stage import Cases, Stage

_BACK_AND_FORTH = ((50, 20, 90), (10, 30), (95,), (60, 200, 70), (5, 6, 7), (200, 201), (100,))


class LookupCases(Cases):
    """find_timestamp, against a plain search through the list."""

    def test_an_empty_log_has_no_time(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            found = await history.log.find_timestamp(0, up_to=history.log.durable_offset)
            assert found is None, f"an empty log has {found}"

        self.run(tmp_path, scenario)

    def test_timestamps_that_go_backwards(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            await _check_lookup(history, await _fill(history, stage.clock.now_ms()))

        self.run(tmp_path, scenario)

    def test_compressed_batches_are_looked_into(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            times = await _fill(history, stage.clock.now_ms(), compression=Compression.GZIP)
            await _check_lookup(history, times)

        self.run(tmp_path, scenario)

    def test_nothing_below_the_start_is_found(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            times = await _fill(history, stage.clock.now_ms())
            for start in (1, 3, 4, 8, len(times)):
                await history.trim(start)
                await _check_lookup(history, times)

        self.run(tmp_path, scenario)

    def test_nothing_truncated_is_found(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            times = await _fill(history, stage.clock.now_ms())
            await history.truncate(7)
            await _check_lookup(history, times[: history.log.end_offset])

        self.run(tmp_path, scenario)

    def test_nothing_from_the_limit_on_is_found(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            times = await _fill(history, stage.clock.now_ms())
            for batch in history.batches:
                await _check_lookup(history, times, up_to=batch.base_offset)

        self.run(tmp_path, scenario)

    def test_append_time_is_every_records_time(self, tmp_path: Path) -> None:
        async def scenario(stage: Stage) -> None:
            history = await stage.create()
            now = stage.clock.now_ms()
            await history.append_durably(Draft(timestamps=[now + 9] * 2, log_append_time_ms=now))
            await history.append_durably(Draft(timestamps=[now] * 2, log_append_time_ms=now + 5))
            await _check_lookup(history, [now, now, now + 5, now + 5])

        self.run(tmp_path, scenario)


async def _fill(history: History, now_ms: int, *, compression: Compression = Compression.NONE) -> list[int]:
    """Batches whose times go back and forth; returns the timestamp of every offset."""
    times: list[int] = []
    for deltas in _BACK_AND_FORTH:
        timestamps = [now_ms + delta for delta in deltas]
        history.append(Draft(timestamps=timestamps, compression=compression))
        times += timestamps
    await history.wait_durable()
    return times


async def _check_lookup(history: History, times: list[int], *, up_to: int | None = None) -> None:
    """`times` holds the timestamp of every offset from 0 on; without `up_to` the durable end is the limit."""
    start = history.log.start_offset
    limit = history.log.durable_offset if up_to is None else Offset(up_to)
    for target in sorted({0, *times, *(time + 1 for time in times), *(time - 1 for time in times)}):
        wanted = next(
            (
                (offset, time)
                for offset, time in enumerate(times[:limit])
                if time >= target and offset >= start
            ),
            None,
        )
        found = await history.log.find_timestamp(target, up_to=limit)
        assert found == wanted, (
            f"the first record at or after {target}, from offset {start} to {limit}, is {wanted}: not {found}"
        )
