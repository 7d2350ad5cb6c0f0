"""The sockets of the HTTP door: uvicorn's protocols, with the bounds that they lack.

uvicorn parses requests (httptools) and WebSocket frames (websockets) and calls the app. What is added here is
what an acceptor needs of every connection, and two bounds: a head of `head_bytes_max`, which must be complete
within `head_timeout_s`. A connection that upgrades to WebSocket is handed over to a protocol of its own.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias

from uvicorn.config import Config
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from uvicorn.server import ServerState

from tailrace.http.config import HttpConfig
from tailrace.net import ConnectionFacts, facts_of

if TYPE_CHECKING:
    from starlette.types import ASGIApp

_LISTENER = "http"
_TOO_LARGE_BODY = (
    b'{"error":{"code":"INVALID_REQUEST","message":"the head of the request is too large","details":{}}}'
)
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\n"
    b"content-length: %d\r\nconnection: close\r\n\r\n%s" % (len(_TOO_LARGE_BODY), _TOO_LARGE_BODY)
)

Accepted: TypeAlias = "HttpConnection | WebSocketConnection"


class Shared:
    """What all connections of a listener are made with."""

    def __init__(self, app: ASGIApp, config: HttpConfig) -> None:
        self.config = config
        self.state = ServerState()
        self.uvicorn = Config(
            app,
            log_config=None,
            access_log=False,
            server_header=False,
            lifespan="off",
            ws="websockets-sansio",
            ws_max_size=config.body_bytes_max,
            ws_per_message_deflate=False,  # a small message may be a large one compressed
            timeout_keep_alive=max(int(config.idle_timeout_s), 1),
        )
        self.uvicorn.load()


class HttpConnection(HttpToolsProtocol):
    """One connection that speaks HTTP."""

    def __init__(
        self,
        shared: Shared,
        *,
        on_made: Callable[[Accepted], bool],
        on_lost: Callable[[Accepted], None],
    ) -> None:
        super().__init__(shared.uvicorn, shared.state, {}, asyncio.get_running_loop())
        self._shared = shared
        self._on_made = on_made
        self._on_lost = on_lost
        self._facts: ConnectionFacts | None = None
        self._head_bytes = 0  # of the request whose head is arriving
        self._head_since: float | None = self.loop.time()
        self._upgraded = False

    def __repr__(self) -> str:
        return f"<HttpConnection {self.facts.peer_host}:{self.facts.peer_port}>"

    @property
    def facts(self) -> ConnectionFacts:
        """Who talks to whom."""
        if self._facts is None:
            self._facts = facts_of(self.transport, listener=_LISTENER)
        return self._facts

    # ---- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)  # type: ignore[arg-type]
        if not self._on_made(self):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if not self._upgraded:
            self._on_lost(self)

    def data_received(self, data: bytes) -> None:
        if self.transport.is_closing():
            return
        if self._head_since is None and (self.cycle is None or self.cycle.response_complete):
            self._head_since = self.loop.time()
        if self._head_since is not None:
            self._head_bytes += len(data)
        super().data_received(data)
        if self._head_since is not None and self._head_bytes > self._shared.config.head_bytes_max:
            self.transport.write(_TOO_LARGE)
            self.transport.close()

    def on_headers_complete(self) -> None:
        self._head_bytes, self._head_since = 0, None
        super().on_headers_complete()

    def handle_websocket_upgrade(self) -> None:
        self._upgraded = True
        self._on_lost(self)
        super().handle_websocket_upgrade()

    @property
    def ws_protocol_class(self) -> Any:
        """What takes over after an upgrade; uvicorn calls it with what it would give its own."""

        def make(**_: object) -> WebSocketConnection:
            return WebSocketConnection(self._shared, on_made=self._on_made, on_lost=self._on_lost)

        return make

    @ws_protocol_class.setter
    def ws_protocol_class(self, _: object) -> None:
        """uvicorn's own choice does not count."""

    # ---- the listener's side

    def sweep(self, now: float, *, idle_ticks_max: int) -> None:  # noqa: ARG002
        """Close one whose request does not become complete; a silent one uvicorn sees to."""
        if self._head_since is None:
            return
        waits_for_first = not self._head_bytes
        limit = self._shared.config.idle_timeout_s if waits_for_first else self._shared.config.head_timeout_s
        if now - self._head_since > limit:
            self.transport.abort()

    def close_soon(self) -> None:
        """Answer what was asked, and nothing more."""
        self.shutdown()

    def abort(self) -> None:
        self.transport.abort()


class WebSocketConnection(WebSocketsSansIOProtocol):
    """One connection that speaks WebSocket."""

    def __init__(
        self,
        shared: Shared,
        *,
        on_made: Callable[[Accepted], bool],
        on_lost: Callable[[Accepted], None],
    ) -> None:
        super().__init__(shared.uvicorn, shared.state, {}, asyncio.get_running_loop())
        self._on_made = on_made
        self._on_lost = on_lost
        self._facts: ConnectionFacts | None = None

    def __repr__(self) -> str:
        return f"<WebSocketConnection {self.facts.peer_host}:{self.facts.peer_port}>"

    @property
    def facts(self) -> ConnectionFacts:
        """Who talks to whom."""
        if self._facts is None:
            self._facts = facts_of(self.transport, listener=_LISTENER)
        return self._facts

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if not self._on_made(self):
            self.transport.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._on_lost(self)

    def sweep(self, now: float, *, idle_ticks_max: int) -> None:
        """uvicorn pings, and closes one that does not answer."""

    def close_soon(self) -> None:
        """The app behind it hears that the door stops, and says goodbye."""

    def abort(self) -> None:
        self.transport.abort()
