"""The rings of one node.

Logs live in a dictionary, and in a snapshot if there is one. One that is closed is forgotten, for its batches
are gone; one that is re-created is another log and never meets the batches of the first.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from tailrace.model import PartitionExists, PartitionId, StorageError, UnknownPartition
from tailrace.runtime import Clock, SystemClock
from tailrace.storage.api import LogConfig
from tailrace.storage.counters import StorageCounters
from tailrace.storage.memory.log import MemoryLog
from tailrace.storage.memory.option import BYTES_MAX, MESSAGES_MAX, TTL_MS
from tailrace.storage.memory.snapshot import Mark, Snapshots
from tailrace.storage.memory.snapshot_file import RingCut, Snapshot
from tailrace.storage.producers import NODE_PRODUCERS_MAX, fair_limit

_AS_IT_WAS = LogConfig(delete=False, options={BYTES_MAX.name: -1, MESSAGES_MAX.name: -1, TTL_MS.name: -1})
"""Of a log that came back, until `configure` puts its own settings in force."""


class MemoryStorage:
    """A storage engine that promises nothing past the process."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        snapshots: Snapshots | None = None,
        on_closed: Callable[[], None] | None = None,
    ) -> None:
        """With `snapshots` the rings are written at their interval, and when this is closed."""
        self._on_closed = on_closed
        self._clock = clock or SystemClock()
        self._snapshots = snapshots
        if snapshots is not None:
            snapshots.start(self._cut, self._mark)
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

    def restore(self, snapshot: Snapshot, *, known: Collection[PartitionId]) -> None:
        """Have the logs of a snapshot that are of these partitions; before anything else is asked of this."""
        for cut in snapshot.logs:
            if cut.partition_id not in known:
                continue
            log = MemoryLog(cut.partition_id, _AS_IT_WAS, clock=self._clock)
            log.restore(cut)
            self._logs[cut.partition_id] = log

    def label(self, partition_id: PartitionId, *, cluster_id: str, topic: str) -> None:  # noqa: ARG002
        """A snapshot names the cluster that it is of."""
        if self._snapshots is not None:
            self._snapshots.cluster_id = cluster_id

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

    async def snapshot(self) -> None:
        """Write a snapshot now, if there are any; StorageError if it cannot be written."""
        if self._snapshots is not None:
            await self._snapshots.write(self._cut, self._mark)

    async def close(self) -> None:
        """Write the last snapshot, if there are any; StorageError if that fails. The rings are gone then."""
        try:
            if self._snapshots is not None and not self._closed:
                self._closed = True
                await self._snapshots.stop()
                await self.snapshot()
        finally:
            await self._let_go()
            if self._on_closed is not None:
                self._on_closed()

    async def _let_go(self) -> None:
        self._closed = True
        for log in self.logs():
            await log.close()
        self._logs.clear()

    def _cut(self) -> list[RingCut]:
        return [log.cut() for log in self.logs()]

    def _mark(self) -> Mark:
        return tuple((log.partition_id, log.start_offset, log.end_offset) for log in self.logs())

    def _find(self, partition_id: PartitionId) -> MemoryLog:
        log = self.get(partition_id)
        if log is None:
            raise UnknownPartition(partition_id)
        return log
