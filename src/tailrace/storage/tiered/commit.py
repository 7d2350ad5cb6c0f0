"""Commit rounds: everything that waited, over all partitions, in one transaction. One round is in flight.

Nobody is told that anything is durable before the transaction is committed. A round whose every append is
loose (fsync = os or interval) does not wait for the disk, and durable then means committed in memory.
Batches of transactions are never loose: a crash would take one part of a committed transaction.

While the database is away or full the round waits, and later appends queue behind it up to their bound.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING

from tailrace.storage.counters import CommitQueue
from tailrace.storage.tiered.chunk import Chunk
from tailrace.storage.tiered.entry import Append, Create, Delete, Entry, Truncate
from tailrace.storage.tiered.round import Round, plan_round
from tailrace.storage.tiered.statement import RoundChange
from tailrace.storage.tiered.writer import Writer

if TYPE_CHECKING:
    from tailrace.storage.tiered.log import TieredLog
    from tailrace.storage.tiered.shared import Shared

_ROUNDS_AVERAGED = 8
_GATHER_TURNS = 2


class Committer:
    """Takes what was sequenced and makes it durable, round by round."""

    def __init__(
        self,
        shared: Shared,
        writer: Writer,
        *,
        prepare_days: Callable[[Iterable[tuple[int, int]]], Awaitable[None]],
        cache: Callable[[Chunk], None],
    ) -> None:
        """`prepare_days` sees that there are tables; `cache` is given every chunk that was committed."""
        self._shared = shared
        self._writer = writer
        self._prepare_days = prepare_days
        self._cache = cache
        self._queue: list[Entry] = []
        self._in_round = 0
        self._rounds = 0
        self._wake: asyncio.Future[None] | None = None
        self._idle: asyncio.Future[None] | None = None
        shared.submit = self.submit
        shared.counters.commit_queue = self._look_at_queue
        shared.counters.refusal = lambda: shared.refusal

    def submit(self, entry: Entry, size: int) -> None:
        """Queue an entry."""
        self._queue.append(entry)
        self._shared.queued_bytes += size
        if self._wake is not None:
            self._wake.set_result(None)
            self._wake = None

    async def wait_idle(self) -> None:
        """Return when everything queued is durable."""
        while self._queue or self._in_round:
            self._idle = asyncio.get_running_loop().create_future()
            await self._idle

    async def run(self) -> None:
        """Commit for ever; an error ends the engine."""
        while True:
            if not self._queue:
                self._wake = asyncio.get_running_loop().create_future()
                await self._wake
            for _ in range(_GATHER_TURNS):  # those who were told of the last round come back in these turns
                await asyncio.sleep(0)
            entries = self._take()
            self._in_round = len(entries)
            await self._commit(entries)
            self._in_round = 0
            if self._idle is not None and not self._queue:
                if not self._idle.done():
                    self._idle.set_result(None)
                self._idle = None

    def _look_at_queue(self) -> CommitQueue:
        return CommitQueue(len(self._queue) + self._in_round, self._shared.queued_bytes)

    def _take(self) -> list[Entry]:
        """The next round: as much as it may hold, at least one entry."""
        queue, most = self._queue, self._shared.config.round_bytes_max
        count = size = 0
        for entry in queue:
            more = entry.batch.size if isinstance(entry, Append) else 0
            if count and size + more > most:
                break
            count += 1
            size += more
        self._queue = queue[count:]
        return queue[:count]

    async def _commit(self, entries: list[Entry]) -> None:
        shared, config = self._shared, self._shared.config
        began = shared.clock.monotonic()
        self._rounds += 1
        planned = plan_round(
            entries,
            number=self._rounds,
            appended_ms=shared.append_time_ms(),
            chunk_bytes=config.chunk_bytes,
        )
        await self._prepare_days(planned.days())
        sent = shared.clock.monotonic()
        change = RoundChange(planned, copy_bytes_min=config.copy_bytes_min)
        chunks = await self._writer.run(change)
        shared.check_open()
        self._measure(planned, began=began, sent=sent)
        shared.queued_bytes -= planned.size
        self._acknowledge(entries, chunks)
        shared.evict_tails()

    def _measure(self, planned: Round, *, began: float, sent: float) -> None:
        counters, now = self._shared.counters, self._shared.clock.monotonic()
        counters.append.observe(now - began)
        counters.round_s += (now - began - counters.round_s) / _ROUNDS_AVERAGED
        if planned.synced:
            counters.flush.observe(now - sent)

    def _acknowledge(self, entries: list[Entry], chunks: list[Chunk]) -> None:
        shared = self._shared
        self._note_chunks(entries, chunks)
        reached: dict[TieredLog, Append] = {}
        for entry in entries:
            log = entry.log
            if isinstance(entry, Append):
                reached[log] = entry
                continue
            if (append := reached.pop(log, None)) is not None:
                log.advance(append.batch.next_offset)
            if isinstance(entry, Truncate):
                log.cut_is_durable()
            elif isinstance(entry, Create):
                shared.creating.discard(log.partition_id)
                shared.logs[log.partition_id] = log
            elif isinstance(entry, Delete) and shared.logs.get(log.partition_id) is log:
                del shared.logs[log.partition_id]
            if entry.done is not None and not entry.done.done():
                entry.done.set_result(None)
        for log, append in reached.items():
            shared.evictable[log] = None
            log.advance(append.batch.next_offset)

    def _note_chunks(self, entries: list[Entry], chunks: list[Chunk]) -> None:
        """What was written is found from now on, before anybody is told of it."""
        cuts: dict[int, int] = {}
        logs: dict[int, TieredLog] = {}
        for entry in entries:
            logs[entry.log.id] = entry.log
            if isinstance(entry, Truncate):
                cuts[entry.log.id] = min(entry.offset, cuts.get(entry.log.id, entry.offset))
        for log_id, end in cuts.items():
            logs[log_id].spans.truncate(end)
            logs[log_id].recent.truncate(end, ())
        for chunk in chunks:
            log = logs[chunk.name.log]
            log.spans.add(chunk.name)
            log.recent.add(chunk.name)
            self._cache(chunk)
