"""The Kafka listener: one port, its connections, their bounds.

Connections past the bound are accepted and closed at once, which a client takes for a broker that is full
rather than one that is gone. Idle ones are found by a sweep, so that ten thousand of them need no timers.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from collections import Counter
from collections.abc import Collection

from tailrace.broker import Broker
from tailrace.kafka.budget import RequestBudget
from tailrace.kafka.config import DoorConfig
from tailrace.kafka.connection import Connection
from tailrace.kafka.door import Door, DoorCounters
from tailrace.kafka.occupant import find_occupant
from tailrace.model import ConfigError

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_IDLE_TICKS = 8
_SWEEP_S_MAX = 5.0
_SPARE_DESCRIPTORS = 256
"""For files, other doors and what the interpreter opens."""


_ACCEPT_TURNS = 3
"""Of the loop: so many pass between accepting a connection and calling its protocol."""


class KafkaListener:
    """Accepts Kafka clients on one address."""

    def __init__(
        self,
        broker: Broker,
        *,
        host: str = "127.0.0.1",
        port: int = 9092,
        config: DoorConfig | None = None,
        budget: RequestBudget | None = None,
    ) -> None:
        """`budget` is the node's, where several listeners share one."""
        self._broker = broker
        self._host = host
        self._port = port
        self._config = config or DoorConfig()
        self._budget = budget
        self._connections: set[Connection] = set()
        self._addresses: Counter[str] = Counter()
        self._connections_max = self._config.connections_max
        self._refusing = False  # since the last connection that was let in: logged once
        self._server: asyncio.Server | None = None
        self._door: Door | None = None
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None

    def __repr__(self) -> str:
        state = f"{len(self._connections)} connections" if self._server else "closed"
        return f"<KafkaListener {self._host}:{self._port} {state}>"

    @property
    def host(self) -> str:
        return self._host

    @property
    def port(self) -> int:
        """The port that was bound, also where 0 was asked for."""
        return self._port

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
        return frozenset(self._connections)

    async def start(self) -> None:
        """Bind and accept; ConfigError if the address cannot be had."""
        loop = asyncio.get_running_loop()
        self._door = Door(self._broker, self._config, self._budget)
        self._connections_max = min(self._config.connections_max, _descriptors())
        if self._connections_max < self._config.connections_max:
            logger.info("connections bounded: %d, by the limit on open files", self._connections_max)
        try:
            self._server = await loop.create_server(
                self._connect, self._host or None, self._port, backlog=_BACKLOG
            )
        except OSError as error:
            raise _cannot_bind(self._host, self._port, error) from error
        self._port = self._server.sockets[0].getsockname()[1]
        self._sweep_s = min(self._config.idle_timeout_s / _IDLE_TICKS, _SWEEP_S_MAX)
        self._idle_ticks_max = max(1, round(self._config.idle_timeout_s / self._sweep_s))
        self._sweeper = loop.call_later(self._sweep_s, self._sweep)
        logger.info("listening: kafka on %s port %d", self._host or "all addresses", self._port)

    async def close(self) -> None:
        """Accept no more, let the replies under way leave for a while, then close; twice is harmless."""
        server, self._server = self._server, None
        if server is None or self._door is None:
            return
        if isinstance(self._door.loop, asyncio.SelectorEventLoop):
            # Plain asyncio loses a connection that is accepted and not yet made when its server closes.
            for listening in server.sockets:
                self._door.loop.remove_reader(listening)
            for _ in range(_ACCEPT_TURNS):
                await asyncio.sleep(0)
        server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.close_soon()
        await self._wait_empty(self._config.close_grace_s)
        for connection in list(self._connections):
            connection.abort()
        await self._door.stop_handlers()
        await self._wait_empty(1.0)  # abort takes effect in the loop's next turn
        logger.info("closed: kafka on port %d", self._port)

    # ---- inside

    def _connect(self) -> Connection:
        assert self._door is not None
        return Connection(self._door, on_made=self._made, on_lost=self._gone)

    def _made(self, connection: Connection) -> bool:
        counters = self.counters
        self._connections.add(connection)
        if self._config.connections_per_address_max:
            self._addresses[connection.facts.peer_host] += 1
        counters.accepted += 1
        counters.connections += 1
        if self._server is not None and not self._is_full(connection):
            self._refusing = False
            return True
        counters.refused += 1
        if self._server is not None and not self._refusing:
            self._refusing = True
            logger.warning(
                "connections refused: %d are open, of at most %d",
                len(self._connections) - 1,
                self._connections_max,
            )
        return False

    def _is_full(self, connection: Connection) -> bool:
        if len(self._connections) > self._connections_max:
            return True
        most = self._config.connections_per_address_max
        return most > 0 and self._addresses[connection.facts.peer_host] > most

    def _gone(self, connection: Connection) -> None:
        self._connections.discard(connection)
        self.counters.connections -= 1
        if self._config.connections_per_address_max:
            host = connection.facts.peer_host
            self._addresses[host] -= 1
            if not self._addresses[host]:
                del self._addresses[host]
        if self._emptied is not None and not self._connections and not self._emptied.done():
            self._emptied.set_result(None)

    def _sweep(self) -> None:
        assert self._door is not None
        loop = self._door.loop
        now = loop.time()
        for connection in list(self._connections):
            connection.sweep(now, idle_ticks_max=self._idle_ticks_max)
        self._sweeper = loop.call_later(self._sweep_s, self._sweep)

    async def _wait_empty(self, seconds: float) -> None:
        if self._connections:
            self._emptied = asyncio.get_running_loop().create_future()
            await asyncio.wait([self._emptied], timeout=seconds)


def _descriptors() -> int:
    """How many connections this process may have open: half of its files are the partitions'."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(soft // 2 - _SPARE_DESCRIPTORS, 16)


def _cannot_bind(host: str, port: int, error: OSError) -> ConfigError:
    if error.errno == errno.EADDRINUSE:
        found = find_occupant(port)
        by = f" by pid {found[0]} ({found[1]})" if found else ""
        return ConfigError(f"port {port} is in use{by}. Try: tailrace up --kafka-port {_another(port)}")
    reason = error.strerror or str(error)
    return ConfigError(f"cannot listen on {host or 'all addresses'} port {port}: {reason}")


def _another(port: int) -> int:
    return port + 10_000 if port + 10_000 < 65536 else port - 10_000
