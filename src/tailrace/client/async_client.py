"""The client of the native listener for asyncio.

    async with AsyncClient("localhost", 9999) as client:
        await client.create_topic("orders")
        await client.publish("orders", b"first", key="customer-7", properties={"colour": "red"})

        await client.create_subscription("workers", "orders", max_deliveries=3)
        async for message in await client.subscribe_to_subscription("workers"):
            print(message.text, message.properties)

Publishing is idempotent: after a lost connection everything unanswered is sent again with its sequences, and
the broker leaves out what it has. All publishes of one turn of the event loop leave together, so many at once
(asyncio.gather, tasks) are much faster than one after the other. `transaction` publishes to several topics
and acknowledges messages in one step. tailrace.client.native holds the parts.
"""

from __future__ import annotations

import asyncio
import os
import socket
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from tailrace.client.address import address_of
from tailrace.client.bearer import GiveToken
from tailrace.client.credentials import credentials_of
from tailrace.client.error import ClientClosed
from tailrace.client.native.error import number_of
from tailrace.client.native.inbox import Inbox
from tailrace.client.native.message import AsyncMessage
from tailrace.client.native.outgoing import (
    Body,
    Key,
    Text,
    body_of,
    is_delayed,
    key_of,
    meant_properties,
    seal_outgoing,
    text_of,
    write_outgoing,
)
from tailrace.client.native.parts import ClientConfig, Parts
from tailrace.client.native.published import Published
from tailrace.client.native.reconnect import Reconnect
from tailrace.client.native.request import config_properties, making_properties, start_of
from tailrace.client.native.status import Status
from tailrace.client.native.subscription import PREFETCH, AsyncHandler, AsyncSubscription, JoinConfig
from tailrace.client.native.subscriptions import Notice
from tailrace.client.native.transaction import AsyncTransaction
from tailrace.client.tls import ClientTls, tls_of
from tailrace.model import BrokerError, ConfigError, ErrorCode
from tailrace.model.address import Address
from tailrace.security import Secret
from tailrace.wire.native import Header, MessageType

if TYPE_CHECKING:
    from tailrace.security.messages import Encryption, ReadCounts

PORT = 9999
IN_FLIGHT_MAX = 10_000
IN_FLIGHT_BYTES_MAX = 64 * 1024 * 1024
PULL_WAIT_MS = 1_000


class AsyncClient:
    """A connection to the native listener of one broker, which comes back when it is lost.

    `host` is a name or an address; `unix:/path` is a Unix socket on this machine, and has no port.
    `reconnect` says how it comes back; None turns every loss into an error at once. The first connection is
    tried once, or again and again until `connect_timeout_s`. `request_timeout_s` bounds every request but
    publishing, which is bounded by `publish_timeout_s`. `username` and `password` log in by SCRAM-SHA-256,
    `token` with an API token or a JWT, or with what a function gives for each connection.
    `tls` is the file of a CA, True for the CAs of this machine, or a `ClientTls`.
    With `encryption` bodies are encrypted here and decrypted here: the broker does not see them.
    At most `in_flight_max` messages and `in_flight_bytes_max` bytes are unanswered at a time; beyond that
    `publish` waits.
    """

    def __init__(
        self,
        host: str = "localhost",
        port: int = PORT,
        client_id: str | None = None,
        *,
        reconnect: Reconnect | None = Reconnect(),  # noqa: B008 (it is frozen)
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
        self._has_own_id = client_id is not None
        self._config = ClientConfig(
            address=address_of(host, port),
            client_id=client_id or f"tailrace-{socket.gethostname()}-{os.getpid()}",
            reconnect=reconnect,
            connect_timeout_s=connect_timeout_s,
            request_timeout_s=request_timeout_s,
            publish_timeout_s=publish_timeout_s,
            heartbeat_interval_s=heartbeat_interval_s,
            in_flight_max=in_flight_max,
            in_flight_bytes_max=in_flight_bytes_max,
            on_status=on_status,
            on_notice=on_notice,
            credentials=credentials_of(username, password, token),
            tls=tls_of(tls),
            encryption=encryption,
        )
        self._parts: Parts | None = None
        self._opened: asyncio.Event | None = None  # while somebody connects: it is over

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.client_id} {self.status} {self.address}>"

    @property
    def address(self) -> Address:
        """Where the broker is."""
        return self._config.address

    @property
    def client_id(self) -> str:
        """What the broker knows this client by."""
        return self._config.client_id

    # ---- the connection

    async def connect(self) -> None:
        """Connect. A second call does nothing while the first one lasts.

        A broker that cannot be reached is an error at once. With `connect_timeout_s` it is tried again until
        then, unless reconnect=None.
        """
        while self._opened is not None:  # somebody else is at it, and may fail
            await self._opened.wait()
        if self._parts is not None and self._parts.link.status is not Status.CLOSED:
            return
        self._opened = opened = asyncio.Event()
        try:
            parts = Parts(self._config)
            await parts.link.open()
            self._parts = parts
        finally:
            self._opened = None
            opened.set()

    async def disconnect(self) -> None:
        """Leave all subscriptions, wait for what is unanswered, and close. A second call does nothing."""
        parts, self._parts = self._parts, None
        if parts is not None:
            await parts.close()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.disconnect()

    @property
    def status(self) -> Status:
        """Where the client stands with its broker."""
        return Status.CLOSED if self._parts is None else self._parts.link.status

    @property
    def topics(self) -> dict[str, int]:
        """The topics that this client has used, with their partitions."""
        return {} if self._parts is None else dict(self._parts.catalog.partitions)

    @property
    def cursors(self) -> dict[str, dict[int, int]]:
        """The newest offset that this client had acknowledged, by subscription and partition."""
        if self._parts is None:
            return {}
        return {name: dict(each) for name, each in self._parts.settlements.cursors.items()}

    @property
    def read_counts(self) -> ReadCounts | None:
        """What was decrypted and refused since it connected; None without encryption."""
        if self._parts is None or self._parts.opening is None:
            return None
        return self._parts.opening.counts

    @property
    def _open(self) -> Parts:
        if self._parts is None:
            raise ClientClosed("the client is not connected. Call connect() first, or use it in a with block")
        return self._parts

    # ---- topics

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        *,
        configs: Mapping[str, Text] | None = None,
        **settings: Text,
    ) -> None:
        """Make a topic. One that exists with the same settings is fine.

        Settings have Kafka's names, or those with underscores: create_topic("t", retention_ms=60_000) and
        create_topic("t", configs={"retention.ms": 60_000}) are the same.
        """
        given = config_properties({**(configs or {}), **settings})
        properties = {"_topic": name, "_partitions": str(partitions), **given}
        frame, _ = await self._open.link.request(MessageType.CREATE_TOPIC, properties)
        self._open.catalog.partitions[name] = number_of(frame, "_partitions", partitions)

    # ---- publishing

    async def publish(
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
        """Publish a message; returns once the broker has it safe.

        Messages with one key go to one partition. `headers` are binary properties, possibly repeated; `None`
        as the body makes a tombstone. A message with `delay_ms` or `deliver_at` is delivered when it is due.
        """
        value = body_of(body)
        key_bytes = key_of(key)
        texts: dict[str, str] = {}
        if (
            properties
            or delay_ms is not None
            or deliver_at is not None
            or ttl_ms is not None
            or priority is not None
            or created_at is not None
        ):
            texts = meant_properties(
                properties,
                delay_ms=delay_ms,
                deliver_at=deliver_at,
                ttl_ms=ttl_ms,
                priority=priority,
                created_at=created_at,
            )
        parts = self._open
        if parts.sealer is not None:
            value, headers = seal_outgoing(parts.sealer, topic, key_bytes, value, texts, headers)
        encoded = b""
        if texts or headers or key_bytes is not None or value is None:
            encoded = write_outgoing(key_bytes, value, texts, headers)
            if is_delayed(texts, headers):
                return await self._publish_delayed(topic, partition, encoded, value)
        catalog = parts.catalog
        count = 0
        chosen = partition
        if chosen is None:
            count = catalog.partitions.get(topic) or await catalog.learn(topic)
            chosen = 0 if count == 1 else catalog.choose(topic, key_bytes, count)
        try:
            return await parts.publisher.publish(topic, chosen, encoded, value or b"")
        except BrokerError as error:
            if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                raise
            catalog.forget(topic)
            if partition is not None or not chosen or (now := await catalog.learn(topic)) == count:
                raise
        # The topic was made anew with another number of partitions, and the choice was ours.
        return await parts.publisher.publish(
            topic, catalog.choose(topic, key_bytes, now), encoded, value or b""
        )

    async def publish_text(self, topic: str, text: str, **properties: Text) -> Published:
        """Publish UTF-8 text; every further keyword is a property of the message."""
        return await self.publish(topic, text, properties=properties)

    async def _publish_delayed(
        self, topic: str, partition: int | None, encoded: bytes, value: bytes | None
    ) -> Published:
        """A message that waits for its time has no place yet: it is sent by itself."""
        head = {"_topic": topic} if partition is None else {"_topic": topic, "_partition": str(partition)}
        frame = await self._open.delayed.publish(head, encoded, value or b"")
        offset = number_of(frame, "_offset", -1)
        identity = frame.properties.get("_id", "")
        prefix = identity if offset < 0 else identity[: identity.rfind("-") + 1]
        return Published(topic, number_of(frame, "_partition", -1), offset, prefix, frame.timestamp)

    # ---- subscriptions

    async def create_subscription(
        self,
        name: str,
        topic: str,
        start_offset: int = 0,
        *,
        start: str | int | datetime | None = None,
        configs: Mapping[str, Text] | None = None,
        **settings: Text,
    ) -> None:
        """Make a subscription of a topic. One that exists with the same settings is fine.

        It begins at `start_offset`, or where `start` says: "earliest", "latest", "offset:N", "time:MS", or a
        datetime. Settings, by their names or in `configs`: mode, delivery, ack_timeout_ms, max_deliveries,
        backoff_ms, backoff_ms_max, unacked_max, priority, order, dead_letter_topic.
        """
        properties = {
            "_subscription": name,
            **making_properties(
                topic, start_offset if start is None else start, {**(configs or {}), **settings}
            ),
        }
        await self._open.link.request(MessageType.CREATE_SUBSCRIPTION, properties)

    async def delete_subscription(self, name: str) -> None:
        """Delete a subscription and its cursors. The topic keeps its messages."""
        await self._open.link.request(MessageType.DELETE_SUBSCRIPTION, {"_subscription": name})

    async def subscribe_to_subscription(
        self,
        name: str,
        handler: AsyncHandler | None = None,
        *,
        auto_ack: bool = True,
        prefetch: int = PREFETCH,
        concurrency: int = 1,
        extend: bool = True,
    ) -> AsyncSubscription:
        """Join a subscription, whose messages then come to `handler`, or to whoever iterates over the result.

        A handler, plain or async, that returns acknowledges its message; one that raises has it delivered
        again. With auto_ack=False it calls `await message.ack()` or `message.nack()`. Handlers run one at a
        time, in order of arrival, unless `concurrency` says more. `prefetch` messages may be here unsettled;
        with `extend` the broker leaves them here as long as their handlers need.
        """
        config = JoinConfig(
            name=name, auto_ack=auto_ack, prefetch=prefetch, concurrency=concurrency, extend=extend
        )
        return await self.join(config, handler)

    async def subscribe(
        self,
        topic: str,
        handler: AsyncHandler | None = None,
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
    ) -> AsyncSubscription:
        """Join a subscription of a topic, which is made if there is none.

        Without a name it is called `<topic>.<client_id>`, or `<topic>.default` if the client was given no id.
        """
        config = JoinConfig(
            name=name or self.default_name(topic),
            making=making_properties(
                topic, start_offset if start is None else start, {**(configs or {}), **settings}
            ),
            auto_ack=auto_ack,
            prefetch=prefetch,
            concurrency=concurrency,
            extend=extend,
        )
        return await self.join(config, handler)

    def default_name(self, topic: str) -> str:
        """What `subscribe` calls a subscription that was given no name."""
        return f"{topic}.{self.client_id if self._has_own_id else 'default'}"

    async def join(
        self, config: JoinConfig, handler: AsyncHandler | None = None, *, inbox: Inbox | None = None
    ) -> AsyncSubscription:
        """Join a subscription as the two methods above do; messages may go to an inbox of the caller's."""
        parts = self._open
        subscription = AsyncSubscription(
            config,
            settlements=parts.settlements,
            leave=parts.subscriptions.leave,
            handler=handler,
            inbox=inbox,
            opening=parts.opening,
        )
        await parts.subscriptions.join(subscription)
        return subscription

    async def unsubscribe_from_subscription(self, name: str) -> None:
        """Leave a subscription. What is unsettled goes to its other members at once."""
        subscription = self._open.subscriptions.get(name)
        if subscription is None:
            raise ConfigError(f"this client has not joined {name}")
        await subscription.close()

    def set_prefetch(self, name: str, prefetch: int) -> None:
        """Change how many messages of a joined subscription may be here unsettled; 0 pauses."""
        subscription = self._open.subscriptions.get(name)
        if subscription is None or prefetch < 0:
            raise ConfigError(f"this client has not joined {name}, or prefetch = {prefetch} is below 0")
        self._open.subscriptions.set_prefetch(subscription, prefetch)

    async def pull(self, name: str, count: int = 1, wait_ms: int = PULL_WAIT_MS) -> list[AsyncMessage]:
        """Up to `count` messages of a subscription, waiting so long for the first; settle each of them."""
        if count < 1 or wait_ms < 0:
            raise ConfigError(f"count = {count} must be at least 1 and wait_ms = {wait_ms} at least 0")
        parts = self._open
        if parts.opening is not None and parts.opening.has_pulled(name):
            return parts.opening.next_pulled(name, count)
        _, frames = await parts.link.request(
            MessageType.PULL,
            {"_subscription": name, "_count": str(count), "_wait_ms": str(wait_ms)},
            timeout_s=self._config.request_timeout_s + wait_ms / 1000,
        )
        messages = [AsyncMessage(frame, parts.settlements) for frame in frames]
        if parts.opening is None or not messages:
            return messages
        parts.opening.add_pulled(name, messages)
        return parts.opening.next_pulled(name, count)

    async def replay(self, name: str, to: str | int | datetime, *, partition: int | None = None) -> None:
        """Move a subscription: everything from there on is delivered again, also if it was acknowledged."""
        properties = {"_subscription": name, "_to": start_of(to)}
        if partition is not None:
            properties["_partition"] = str(partition)
        await self._open.link.request(MessageType.REPLAY, properties)

    seek = replay  # its older name

    async def redrive(self, name: str, count: int | None = None) -> int:
        """Deliver the dead letters of a subscription once more, all or so many; how many there are."""
        properties = (
            {"_subscription": name} if count is None else {"_subscription": name, "_count": str(count)}
        )
        # Repeated, it would move more than was asked for.
        frame, _ = await self._open.link.request(MessageType.REDRIVE, properties, repeat=count is None)
        return number_of(frame, "_count")

    # ---- transactions

    def transaction(
        self, transactional_id: str | None = None, *, timeout_s: float | None = None
    ) -> AsyncTransaction:
        """Messages that are published and acknowledged in one step: `async with client.transaction() as tx`.

        Leaving the block commits, an exception aborts. With a `transactional_id` this client takes over from
        any other one that uses it: what that has open is aborted and cannot commit. Only then can a timeout
        be given, after which the broker aborts.
        """
        return AsyncTransaction(lambda: self._open, transactional_id=transactional_id, timeout_s=timeout_s)

    # ---- what there is

    async def describe_topics(self) -> Any:
        """All topics, as the broker describes them."""
        return await self._open.catalog.describe("topics")

    async def describe_topic(self, name: str) -> Any:
        """One topic."""
        return await self._open.catalog.describe("topic", name=name)

    async def describe_subscriptions(self) -> Any:
        """All subscriptions."""
        return await self._open.catalog.describe("subscriptions")

    async def describe_subscription(self, name: str) -> Any:
        """One subscription: settings, members, cursors."""
        return await self._open.catalog.describe("subscription", name=name)

    async def describe_dead_letters(self, name: str, count: int = 10) -> Any:
        """The oldest dead letters of a subscription."""
        return await self._open.catalog.describe("dead_letters", name=name, count=text_of(count))
