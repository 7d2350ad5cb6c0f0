"""The acceptor of every listener: the addresses that it binds, its connections, their bounds.

Connections past the bound are accepted and closed at once, which a client takes for a broker that is full
rather than one that is gone. Idle ones are found by a sweep, so that ten thousand of them need no timers.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import resource
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Generic, Protocol, TypeVar

from tailrace.model import ConfigError
from tailrace.model.address import Address
from tailrace.net.occupant import find_occupant
from tailrace.net.peer import ConnectionFacts
from tailrace.net.tally import Tally, Trace
from tailrace.net.transport import Listening, listen

if TYPE_CHECKING:
    from tailrace.net.tls import ServerTls

logger = logging.getLogger(__name__)

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
    socket_key: str = ""  # of the configuration, for whoever finds the path of the Unix socket taken
    addresses: Sequence[Address]  # a TCP address first, if there is one; port 0: any free one
    connections_max: int  # of all addresses together
    connections_per_address_max: int  # of one client's address; 0: no bound of its own
    idle_timeout_s: float
    close_grace_s: float  # how long replies under way may take to leave at the end
    tls: ServerTls | None = None  # of TCP addresses


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
    """Accepts the clients of one listener on its addresses."""

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
        self.admits: Callable[[str], bool] | None = None  # whether an address may connect; None: each may
        self.addresses = tuple(config.addresses)  # with the ports that were bound, once they were
        self._connections: set[C] = set()
        self._adopted: set[C] = set()
        self._addresses: Counter[str] = Counter()
        self._connections_max = config.connections_max
        self._refusing = False  # since the last connection that was let in: logged once
        self._listening: list[Listening] = []
        self._loop = asyncio.get_running_loop()
        self._sweeper: asyncio.TimerHandle | None = None
        self._emptied: asyncio.Future[None] | None = None
        self._sweep_s = min(config.idle_timeout_s / _IDLE_TICKS, _SWEEP_S_MAX)
        self._idle_ticks_max = max(1, round(config.idle_timeout_s / self._sweep_s))

    def __repr__(self) -> str:
        state = f"{len(self._connections)} connections" if self._listening else "closed"
        return f"<Acceptor {self._config.listener} {_shown(self.addresses)} {state}>"

    @property
    def port(self) -> int:
        """The TCP port, which is the one that was bound once it was."""
        return self.addresses[0].port

    @property
    def connections(self) -> Collection[C]:
        """Those that are open."""
        return frozenset(self._connections)

    @property
    def is_open(self) -> bool:
        return bool(self._listening)

    async def start(self) -> None:
        """Bind and accept; ConfigError if an address cannot be had, and then none is."""
        config = self._config
        self._connections_max = min(config.connections_max, _descriptors())
        if self._connections_max < config.connections_max:
            logger.info("connections bounded: %d, by the limit on open files", self._connections_max)
        bound: list[Listening] = []
        try:
            for address in config.addresses:
                bound.append(await self._listen(address))  # noqa: PERF401 - those before a failure are closed
        except BaseException:
            for each in bound:
                each.close()
            raise
        self._listening = bound
        self.addresses = tuple(each.address for each in bound)
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)
        logger.info("listening: %s on %s", config.listener, _shown(self.addresses))

    async def close(self) -> None:
        """Accept no more, let the replies under way leave for a while, then close; twice is harmless."""
        listening, self._listening = self._listening, []
        if not listening:
            return
        if isinstance(self._loop, asyncio.SelectorEventLoop):
            # Plain asyncio loses a connection that is accepted and not yet made when its server closes.
            for each in listening:
                for listening_socket in each.sockets:
                    self._loop.remove_reader(listening_socket)
            for _ in range(_ACCEPT_TURNS):
                await asyncio.sleep(0)
        for each in listening:
            each.close()
        if self._sweeper is not None:
            self._sweeper.cancel()
        for connection in self.all_connections():
            connection.close_soon()
        await self._wait_empty(self._config.close_grace_s)

    async def abort(self) -> None:
        """End the connections that `close` left; it has been called before."""
        for connection in self.all_connections():
            connection.abort()
        await self._wait_empty(1.0)  # abort takes effect in the loop's next turn
        logger.info("closed: %s on %s", self._config.listener, _shown(self.addresses))

    def adopt(self, connection: C) -> bool:
        """Sweep a connection that another listener accepted and counts, and end it with this one.

        False if this listener is closed.
        """
        self._adopted.add(connection)
        return self.is_open

    def release(self, connection: C) -> None:
        """An adopted connection is over."""
        self._adopted.discard(connection)
        self._note_empty()

    # ---- inside

    async def _listen(self, address: Address) -> Listening:
        try:
            return await listen(
                address,
                lambda: self._connect(self._made, self._gone),  # type: ignore[arg-type,return-value]
                self._config.tls,
            )
        except OSError as error:
            raise _cannot_bind(self._config, address, error) from error
        except ConfigError as error:
            key = self._config.socket_key
            raise ConfigError(f"{key}: {error}" if key else str(error)) from error

    def all_connections(self) -> list[C]:
        """Those that are open, adopted ones included."""
        return [*self._connections, *self._adopted]

    def _made(self, connection: C) -> bool:
        counters = self._counters
        self._connections.add(connection)
        if self._is_bounded_by_address(connection):
            self._addresses[connection.facts.peer_host] += 1
        counters.accepted += 1
        counters.connections += 1
        if self._listening and not self._is_admitted(connection):
            counters.refused += 1
            return False
        if self._listening and not self._is_full(connection):
            self._refusing = False
            return True
        counters.refused += 1
        if self._listening and not self._refusing:
            self._refusing = True
            logger.warning(
                "connections refused: %d are open, of at most %d",
                len(self._connections) - 1,
                self._connections_max,
            )
        return False

    def _is_admitted(self, connection: C) -> bool:
        """Whether the rate of new connections of its address allows it (KIP-612)."""
        if self.admits is None or not connection.facts.has_address:
            return True
        if self.admits(connection.facts.peer_host):
            return True
        logger.debug("connection refused: %s connects too often", connection.facts)
        return False

    def _is_full(self, connection: C) -> bool:
        if len(self._connections) > self._connections_max:
            return True
        if not self._is_bounded_by_address(connection):
            return False
        return self._addresses[connection.facts.peer_host] > self._config.connections_per_address_max

    def _is_bounded_by_address(self, connection: C) -> bool:
        """Clients of a Unix socket have no addresses: taken for one client, they would share one bound."""
        return self._config.connections_per_address_max > 0 and connection.facts.has_address

    def _gone(self, connection: C) -> None:
        self._connections.discard(connection)
        self._counters.connections -= 1
        if self._is_bounded_by_address(connection):
            host = connection.facts.peer_host
            self._addresses[host] -= 1
            if not self._addresses[host]:
                del self._addresses[host]
        self._note_empty()

    def _note_empty(self) -> None:
        if self._emptied is not None and not self.all_connections() and not self._emptied.done():
            self._emptied.set_result(None)

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in self.all_connections():
            connection.sweep(now, idle_ticks_max=self._idle_ticks_max)
        self._sweeper = self._loop.call_later(self._sweep_s, self._sweep)

    async def _wait_empty(self, seconds: float) -> None:
        if self.all_connections():
            self._emptied = self._loop.create_future()
            await asyncio.wait([self._emptied], timeout=seconds)


def _descriptors() -> int:
    """How many connections this process may have open: half of its files are the partitions'."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return 1 << 30 if soft == resource.RLIM_INFINITY else max(soft // 2 - _SPARE_DESCRIPTORS, 16)


def _shown(addresses: Sequence[Address]) -> str:
    return " and ".join(str(each._replace(host=each.host or "all addresses")) for each in addresses)


def _cannot_bind(config: AcceptorConfig, address: Address, error: OSError) -> ConfigError:
    host, port = address
    if error.errno == errno.EADDRINUSE:
        found = find_occupant(port)
        by = f" by pid {found[0]} ({found[1]})" if found else ""
        return ConfigError(f"port {port} is in use{by}. Try: tailrace up {config.port_flag} {_another(port)}")
    reason = error.strerror or str(error)
    return ConfigError(f"cannot listen on {host or 'all addresses'} port {port}: {reason}")


def _another(port: int) -> int:
    return port + 10_000 if port + 10_000 < 65536 else port - 10_000
