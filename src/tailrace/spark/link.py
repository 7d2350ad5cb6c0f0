"""A client of the broker for callers that block, as Spark's Python workers do; one per process and cluster.

Spark asks a source many small questions from one thread and reads records from another process, which it
reuses for task after task. So the client lives in an event loop of its own thread and stays there: a task
finds the connections of the one before it open.

Spark's daemon forks its workers. Threads do not survive a fork, hence links are looked up by process id, and
nothing is started before the first question.
"""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from typing import TYPE_CHECKING, Any, TypeVar

if TYPE_CHECKING:  # most processes of Spark only pass options on, and start faster without a client
    from tailrace.client.kafka import KafkaClient
    from tailrace.client.loop_thread import LoopThread
    from tailrace.spark.login import AnyLogin
    from tailrace.spark.tls import SparkTls

CLIENT_ID = "tailrace-spark"
REQUEST_TIMEOUT_S = 30.0
CONNECT_PATIENCE_S = 10.0
"""How long the first connection is tried for: long enough for a broker that restarts, short enough for a
person who mistyped its address."""

T = TypeVar("T")

_links: dict[tuple[int, str, str, float, str], BrokerLink] = {}


class BrokerLink:
    """A KafkaClient in an event loop of its own thread; both begin with the first piece of work."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = CLIENT_ID,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        login: AnyLogin | None = None,
        tls: SparkTls | None = None,
    ) -> None:
        """Without `login` and `tls` it does as the environment says: TAILRACE_USER, TAILRACE_TLS_CA."""
        self.bootstrap_servers = bootstrap_servers
        self.client_id = client_id
        self.request_timeout_s = request_timeout_s
        self._login = login
        self._tls = tls
        self._starting = threading.Lock()
        self._thread: LoopThread | None = None
        self._connecting = asyncio.Lock()  # used in the loop alone
        self._client: KafkaClient | None = None

    def __repr__(self) -> str:
        return f"<BrokerLink {self.bootstrap_servers}, {'idle' if self._client is None else self._client!r}>"

    def run(self, work: Callable[[KafkaClient], Coroutine[Any, Any, T]]) -> T:
        """Do some work with the client and wait for its result."""
        return self._loop_thread().call(self._apply(work))

    def start(self, work: Callable[[KafkaClient], Coroutine[Any, Any, T]]) -> Future[T]:
        """Begin some work with the client; the future can be waited for or cancelled from any thread."""
        return asyncio.run_coroutine_threadsafe(self._apply(work), self._loop_thread().loop)

    def close(self) -> None:
        """Close the connections and end the thread. Asking again begins anew."""
        with self._starting:
            thread, self._thread = self._thread, None
        if thread is not None:
            thread.call(self._disconnect())
            thread.close()

    def _loop_thread(self) -> LoopThread:
        with self._starting:
            if self._thread is None:
                from tailrace.client.loop_thread import LoopThread

                self._thread = LoopThread("tailrace-link")
            return self._thread

    async def _apply(self, work: Callable[[KafkaClient], Coroutine[Any, Any, T]]) -> T:
        return await work(await self._connected())

    async def _connected(self) -> KafkaClient:
        async with self._connecting:
            if self._client is None:
                from tailrace.client.credentials import from_environment
                from tailrace.client.kafka import KafkaClient
                from tailrace.client.tls import from_environment as tls_from_environment

                login, tls = self._login, self._tls
                client = KafkaClient(
                    self.bootstrap_servers,
                    client_id=self.client_id,
                    request_timeout_s=self.request_timeout_s,
                    credentials=from_environment() if login is None else login.credentials(),
                    tls=tls_from_environment() if tls is None else tls.client_tls(),
                )
                try:
                    patience_s = min(CONNECT_PATIENCE_S, self.request_timeout_s)
                    what = f"connecting to {self.bootstrap_servers}"
                    await client.retrying(what, client.connect, timeout_s=patience_s)
                except BaseException:
                    await client.close()
                    raise
                self._client = client
            return self._client

    async def _disconnect(self) -> None:
        async with self._connecting:
            client, self._client = self._client, None
        if client is not None:
            await client.close()


def link_to(
    bootstrap_servers: str,
    *,
    client_id: str = CLIENT_ID,
    request_timeout_s: float = REQUEST_TIMEOUT_S,
    login: AnyLogin | None = None,
    tls: SparkTls | None = None,
) -> BrokerLink:
    """This process's link to a cluster, made when it is first asked for."""
    who = "" if login is None else login.digest()
    who += "" if tls is None else tls.digest()
    key = os.getpid(), bootstrap_servers, client_id, request_timeout_s, who
    link = _links.get(key)
    if link is None:
        # A link does nothing by itself, so the one that loses a race here is simply dropped.
        made = BrokerLink(
            bootstrap_servers,
            client_id=client_id,
            request_timeout_s=request_timeout_s,
            login=login,
            tls=tls,
        )
        link = _links.setdefault(key, made)
    return link


def close_links() -> None:
    """Close every link of this process; whoever asks later gets a new connection."""
    for key in [key for key in list(_links) if key[0] == os.getpid()]:
        _links.pop(key).close()
