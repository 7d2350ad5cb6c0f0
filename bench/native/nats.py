"""NATS JetStream by nats-py: a stream on files, a push consumer with explicit acknowledgements."""

from __future__ import annotations

import nats
from nats.aio.msg import Msg
from nats.js.api import AckPolicy, ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from tailrace.bench.native.messaging import Handler

_ACK_WAIT_S = 30.0  # as long as Tailrace waits by default


class NatsMessaging:
    """A stream of one subject, and a durable consumer."""

    batch = 1

    def __init__(self, *, host: str, port: int, name: str) -> None:
        self._url = f"nats://{host}:{port}"
        self._name = name

    async def open(self) -> None:
        self._client = await nats.connect(self._url, allow_reconnect=False)
        self._stream = self._client.jetstream(timeout=30)

    async def create(self) -> None:
        await self._stream.add_stream(
            StreamConfig(
                name=self._name,
                subjects=[self._name],
                storage=StorageType.FILE,
                retention=RetentionPolicy.LIMITS,
            )
        )

    async def publish(self, body: bytes) -> None:
        await self._stream.publish(self._name, body)

    async def subscribe(self, handler: Handler, *, prefetch: int) -> None:
        async def handle(message: Msg) -> None:
            handler(message.data)
            await message.ack()

        self._subscription = await self._stream.subscribe(
            self._name,
            durable="workers",
            cb=handle,
            manual_ack=True,
            config=ConsumerConfig(
                ack_policy=AckPolicy.EXPLICIT, max_ack_pending=prefetch, ack_wait=_ACK_WAIT_S
            ),
        )

    async def unsubscribe(self) -> None:
        await self._client.flush()  # acknowledgements are written when the loop comes to it

    async def count_unacknowledged(self) -> int:
        found = await self._stream.consumer_info(self._name, "workers")
        return int(found.num_pending or 0) + int(found.num_ack_pending or 0)

    async def remove(self) -> None:
        await self._stream.delete_stream(self._name)

    async def close(self) -> None:
        await self._client.close()
