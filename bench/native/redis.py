"""Redis Streams by redis.asyncio: XADD, XREADGROUP, XACK, with a sync to the disk before every answer.

Two ways. Each by itself: a command for every message, so many of them in flight, which takes as many
connections, as the client's pool makes them. In pipelines: `batch` XADDs at once, and one XACK for all that
one read returned; that is the most that Redis can do.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import redis.asyncio

from tailrace.bench.native.messaging import Handler

_GROUP, _MEMBER, _FIELD = "workers", "one", b"v"
_BLOCK_MS = 200  # then it looks whether it is to stop
_PIPELINE = 200


class RedisMessaging:
    """A stream and a consumer group; every command has a connection of the pool for itself."""

    batch = 1

    def __init__(self, *, host: str, port: int, name: str, connections: int) -> None:
        pool = redis.asyncio.BlockingConnectionPool(
            host=host, port=port, max_connections=connections, timeout=None
        )
        self._redis = redis.asyncio.Redis(connection_pool=pool)
        self._name = name
        self._reader: asyncio.Task[None] | None = None
        self._acking: set[asyncio.Task[None]] = set()
        self._unacked = 0
        self._freed = asyncio.Event()
        self._stopped = False

    async def open(self) -> None:
        await self._redis.config_set("appendfsync", "always")

    async def create(self) -> None:
        await self._redis.xgroup_create(self._name, _GROUP, id="0", mkstream=True)

    async def publish(self, body: bytes) -> None:
        await self._redis.xadd(self._name, {_FIELD: body})

    async def subscribe(self, handler: Handler, *, prefetch: int) -> None:
        self._stopped = False
        self._reader = asyncio.create_task(self._read(handler, prefetch))

    async def unsubscribe(self) -> None:
        self._stopped = True
        if self._reader is not None:
            await self._reader
        await asyncio.gather(*self._acking)

    async def count_unacknowledged(self) -> int:
        (group,) = await self._redis.xinfo_groups(self._name)
        lag = group.get("lag")  # from 7.0 on; before, what was not read is not told
        return int(group["pending"]) + int(lag or 0)

    async def remove(self) -> None:
        await self._redis.delete(self._name)

    async def close(self) -> None:
        await self._redis.aclose(close_connection_pool=True)

    async def _read(self, handler: Handler, prefetch: int) -> None:
        """Read what there is room for; acknowledge while the next is read."""
        while not self._stopped:
            while self._unacked >= prefetch:
                self._freed.clear()
                await self._freed.wait()
            found = await self._redis.xreadgroup(
                _GROUP, _MEMBER, {self._name: ">"}, count=prefetch - self._unacked, block=_BLOCK_MS
            )
            for _, entries in found:
                for _, fields in entries:
                    handler(fields[_FIELD])
                self._acknowledge([entry for entry, _ in entries])

    def _acknowledge(self, entries: Sequence[bytes]) -> None:
        for entry in entries:
            self._start_ack([entry])

    def _start_ack(self, entries: Sequence[bytes]) -> None:
        self._unacked += len(entries)
        task = asyncio.create_task(self._ack(entries))
        self._acking.add(task)
        task.add_done_callback(self._acking.discard)

    async def _ack(self, entries: Sequence[bytes]) -> None:
        try:
            await self._redis.xack(self._name, _GROUP, *entries)
        finally:
            self._unacked -= len(entries)
            self._freed.set()


class PipelinedRedisMessaging(RedisMessaging):
    """The same in pipelines."""

    batch = _PIPELINE

    async def publish(self, body: bytes) -> None:
        pipeline = self._redis.pipeline(transaction=False)
        for _ in range(self.batch):
            pipeline.xadd(self._name, {_FIELD: body})
        await pipeline.execute()

    def _acknowledge(self, entries: Sequence[bytes]) -> None:
        self._start_ack(entries)
