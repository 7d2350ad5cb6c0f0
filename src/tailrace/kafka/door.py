"""What the connections of one listener share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tailrace.broker import Broker
from tailrace.kafka.cache import ReplyCache
from tailrace.kafka.config import DoorConfig
from tailrace.kafka.session import FetchSessions
from tailrace.net import DoorCounters, RequestBudget

if TYPE_CHECKING:
    from tailrace.kafka.connection import Connection

_RECEIVE_BYTES = 64 * 1024


class Door:
    """One listener's broker, bounds, caches and running handlers."""

    def __init__(self, broker: Broker, config: DoorConfig, budget: RequestBudget | None = None) -> None:
        self.broker = broker
        self.config = config
        self.budget = budget or RequestBudget(
            config.request_bytes_max,
            reserve_bytes=config.small_requests_bytes_max,
            small_bytes=config.small_request_bytes,
        )
        # A record that arrives alone must not find megabytes before it in the log's queue.
        self.large = RequestBudget(config.large_requests_bytes_max)
        self.loop = asyncio.get_running_loop()
        self.counters = DoorCounters()
        self.produced = self.counters.tally("Produce")
        self.fetched = self.counters.tally("Fetch")
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self.metadata = ReplyCache()
        self.sessions = FetchSessions(
            sessions_max=config.sessions_max,
            partitions_max=config.session_partitions_max,
            idle_s=config.session_idle_s,
        )
        self.suspects: set[tuple[str, int]] = set()  # partitions whose records could not be read in mid-reply
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken: list[Connection] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a handler beside everything else; it outlives its connection, and ends with the door."""
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def wake_soon(self, connection: Connection) -> None:
        """Have a connection look at its replies. A commit makes many known at once: one callback for all."""
        if not self._woken:
            self.loop.call_soon(self._wake)
        self._woken.append(connection)

    def _wake(self) -> None:
        woken, self._woken = self._woken, []
        for connection in woken:
            connection.ready()

    async def stop_handlers(self) -> None:
        """End the handlers that still run."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
