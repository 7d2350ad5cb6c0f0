"""What the connections of one listener share, and the listener itself, for protocols of requests and replies.

Each protocol adds its own to `RequestService` (caches, sessions) and makes its connections; bounds, counters,
running requests and the order of the end are the same for all:

    accept no more --> replies under way leave --> requests that still run are ended --> sockets are closed
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import Any, Generic, Protocol, TypeVar

from tailrace.model import ProtocolError
from tailrace.model.address import Address
from tailrace.model.session import Principal, Session
from tailrace.net.acceptor import Accepted, Acceptor, AcceptorConfig, ListenerCounters
from tailrace.net.budget import RequestBudget
from tailrace.net.folded_log import FoldedLog
from tailrace.net.metering import Metering
from tailrace.net.peer import ConnectionFacts
from tailrace.net.stranger import Neighbours
from tailrace.net.tls import ServerTls, first_session
from tailrace.net.transport import Transport

logger = logging.getLogger(__name__)

_RECEIVE_BYTES = 64 * 1024


class Wakeable(Protocol):
    """Whoever may have replies to send."""

    def wake(self) -> None:
        """Send what is known now."""


class RequestService:
    """One listener's bounds, counters and running requests."""

    def __init__(self, budget: RequestBudget, *, name: str, tls: ServerTls | None = None) -> None:
        """`name` is that of the listener, in sessions."""
        self.budget = budget
        self.name = name
        self.tls = tls
        self.counters = ListenerCounters()
        self.neighbours = Neighbours()  # told once all listeners are open
        self.metering: Metering | None = None  # None: no client has a quota
        self.loop = asyncio.get_running_loop()
        self.receive_buffer = memoryview(bytearray(_RECEIVE_BYTES))
        self._tasks: set[asyncio.Task[None]] = set()
        self._woken: list[Wakeable] = []
        self._log = FoldedLog(logger)

    def session_of(self, transport: Transport, facts: ConnectionFacts) -> Session | None:
        """The session with which a connection begins; None for a client whose certificate is refused."""
        if self.tls is None:
            return Session(host=facts.peer_host, listener=self.name)
        return first_session(self.tls, transport, facts, listener=self.name)

    def tell_of(self, facts: ConnectionFacts, error: ProtocolError) -> None:
        """Log what a client does that its owner has to mend, once per address and minute."""
        self._log.warn(
            "connection refused: %s on listener %s: %s",
            facts,
            self.name,
            error,
            subject=facts.peer_host,
            now=self.loop.time(),
        )

    def start(self, name: str, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a request beside everything else; it outlives its connection, and ends with the listener."""
        task = self.loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    def wake_soon(self, replier: Wakeable) -> None:
        """Have it look at its replies. A commit makes many known at once: one callback for all."""
        if not self._woken:
            self.loop.call_soon(self._wake)
        self._woken.append(replier)

    async def stop_requests(self) -> None:
        """End the requests that still run."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self) -> None:
        woken, self._woken = self._woken, []
        for replier in woken:
            replier.wake()


S = TypeVar("S", bound=RequestService)


class OfSession(Accepted, Protocol):
    """A connection whose requests are of one session."""

    @property
    def session(self) -> Session:
        """Whose they are now."""

    def end_throttle(self) -> None:
        """Read it again: what its client owes may be another quota's now."""


C = TypeVar("C", bound=OfSession)


class RequestListener(Generic[S, C]):
    """A service on its addresses."""

    def __init__(
        self,
        service: S,
        config: AcceptorConfig,
        connect: Callable[[Callable[[C], bool], Callable[[C], None]], C],
    ) -> None:
        """`connect` is the acceptor's."""
        self.service = service
        self._acceptor = Acceptor(config, connect, counters=service.counters)

    def __repr__(self) -> str:
        state = f"{len(self.connections)} connections" if self._acceptor.is_open else "closed"
        return f"<{type(self).__name__} {self.addresses[0]} {state}>"

    @property
    def addresses(self) -> Sequence[Address]:
        """Where it listens, with the ports that were bound; a TCP address first."""
        return self._acceptor.addresses

    @property
    def port(self) -> int:
        """The TCP port that was bound, also where 0 was asked for."""
        return self._acceptor.port

    @property
    def counters(self) -> ListenerCounters:
        return self.service.counters

    @property
    def budget(self) -> RequestBudget:
        """This listener's share of the node's request bytes."""
        return self.service.budget

    @property
    def connections(self) -> Collection[C]:
        """Those that are open."""
        return self._acceptor.connections

    def apply_quotas(self, metering: Metering | None, admits: Callable[[str], bool] | None) -> None:
        """These quotas hold from now on, also on open connections; `admits` says who may connect."""
        self.service.metering = metering
        self._acceptor.admits = admits
        for connection in self._acceptor.all_connections():
            connection.end_throttle()

    async def start(self) -> None:
        """Bind and accept; ConfigError if an address cannot be had."""
        await self._acceptor.start()

    async def close(self) -> None:
        """Accept no more, let the replies under way leave for a while, then close; twice is harmless."""
        if not self._acceptor.is_open:
            return
        await self._acceptor.close()
        await self.service.stop_requests()
        await self._acceptor.abort()

    def end_sessions(self, principal: Principal) -> None:
        """Close the connections that logged in as this principal."""
        self._end(lambda each: bool(each.mechanism) and each.principal == principal)

    def end_token(self, token_id: str) -> None:
        """Close the connections that logged in with this API token."""
        self._end(lambda each: each.token_id == token_id)

    def _end(self, is_over: Callable[[Session], bool]) -> None:
        for connection in self._acceptor.all_connections():
            if is_over(connection.session):
                connection.abort()
