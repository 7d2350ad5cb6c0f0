"""RabbitMQ by aio-pika: a quorum queue, publisher confirms, every delivery acknowledged by itself."""

from __future__ import annotations

import aio_pika
from aio_pika.abc import AbstractIncomingMessage

from tailrace.bench.native.messaging import Handler


class RabbitMessaging:
    """A queue; publishing and consuming on one channel of one connection."""

    batch = 1

    def __init__(self, *, host: str, port: int, name: str) -> None:
        self._url = f"amqp://guest:guest@{host}:{port}/"
        self._name = name

    async def open(self) -> None:
        self._connection = await aio_pika.connect(self._url)
        self._channel = await self._connection.channel(publisher_confirms=True)
        self._publish = self._channel.default_exchange.publish

    async def create(self) -> None:
        await self._declare(passive=False)

    async def publish(self, body: bytes) -> None:
        message = aio_pika.Message(body, delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
        await self._publish(message, routing_key=self._name)

    async def subscribe(self, handler: Handler, *, prefetch: int) -> None:
        async def handle(message: AbstractIncomingMessage) -> None:
            handler(message.body)
            await message.ack()

        await self._channel.set_qos(prefetch_count=prefetch)
        self._queue = await self._declare(passive=True)
        self._tag = await self._queue.consume(handle)

    async def unsubscribe(self) -> None:
        await self._queue.cancel(self._tag)

    async def count_unacknowledged(self) -> int:
        """Those that wait; what was delivered and not acknowledged goes back when its channel closes."""
        await self._channel.close()
        self._channel = await self._connection.channel(publisher_confirms=True)
        queue = await self._declare(passive=True)
        return int(queue.declaration_result.message_count)

    async def remove(self) -> None:
        await (await self._declare(passive=True)).delete(if_unused=False, if_empty=False)

    async def close(self) -> None:
        await self._connection.close()

    async def _declare(self, *, passive: bool) -> aio_pika.abc.AbstractQueue:
        return await self._channel.declare_queue(
            self._name, durable=True, passive=passive, arguments={"x-queue-type": "quorum"}
        )
