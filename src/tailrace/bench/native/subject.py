"""Tailrace under the loads: its `Messaging` by `AsyncClient`, and what a reader wants to know of the broker.

The native listener creates topics and does not delete them, so the Kafka listener does that, where its
address is known.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.bench.native.messaging import Handler
from tailrace.bench.wire.subject import Process, find_processes
from tailrace.client import admin
from tailrace.client.async_client import AsyncClient
from tailrace.client.error import ClientError
from tailrace.client.kafka import KafkaClient
from tailrace.client.native.message import AsyncMessage
from tailrace.client.native.subscription import AsyncSubscription
from tailrace.model.address import Address

CLIENT_ID = "tailrace-bench"
TIMEOUT_S = 30.0
_DELETE_TIMEOUT_S = 10.0  # a broker that has died should not keep us for long


@dataclass(frozen=True, slots=True, kw_only=True)
class NativeSubject:
    """A broker whose native listener answered."""

    node: Address
    bootstrap: str | None  # its Kafka listener
    processes: Sequence[Process]
    timeout_s: float

    def facts(self) -> dict[str, object]:
        """What a reader of the figures needs to know of it."""
        return {
            "address": str(self.node),
            "bootstrap": self.bootstrap,
            "processes": [each._asdict() for each in self.processes],
        }

    def messaging(self, *, topic: str, subscription: str) -> TailraceMessaging:
        """One more connection to it."""
        return TailraceMessaging(
            self.node,
            topic=topic,
            subscription=subscription,
            bootstrap=self.bootstrap,
            timeout_s=self.timeout_s,
        )


async def find_native_subject(node: Address, *, bootstrap: str | None, timeout_s: float) -> NativeSubject:
    """Look who is there; ClientError says why nobody is."""
    async with AsyncClient(*node, CLIENT_ID, reconnect=None, request_timeout_s=timeout_s):
        pass
    processes = await asyncio.to_thread(find_processes, [node])
    return NativeSubject(node=node, bootstrap=bootstrap, processes=processes, timeout_s=timeout_s)


class TailraceMessaging:
    """A topic, and a subscription of it that begins where the topic ends."""

    batch = 1

    def __init__(
        self,
        node: Address,
        *,
        topic: str,
        subscription: str,
        bootstrap: str | None,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        self._client = AsyncClient(
            *node, CLIENT_ID, reconnect=None, request_timeout_s=timeout_s, publish_timeout_s=timeout_s
        )
        self._topic = topic
        self._name = subscription
        self._bootstrap = bootstrap
        self._joined: AsyncSubscription | None = None

    async def open(self) -> None:
        await self._client.connect()

    async def create(self) -> None:
        await self._client.create_topic(self._topic)
        await self._client.create_subscription(self._name, self._topic, start="latest")

    async def publish(self, body: bytes) -> None:
        await self._client.publish(self._topic, body)

    async def subscribe(self, handler: Handler, *, prefetch: int) -> None:
        def handle(message: AsyncMessage) -> None:
            handler(message.body)  # the client acknowledges what a handler returned from

        self._joined = await self._client.subscribe_to_subscription(self._name, handle, prefetch=prefetch)

    async def unsubscribe(self) -> None:
        joined, self._joined = self._joined, None
        if joined is not None:
            await joined.close()

    async def count_unacknowledged(self) -> int:
        described = await self._client.describe_subscription(self._name)
        return int(described["lag"])

    async def remove(self) -> None:
        await self.remove_subscription()
        await delete_topic(self._bootstrap, self._topic)

    async def remove_subscription(self) -> None:
        await self._client.delete_subscription(self._name)

    async def close(self) -> None:
        await self._client.disconnect()


async def delete_topic(bootstrap: str | None, name: str) -> None:
    """Delete a topic; BrokerError or ClientError if it stays, as it does if `bootstrap` is another broker."""
    if bootstrap is None:
        raise ClientError(f"topic {name} can be deleted by the Kafka listener only")
    async with KafkaClient(bootstrap, client_id=CLIENT_ID, request_timeout_s=_DELETE_TIMEOUT_S) as kafka:
        await admin.delete_topic(kafka, name)
