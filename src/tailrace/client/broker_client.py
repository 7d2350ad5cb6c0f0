"""The client of the native listener for plain threads.

    client = BrokerClient(host="localhost", port=9999, client_id="publisher-1")
    client.connect()
    client.create_topic("events")
    client.publish_text("events", "Hello, World!", colour="red")

    client.create_subscription("workers", "events", start_offset=0)
    client.subscribe_to_subscription("workers", handler=lambda message: print(message.text))
    ...
    client.disconnect()

It is an `AsyncClient` in an event loop of its own thread. Every method may be called from every thread, also
from handlers, which run in worker threads. All threads are daemons: a client that nobody disconnects does not
keep the program alive, and is closed when it ends. Many threads that publish at the same time share frames.
"""

from __future__ import annotations

import asyncio
import atexit
import concurrent.futures
import os
import threading
import weakref
from collections.abc import Callable, Coroutine, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from tailrace.client.async_client import (
    IN_FLIGHT_BYTES_MAX,
    IN_FLIGHT_MAX,
    PORT,
    PULL_WAIT_MS,
    AsyncClient,
)
from tailrace.client.bearer import GiveToken
from tailrace.client.error import ClientClosed
from tailrace.client.loop_thread import LoopThread
from tailrace.client.native.blocking import Handler, Message, Subscription
from tailrace.client.native.blocking_transaction import Transaction
from tailrace.client.native.outgoing import Body, Key, Text
from tailrace.client.native.published import Published
from tailrace.client.native.reconnect import Reconnect
from tailrace.client.native.request import making_properties
from tailrace.client.native.status import Status
from tailrace.client.native.subscription import PREFETCH, JoinConfig
from tailrace.client.native.subscriptions import Notice
from tailrace.client.tls import ClientTls
from tailrace.model import ConfigError
from tailrace.security import Secret
from tailrace.wire.native import Header

if TYPE_CHECKING:
    from tailrace.security.messages import Encryption, ReadCounts

T = TypeVar("T")

_EXIT_TIMEOUT_S = 3.0


class BrokerClient:
    """A connection to the native listener of one broker, which comes back when it is lost.

    `host` is a name or an address; `unix:/path` is a Unix socket on this machine, and has no port.
    `reconnect` says how it comes back; None turns every loss into an error at once. The further settings are
    those of `AsyncClient`; `on_status` and `on_notice` are called in the client's own thread and must not
    wait.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = PORT,
        client_id: str | None = None,
        reconnect: Reconnect | None = Reconnect(),  # noqa: B008 (it is frozen)
        *,
        connect_timeout_s: float | None = None,
        request_timeout_s: float = 30.0,
        publish_timeout_s: float = 120.0,
        heartbeat_interval_s: float = 30.0,
        in_flight_max: int = IN_FLIGHT_MAX,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        on_status: Callable[[Status], None] | None = None,
        on_notice: Callable[[Notice], None] | None = None,
        username: str | None = None,
        password: str | Secret | None = None,
        token: str | Secret | GiveToken | None = None,
        tls: ClientTls | str | os.PathLike[str] | bool | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        self._client = AsyncClient(
            host,
            port,
            client_id,
            reconnect=reconnect,
            connect_timeout_s=connect_timeout_s,
            request_timeout_s=request_timeout_s,
            publish_timeout_s=publish_timeout_s,
            heartbeat_interval_s=heartbeat_interval_s,
            in_flight_max=in_flight_max,
            in_flight_bytes_max=in_flight_bytes_max,
            on_status=on_status,
            on_notice=on_notice,
            username=username,
            password=password,
            token=token,
            tls=tls,
            encryption=encryption,
        )
        self._stop_timeout_s = request_timeout_s
        self._lock = threading.Lock()  # over the three below
        self._thread: LoopThread | None = None
        self._subscriptions: dict[str, Subscription] = {}
        self._finalizer: weakref.finalize[[LoopThread, AsyncClient], BrokerClient] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.client_id} {self.status} {self._client.address}>"

    # ---- the connection

    def connect(self) -> None:
        """Connect. A second call does nothing while the first one lasts.

        A broker that cannot be reached is an error at once. With `connect_timeout_s` it is tried again until
        then, unless reconnect=None.
        """
        with self._lock:
            if self._thread is None:
                self._thread = LoopThread("tailrace-client")
                self._finalizer = weakref.finalize(self, _abandon, self._thread, self._client)
                self._finalizer.atexit = False  # _close_all does that, and waits
                _connected.add(self)
            thread = self._thread
        try:
            thread.call(self._client.connect())
        except BaseException:
            self._close_thread(thread)
            raise

    def disconnect(self) -> None:
        """Leave all subscriptions, wait for what is unanswered, and close. A second call does nothing."""
        thread = self._thread
        if thread is None or thread.is_elsewhere:
            return
        thread.check_caller()
        with self._lock:
            subscriptions = list(self._subscriptions.values())
            self._subscriptions.clear()
        for subscription in subscriptions:
            subscription.stop_workers()
        try:
            thread.call(self._client.disconnect())
        except ClientClosed:
            return  # another thread was faster
        finally:
            self._close_thread(thread)

    def __enter__(self) -> Self:
        self.connect()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.disconnect()

    def _close_thread(self, thread: LoopThread) -> None:
        with self._lock:
            if self._thread is not thread:
                return
            self._thread = None
            _connected.discard(self)
            if self._finalizer is not None:
                self._finalizer.detach()
        thread.close()

    def _call(self, work: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the client's thread and wait for it. Ctrl-C here cancels it there."""
        return self._open_thread(work).call(work)

    def _open_thread(self, work: Coroutine[Any, Any, Any] | None = None) -> LoopThread:
        thread = self._thread
        if thread is None:
            if work is not None:
                work.close()
            raise ClientClosed("the client is not connected. Call connect() first, or use it in a with block")
        return thread

    @property
    def client_id(self) -> str:
        """What the broker knows this client by."""
        return self._client.client_id

    @property
    def status(self) -> Status:
        """Where the client stands with its broker."""
        return self._client.status

    @property
    def topics(self) -> dict[str, int]:
        """The topics that this client has used, with their partitions."""
        return self._client.topics

    @property
    def cursors(self) -> dict[str, dict[int, int]]:
        """The newest offset that this client had acknowledged, by subscription and partition."""
        return self._client.cursors

    @property
    def read_counts(self) -> ReadCounts | None:
        """What was decrypted and refused since it connected; None without encryption."""
        return self._client.read_counts

    # ---- topics and publishing

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, Text] | None = None,
        **settings: Text,
    ) -> None:
        """Make a topic. One that exists with the same settings is fine."""
        self._call(self._client.create_topic(name, partitions, configs=configs, **settings))

    def publish(
        self,
        topic: str,
        body: Body,
        *,
        key: Key = None,
        properties: Mapping[str, Text] | None = None,
        partition: int | None = None,
        headers: Sequence[Header] | None = None,
        delay_ms: int | None = None,
        deliver_at: int | datetime | None = None,
        ttl_ms: int | None = None,
        priority: int | None = None,
        created_at: int | datetime | None = None,
    ) -> Published:
        """Publish a message; returns once the broker has it safe. See `AsyncClient.publish`."""
        return self._call(
            self._client.publish(
                topic,
                body,
                key=key,
                properties=properties,
                partition=partition,
                headers=headers,
                delay_ms=delay_ms,
                deliver_at=deliver_at,
                ttl_ms=ttl_ms,
                priority=priority,
                created_at=created_at,
            )
        )

    def publish_text(self, topic: str, text: str, **properties: Text) -> Published:
        """Publish UTF-8 text; every further keyword is a property of the message."""
        return self._call(self._client.publish_text(topic, text, **properties))

    # ---- subscriptions

    def create_subscription(
        self,
        name: str,
        topic: str,
        start_offset: int = 0,
        *,
        start: str | int | datetime | None = None,
        configs: Mapping[str, Text] | None = None,
        **settings: Text,
    ) -> None:
        """Make a subscription of a topic. See `AsyncClient.create_subscription`."""
        self._call(
            self._client.create_subscription(
                name, topic, start_offset, start=start, configs=configs, **settings
            )
        )

    def delete_subscription(self, name: str) -> None:
        """Delete a subscription and its cursors. The topic keeps its messages."""
        self._call(self._client.delete_subscription(name))

    def subscribe_to_subscription(
        self,
        name: str,
        handler: Handler | None = None,
        *,
        auto_ack: bool = True,
        prefetch: int = PREFETCH,
        concurrency: int = 1,
        extend: bool = True,
    ) -> Subscription:
        """Join a subscription, whose messages then come to `handler`, or to whoever iterates over the result.

        The handler runs in a worker thread, or in as many as `concurrency` says. One that returns
        acknowledges its message, one that raises has it delivered again; with auto_ack=False it calls
        `message.ack()` or `message.nack()`.
        """
        config = JoinConfig(
            name=name, auto_ack=auto_ack, prefetch=prefetch, concurrency=concurrency, extend=extend
        )
        return self._join(config, handler)

    def subscribe(
        self,
        topic: str,
        handler: Handler | None = None,
        *,
        name: str | None = None,
        start_offset: int = 0,
        start: str | int | datetime | None = None,
        auto_ack: bool = True,
        prefetch: int = PREFETCH,
        concurrency: int = 1,
        extend: bool = True,
        configs: Mapping[str, Text] | None = None,
        **settings: Text,
    ) -> Subscription:
        """Join a subscription of a topic, which is made if there is none. See `AsyncClient.subscribe`."""
        config = JoinConfig(
            name=name or self._client.default_name(topic),
            making=making_properties(
                topic, start_offset if start is None else start, {**(configs or {}), **settings}
            ),
            auto_ack=auto_ack,
            prefetch=prefetch,
            concurrency=concurrency,
            extend=extend,
        )
        return self._join(config, handler)

    def _join(self, config: JoinConfig, handler: Handler | None) -> Subscription:
        subscription = Subscription(
            config,
            handler=handler,
            thread=self._open_thread(),
            stop_timeout_s=self._stop_timeout_s,
            client=self,
        )
        membership = self._call(self._client.join(config, inbox=subscription.inbox))
        with self._lock:
            self._subscriptions[config.name] = subscription
        subscription.start(membership)
        return subscription

    def unsubscribe_from_subscription(self, name: str) -> None:
        """Leave a subscription. What is unsettled goes to its other members at once."""
        with self._lock:
            subscription = self._subscriptions.pop(name, None)
        if subscription is None:
            raise ConfigError(f"this client has not joined {name}")
        subscription.close()

    def pull(self, name: str, count: int = 1, wait_ms: int = PULL_WAIT_MS) -> list[Message]:
        """Up to `count` messages of a subscription, waiting so long for the first; settle each of them."""
        thread = self._open_thread()
        return [Message(each, thread) for each in self._call(self._client.pull(name, count, wait_ms))]

    def replay(self, name: str, to: str | int | datetime, *, partition: int | None = None) -> None:
        """Move a subscription: everything from there on is delivered again, also if it was acknowledged."""
        self._call(self._client.replay(name, to, partition=partition))

    seek = replay  # its older name

    def redrive(self, name: str, count: int | None = None) -> int:
        """Deliver the dead letters of a subscription once more, all or so many; how many there are."""
        return self._call(self._client.redrive(name, count))

    # ---- transactions

    def transaction(
        self, transactional_id: str | None = None, *, timeout_s: float | None = None
    ) -> Transaction:
        """Messages that are published and acknowledged in one step: `with client.transaction() as tx`.

        Leaving the block commits, an exception aborts. See `AsyncClient.transaction`.
        """
        thread = self._open_thread()
        return Transaction(self._client.transaction(transactional_id, timeout_s=timeout_s), thread)

    # ---- what there is

    def describe_topics(self) -> Any:
        """All topics, as the broker describes them."""
        return self._call(self._client.describe_topics())

    def describe_topic(self, name: str) -> Any:
        """One topic."""
        return self._call(self._client.describe_topic(name))

    def describe_subscriptions(self) -> Any:
        """All subscriptions."""
        return self._call(self._client.describe_subscriptions())

    def describe_subscription(self, name: str) -> Any:
        """One subscription: settings, members, cursors."""
        return self._call(self._client.describe_subscription(name))

    def describe_dead_letters(self, name: str, count: int = 10) -> Any:
        """The oldest dead letters of a subscription."""
        return self._call(self._client.describe_dead_letters(name, count))


_connected: weakref.WeakSet[BrokerClient] = weakref.WeakSet()


@atexit.register
def _close_all() -> None:
    """At the end of the program: let go of what was forgotten, without waiting for long."""
    for client in list(_connected):
        thread = client._thread
        if thread is not None and not thread.is_elsewhere and not thread.loop.is_closed():
            leaving = asyncio.run_coroutine_threadsafe(client._client.disconnect(), thread.loop)
            concurrent.futures.wait([leaving], timeout=_EXIT_TIMEOUT_S)


def _abandon(thread: LoopThread, client: AsyncClient) -> None:
    """A client that nobody can reach any more: close it, in its own thread and without waiting."""

    async def leave() -> None:
        try:
            await client.disconnect()
        finally:
            thread.loop.stop()

    if not thread.loop.is_closed():
        asyncio.run_coroutine_threadsafe(leave(), thread.loop)
