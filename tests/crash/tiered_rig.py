"""A tiered engine, its servers, and a proxy that loses answers of PostgreSQL."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from dataclasses import replace
from typing import Literal
from uuid import UUID

from tailrace.model import Epoch, Offset, PartitionId
from tailrace.postgres import Connection, Dsn, connect
from tailrace.postgres.pool import close_connection
from tailrace.records import build_batch, iter_batches, read_batch
from tailrace.storage import LogConfig
from tailrace.storage.tiered.config import TieredConfig
from tailrace.storage.tiered.log import TieredLog
from tailrace.storage.tiered.storage import TieredStorage

PARTITION = PartitionId(UUID(int=0x7A11), 0)
CONFIG = LogConfig()
Cut = Literal["before", "after", "held"]


class Proxy:
    """Forwards to a database; an armed cut ends the connection that sends the next mark.

    before   the mark never reaches the server
    after    the server has answered, and the answer is lost
    held     the server has it and goes on with it, behind the back of the client
    """

    def __init__(self, target: Dsn) -> None:
        self._target = target
        self._server: asyncio.Server | None = None
        self._held: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self.mark = b""
        self.cuts: list[Cut] = []  # the next ones
        self.done = 0

    async def start(self) -> Dsn:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port = self._server.sockets[0].getsockname()[1]
        return replace(self._target, host="127.0.0.1", port=port)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in self._held:
            writer.transport.abort()
        await self._server.wait_closed()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        far_reader, far_writer = await asyncio.open_connection(self._target.host, self._target.port)
        back = asyncio.ensure_future(_copy(far_reader, writer))
        try:
            while data := await reader.read(1 << 16):
                if self.mark and self.mark in data and self.cuts:
                    await self._cut(self.cuts.pop(0), data, back, far_reader, far_writer)
                    return
                far_writer.write(data)
                await far_writer.drain()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            back.cancel()
            writer.transport.abort()
            if far_writer not in self._held:
                far_writer.transport.abort()
            self._tasks.discard(task)

    async def _cut(
        self,
        cut: Cut,
        data: bytes,
        back: asyncio.Future[None],
        far_reader: asyncio.StreamReader,
        far_writer: asyncio.StreamWriter,
    ) -> None:
        self.done += 1
        if cut == "before":
            return
        back.cancel()
        with suppress(asyncio.CancelledError):
            await back
        far_writer.write(data)
        await far_writer.drain()
        if cut == "held":
            self._held.append(far_writer)
            return
        answer = b""
        while b"Z" not in answer[-6:]:  # ReadyForQuery ends an answer
            answer += await far_reader.read(1 << 16)


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while data := await reader.read(1 << 16):
            writer.write(data)
            await writer.drain()
        writer.transport.abort()


def append(log: TieredLog, value: bytes, *, epoch: int = 0) -> int:
    """One record; its offset."""
    data = build_batch([(1_750_000_000_000, b"key", value, ())])
    return log.append(read_batch(data), leader_epoch=Epoch(epoch))


async def values_of(log: TieredLog) -> list[tuple[int, bytes]]:
    """Everything durable, as a reader finds it."""
    found: list[tuple[int, bytes]] = []
    place = log.start_offset
    while place < log.durable_offset:
        piece = await log.read(place, bytes_max=1 << 20, up_to=log.durable_offset)
        for batch in iter_batches(await piece.load()):
            found += [(record.offset, bytes(record.value or b"")) for record in batch.records()]
        place = Offset(piece.next_offset)
    return found


@asynccontextmanager
async def session(dsn: Dsn) -> AsyncIterator[Connection]:
    """A connection of a test's own."""
    made = await connect(dsn)
    try:
        yield made
    finally:
        await close_connection(made)


async def rows(dsn: Dsn) -> list[tuple[int, int, int]]:
    """Base and next offset and epoch of every chunk."""
    async with session(dsn) as connection:
        found = await connection.fetch(
            "SELECT base_offset, next_offset, writer_epoch FROM tailrace.chunks"
            " ORDER BY base_offset, appended_ms"
        )
        return [(row[0], row[1], row[2]) for row in found]


@asynccontextmanager
async def engine_on(config: TieredConfig) -> AsyncIterator[TieredStorage]:
    storage = await TieredStorage.open(config)
    try:
        yield storage
    finally:
        await storage.close()


def bounds(dsn: Dsn, **changes: object) -> TieredConfig:
    """Nothing is answered from memory, and there are tables for today alone."""
    config = TieredConfig(dsn=dsn, days_ahead=0, tail_bytes_max=0, chunk_cache_bytes=0)
    return replace(config, **changes)  # type: ignore[arg-type]
