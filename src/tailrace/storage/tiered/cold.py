"""Chunks that are not in the tail: from a small cache in memory, from Redis by name, else from PostgreSQL.

What exists is known from PostgreSQL: from the names of the newest chunks in memory, which were committed,
or from a query. Redis is only asked for the bytes of a name, and what it answers is checked against the
name.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from tailrace.model import LogDamaged, Offset
from tailrace.postgres import Pool
from tailrace.storage.tiered.chunk import Chunk, ChunkName, check_chunk
from tailrace.storage.tiered.state import LogState, read_state
from tailrace.storage.tiered.statement import NAME_COLUMNS, read_chunk

if TYPE_CHECKING:
    from tailrace.storage.tiered.log import TieredLog

_ROWS_MAX = 256
_OF_SPAN = "class = $1 AND log = $2 AND appended_ms >= $3 AND appended_ms < $4"
_READ = f"""
SELECT {NAME_COLUMNS}, data FROM (
    SELECT *, sum(size) OVER (ORDER BY base_offset) AS total FROM (
        SELECT {NAME_COLUMNS}, data FROM tailrace.chunks
        WHERE {_OF_SPAN} AND base_offset < $6 AND base_offset >= coalesce((
            SELECT max(base_offset) FROM tailrace.chunks WHERE {_OF_SPAN} AND base_offset <= $5), $5)
        ORDER BY base_offset LIMIT {_ROWS_MAX}) AS near) AS counted
WHERE total - size < $7 AND next_offset > $5 ORDER BY base_offset
"""
_ONE = f"SELECT {NAME_COLUMNS}, data FROM tailrace.chunks WHERE {_OF_SPAN} AND base_offset = $5"
_BY_TIME = f"""
SELECT {NAME_COLUMNS}, data FROM tailrace.chunks
WHERE {_OF_SPAN} AND next_offset > $5 AND base_offset < $6 AND max_timestamp >= $7
ORDER BY base_offset LIMIT 1
"""
_SNAPSHOTS = """
SELECT next_offset, data FROM tailrace.snapshots WHERE log = $1 AND next_offset <= $2
ORDER BY next_offset DESC
"""


class ByteCache(Protocol):
    """Where the bytes of a chunk may be had faster; it knows nothing of what exists."""

    async def get(self, name: ChunkName) -> bytes | None:
        """The bytes, checked against the name; None if they are not there, or not in time."""

    def put(self, chunk: Chunk) -> None:
        """Keep the bytes of a committed chunk, some time soon, if there is room."""


class NoCache:
    """Without Redis."""

    async def get(self, _: ChunkName) -> bytes | None:
        return None

    def put(self, chunk: Chunk) -> None:
        """Nothing is kept."""


class ColdChunks:
    """Reads chunks of any log."""

    def __init__(self, pool: Pool, cache: ByteCache, *, bytes_max: int) -> None:
        self._pool = pool
        self._cache = cache
        self._bytes_max = bytes_max
        self._kept: OrderedDict[tuple[int, int, int, int], Chunk] = OrderedDict()
        self._kept_bytes = 0

    def find_nowait(self, log: TieredLog, offset: int) -> Chunk | None:
        """The chunk that holds an offset, if it is in memory."""
        name = log.recent.find(offset)
        return None if name is None or name.base_offset > offset else self._kept.get(_key(name))

    async def read(self, log: TieredLog, offset: int, *, bytes_max: int, up_to: int) -> Sequence[Chunk]:
        """Chunks from the one that holds `offset` on, at least one if there is any below `up_to`; checked."""
        name = log.recent.find(offset)
        if name is not None and name.base_offset < up_to:
            chunk = await self._by_name(log, name)
            return () if chunk is None else [chunk]
        for span in log.spans.from_offset(offset):
            if span.base_offset >= up_to:
                break
            times = span.times
            async with self._pool.connection() as connection:
                rows = await connection.fetch(
                    _READ, span.retention, log.id, *times, offset, up_to, max(bytes_max, 1)
                )
            if rows:
                return [check_chunk(read_chunk(row), log=log) for row in rows]
        return ()

    async def find_time(self, log: TieredLog, timestamp_ms: int, *, first: int, up_to: int) -> Chunk | None:
        """The first chunk from `first` on, below `up_to`, with a record at or after a time."""
        for span in log.spans.from_offset(first):
            if span.base_offset >= up_to:
                break
            if span.newest_ms < timestamp_ms:
                continue
            times = span.times
            async with self._pool.connection() as connection:
                row = await connection.fetchrow(
                    _BY_TIME, span.retention, log.id, *times, first, up_to, timestamp_ms
                )
            if row is not None:
                return check_chunk(read_chunk(row), log=log)
        return None

    async def state_before(self, log: TieredLog, offset: int) -> tuple[Offset, LogState]:
        """The newest readable snapshot that is not past `offset`; from there the log is to be applied."""
        async with self._pool.connection() as connection:
            for row in await connection.fetch(_SNAPSHOTS, log.id, offset):
                if (state := read_state(row[1])) is not None:
                    return Offset(row[0]), state
        return Offset(0), LogState()

    async def _by_name(self, log: TieredLog, name: ChunkName) -> Chunk | None:
        kept = self._kept.get(_key(name))
        if kept is not None:
            self._kept.move_to_end(_key(name))
            return kept
        data = await self._cache.get(name)
        chunk = Chunk(name, data) if data is not None else await self._fetch(log, name)
        if chunk is not None:
            self._keep(chunk)
        return chunk

    async def _fetch(self, log: TieredLog, name: ChunkName) -> Chunk | None:
        """None if the chunk is gone because the log has moved on meanwhile."""
        async with self._pool.connection() as connection:
            row = await connection.fetchrow(
                _ONE, name.retention, name.log, name.appended_ms, name.appended_ms + 1, name.base_offset
            )
        if row is not None:
            return check_chunk(read_chunk(row), log=log)
        if name.next_offset > log.start_offset and log.recent.find(name.base_offset) == name:
            log.check_readable()  # of a deleted log nothing is missed
            raise LogDamaged(
                f"chunk {name.base_offset} of {log} is missing. Restore the database from a backup"
            )
        return None

    def _keep(self, chunk: Chunk) -> None:
        if len(chunk.data) > self._bytes_max // 4:
            return
        key = _key(chunk.name)
        if key not in self._kept:
            self._kept_bytes += len(chunk.data)
        self._kept[key] = chunk
        while self._kept_bytes > self._bytes_max:
            self._kept_bytes -= len(self._kept.popitem(last=False)[1].data)


def _key(name: ChunkName) -> tuple[int, int, int, int]:
    """A truncation may shorten a chunk under its own name, so the end is a part of this one."""
    return name.log, name.writer_epoch, name.base_offset, name.next_offset
