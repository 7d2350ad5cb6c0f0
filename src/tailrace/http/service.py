"""What the requests of one HTTP app share: the broker, the bounds, the live streams, and how it all ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.broker import Broker
from tailrace.http.config import HttpConfig
from tailrace.http.error import Code, HttpError
from tailrace.metrics.free_space import FreeSpace
from tailrace.metrics.observed import Observed
from tailrace.metrics.sampler import Sampler
from tailrace.model.session import Session
from tailrace.net import ListenerCounters

if TYPE_CHECKING:
    from tailrace.http.live.port import MessageSocket, NativeShell
    from tailrace.http.live.tails import Tails
    from tailrace.http.rest.pipeline import Runs
    from tailrace.metrics.exposition import Exporter

_T = TypeVar("_T")
Trace = Callable[[ASGIApp, Scope, Receive, Send], Awaitable[None]]


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeFacts:
    """What the service tells of the node that it belongs to."""

    version: str
    engine: str  # segment, memory
    fsync: str
    data_dir: str  # "": none
    kafka: str = ""  # HOST:PORT of each listener; "": there is none
    native: str = ""
    listeners: Mapping[str, ListenerCounters] = field(default_factory=dict)  # of the other listeners, by name
    native_shell: Callable[[MessageSocket, Session], NativeShell] | None = (
        None  # a native session by WebSocket
    )


class HttpService:
    """One app's broker, bounds and state."""

    def __init__(self, broker: Broker, config: HttpConfig, facts: NodeFacts) -> None:
        self.broker = broker
        self.config = config
        self.facts = facts
        self.counters = ListenerCounters()
        self.started_ms = time.time_ns() // 1_000_000
        self.streams = 0  # tails and WebSockets that are open
        self.trace: Trace | None = None  # puts a span around every request; mostly there is none
        self._stopping = asyncio.Event()
        self._tails: Tails | None = None
        self._runs: Runs | None = None
        self._exporter: Exporter | None = None
        self.observed = Observed(
            broker=broker,
            listeners={**facts.listeners, "http": self.counters},
            info={"version": facts.version, "engine": facts.engine, "fsync": facts.fsync},
            free_space=FreeSpace(facts.data_dir),
            streams=lambda: self.streams,
        )
        self.sampler = Sampler(self.observed)  # whoever serves the app starts it, and stops it

    @property
    def tails(self) -> Tails:
        """The topics that are watched live."""
        if self._tails is None:
            from tailrace.http.live.tails import Tails  # which is read with this module

            self._tails = Tails(self.broker, self.config)
        return self._tails

    @property
    def runs(self) -> Runs:
        """The runs of pipelines."""
        if self._runs is None:
            from tailrace.http.rest.pipeline import Runs  # which is read with this module

            self._runs = Runs(self.broker)
        return self._runs

    @property
    def exporter(self) -> Exporter:
        """The metrics, as Prometheus reads them."""
        if self._exporter is None:
            from tailrace.metrics.exposition import Exporter  # loads prometheus_client, for who wants it

            self._exporter = Exporter(self.observed, self.sampler.loop_lag)
        return self._exporter

    @property
    def is_stopping(self) -> bool:
        return self._stopping.is_set()

    def stop(self) -> None:
        """What waits, and what streams, comes to its end."""
        self._stopping.set()
        if self._tails is not None:
            self._tails.stop("the node is stopping")

    async def wait_stopping(self) -> None:
        await self._stopping.wait()

    async def in_time(self, work: Awaitable[_T]) -> _T:
        """What `work` gives; BROKER_NOT_AVAILABLE if it takes too long."""
        deadline = asyncio.timeout(self.config.request_timeout_s)
        try:
            async with deadline:
                return await work
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise HttpError(
                Code.BROKER_NOT_AVAILABLE,
                f"not done within {self.config.request_timeout_s:g} s; it may become so yet",
            ) from error

    def open_stream(self) -> Stream:
        """A place among the live streams; BROKER_NOT_AVAILABLE if there is none left."""
        if self.is_stopping:
            raise HttpError(Code.BROKER_NOT_AVAILABLE, "the node is stopping. Connect again later")
        if self.streams >= self.config.streams_max:
            raise HttpError(
                Code.BROKER_NOT_AVAILABLE,
                f"{self.streams} live streams are open, which is what this node allows",
                headers={"retry-after": "10"},
            )
        return Stream(self)


class Stream:
    """A live stream's place; `with service.open_stream(): ...` gives it back."""

    __slots__ = ("_service",)

    def __init__(self, service: HttpService) -> None:
        self._service = service
        service.streams += 1

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._service.streams -= 1
