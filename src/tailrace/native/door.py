"""What the connections of one listener share."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from tailrace.broker import Broker
from tailrace.native.config import NativeConfig
from tailrace.native.counting import RequestCounts
from tailrace.net import DoorCounters, RequestBudget

if TYPE_CHECKING:
    from tailrace.native.session import Session

_RECEIVE_BYTES = 64 * 1024


class Door:
    """One listener's broker, bounds and running requests."""

    def __init__(self, broker: Broker, config: NativeConfig, budget: RequestBudget | None = None) -> None:
        self.broker = broker
        self.config = config
        self.budget = budget or RequestBudget(
            config.request_bytes_max,
            reserve_bytes=config.small_requests_bytes_max,
            small_bytes=config.small_request_bytes,
        )
        self.loop = asyncio.get_running_loop()
        self.counters = DoorCounters()
        self.requests = RequestCounts(self.counters)
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken: list[Session] = []

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a request beside everything else; it outlives its connection, and ends with the door."""
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def wake_soon(self, session: Session) -> None:
        """Have a session send what is known. A commit makes many replies known at once: one call for all."""
        if not self._woken:
            self.loop.call_soon(self._wake)
        self._woken.append(session)

    def _wake(self) -> None:
        woken, self._woken = self._woken, []
        for session in woken:
            session.wake()

    async def stop_requests(self) -> None:
        """End the requests that still run."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
