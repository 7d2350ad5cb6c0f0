"""What is done by the clock: the epoch is looked at, names and snapshots are written, retention, cleanup."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import TYPE_CHECKING

from tailrace.model import BrokerError, LogTruncated, Offset, StorageError
from tailrace.postgres import DatabaseError, Pool
from tailrace.runtime import wait_at_most
from tailrace.storage.producers import NODE_PRODUCERS_MAX, fair_limit
from tailrace.storage.tiered.beside import TakenSnapshot, WriteLabels, WriteSnapshots
from tailrace.storage.tiered.cleanup import Cleanup
from tailrace.storage.tiered.log import TieredLog
from tailrace.storage.tiered.shared import Shared
from tailrace.storage.tiered.state import write_state
from tailrace.storage.tiered.sweep import Cleaned
from tailrace.storage.tiered.writer import Writer

if TYPE_CHECKING:
    from collections.abc import Sequence

logger = logging.getLogger(__name__)

_LOGS_AT_ONCE = 100
_DURABLE_S = 5.0


class Housekeeper:
    """Looks after an engine while others append."""

    def __init__(self, shared: Shared, pool: Pool, writer: Writer, cleanup: Cleanup) -> None:
        self._shared = shared
        self._pool = pool
        self._writer = writer
        self._cleanup = cleanup
        self._maintaining = asyncio.Lock()
        self._closing = asyncio.Event()
        self.cleaned = Cleaned()  # since the start

    async def run(self) -> None:
        """Watch the epoch, write names and snapshots, for ever; another writer ends the engine."""
        config = self._shared.config
        due = time.monotonic() + config.snapshot_interval_s
        while True:
            await wait_at_most(self._closing, config.watch_interval_s)
            await self._watch()
            await self._write_labels()
            if time.monotonic() >= due:
                due = time.monotonic() + config.snapshot_interval_s
                await self.snapshot()
                self._bound_producers()

    async def _watch(self) -> None:
        """A deposed process that appends nothing would not hear of it, and would serve what is old."""
        try:
            async with self._pool.connection() as connection:
                await self._writer.look(connection)
        except DatabaseError:
            return  # it is away: rounds and readers say so

    async def _write_labels(self) -> None:
        logs = [log for log in self._shared.logs.values() if log.label]
        if logs:
            labels = [(log.id, log.label) for log in logs]
            for log in logs:
                log.label = ""
            await self._writer.run(WriteLabels(labels))

    async def snapshot(self) -> None:
        """Write the state of every log that went on since its last snapshot."""
        logs = [log for log in self._shared.logs.values() if log.end_offset != log.snapshot_offset]
        for first in range(0, len(logs), _LOGS_AT_ONCE):
            await self._snapshot(logs[first : first + _LOGS_AT_ONCE])

    async def _snapshot(self, logs: Sequence[TieredLog]) -> None:
        taken = []
        for log in logs:
            data = write_state(log.epochs, log.producers, log.aborted_list)
            taken.append(TakenSnapshot(log, log.end_offset, log.truncations, data))
            await asyncio.sleep(0)
        durable = []
        for each in taken:
            try:
                async with asyncio.timeout(_DURABLE_S):
                    await each.log.wait_durable(Offset(each.offset))
            except (TimeoutError, LogTruncated):
                continue  # the next one will do
            except StorageError:
                self._shared.check_open()
                continue  # it was closed or deleted meanwhile
            durable.append(each)
        if durable:
            await self._writer.run(WriteSnapshots(durable))
            for each in durable:
                if each.holds:
                    each.log.snapshot_offset = each.offset

    def _bound_producers(self, producers_max: int = NODE_PRODUCERS_MAX) -> None:
        """Forget the oldest producers of the logs that have the most, while there are too many in all."""
        logs = [log for log in self._shared.logs.values() if len(log.producers)]
        limit = fair_limit([len(log.producers) for log in logs], producers_max)
        for log in logs:
            log.producers.forget_oldest(len(log.producers) - limit, keep_from=log.durable_offset)

    async def maintain(self) -> None:
        """Expire what is due, and remove what no log needs."""
        async with self._maintaining:
            now_ms = self._shared.clock.steady_ms()
            for log in list(self._shared.logs.values()):
                log.producers.forget_idle(now_ms, idle_ms=log.config.producer_idle_ms)
                if log.config.delete and log.accepts_changes:
                    await self._expire(log, now_ms)
            done = await self._cleanup.run()
            self.cleaned.days += done.days
            self.cleaned.logs += done.logs
            self.cleaned.chunks += done.chunks
            self.cleaned.days_held_up += done.days_held_up

    async def _expire(self, log: TieredLog, now_ms: int) -> None:
        try:
            await self._cleanup.expire(log, now_ms)
        except BrokerError as error:  # the database is away, or the log is being changed
            logger.warning("retention of %s waits: %s", log, error)
