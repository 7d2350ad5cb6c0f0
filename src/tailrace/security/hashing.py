"""Password hashing off the event loop: few threads, and a bound on how many callers wait for them."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from tailrace.security.failure import LoginsBusy

T = TypeVar("T")

WAITING_MAX: Final = 256


class Hashing:
    """Runs slow functions in threads of its own. A process has one for each broker."""

    def __init__(self, *, threads: int = 0, waiting_max: int = WAITING_MAX) -> None:
        """By default half of the processors, so that logins leave the other half to requests."""
        self._threads = threads or max(1, (os.cpu_count() or 1) // 2)
        self._waiting_max = waiting_max
        self._pool: ThreadPoolExecutor | None = None  # made when it is first needed
        self._under_way = 0

    def __repr__(self) -> str:
        return f"<Hashing {self._under_way} under way, {self._threads} threads>"

    async def run(self, work: Callable[[], T]) -> T:
        """What `work` returns; LoginsBusy if too many others wait."""
        if self._under_way >= self._threads + self._waiting_max:
            raise LoginsBusy
        if self._pool is None:
            self._pool = ThreadPoolExecutor(self._threads, thread_name_prefix="tailrace-hashing")
        self._under_way += 1
        running = asyncio.get_running_loop().run_in_executor(self._pool, work)
        # A caller that stops waiting leaves its work in the queue: it counts until it is done.
        running.add_done_callback(self._done)
        return await asyncio.shield(running)

    def close(self) -> None:
        """End the threads; what waits is dropped."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
            self._pool = None

    def _done(self, running: asyncio.Future[T]) -> None:
        self._under_way -= 1
        if not running.cancelled():
            running.exception()  # its caller may have gone
