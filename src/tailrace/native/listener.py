"""The native listener: the door's shared parts, behind one acceptor."""

from __future__ import annotations

from collections.abc import Collection

from tailrace.broker import Broker
from tailrace.native.config import NativeConfig
from tailrace.native.connection import Connection
from tailrace.native.door import Door
from tailrace.native.websocket import MessageSocket, WebSocketShell
from tailrace.net import Acceptor, AcceptorConfig, DoorCounters, RequestBudget


class NativeListener:
    """Serves native clients on one address."""

    def __init__(
        self,
        broker: Broker,
        *,
        host: str = "127.0.0.1",
        port: int = 9999,
        config: NativeConfig | None = None,
        budget: RequestBudget | None = None,
    ) -> None:
        """`budget` is the node's, where several listeners share one."""
        self._broker = broker
        self._host = host
        self._port = port
        self._config = config or NativeConfig()
        self._budget = budget
        self._door: Door | None = None
        self._acceptor: Acceptor[Connection] | None = None

    def __repr__(self) -> str:
        state = f"{len(self.connections)} connections" if self._acceptor else "closed"
        return f"<NativeListener {self._host}:{self.port} {state}>"

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        """The port that was bound, also where 0 was asked for."""
        return self._port if self._acceptor is None else self._acceptor.port

    @property
    def counters(self) -> DoorCounters:
        assert self._door is not None, "not started"
        return self._door.counters

    @property
    def budget(self) -> RequestBudget:
        """What bounds the request bytes of this listener, and of those that share it."""
        assert self._door is not None, "not started"
        return self._door.budget

    @property
    def connections(self) -> Collection[Connection]:
        """Those that are open."""
        return frozenset() if self._acceptor is None else self._acceptor.connections

    def shell(self, socket: MessageSocket) -> WebSocketShell:
        """A session for a WebSocket that another door has accepted."""
        assert self._door is not None, "not started"
        return WebSocketShell(self._door, socket)

    async def start(self) -> None:
        """Bind and accept; ConfigError if the address cannot be had."""
        config = self._config
        door = self._door = Door(self._broker, config, self._budget)
        self._acceptor = Acceptor(
            AcceptorConfig(
                door="native",
                port_flag="--native-port",
                host=self._host,
                port=self._port,
                connections_max=config.connections_max,
                connections_per_address_max=config.connections_per_address_max,
                idle_timeout_s=config.heartbeat_interval_ms / 1000,  # which has the sweeps come often enough
                close_grace_s=config.close_grace_s,
            ),
            lambda made, lost: Connection(door, on_made=made, on_lost=lost),
            counters=door.counters,
        )
        await self._acceptor.start()

    async def close(self) -> None:
        """Accept no more, let the replies under way leave for a while, then close; twice is harmless."""
        if self._acceptor is None or self._door is None or not self._acceptor.is_open:
            return
        self._port = self._acceptor.port
        await self._acceptor.close()
        await self._door.stop_requests()
        await self._acceptor.abort()
