"""Redis as a cache of chunks: a string per chunk, which expires.

    <cluster>:<log>:<writer epoch>:<base offset>  ->  the bytes of the chunk

It never says what exists: it is asked for the bytes of a committed chunk, by name, and its answer is
checked by size and CRC. It is written after the commit and nobody waits for that. A read has a deadline.
What fails often is left alone for a while, and a full queue drops what is to be written. So Redis may be
lost, flushed or slow, and may hold anything: that costs time and nothing else.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

from tailrace.storage.tiered.breaker import Breaker
from tailrace.storage.tiered.chunk import Chunk, ChunkName
from tailrace.storage.tiered.config import RedisConfig
from tailrace.storage.tiered.resp import RedisConnection, RedisError, connect_redis

logger = logging.getLogger(__name__)

_IN_FLIGHT_MAX = 64  # writes without a reply
_WRITE_S = 5.0


@dataclass(slots=True)
class CacheCounters:
    """What the cache did since the start."""

    hits: int = 0
    misses: int = 0
    late: int = 0  # not answered by the deadline
    wrong: int = 0  # bytes that were not those of the name
    errors: int = 0
    written: int = 0
    dropped: int = 0  # for want of room in the queue, or while the breaker was open


class RedisCache:
    """`run` writes and keeps the connection; a supervised task."""

    def __init__(self, config: RedisConfig, *, cluster: str, monotonic: Callable[[], float]) -> None:
        self._config = config
        self._cluster = cluster
        self._queue: deque[Chunk] = deque()
        self._queued_bytes = 0
        self._wake = asyncio.Event()
        self._connection: RedisConnection | None = None
        self._connecting: asyncio.Lock = asyncio.Lock()
        self.breaker = Breaker(failures_max=config.failures_max, monotonic=monotonic)
        self.counters = CacheCounters()

    def __repr__(self) -> str:
        return f"<RedisCache at {self._config.address}, breaker {self.breaker.state}>"

    @property
    def connected(self) -> bool:
        return self._connection is not None and not self._connection.closed

    # ---- the port

    async def get(self, name: ChunkName) -> bytes | None:
        counters = self.counters
        if not self.breaker.allows():
            return None
        try:
            async with asyncio.timeout(self._config.deadline_s):
                connection = await self._connected()
                data = await connection.send("GET", name.key(self._cluster))
        except TimeoutError:
            counters.late += 1
            self._failed("no answer in time")
            return None
        except (RedisError, OSError) as error:
            self._failed(str(error))
            return None
        except BaseException:
            self.breaker.failed()  # the caller left: it is not known whether an answer would have come
            raise
        self._succeeded()
        if data is None:
            counters.misses += 1
            return None
        if not isinstance(data, bytes) or not name.fits(data):
            counters.wrong += 1
            logger.warning(
                "Redis has wrong bytes under %s: they are not used", name.key(self._cluster).decode()
            )
            return None
        counters.hits += 1
        return data

    def put(self, chunk: Chunk) -> None:
        size = len(chunk.data)
        too_large = size > self._config.value_bytes_max
        if too_large or self._queued_bytes + size > self._config.queue_bytes_max:
            self.counters.dropped += 1
            return
        self._queue.append(chunk)
        self._queued_bytes += size
        self._wake.set()

    # ---- the task

    async def run(self) -> None:
        """Write what is queued, for ever."""
        while True:
            await self._wake.wait()
            self._wake.clear()
            while self._queue:
                await self._write_some()

    async def close(self) -> None:
        if self._connection is not None:
            self._connection.abort()
            self._connection = None

    # ---- inside

    async def _write_some(self) -> None:
        taken = [self._queue.popleft() for _ in range(min(len(self._queue), _IN_FLIGHT_MAX))]
        try:
            if not self.breaker.allows():
                self.counters.dropped += len(taken)
                return
            async with asyncio.timeout(_WRITE_S):
                connection = await self._connected()
                replies = []
                for chunk in taken:
                    key = chunk.name.key(self._cluster)
                    replies.append(connection.send("SET", key, chunk.data, "EX", self._config.expire_s))
                    await connection.wait_writable()
                outcomes = await asyncio.gather(*replies, return_exceptions=True)
            failures = [each for each in outcomes if isinstance(each, BaseException)]
            self.counters.written += len(taken) - len(failures)
            if failures:
                raise RedisError(str(failures[0]))
            self._succeeded()
        except (RedisError, OSError, TimeoutError) as error:
            self._failed(str(error) or "no answer in time")
        finally:
            self._queued_bytes -= sum(len(chunk.data) for chunk in taken)

    async def _connected(self) -> RedisConnection:
        async with self._connecting:
            if self._connection is None or self._connection.closed:
                self._connection = await connect_redis(self._config)
            return self._connection

    def _succeeded(self) -> None:
        if self.breaker.state != "closed":
            logger.info("Redis answers again: %s", self._config.address)
        self.breaker.succeeded()

    def _failed(self, reason: str) -> None:
        self.counters.errors += 1
        before = self.breaker.opened
        self.breaker.failed()
        if self.breaker.opened == before:
            return  # a late reply finds its own command; a lost connection is made again by the next one
        logger.warning("Redis is left alone for a while: %s: %s", self._config.address, reason)
        if self._connection is not None:
            self._connection.abort()
            self._connection = None
