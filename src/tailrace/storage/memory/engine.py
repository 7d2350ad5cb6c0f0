"""The rings of one node.

Logs live in a dictionary and nowhere else. One that is closed is forgotten, for its batches are gone; one
that is re-created is another log and never meets the batches of the first.
"""

from __future__ import annotations

import asyncio

from tailrace.model import PartitionExists, PartitionId, StorageError, UnknownPartition
from tailrace.runtime import Clock, SystemClock
from tailrace.storage.api import LogConfig
from tailrace.storage.counters import StorageCounters
from tailrace.storage.memory.log import MemoryLog
from tailrace.storage.producers import NODE_PRODUCERS_MAX, fair_limit


class MemoryStorage:
    """A storage engine that promises nothing past the process."""

    def __init__(self, *, clock: Clock | None = None) -> None:
        self._clock = clock or SystemClock()
        self._logs: dict[PartitionId, MemoryLog] = {}
        self._closed = False
        self.counters = StorageCounters()  # nothing is waited for here, and so nothing measured

    def __repr__(self) -> str:
        return f"<MemoryStorage {'closed' if self._closed else f'{len(self.logs())} logs'}>"

    @property
    def durable(self) -> bool:
        return False

    def logs(self) -> list[MemoryLog]:
        return [log for log in self._logs.values() if not log.closed]

    def get(self, partition_id: PartitionId) -> MemoryLog | None:
        log = self._logs.get(partition_id)
        return None if log is None or log.closed else log

    async def create(self, partition_id: PartitionId, config: LogConfig) -> MemoryLog:
        if self._closed:
            raise StorageError("create", str(partition_id), "the engine is closed")
        if self.get(partition_id) is not None:
            raise PartitionExists(partition_id)
        log = self._logs[partition_id] = MemoryLog(partition_id, config, clock=self._clock)
        return log

    async def delete(self, partition_id: PartitionId) -> None:
        log = self._find(partition_id)
        del self._logs[partition_id]
        await log.close()

    def configure(self, partition_id: PartitionId, config: LogConfig) -> None:
        self._find(partition_id).configure(config)

    def label(self, partition_id: PartitionId, *, cluster_id: str, topic: str) -> None:
        """Nothing outlives the process, so nothing has to be found again."""

    async def maintain(self) -> None:
        for log in self.logs():
            await log.evict()
        limit = fair_limit([len(log.producers) for log in self.logs()], NODE_PRODUCERS_MAX)
        for log in self.logs():
            log.producers.forget_oldest(len(log.producers) - limit)

    async def compact(self) -> None:
        """Nothing: a ring keeps what its bounds allow."""

    async def wait_failed(self) -> Exception:
        """Waits for ever: there is no disk that could fail."""
        never: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        return await never

    async def close(self) -> None:
        self._closed = True
        for log in self.logs():
            await log.close()
        self._logs.clear()

    def _find(self, partition_id: PartitionId) -> MemoryLog:
        log = self.get(partition_id)
        if log is None:
            raise UnknownPartition(partition_id)
        return log
