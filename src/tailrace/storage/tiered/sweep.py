"""Rows and tables that no log needs any more: deleted logs, kept chunks below a start, days that are over.

The engine does this when it maintains its logs, and `tailrace cleanup` by hand, with or without a broker.
Each step is a transaction of its own behind the fence, and asks the tables what is needed, so that it can
stop anywhere.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from tailrace.postgres import Connection, DatabaseBusy, Pool
from tailrace.storage.tiered.retention_class import DATED, KEPT

_ROWS_AT_ONCE = 1000
_LOCK_MS = 100  # what a day may hold up appends while it is dropped
_DELETE_BELOW = """
DELETE FROM tailrace.chunks WHERE log = $1 AND next_offset <= $2 AND ($3 < 0 OR class = $3)
  AND base_offset <= coalesce((
    SELECT max(base_offset) FROM (
        SELECT base_offset FROM tailrace.chunks WHERE log = $1 AND ($3 < 0 OR class = $3)
        ORDER BY base_offset LIMIT $4) AS first), -1)
"""
_DAYS = """
SELECT split_part(relname, '_', 2)::integer AS class,
       (extract(epoch FROM to_date(split_part(relname, '_', 3), 'YYYYMMDD')) / 86400)::integer AS day
FROM pg_inherits JOIN pg_class ON pg_class.oid = inhrelid
WHERE inhparent IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = 'tailrace.chunks'::regclass)
  AND relname ~ '^chunks_[0-9]+_[0-9]{8}$' ORDER BY 2, 1
"""
_STARTS = """
SELECT log, start_offset FROM tailrace.logs WHERE NOT deleted AND start_offset > 0 ORDER BY log
"""
_OF_ALL_CLASSES = -1
_END = 1 << 62


@dataclass(slots=True)
class Cleaned:
    """What was removed."""

    days: int = 0
    logs: int = 0
    chunks: int = 0
    days_held_up: int = 0  # a reader of the tables was in the way; the next run tries again


async def read_days(connection: Connection) -> set[tuple[int, int]]:
    """Class and day of every table of a day."""
    return {(row[0], row[1]) for row in await connection.fetch(_DAYS)}


class Sweep:
    """One run; `done` counts."""

    def __init__(self, pool: Pool, epoch: Callable[[], int]) -> None:
        self._pool = pool
        self._epoch = epoch
        self.done = Cleaned()

    async def remove_rows(self) -> None:
        """Chunks of deleted logs, and those that have no day and lie below the start of their log."""
        async with self._pool.connection() as connection:
            for row in await connection.fetch("SELECT log FROM tailrace.logs WHERE deleted ORDER BY log"):
                await self._remove_log(connection, row[0])
            for log, start in await connection.fetch(_STARTS):
                await self._delete(connection, log, below=start, retention=KEPT)

    async def drop_days(self, days: Iterable[tuple[int, int]], *, today: int) -> list[tuple[int, int]]:
        """Drop those of the days before today that no log needs; returns which."""
        return [
            (retention, day)
            for retention, day in sorted(days)
            if day < today and retention in DATED and await self._drop_day(retention, day)
        ]

    async def _remove_log(self, connection: Connection, log: int) -> None:
        await self._delete(connection, log, below=_END, retention=_OF_ALL_CLASSES)
        async with connection.transaction():
            await connection.execute("SELECT tailrace.fence($1)", self._epoch())
            await connection.execute("DELETE FROM tailrace.snapshots WHERE log = $1", log)
            await connection.execute("DELETE FROM tailrace.logs WHERE log = $1 AND deleted", log)
        self.done.logs += 1

    async def _delete(self, connection: Connection, log: int, *, below: int, retention: int) -> None:
        """Rows of a log, in steps that hold up no append."""
        while True:
            async with connection.transaction():
                await connection.execute("SELECT tailrace.fence($1)", self._epoch())
                said = await connection.execute(_DELETE_BELOW, log, below, retention, _ROWS_AT_ONCE)
            count = int(said.rpartition(" ")[2])
            self.done.chunks += count
            if not count:
                return
            await asyncio.sleep(0)

    async def _drop_day(self, retention: int, day: int) -> bool:
        try:
            async with self._pool.connection() as connection, connection.transaction():
                await connection.execute(f"SET LOCAL lock_timeout = {_LOCK_MS}")
                await connection.execute("SELECT tailrace.fence($1)", self._epoch())
                dropped = await connection.fetchval("SELECT tailrace.drop_day($1, $2)", retention, day)
        except DatabaseBusy:
            self.done.days_held_up += 1
            return False
        self.done.days += bool(dropped)
        return bool(dropped)
