"""The HTTP listener: the app behind its guard, behind one acceptor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection

from starlette.types import ASGIApp

from tailrace.http.app import HttpApp
from tailrace.http.config import HttpConfig
from tailrace.http.connection import Accepted, HttpConnection, Shared
from tailrace.http.door import Door
from tailrace.http.guard import Guard
from tailrace.net import Acceptor, AcceptorConfig


class HttpListener:
    """Serves HTTP on one address."""

    def __init__(self, app: HttpApp, *, host: str = "127.0.0.1", port: int = 8080) -> None:
        self._app = app
        self._host = host
        self._port = port
        self._acceptor: Acceptor[Accepted] | None = None
        self._shared: Shared | None = None

    def __repr__(self) -> str:
        state = f"{len(self.connections)} connections" if self._acceptor else "closed"
        return f"<HttpListener {self._host}:{self.port} {state}>"

    @property
    def door(self) -> Door:
        return self._app.door

    @property
    def port(self) -> int:
        """The port that was bound, also where 0 was asked for."""
        return self._port if self._acceptor is None else self._acceptor.port

    @property
    def connections(self) -> Collection[Accepted]:
        """Those that are open."""
        return frozenset() if self._acceptor is None else self._acceptor.connections

    async def start(self) -> None:
        """Bind and accept; ConfigError if the address cannot be had."""
        config: HttpConfig = self.door.config
        guarded: ASGIApp = Guard(self._app, allowed_hosts=config.allowed_hosts)
        shared = self._shared = Shared(guarded, config)

        def connect(made: Callable[[Accepted], bool], lost: Callable[[Accepted], None]) -> HttpConnection:
            return HttpConnection(shared, on_made=made, on_lost=lost)

        self._acceptor = Acceptor(
            AcceptorConfig(
                door="http",
                port_flag="--http-port",
                host=self._host,
                port=self._port,
                connections_max=config.connections_max,
                connections_per_address_max=config.connections_per_address_max,
                idle_timeout_s=config.head_timeout_s,  # which has the sweeps come often enough
                close_grace_s=config.close_grace_s,
            ),
            connect,
            counters=self.door.counters,
        )
        await self._acceptor.start()

    async def close(self) -> None:
        """Accept no more, let the answers under way leave for a while, then close; twice is harmless."""
        if self._acceptor is None or self._shared is None or not self._acceptor.is_open:
            return
        self._port = self._acceptor.port
        self.door.stop()
        await self._acceptor.close()
        tasks = list(self._shared.state.tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._acceptor.abort()
