"""What is done by the clock: free space, syncs at intervals, rolling by age, retention, compaction."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from tailrace.runtime import wait_at_most
from tailrace.storage.producers import NODE_PRODUCERS_MAX, fair_limit
from tailrace.storage.retention import plan_retention
from tailrace.storage.segment.cleaning import compact, needs_checkpoint
from tailrace.storage.segment.commit import Committer
from tailrace.storage.segment.directory import Directory
from tailrace.storage.segment.journal import Journal
from tailrace.storage.segment.last_seen import LastSeen
from tailrace.storage.segment.log import SegmentLog
from tailrace.storage.segment.pace import Pace
from tailrace.storage.segment.retention import segment_facts

logger = logging.getLogger(__name__)

_TICK_MS = 1000
_LOGS_AT_ONCE = 1_000


class Housekeeper:
    """Looks after a directory while others write to it."""

    def __init__(
        self,
        directory: Directory,
        journal: Journal,
        committer: Committer,
        last_seen: LastSeen,
        *,
        checkpoint: Callable[[], Awaitable[None]],
    ) -> None:
        self._directory = directory
        self._journal = journal
        self._committer = committer
        self._last_seen = last_seen
        self._checkpoint = checkpoint
        self._maintaining = asyncio.Lock()
        self._changed = asyncio.Event()

    async def run(self) -> None:
        """Look at the space and sync what is due, for ever; a failed sync ends the directory."""
        bounded_ms = 0
        while True:
            await wait_at_most(self._changed, self._interval_ms() / 1000)
            self._changed.clear()
            self._directory.check_space()
            await self._sync_loose()
            await self._last_seen.write_due()
            now_ms = self._directory.clock.steady_ms()
            if now_ms >= bounded_ms + _TICK_MS:
                bounded_ms = now_ms
                await self.bound_producers()

    async def bound_producers(self, producers_max: int = NODE_PRODUCERS_MAX) -> None:
        """Forget the oldest producers of the logs that have the most, while there are too many in all.

        Clients choose producer ids. The log that a client fills with them forgets before the others do.
        """
        sizes: list[tuple[int, SegmentLog]] = []
        for count, log in enumerate(list(self._directory.serving.values())):
            if known := max(len(log.producers), len(log.applied_producers)):
                sizes.append((known, log))
            if count % _LOGS_AT_ONCE == _LOGS_AT_ONCE - 1:
                await asyncio.sleep(0)
        limit = fair_limit([size for size, _ in sizes], producers_max)
        for size, log in sizes:
            if size > limit:
                for states in (log.producers, log.applied_producers):
                    states.forget_oldest(len(states) - limit, keep_from=log.durable_offset)

    def settings_changed(self) -> None:
        """A partition may want to be synced sooner than the one before."""
        self._changed.set()

    def _interval_ms(self) -> int:
        intervals = (log.fsync.interval_ms for log in self._directory.serving.values())
        return min((interval for interval in intervals if interval), default=_TICK_MS)

    async def _sync_loose(self) -> None:
        """`fsync = interval:<ms>`: the segments first, then the journal that speaks of them."""
        logs = [log for log in self._directory.serving.values() if log.fsync.interval_ms]
        for log in logs:
            for segment in list(log.segments.values()):
                if segment.unsynced_bytes and segment.file is not None:
                    await segment.sync(bulk=True)
        if logs and self._journal.synced_lsn < self._directory.durable_lsn:
            self._committer.sync_soon()

    async def maintain(self) -> None:
        """Roll, expire and compact what is due, one log after the other."""
        async with self._maintaining:
            now_ms = self._directory.clock.steady_ms()
            for log in list(self._directory.serving.values()):
                log.roll_by_age(now_ms)
                for producers in (log.producers, log.applied_producers):
                    producers.forget_idle(now_ms, idle_ms=log.config.producer_idle_ms)
                    if len(producers) > _LOGS_AT_ONCE:
                        await asyncio.sleep(0)
                if log.config.delete and log.accepts_changes:
                    await self._expire(log, now_ms)
            await self._compact(now_ms)

    async def compact(self) -> None:
        """Roll and compact what is due, and leave the rest to `maintain`."""
        async with self._maintaining:
            now_ms = self._directory.clock.steady_ms()
            for log in self._compacted_logs():
                log.roll_by_age(now_ms)
            await self._compact(now_ms)

    async def _compact(self, now_ms: int) -> None:
        logs = self._compacted_logs()
        if any(needs_checkpoint(log) for log in logs):
            await self._checkpoint()
        pace = Pace(self._directory.clock)
        for log in logs:
            await pace.wait_turn()
            if log.accepts_changes:
                await compact(self._directory, log, now_ms)

    def _compacted_logs(self) -> list[SegmentLog]:
        return [log for log in self._directory.serving.values() if log.config.compact and log.accepts_changes]

    async def wait_idle(self) -> None:
        """Return when nobody maintains: soon, once the logs are closed."""
        async with self._maintaining:
            return

    async def _expire(self, log: SegmentLog, now_ms: int) -> None:
        facts = await segment_facts(log, self._directory.cache)
        offset = plan_retention(
            facts,
            log.config,
            now_ms=now_ms,
            start=log.start_offset,
            final_before=log.final_before(),
            archived_before=log.archived_before,
        )
        if offset is not None and log.accepts_changes:
            logger.info("retention moves the start of %s to %d", log.path, offset)
            await log.trim(offset)
