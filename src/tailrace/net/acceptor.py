"""The acceptor of every listener: one port, its connections, their bounds.

Connections past the bound are accepted and closed at once, which a client takes for a broker that is full
rather than one that is gone. Idle ones are found by a sweep, so that ten thousand of them need no timers.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from collections import Counter
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from tailrace.model import ConfigError
from tailrace.net.occupant import find_occupant
from tailrace.net.peer import ConnectionFacts
from tailrace.net.tally import Tally, Trace

logger = logging.getLogger(__name__)

_BACKLOG = 1024
_IDLE_TICKS = 8
_SWEEP_S_MAX = 5.0
_SPARE_DESCRIPTORS = 256
"""For files, other listeners and what the interpreter opens."""

_ACCEPT_TURNS = 3
"""Of the loop: so many pass between accepting a connection and calling its protocol."""


@dataclass(slots=True)
class ListenerCounters:
    """The numbers only grow, except `connections` and `streams`, which say how many are open."""

    connections: int = 0
    streams: int = 0  # requests that stay open: tails and WebSockets
    accepted: int = 0
    refused: int = 0
    requests: int = 0
    protocol_errors: int = 0
    failures: int = 0  # bugs of ours that a client met
    tallies: dict[str, Tally] = field(default_factory=dict)  # by API
    trace: Trace | None = None  # who is told of single requests; mostly nobody

    def tally(self, api: str) -> Tally:
        """The requests of one API; names come from a table, and never from a client."""
        found = self.tallies.get(api)
        if found is None:
            found = self.tallies[api] = Tally()
        return found


@dataclass(frozen=True, slots=True, kw_only=True)
class AcceptorConfig:
    """What one acceptor binds and allows."""

    listener: str  # its name, for people
    port_flag: str  # of `tailrace up`, for whoever finds the port taken
    host: str
    port: int  # 0: any free one
    connections_max: int
    connections_per_address_max: int  # 0: no bound of its own
    idle_timeout_s: float
    close_grace_s: float  # how long replies under way may take to leave at the end


class Accepted(Protocol):
    """A connection, as its acceptor knows it."""

    @property
    def facts(self) -> ConnectionFacts:
        """Who talks to whom."""

    def sweep(self, now: float, *, idle_ticks_max: int) -> None:
        """Look whether the client is still worth a socket; called every so often."""

    def close_soon(self) -> None:
        """Take nothing more; close when the replies under way have left."""

    def abort(self) -> None:
        """Close now."""


C = TypeVar("C", bound=Accepted)


class Acceptor(Generic[C]):
    """Accepts the clients of one listener on one address."""

    def __init__(
        self,
        config: AcceptorConfig,
        connect: Callable[[Callable[[C], bool], Callable[[C], None]], C],
        *,
        counters: ListenerCounters,
    ) -> None:
        """`connect` makes a protocol object from two callbacks of ours: made (is there room?) and lost."""
        self._config = config
        self._connect = connect
        self._counters = counters
        self.port = config.port  # the one that was bound, once it was
        self._connections: set[C] = set()
        self._addresses: Counter[str] = Counter()
        self._connections_max = config.connections_max
        self._refusing = False  # since the last connection that was let in: logged once
        self._server: asyncio.Server | None = None
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._sweep_s = min(config.idle_timeout_s / _IDLE_TICKS, _SWEEP_S_MAX)
        self._idle_ticks_max = max(1, round(config.idle_timeout_s / self._sweep_s))

    def __repr__(self) -> str:
        state = f"{len(self._connections)} connections" if self._server else "closed"
        return f"<Acceptor {self._config.listener} {self._config.host}:{self.port} {state}>"

    @property
    def connections(self) -> Collection[C]:
        """Those that are open."""
        return frozenset(self._connections)

    @property
    def is_open(self) -> bool:
        return self._server is not None

    async def start(self) -> None:
        """Bind and accept; ConfigError if the address cannot be had."""
        config = self._config
        self._connections_max = min(config.connections_max, _descriptors())
        if self._connections_max < config.connections_max:
            logger.info("connections bounded: %d, by the limit on open files", self._connections_max)
        try:
            self._server = await self._loop.create_server(
                lambda: self._connect(self._made, self._gone),  # type: ignore[arg-type,return-value]
                config.host or None,
                config.port,
                backlog=_BACKLOG,
            )
        except OSError as error:
            raise _cannot_bind(config, error) from error
        self.port = self._server.sockets[0].getsockname()[1]
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
        logger.info("listening: %s on %s port %d", config.listener, config.host or "all addresses", self.port)

    async def close(self) -> None:
        """Accept no more, let the replies under way leave for a while, then close; twice is harmless."""
        server, self._server = self._server, None
        if server is None:
            return
        if isinstance(self._loop, asyncio.SelectorEventLoop):
            # Plain asyncio loses a connection that is accepted and not yet made when its server closes.
            for listening in server.sockets:
                self._loop.remove_reader(listening)
            for _ in range(_ACCEPT_TURNS):
                await asyncio.sleep(0)
        server.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in list(self._connections):
            connection.close_soon()
        await self._wait_empty(self._config.close_grace_s)

    async def abort(self) -> None:
        """End the connections that `close` left; it has been called before."""
        for connection in list(self._connections):
            connection.abort()
        await self._wait_empty(1.0)  # abort takes effect in the loop's next turn
        logger.info("closed: %s on port %d", self._config.listener, self.port)

    # ---- inside

    def _made(self, connection: C) -> bool:
        counters = self._counters
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

    def _is_full(self, connection: C) -> bool:
        if len(self._connections) > self._connections_max:
            return True
        most = self._config.connections_per_address_max
        return most > 0 and self._addresses[connection.facts.peer_host] > most

    def _gone(self, connection: C) -> None:
        self._connections.discard(connection)
        self._counters.connections -= 1
        if self._config.connections_per_address_max:
            host = connection.facts.peer_host
            self._addresses[host] -= 1
            if not self._addresses[host]:
                del self._addresses[host]
        if self._emptied is not None and not self._connections and not self._emptied.done():
            self._emptied.set_result(None)

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in list(self._connections):
            connection.sweep(now, idle_ticks_max=self._idle_ticks_max)
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    async def _wait_empty(self, seconds: float) -> None:
        if self._connections:
            self._emptied = self._loop.create_future()
            await asyncio.wait([self._emptied], timeout=seconds)


def _descriptors() -> int:
    """How many connections this process may have open: half of its files are the partitions'."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(soft // 2 - _SPARE_DESCRIPTORS, 16)


def _cannot_bind(config: AcceptorConfig, error: OSError) -> ConfigError:
    port = config.port
    if error.errno == errno.EADDRINUSE:
        found = find_occupant(port)
        by = f" by pid {found[0]} ({found[1]})" if found else ""
        return ConfigError(f"port {port} is in use{by}. Try: tailrace up {config.port_flag} {_another(port)}")
    reason = error.strerror or str(error)
    return ConfigError(f"cannot listen on {config.host or 'all addresses'} port {port}: {reason}")


def _another(port: int) -> int:
    return port + 10_000 if port + 10_000 < 65536 else port - 10_000
