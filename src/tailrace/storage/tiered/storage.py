"""The tiered engine: a database that is served by one process at a time."""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from typing import Final

from tailrace.model import Offset, PartitionExists, PartitionId, StorageError, UnknownPartition
from tailrace.postgres import Pool, connect, mapped, migrate, read_migrations
from tailrace.postgres.pool import close_connection
from tailrace.runtime import Clock, Supervisor, SystemClock
from tailrace.storage.api import LogConfig
from tailrace.storage.counters import EngineFigure, StorageCounters
from tailrace.storage.tiered.cache import RedisCache
from tailrace.storage.tiered.cleanup import Cleanup
from tailrace.storage.tiered.cold import ByteCache, ColdChunks, NoCache
from tailrace.storage.tiered.commit import Committer
from tailrace.storage.tiered.config import TieredConfig
from tailrace.storage.tiered.entry import Create, Delete
from tailrace.storage.tiered.figures import tiered_figures
from tailrace.storage.tiered.housekeeping import Housekeeper
from tailrace.storage.tiered.loading import load_logs
from tailrace.storage.tiered.lock import WriterLock
from tailrace.storage.tiered.log import TieredLog
from tailrace.storage.tiered.reading import Reader
from tailrace.storage.tiered.shared import Shared
from tailrace.storage.tiered.sweep import Cleaned
from tailrace.storage.tiered.writer import Writer

logger = logging.getLogger(__name__)

PART: Final = "log"
"""What the migrations are called in the database."""
_READ_SETTINGS: Final = {"default_transaction_isolation": "read committed", "statement_timeout": "20s"}


async def no_wait() -> None:
    """What a caller does that need not know of waiting."""


class TieredStorage:
    """Logs in PostgreSQL. Open one with `TieredStorage.open`."""

    durable = True

    def __init__(self, config: TieredConfig, *, clock: Clock) -> None:
        self.shared = Shared(config, clock=clock)
        self.config = config
        self.pool = Pool(
            config.dsn, purpose="readers", connections_max=config.readers, settings=_READ_SETTINGS
        )
        holder = f"{socket.gethostname()} {os.getpid()} {secrets.token_hex(8)}"
        self.writer = Writer(config.dsn, holder=holder, statement_s=config.statement_s)
        self.writer.on_trouble = lambda: self.shared.refuse_for_space(self.writer.trouble)
        self.lock = WriterLock(config.dsn)
        self.shared.counters.figures = self._figures
        self.shared.counters.trouble = self._trouble
        self.cache: RedisCache | None = None
        self._tasks = Supervisor(self.shared.end)
        self._cleanup = Cleanup(self.shared, self.pool, self.writer)
        self._housekeeper = Housekeeper(self.shared, self.pool, self.writer, self._cleanup)
        self._committer: Committer | None = None
        self._reader: Reader | None = None
        self._closed = False

    def __repr__(self) -> str:
        return f"<TieredStorage on {self.config.dsn}, {len(self.shared.logs)} logs>"

    @classmethod
    async def open(
        cls,
        config: TieredConfig,
        *,
        clock: Clock | None = None,
        cluster: str = "",
        stand_by: Callable[[], Awaitable[None]] = no_wait,
    ) -> TieredStorage:
        """Take over a database, or begin a new one, and serve it; DatabaseError if it cannot be reached.

        While another process serves it, this one waits; `stand_by` is called once before. `cluster` is the
        name of this database in the cache; without one it is the database's own system identifier.
        """
        storage = cls(config, clock=clock or SystemClock())
        try:
            await storage._take_over(cluster, stand_by)
        except BaseException:
            await storage._let_go()
            raise
        return storage

    # ---- the port

    @property
    def counters(self) -> StorageCounters:
        return self.shared.counters

    @property
    def cleaned(self) -> Cleaned:
        """What was removed since the start."""
        return self._housekeeper.cleaned

    def logs(self) -> Sequence[TieredLog]:
        return list(self.shared.logs.values())

    def get(self, partition_id: PartitionId) -> TieredLog | None:
        return self.shared.logs.get(partition_id)

    async def create(self, partition_id: PartitionId, config: LogConfig) -> TieredLog:
        self._check_open()
        shared = self.shared
        known = shared.logs.get(partition_id)
        if partition_id in shared.creating or (known is not None and not known.deleting):
            raise PartitionExists(partition_id)
        log = self._make_log(shared.next_log, partition_id, config, Offset(0), Offset(0))
        shared.next_log += 1
        shared.creating.add(partition_id)
        await shared.sequence(Create(log))
        return log

    async def delete(self, partition_id: PartitionId) -> None:
        self._check_open()
        log = self.shared.logs.get(partition_id)
        if log is None or log.deleting:
            raise UnknownPartition(partition_id)
        log.deleting = True
        log.fail(StorageError("use", str(log), "the log is deleted"))
        await self.shared.sequence(Delete(log))

    def configure(self, partition_id: PartitionId, config: LogConfig) -> None:
        log = self.shared.logs.get(partition_id)
        if log is None:
            raise UnknownPartition(partition_id)
        log.configure(config)

    def label(self, partition_id: PartitionId, *, cluster_id: str, topic: str) -> None:  # noqa: ARG002
        log = self.shared.logs.get(partition_id)
        if log is None:
            raise UnknownPartition(partition_id)
        log.label = topic

    async def maintain(self) -> None:
        self._check_open()
        await self.shared.guard(self._housekeeper.maintain())

    async def compact(self) -> None:
        """Nothing: a compacted log keeps every record here, which is more than compaction promises."""

    async def wait_failed(self) -> Exception:
        return await self.shared.wait_failed()

    async def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        try:
            if self._committer is not None and self.shared.failure is None:
                with suppress(StorageError):  # what failed has ended the engine, and was logged
                    await self.shared.guard(self._settle(self._committer))
        finally:
            await self._let_go()

    async def snapshot(self) -> None:
        """Write the state of every log that went on since its last snapshot."""
        await self._housekeeper.snapshot()

    # ---- inside

    def _trouble(self) -> str:
        trouble = self.writer.trouble
        return "" if trouble is None else f"writes wait for the database: {trouble}"

    def _figures(self) -> list[EngineFigure]:
        return tiered_figures(self.writer, self.lock, self.cleaned, self.cache)

    async def _take_over(self, cluster: str, stand_by: Callable[[], Awaitable[None]]) -> None:
        identifier = await self._migrate()
        self._tasks.start("writer lock", self.lock.run())
        await self._wait_for_lock(stand_by)
        await self.writer.begin()
        cold = self._make_cache(cluster or identifier)
        self._reader = Reader(ColdChunks(self.pool, cold, bytes_max=self.config.chunk_cache_bytes))
        async with self.pool.connection() as connection:
            await self._cleanup.load_days(connection)
            await load_logs(connection, self.shared, self._make_log)
        self._committer = Committer(
            self.shared, self.writer, prepare_days=self._cleanup.prepare, cache=cold.put
        )
        self._tasks.start("commit", self._committer.run())
        self._tasks.start("housekeeping", self._housekeeper.run())

    async def _migrate(self) -> str:
        """Bring the tables up to date; returns what names this database and no other one."""
        dsn = self.config.dsn
        connection = await connect(dsn, purpose="migrations")
        try:
            await migrate(connection, PART, read_migrations(__package__, "migrations"), where=dsn)
            with mapped(dsn):
                row = await connection.fetchrow(
                    "SELECT (SELECT system_identifier FROM pg_control_system()),"
                    " (SELECT oid FROM pg_database WHERE datname = current_database())"
                )
            assert row is not None
            return f"{row[0]:x}.{row[1]}"
        finally:
            await close_connection(connection)

    async def _wait_for_lock(self, stand_by: Callable[[], Awaitable[None]]) -> None:
        if await self.lock.try_at_once():
            return
        logger.info("another process serves %s: standing by", self.config.dsn)
        await stand_by()
        await self.lock.wait_held()
        logger.info("taking over %s", self.config.dsn)

    def _make_cache(self, cluster: str) -> ByteCache:
        if self.config.redis is None:
            return NoCache()
        monotonic = asyncio.get_running_loop().time
        self.cache = RedisCache(self.config.redis, cluster=cluster, monotonic=monotonic)
        self._tasks.start("cache", self.cache.run())
        return self.cache

    def _make_log(
        self, log_id: int, partition_id: PartitionId, config: LogConfig, start: Offset, end: Offset
    ) -> TieredLog:
        assert self._reader is not None
        return TieredLog(
            self.shared,
            self._reader,
            log_id=log_id,
            partition_id=partition_id,
            config=config,
            start=start,
            end=end,
        )

    def _check_open(self) -> None:
        if self._closed:
            raise StorageError("use", self.shared.place, "the storage is closed")
        self.shared.check_open()

    async def _settle(self, committer: Committer) -> None:
        """Everything appended becomes durable, and the next start has little to replay."""
        for log in self.logs():
            while log.durable_offset < log.end_offset:
                await log.wait_durable(log.end_offset)
        await committer.wait_idle()
        await self._housekeeper.snapshot()

    async def _let_go(self) -> None:
        await self._tasks.stop()
        closed = StorageError("use", self.shared.place, "the storage is closed")
        for log in list(self.shared.logs.values()):
            log.fail(self.shared.failure or closed)
        if self.cache is not None:
            await self.cache.close()
        await self.writer.close()
        await self.pool.close()
