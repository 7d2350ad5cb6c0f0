"""What the parts of the engine share: its logs, its counters, its bounds, and its end.

An engine ends when another process is the writer, or the database does not take what it must. Then no
append is taken, and nobody who waits is told that anything is durable. A database that is away ends
nothing: it is waited for.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any

from tailrace.model import NoSpace, PartitionId, StorageError
from tailrace.runtime import Clock
from tailrace.storage.counters import StorageCounters
from tailrace.storage.tiered.config import TieredConfig
from tailrace.storage.tiered.entry import Control, Entry
from tailrace.storage.tiered.log import TieredLog

logger = logging.getLogger(__name__)


class Shared:
    """The state of one engine."""

    def __init__(self, config: TieredConfig, *, clock: Clock) -> None:
        self.config = config
        self.clock = clock
        self.place = str(config.dsn)
        self.counters = StorageCounters()
        self.logs: dict[PartitionId, TieredLog] = {}  # those that serve
        self.creating: set[PartitionId] = set()  # sequenced and not yet durable
        self.next_log = 1
        self.queued_bytes = 0  # appended, not yet durable
        self.tail_bytes = 0
        self.evictable: dict[TieredLog, None] = {}  # had something committed since they gave all they had
        self.refusal: Exception | None = None  # why no append is taken now
        self.submit: Callable[[Entry, int], None] = _not_started
        self._appended_ms = 0
        self._awaited: dict[asyncio.Future[None], None] = {}
        self._failure: asyncio.Future[StorageError] = asyncio.get_running_loop().create_future()

    @property
    def failure(self) -> StorageError | None:
        """What ended this engine, if anything did."""
        return self._failure.result() if self._failure.done() else None

    @property
    def recent_chunks_max(self) -> int:
        """How many names of chunks each log may keep."""
        return self.config.recent_chunks_max // max(len(self.logs), 1)

    def append_time_ms(self, at_least: int = 0) -> int:
        """The time of an append: it never goes back, whatever the clock does."""
        self._appended_ms = max(self._appended_ms, at_least, self.clock.steady_ms())
        return self._appended_ms

    async def wait_failed(self) -> StorageError:
        return await asyncio.shield(self._failure)

    def end(self, error: BaseException) -> None:
        """End the engine. The first reason counts."""
        if self._failure.done():
            return
        failure = error
        if not isinstance(failure, StorageError):
            failure = StorageError("serve", self.place, f"{type(error).__name__}: {error}")
        logger.critical("tiered engine ended: %s", failure, exc_info=error)
        self._failure.set_result(failure)
        self.refusal = failure
        for log in list(self.logs.values()):
            log.fail(failure)
        for done in self._awaited:
            if not done.done():
                done.set_exception(failure)

    def refuse_for_space(self, trouble: Exception | None) -> None:
        """Refuse appends while the database is full, and take them again when it is not."""
        if self._failure.done():
            return
        self.refusal = trouble if isinstance(trouble, NoSpace) else None

    async def sequence(self, entry: Control) -> None:
        """Queue an entry that is not an append, and return when it is durable."""
        done = entry.done = asyncio.get_running_loop().create_future()
        self._awaited[done] = None
        self.submit(entry, 0)
        try:
            await done
        finally:
            del self._awaited[done]

    async def guard(self, work: Coroutine[Any, Any, None]) -> None:
        """Work on behalf of a caller, which ends with the engine."""
        working = asyncio.ensure_future(work)
        waiting: set[asyncio.Future[Any]] = {working, self._failure}
        try:
            await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            if self._failure.done():
                raise self._failure.result()
            working.result()
        finally:
            if not working.done():
                working.cancel()
                await asyncio.gather(working, return_exceptions=True)

    def check_open(self) -> None:
        """Raise what ended the engine, if anything did."""
        if self._failure.done():
            raise self._failure.result()

    def evict_tails(self) -> None:
        """Keep the memory of committed batches within its bound, oldest users first."""
        excess = self.tail_bytes - self.config.tail_bytes_max
        if excess <= 0:
            return
        for log in list(self.evictable):
            excess -= log.evict_tail(excess)
            if excess <= 0:
                return
            del self.evictable[log]


def _not_started(_: Entry, __: int) -> None:
    raise AssertionError("the engine does not commit yet")
