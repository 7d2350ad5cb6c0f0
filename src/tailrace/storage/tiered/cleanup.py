"""What leaves: by retention the start of a log moves; then go whole days, deleted logs, kept chunks.

The start moves by chunks and at once. Bytes leave with the tables of a day, when no log needs one any more.
Where tables have no day (class KEPT), and where a log was deleted, rows are deleted in small steps.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from tailrace.model import Offset
from tailrace.postgres import Connection, DatabaseError, Pool
from tailrace.storage.api import NO_LIMIT
from tailrace.storage.retention import SegmentFacts, plan_retention
from tailrace.storage.tiered.retention_class import DAY_MS
from tailrace.storage.tiered.span import Span
from tailrace.storage.tiered.sweep import Cleaned, Sweep, read_days
from tailrace.storage.tiered.writer import Writer

if TYPE_CHECKING:
    from tailrace.storage.tiered.log import TieredLog
    from tailrace.storage.tiered.shared import Shared

logger = logging.getLogger(__name__)

_CHUNKS_LOOKED_AT = 1000
_CHUNKS = """
SELECT base_offset, next_offset, max_timestamp, size FROM tailrace.chunks
WHERE class = $1 AND log = $2 AND appended_ms >= $3 AND appended_ms < $4 AND next_offset > $5
ORDER BY base_offset LIMIT $6
"""


class AddDays:
    """Tables for days, as a change of the writer; harmless where they are there."""

    advanced = 0

    def __init__(self, days: Sequence[tuple[int, int]]) -> None:
        self._days = days

    async def apply(self, connection: Connection, epoch: int) -> bool:
        async with connection.transaction():
            await connection.execute("SELECT tailrace.fence($1)", epoch)
            for retention, day in self._days:
                await connection.execute("SELECT tailrace.add_day($1, $2)", retention, day)
        return True

    async def find(self, connection: Connection, epoch: int) -> bool | None:  # noqa: ARG002
        """It may always be done again."""
        return None


class Cleanup:
    """Moves starts and removes what lies below them."""

    def __init__(self, shared: Shared, pool: Pool, writer: Writer) -> None:
        self._shared = shared
        self._pool = pool
        self._writer = writer
        self._known: set[tuple[int, int]] = set()  # days that have tables

    # ---- tables for what comes

    async def load_days(self, connection: Connection) -> None:
        """Which days have tables."""
        self._known = await read_days(connection)

    async def prepare(self, days: Iterable[tuple[int, int]]) -> None:
        """See that these days have tables, and days ahead where one is made."""
        missing = [each for each in days if each not in self._known]
        if missing:
            await self._add({(retention, day + ahead) for retention, day in missing for ahead in self._ahead})

    @property
    def _ahead(self) -> range:
        return range(self._shared.config.days_ahead + 1)

    async def _prepare_ahead(self) -> None:
        """Tables for the next days of every class that is in use."""
        today = self._shared.append_time_ms() // DAY_MS
        classes = {retention for retention, _ in self._known}
        await self._add({(retention, today + ahead) for retention in classes for ahead in self._ahead})

    async def _add(self, days: set[tuple[int, int]]) -> None:
        missing = sorted(days - self._known)
        if missing:
            await self._writer.run(AddDays(missing))
            self._known.update(missing)

    # ---- the start of a log

    async def expire(self, log: TieredLog, now_ms: int) -> None:
        """Move the start of a log past what its retention does not keep."""
        while (offset := await self._plan(log, now_ms)) is not None and log.accepts_changes:
            logger.info("retention moves the start of %s to %d", log, offset)
            await log.trim(offset)

    async def _plan(self, log: TieredLog, now_ms: int) -> Offset | None:
        """By days first; then by the chunks of the first day that is left, if any may be due.

        What waits for archives is counted by chunks only: a day is more than may wait.
        """
        spans = [span for span in log.spans if span.next_offset > log.start_offset]
        facts = [_fact_of(span) for span in spans]
        offset = None if log.config.archive_wait_ms > 0 else self._decide(log, facts, now_ms)
        if offset is not None or not spans or not _may_be_due(log, spans, now_ms):
            return offset
        first = spans[0]
        chunks = await self._chunks(log, first)
        rest = first.size - sum(fact.bytes for fact in chunks)
        if chunks and chunks[-1].next_base < first.next_offset:
            chunks.append(
                SegmentFacts(
                    base=chunks[-1].next_base,
                    next_base=first.next_offset,
                    bytes=max(rest, 1),
                    max_timestamp=None,
                )
            )
        return self._decide(log, [*chunks, *facts[1:]], now_ms)

    def _decide(self, log: TieredLog, facts: Sequence[SegmentFacts], now_ms: int) -> Offset | None:
        offset = plan_retention(
            facts,
            log.config,
            now_ms=now_ms,
            start=log.start_offset,
            final_before=log.final_before(),
            archived_before=log.archived_before,
        )
        return None if offset is None or offset > log.durable_offset else offset

    async def _chunks(self, log: TieredLog, span: Span) -> list[SegmentFacts]:
        async with self._pool.connection() as connection:
            rows = await connection.fetch(
                _CHUNKS, span.retention, log.id, *span.times, log.start_offset, _CHUNKS_LOOKED_AT
            )
        return [
            SegmentFacts(base=row[0], next_base=row[1], max_timestamp=row[2], bytes=row[3]) for row in rows
        ]

    # ---- what lies below (`sweep`)

    async def run(self) -> Cleaned:
        """Remove what no log needs; what is in the way of others waits for the next run."""
        sweep = Sweep(self._pool, lambda: self._writer.epoch)
        try:
            await self._prepare_ahead()
            await sweep.remove_rows()
            needed = {
                (span.retention, span.day) for log in list(self._shared.logs.values()) for span in log.spans
            }
            today = self._shared.append_time_ms() // DAY_MS
            self._known.difference_update(await sweep.drop_days(self._known - needed, today=today))
        except DatabaseError as error:
            logger.warning("cleanup stops early: %s", error)
        done = sweep.done
        if done.days or done.logs or done.chunks:
            logger.info("cleaned up: %d days, %d deleted logs, %d chunks", done.days, done.logs, done.chunks)
        return done


def _fact_of(span: Span) -> SegmentFacts:
    return SegmentFacts(
        base=span.base_offset, next_base=span.next_offset, bytes=span.size, max_timestamp=span.newest_ms
    )


def _may_be_due(log: TieredLog, spans: Sequence[Span], now_ms: int) -> bool:
    """Whether the first day may hold a chunk that is past retention: asking costs a query."""
    config = log.config
    by_time = config.retention_ms != NO_LIMIT and spans[0].oldest_ms < now_ms - config.retention_ms
    by_size = config.retention_bytes != NO_LIMIT and sum(span.size for span in spans) > config.retention_bytes
    return by_time or by_size
