"""One connection to Redis: commands out, replies in the same order. hiredis parses; there is no other layer.

A reply that is an error of the server is returned as an exception, not raised. A connection that failed is
never used again: its replies could be those of other commands.
"""

from __future__ import annotations

import asyncio
from collections import deque
from types import ModuleType
from typing import Any, Final, cast

from tailrace.model import ConfigError
from tailrace.storage.tiered.config import RedisConfig

_CONNECT_S: Final = 2.0
_REPLY_BYTES_MAX: Final = 64 << 20


class RedisError(Exception):
    """The server refused a command, or the connection failed."""


class RedisConnection(asyncio.Protocol):
    """Replies are futures, in the order of their commands."""

    def __init__(self, hiredis: ModuleType) -> None:
        self._reader: Any = hiredis.Reader(protocolError=RedisError, replyError=RedisError)
        self._pack: Any = hiredis.pack_command
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[asyncio.Future[Any]] = deque()
        self._received = 0
        self._writable = asyncio.Event()
        self._writable.set()

    @property
    def closed(self) -> bool:
        return self._transport is None or self._transport.is_closing()

    def send(self, *words: bytes | str | int) -> asyncio.Future[Any]:
        """Send a command; its reply, or RedisError."""
        reply: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        if self._transport is None or self._transport.is_closing():
            reply.set_exception(RedisError("the connection is closed"))
            return reply
        self._waiting.append(reply)
        self._transport.write(self._pack(words))
        return reply

    async def wait_writable(self) -> None:
        """Return when what was sent before is mostly gone."""
        await self._writable.wait()

    def abort(self) -> None:
        """End it now; what waits fails."""
        if self._transport is not None:
            self._transport.abort()
        self._fail("the connection was given up")

    # ---- asyncio.Protocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)  # uvloop's is no subclass

    def data_received(self, data: bytes) -> None:
        self._received += len(data)
        try:
            self._reader.feed(data)
            while (reply := self._reader.gets()) is not False:
                self._received = 0
                self._answer(reply)
        except RedisError as error:
            self._fail(f"the reply cannot be read: {error}")
            self.abort()
        if self._received > _REPLY_BYTES_MAX:
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        self._fail("the connection was lost" if error is None else f"the connection was lost: {error}")

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    # ---- inside

    def _answer(self, reply: Any) -> None:
        if not self._waiting:
            raise RedisError("a reply came that no command is for")
        waiting = self._waiting.popleft()
        if waiting.done():
            return  # its caller did not wait so long
        if isinstance(reply, Exception):
            waiting.set_exception(RedisError(str(reply)))
        else:
            waiting.set_result(reply)

    def _fail(self, reason: str) -> None:
        while self._waiting:
            waiting = self._waiting.popleft()
            if not waiting.done():
                waiting.set_exception(RedisError(reason))


def load_hiredis() -> ModuleType:
    """The parser; ConfigError says how to install it."""
    try:
        import hiredis
    except ImportError as error:
        raise ConfigError(
            f"Redis needs hiredis, which cannot be imported ({error}). Try: pip install 'tailrace[redis]'"
        ) from error
    module: ModuleType = hiredis
    return module


async def connect_redis(config: RedisConfig) -> RedisConnection:
    """A connection that has logged in; RedisError or OSError if there is none."""
    hiredis, loop, address = load_hiredis(), asyncio.get_running_loop(), config.address
    made: RedisConnection
    async with asyncio.timeout(_CONNECT_S):
        if address.path:
            _, made = await loop.create_unix_connection(lambda: RedisConnection(hiredis), address.path)
        else:
            _, made = await loop.create_connection(
                lambda: RedisConnection(hiredis), address.host, address.port
            )
        try:
            if config.password is not None:
                words = [config.user, config.password.reveal()] if config.user else [config.password.reveal()]
                await made.send("AUTH", *words)
            if config.database:
                await made.send("SELECT", config.database)
            await made.send("PING")
        except BaseException:
            made.abort()
            raise
    return made
