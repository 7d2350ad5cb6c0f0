"""One node: storage, metadata, broker and listeners, opened in this order and closed in the other.

The only module that knows every concrete class. A node that cannot start closes what it opened. Trouble of
ours that ends it comes out of `wait_failed`: a server exits with it, an embedded broker raises it.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tailrace.broker import Broker, BrokerConfig
from tailrace.cluster import (
    MetadataAcls,
    MetadataDisabled,
    MetadataQuotas,
    MetadataTokens,
    MetadataUsers,
    Store,
    StoredMetadata,
)
from tailrace.kafka import KafkaListener
from tailrace.model import ConfigError, TailraceError, day_of
from tailrace.model.address import Address, unix_address
from tailrace.model.session import Principal
from tailrace.native import NativeListener
from tailrace.net import ListenerCounters, NodeBudget, RequestListener
from tailrace.net.logins import Logins, PendingLogins
from tailrace.net.stranger import Neighbours
from tailrace.net.tls import ServerTls
from tailrace.runtime import SystemClock
from tailrace.security import Authenticator, LoginCounts, UserStore
from tailrace.security.audited_login import AuditedLogins
from tailrace.server import descriptors
from tailrace.server.assembly import (
    NODE_ID,
    broker_config,
    http_config,
    kafka_config,
    native_addresses,
    native_config,
    nodes,
    request_bytes_max,
    session_ms_max,
    super_users,
    telemetry_config,
)
from tailrace.server.certificate_watch import watch_certificates
from tailrace.server.config import ServerConfig
from tailrace.server.engines import ENGINES
from tailrace.server.listener import ListenerConfig
from tailrace.server.ports import Ports
from tailrace.server.standby import StandbyListener

if TYPE_CHECKING:
    from tailrace.cluster.postgres_users import PostgresUsers
    from tailrace.http import HttpApp, HttpListener
    from tailrace.metrics.observed import Observed
    from tailrace.telemetry.config import TelemetryConfig
    from tailrace.telemetry.export import Telemetry

logger = logging.getLogger(__name__)


class CannotListen(TailraceError):
    """A listener could not open; the message names who is in the way, and the way out."""


class Node:
    """A broker with its listeners; in one loop, from `start` to `close`."""

    def __init__(self, config: ServerConfig, *, owns_loop: bool) -> None:
        self.config = config
        self._engine = ENGINES[config.engine]
        self._engine.check(config)
        self.storage_facts = self._engine.describe(config)
        self.on_standby: Callable[[], None] = lambda: None
        """Called when this process begins to wait until another one ends that serves."""
        self._standby: list[StandbyListener] = []
        self._owns_loop = owns_loop  # the loop is ours alone, so that short syncs may run in it
        self._clock = SystemClock()
        self._opened = AsyncExitStack()
        self.budget = NodeBudget(request_bytes_max(config))
        self._broker: Broker | None = None
        self._postgres_users: PostgresUsers | None = None
        self._authenticator: Authenticator | None = None
        self._pending_logins = PendingLogins()
        self._tls: list[ServerTls] = []
        self._kafka: list[KafkaListener] = []  # at least one, once the node is started
        self._native: list[NativeListener] = []
        self._http: HttpListener | None = None
        self._http_app: HttpApp | None = None
        self._observed: Observed | None = None
        self._telemetry: Telemetry | None = None

    def __repr__(self) -> str:
        where = self.kafka_address if self._kafka else "not started"
        return f"<Node {where} {self.config.engine}>"

    @property
    def broker(self) -> Broker:
        assert self._broker is not None, "the node is not started"
        return self._broker

    @property
    def kafka_port(self) -> int:
        assert self._kafka, "the node is not started"
        return self._kafka[0].port

    @property
    def native_port(self) -> int:
        assert self._native, "the node is not started"
        return self._native[0].port

    @property
    def kafka_address(self) -> str:
        """What clients on this machine put into bootstrap.servers."""
        return self._address("kafka", self.kafka_port)

    @property
    def clock_held(self) -> str:
        """The time of day that is believed instead of the machine's; "" where the machine's is."""
        return day_of(self._clock.steady_ms()) if self._clock.ahead_ms else ""

    @property
    def native_address(self) -> str:
        """Where a BrokerClient on this machine connects."""
        return self._address("native", self.native_port)

    @property
    def native_socket(self) -> str | None:
        """The Unix socket of the native listener, as `unix:/path`, if there is one."""
        return None if not self.config.native_socket else str(unix_address(self.config.native_socket))

    @property
    def http_address(self) -> str | None:
        """Where a browser on this machine finds the console, if there is an HTTP listener."""
        return None if self._http is None else self._address("http", self._http.port)

    @property
    def ports(self) -> Ports:
        http = None if self._http is None else self._http.port
        first = {name: self.config.listeners_of(name)[:1] for name in ("kafka", "native", "http")}
        tls = {
            name: str(each.tls.cert.absolute())
            for name, listed in first.items()
            for each in listed
            if each.tls is not None
        }
        return Ports(pid=os.getpid(), kafka=self.kafka_port, native=self.native_port, http=http, tls=tls)

    @property
    def observed(self) -> Observed:
        """The broker, listeners and directory that the metrics of this node are about."""
        if self._observed is None:
            self._observed = self._observe()
        return self._observed

    @property
    def _framed(self) -> Sequence[RequestListener[Any, Any]]:
        """The listeners of framed protocols, in the order of the configuration."""
        return [*self._kafka, *self._native]

    def _address(self, protocol: str, port: int) -> str:
        host = self.config.listeners_of(protocol)[0].address.host
        return str(Address(reachable(host), port))

    async def start(self) -> None:
        """Serve; StorageError, CannotListen or ConfigError if that cannot be, and nothing stays open."""
        try:
            telemetry = telemetry_config(self.config)
            opened = await self._engine.open(
                self.config, clock=self._clock, owns_loop=self._owns_loop, stand_by=self._stand_by
            )
            await self._end_standby()
            storage, store = opened.storage, opened.store
            self._opened.push_async_callback(storage.close)
            metadata = StoredMetadata(store)
            self._opened.push_async_callback(metadata.close)
            self._broker = Broker(
                node_id=NODE_ID,
                nodes=nodes(self.config),
                storage=storage,
                metadata=metadata,
                config=self._broker_config(),
                clock=self._clock,
                user_store=await self._open_users(store),
                disabled_store=MetadataDisabled(store),
                acl_store=MetadataAcls(store),
                super_users=super_users(self.config),
                token_store=MetadataTokens(store),
                quota_store=MetadataQuotas(store),
                audits=self.config.audits,
            )
            self._opened.push_async_callback(self._broker.close)
            await self._broker.start()
            self._follow_users(self._broker)
            # After the listeners, whose end it tells of.
            self._opened.push_async_callback(self._close_telemetry)
            await self._open_listeners(self._broker)
            if telemetry is not None:
                self._open_telemetry(telemetry)
            # First of all: members that wait for others would keep the listeners open for nothing.
            self._opened.push_async_callback(self._broker.groups.close)
        except BaseException:
            await self.close()
            raise

    async def _stand_by(self) -> None:
        for each in self.config.listeners_of("http"):
            listener = StandbyListener(each)
            self._standby.append(listener)
            await listener.start()
        self.on_standby()

    async def _end_standby(self) -> None:
        while self._standby:
            await self._standby.pop().close()

    async def wait_failed(self) -> Exception:
        """Return what ended this node, once something did."""
        return await self.broker.wait_failed()

    async def close(self) -> None:
        """Listeners first, storage last; closing twice is harmless."""
        await self._end_standby()
        await self._opened.aclose()
        self._broker = None
        self._kafka, self._native = [], []
        self._authenticator = None
        self._tls = []
        self._http = self._http_app = self._observed = None

    def http_app(self) -> HttpApp:
        """The HTTP service as an application, one for the listener and for somebody else's app."""
        if self._http_app is None:
            self._http_app = self._create_http_app()
        return self._http_app

    def _create_http_app(self) -> HttpApp:
        # What only this listener needs is imported when it opens.
        from tailrace import __version__
        from tailrace.http import NodeFacts, create_app
        from tailrace.metrics.node_metrics import NodeMetrics

        assert self._native, "the node is not started"
        config = self.config
        facts = NodeFacts(
            version=__version__,
            engine=config.engine,
            fsync=str(config.fsync),
            data_dir=self._data_dir,
            kafka=self.kafka_address,
            native=self.native_address,
            native_shell=self._native[0].adopt,
            native_budget=self.budget.share("native"),
        )
        metrics = NodeMetrics(self.observed)
        return create_app(
            self.broker.gate,
            config=http_config(config),
            facts=facts,
            metrics=metrics,
            budget=self.budget.share("http"),
        )

    def _observe(self) -> Observed:
        from tailrace import __version__
        from tailrace.metrics.free_space import FreeSpace
        from tailrace.metrics.observed import Observed

        assert self._kafka and self._native, "the node is not started"
        config = self.config
        names = [each.name for each in (*config.listeners_of("kafka"), *config.listeners_of("native"))]
        named = {name: each.counters for name, each in zip(names, self._framed, strict=True)}
        return Observed(
            broker=self.broker,
            listeners={**named, "http": ListenerCounters()},
            budgets=self.budget.shares,
            info={"version": __version__, "engine": config.engine, "fsync": str(config.fsync)},
            free_space=FreeSpace(self._data_dir),
            logins=self._authenticator.counts if self._authenticator else LoginCounts(),
            tls=self._tls,
        )

    @property
    def _data_dir(self) -> str:
        """The directory of the log; "" where no file of it is on this machine."""
        return self.storage_facts.directory

    def _broker_config(self) -> BrokerConfig:
        config = broker_config(self.config)
        if not self.storage_facts.file_per_partition:
            return config
        most = min(config.partitions_total_max, descriptors.partitions_max())
        if most < config.partitions_total_max:
            logger.info("partitions bounded: %d, by the limit on open files", most)
        return replace(config, partitions_total_max=most)

    async def _open_users(self, store: Store) -> UserStore:
        if self.config.users == "metadata":
            return MetadataUsers(store)
        from tailrace.cluster.postgres_users import PostgresUsers
        from tailrace.postgres import parse_dsn

        assert self.config.postgres_dsn is not None, "ServerConfig refuses that"
        users = PostgresUsers(parse_dsn(self.config.postgres_dsn, key="security.postgres_dsn"))
        self._opened.push_async_callback(users.close)
        await users.open()
        self._postgres_users = users
        return users

    def _follow_users(self, broker: Broker) -> None:
        """Where other programs change users, take their changes over."""
        if self._postgres_users is not None:
            from tailrace.cluster.user_following import UserFollowing

            dsn, grace_s = self._postgres_users.dsn, self.config.postgres_grace_s
            broker.run_beside("users", UserFollowing(broker.users, dsn, grace_s=grace_s).run())

    async def _open_listeners(self, broker: Broker) -> None:
        config = self.config
        self._authenticator = Authenticator(
            broker.users, tokens=broker.tokens, monotonic=self._clock.monotonic
        )
        broker.users.watch(self._user_changed)
        broker.quotas.watch(self._apply_quotas)
        broker.users.disabled.watch(self._principal_disabled)
        broker.tokens.watch(self._token_ended)
        for each in config.listeners_of("kafka"):
            listener = KafkaListener(
                broker.gate,
                addresses=[each.address],
                config=kafka_config(config),
                budget=self.budget.share("kafka"),
                name=each.name,
                logins=self._logins(each, session_ms_max=session_ms_max(config)),
                tls=self._listener_tls(each),
            )
            self._kafka.append(listener)
            self._opened.push_async_callback(listener.close)
        for number, each in enumerate(config.listeners_of("native")):
            native = NativeListener(
                broker.gate,
                addresses=native_addresses(config) if number == 0 else [each.address],
                config=native_config(config),
                budget=self.budget.share("native"),
                name=each.name,
                logins=self._logins(each),
                tls=self._listener_tls(each),
            )
            self._native.append(native)
            self._opened.push_async_callback(native.close)
        try:
            for opening in self._framed:
                await opening.start()
            for each in config.listeners_of("http"):
                await self._open_http(each)
            self._opened.callback(watch_certificates(self._tls))
            neighbours = Neighbours(
                kafka=self.kafka_port,
                http=self._http.port if self._http else None,
                scheme="https" if any(each.tls for each in config.listeners_of("http")) else "http",
            )
            for opened in self._framed:
                opened.service.neighbours = neighbours
            self._apply_quotas()
        except ConfigError as error:
            raise CannotListen(str(error)) from error

    async def _open_http(self, config: ListenerConfig) -> None:
        from tailrace.http import HttpListener
        from tailrace.http.console_session import ConsoleSessions

        self._http = HttpListener(
            self.http_app(),
            host=config.address.host,
            port=config.address.port,
            name=config.name,
            logins=self._logins(config),
            tls=self._listener_tls(config),
            sessions=ConsoleSessions(self.broker.users, monotonic=self._clock.monotonic),
            audit=self.broker.audit,
        )
        self._opened.push_async_callback(self._http.close)
        await self._http.start()

    def _logins(self, listener: ListenerConfig, *, session_ms_max: int = 0) -> Logins | None:
        """What a listener demands; None where everybody is served."""
        if not listener.sasl:
            return None
        assert self._authenticator is not None
        return Logins(
            authenticator=AuditedLogins(
                self._authenticator_of(listener, self._authenticator),
                self.broker.audit,
                listener=listener.name,
            ),
            mechanisms=listener.sasl,
            pending=self._pending_logins,
            session_ms_max=session_ms_max,
        )

    def _apply_quotas(self) -> None:
        """Tell the listeners which quotas hold now."""
        quotas = self.broker.quotas
        admits = quotas.connection_rates.admits if quotas.connection_rates is not None else None
        for listener in self._framed:
            listener.apply_quotas(quotas.metering, admits)
        if self._http is not None:
            self._http.limit_connections(admits)
        if self._http_app is not None:
            self._http_app.service.metering = quotas.metering

    def _authenticator_of(self, listener: ListenerConfig, authenticator: Authenticator) -> Authenticator:
        """With the issuer of the listener's tokens, if it has one."""
        if listener.oauth is None:
            return authenticator
        from tailrace.security.oauth.issuer import Issuer, check_usable

        check_usable(listener.oauth, listener=listener.name)
        issuer = Issuer(listener.oauth, now_ms=self._clock.now_ms, monotonic=self._clock.monotonic)
        self._opened.push_async_callback(issuer.close)
        return authenticator.believing(issuer)

    def _listener_tls(self, listener: ListenerConfig) -> ServerTls | None:
        """The TLS of a listener; ConfigError names a file that will not do."""
        if listener.tls is None:
            return None
        made = ServerTls(
            listener.tls,
            listener=listener.name,
            protocol=listener.protocol,
            identifies=listener.tls.client_ca is not None and not listener.sasl,
            admits=self.broker.standing.admits,
            pending=self._pending_logins,
        )
        self._tls.append(made)
        return made

    def _principal_disabled(self, principal: Principal) -> None:
        """End the connections of a principal that was disabled."""
        if self.broker.users.disabled.admits(principal):
            return
        for listener in self._framed:
            listener.end_sessions(principal)
        if self._http is not None:
            self._http.end_sessions(principal)

    def _user_changed(self, name: str) -> None:
        """End the connections of a user that was disabled or deleted."""
        if not self.broker.users.may_log_in(name):
            for listener in self._framed:
                listener.end_sessions(Principal("User", name))

    def _token_ended(self, token_id: str) -> None:
        """End what is connected by a token that was revoked."""
        for listener in self._framed:
            listener.end_token(token_id)

    def _open_telemetry(self, config: TelemetryConfig) -> None:
        from tailrace.telemetry.export import Telemetry

        service = self.http_app().service
        self._telemetry = Telemetry(config, self.observed, service.metrics.sampler.loop_lag)
        self._telemetry.start()
        service.trace = self._telemetry.http_trace

    async def _close_telemetry(self) -> None:
        if self._telemetry is not None:
            self.http_app().service.trace = None
            await self._telemetry.close()
            self._telemetry = None


def reachable(host: str) -> str:
    """Where a client on this machine finds a node that listens everywhere."""
    return {"0.0.0.0": "127.0.0.1", "::": "::1", "": "127.0.0.1"}.get(host, host)


async def wait_failed_or(node: Node, stop: asyncio.Event) -> Exception | None:
    """Wait until the node fails, whose error this returns, or until it is told to stop."""
    failing = asyncio.ensure_future(node.wait_failed())
    stopping = asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({failing, stopping}, return_when=asyncio.FIRST_COMPLETED)
        return failing.result() if failing.done() else None
    finally:
        failing.cancel()
        stopping.cancel()
