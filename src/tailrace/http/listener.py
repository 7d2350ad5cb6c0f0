"""The HTTP listener: the app behind its guard, behind one acceptor.

At the end the answers under way have `close_grace_s` to leave. Live streams are told to end; one whose client
takes nothing for a second is cut off then, so that a browser that sleeps does not keep a node from stopping.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Set

from starlette.types import ASGIApp

from tailrace.http.app import HttpApp
from tailrace.http.config import HttpConfig
from tailrace.http.connection import HttpConnection, Shared
from tailrace.http.console_login import ConsoleLogin
from tailrace.http.console_session import ConsoleSessions
from tailrace.http.guard import Guard
from tailrace.http.login import Login
from tailrace.http.service import HttpService
from tailrace.http.session import LISTENER
from tailrace.model.address import Address
from tailrace.model.session import Principal
from tailrace.net import Acceptor, AcceptorConfig
from tailrace.net.logins import Logins
from tailrace.net.tls import ServerTls
from tailrace.security.audit import Audit

logger = logging.getLogger(__name__)

_CANCEL_DEADLINE_S = 1.0
_STALLED_S = 1.0
"""How long the client of a stream that was told to end may take nothing of it."""


class HttpListener:
    """Serves HTTP on one address."""

    def __init__(
        self,
        app: HttpApp,
        *,
        host: str = "127.0.0.1",
        port: int = 8080,
        name: str = LISTENER,
        logins: Logins | None = None,
        tls: ServerTls | None = None,
        sessions: ConsoleSessions | None = None,
        audit: Audit | None = None,
    ) -> None:
        """Without `logins` everybody is served as anonymous; without `sessions` the console has no login."""
        self._sessions = sessions
        self._audit = audit
        self._name = name
        self._logins = logins
        self._tls = tls
        self._app = app
        self._host = host
        self._port = port
        self._acceptor: Acceptor[HttpConnection] | None = None
        self._shared: Shared | None = None

    def __repr__(self) -> str:
        state = f"{len(self.connections)} connections" if self._acceptor else "closed"
        return f"<HttpListener {Address(self._host, self.port)} {state}>"

    @property
    def service(self) -> HttpService:
        return self._app.service

    @property
    def port(self) -> int:
        """The port that was bound, also where 0 was asked for."""
        return self._port if self._acceptor is None else self._acceptor.port

    @property
    def connections(self) -> Collection[HttpConnection]:
        """Those that are open."""
        return frozenset() if self._acceptor is None else self._acceptor.connections

    def limit_connections(self, admits: Callable[[str], bool] | None) -> None:
        """Accept connections of the addresses that `admits` says; None: of all."""
        if self._acceptor is not None:
            self._acceptor.admits = admits

    async def start(self) -> None:
        """Bind and accept; ConfigError if the address cannot be had."""
        config: HttpConfig = self.service.config
        counters = self.service.counters
        app: ASGIApp = self._app
        if self._logins is not None:
            app = self._behind_login(app, self._logins)
        guarded: ASGIApp = Guard(app, allowed_hosts=config.allowed_hosts, counters=counters)
        service = self.service
        shared = self._shared = Shared(
            guarded,
            config,
            counters,
            service.socket_budget,
            service.budget.unread,
            name=self._name,
            tls=self._tls,
        )

        def connect(
            made: Callable[[HttpConnection], bool], lost: Callable[[HttpConnection], None]
        ) -> HttpConnection:
            return HttpConnection(shared, on_made=made, on_lost=lost)

        self._acceptor = Acceptor(
            AcceptorConfig(
                listener=self._name,
                port_flag="--http-port",
                addresses=(Address(self._host, self._port),),
                connections_max=config.connections_max,
                connections_per_address_max=config.connections_per_address_max,
                idle_timeout_s=config.head_timeout_s,  # which has the sweeps come often enough
                close_grace_s=config.close_grace_s,
                tls=self._tls,
            ),
            connect,
            counters=counters,
        )
        await self._acceptor.start()
        self.service.metrics.sampler.start()

    def _behind_login(self, app: ASGIApp, logins: Logins) -> ASGIApp:
        """The app for clients that have logged in: programs by a header, browsers by the console's login."""
        counters, console = self.service.counters, self._app.console
        programs = Login(app, logins, name=self._name, counters=counters)
        if self._sessions is None or self._audit is None or console is None:
            return programs
        return ConsoleLogin(
            app,
            programs,
            console=console,
            logins=logins,
            sessions=self._sessions,
            audit=self._audit,
            name=self._name,
            counters=counters,
        )

    def end_sessions(self, principal: Principal) -> None:
        """Close the connections whose certificate is this principal's."""
        for connection in self.connections:
            if connection.principal == principal:
                connection.abort()

    async def close(self) -> None:
        """Accept no more, let the answers under way leave for a while, then close; twice is harmless."""
        if self._acceptor is None or self._shared is None or not self._acceptor.is_open:
            return
        self._port = self._acceptor.port
        streams = {each for each in self.connections if each.is_streaming}
        self.service.stop()
        cutting = asyncio.create_task(self._cut_stalled(streams), name="http streams that do not end")
        try:
            await self._acceptor.close()
        finally:
            cutting.cancel()
            await asyncio.gather(cutting, return_exceptions=True)
        # Whoever still waits for its client hears that it is gone; then who waits for something else.
        await self._acceptor.abort()
        await _cancel(self._shared.state.tasks)
        await self.service.metrics.sampler.stop()

    async def _cut_stalled(self, streams: Set[HttpConnection]) -> None:
        """Close streams whose clients take nothing; the others have their time."""
        while streams := streams & set(self.connections):
            before = {each: each.untaken for each in streams}
            await asyncio.sleep(_STALLED_S)
            for each in before.keys() & set(self.connections):
                if 0 < before[each] <= each.untaken:
                    each.abort()


async def _cancel(tasks: Collection[asyncio.Task[None]]) -> None:
    """End what does not end by itself; one that will not is left to the loop."""
    for task in list(tasks):
        task.cancel()
    if tasks:
        await asyncio.wait(list(tasks), timeout=_CANCEL_DEADLINE_S)
    if tasks:
        logger.warning("requests left behind: %d do not end", len(tasks))
