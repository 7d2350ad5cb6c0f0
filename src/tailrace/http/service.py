"""What the requests of one HTTP app share: the gate, the bounds, the live streams, and how it all ends."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.broker.gate import Gate
from tailrace.http.config import HttpConfig
from tailrace.http.error import Code, HttpError
from tailrace.http.session import LISTENER
from tailrace.metrics.node_metrics import NodeMetrics
from tailrace.model.session import Session
from tailrace.net import ListenerCounters, NodeBudget, RequestBudget
from tailrace.net.metering import Metering

if TYPE_CHECKING:
    from tailrace.http.live.port import MessageSocket, NativeShell
    from tailrace.http.live.tails import Tails
    from tailrace.metrics.runs import Runs

_T = TypeVar("_T")
OpenShell = Callable[["MessageSocket", Session], "NativeShell"]
"""Makes the shell of a native client out of its WebSocket and the session of the request."""
NATIVE_PATH: Final = "/api/v1/ws"
"""Where a WebSocket is a native session."""
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
    native_shell: OpenShell | None = None  # serves native clients that come by WebSocket
    native_budget: RequestBudget | None = None  # what their messages draw on


class HttpService:
    """One app's gate, bounds and state."""

    def __init__(
        self,
        gate: Gate,
        config: HttpConfig,
        facts: NodeFacts,
        metrics: NodeMetrics,
        budget: RequestBudget | None = None,
    ) -> None:
        """`metrics` has the counters of this listener under the listener's name.

        `budget` is this listener's share of the node's; without one it is the only listener of a node.
        """
        self.budget = budget or NodeBudget().share(LISTENER)
        self.answers = RequestBudget(config.answers_bytes_max)  # large answers that are being made
        self.gate = gate
        self.clock = gate.clock
        self.config = config
        self.facts = facts
        self.metrics = metrics
        self.counters = metrics.listeners[LISTENER]
        self.started_ms = time.time_ns() // 1_000_000
        self.metering: Metering | None = None  # None: no client has a quota
        self.trace: Trace | None = None  # puts a span around every request; mostly there is none
        self._stopping = asyncio.Event()
        self._tails: Tails | None = None
        self._runs: Runs | None = None

    @property
    def streams(self) -> int:
        """Tails and WebSockets that are open."""
        return self.counters.streams

    def socket_budget(self, path: str) -> RequestBudget:
        """The share that a WebSocket's messages draw on: those of a native session are native requests."""
        native = self.facts.native_budget
        return native if native is not None and path == NATIVE_PATH else self.budget

    @property
    def tails(self) -> Tails:
        """The topics that are watched live."""
        if self._tails is None:
            from tailrace.http.live.tails import Tails  # which is read with this module

            self._tails = Tails(self.gate, self.config)
        return self._tails

    @property
    def runs(self) -> Runs:
        """The runs of pipelines."""
        if self._runs is None:
            from tailrace.metrics.runs import Runs  # imported with the first request for pipelines

            self._runs = Runs()
        return self._runs

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
        return Stream(self.counters)


class Stream:
    """A live stream's place; `with service.open_stream(): ...` gives it back."""

    __slots__ = ("_counters",)

    def __init__(self, counters: ListenerCounters) -> None:
        self._counters = counters
        counters.streams += 1

    def __enter__(self) -> Stream:
        return self

    def __exit__(self, *_: object) -> None:
        self._counters.streams -= 1
