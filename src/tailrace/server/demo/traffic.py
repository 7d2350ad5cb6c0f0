"""The writer and the readers of the demo: clients like any other, on loopback, so that all they show is real.

One producer writes what the shop makes up, about RATE records a second. Every group reads every topic; its
members poll, and commit a few times a second. Whoever fails says so and begins again: a demo must not end by
itself, nor take the node with it.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from tailrace.client.accumulator import RecordMetadata
from tailrace.client.consumer import Consumer, ConsumerConfig
from tailrace.client.credentials import from_environment
from tailrace.client.error import broker_error
from tailrace.client.kafka import KafkaClient
from tailrace.client.keys import CREATE_TOPICS
from tailrace.client.membership import GroupConfig
from tailrace.client.offsets import LATEST
from tailrace.client.producer import Producer, ProducerConfig
from tailrace.client.tls import ClientTls
from tailrace.model import ErrorCode, TailraceError, TopicPartition
from tailrace.server.demo.event import Shop
from tailrace.wire.kafka.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

logger = logging.getLogger(__name__)

ORDERS = "orders"
TOPICS = (ORDERS, "payments", "clicks")
GROUPS = {"billing": 1, "analytics": 2}  # members of each
RATE = 500

# A demo that runs over night must not fill a disk.
_CONFIGS = {"retention.ms": str(3600 * 1000), "segment.bytes": str(16 << 20)}
_TICK_S = 0.04
_BURST_MAX = RATE // 5  # after a pause what was missed is not made up for
_COMMIT_EVERY_S = 0.2
_POLL_S = 1.0
_CLOSE_S = 3.0
_AGAIN_S = 1.0


class Demo:
    """Everybody who takes part; `run` until it is cancelled."""

    topics = TOPICS
    summary = f"{len(TOPICS)} topics, {len(GROUPS)} groups, {RATE} msg/s"

    def __init__(self, bootstrap_servers: str, *, tls: ClientTls | None = None) -> None:
        self._bootstrap_servers = bootstrap_servers
        self._tls = tls

    async def run(self) -> None:
        """Write and read for ever; cancelling it ends everything in order."""
        readers = [group for group, members in GROUPS.items() for _ in range(members)]
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(_for_ever("writer", self._write), name="demo writer")
            for group in readers:
                read = partial(self._read, group)
                tasks.create_task(_for_ever(group, read), name=f"demo {group}")

    async def _write(self) -> None:
        async with self._client("demo-shop") as client, _producer(client) as producer:
            await create_topics(client)
            events = Shop(random.Random(), orders=await _count_orders(client)).events()
            async for count in _ticks():
                for _ in range(count):
                    event = next(events)
                    sent = await producer.send(event.topic, event.value, key=event.key)
                    sent.add_done_callback(_note_loss)

    async def _read(self, group: str) -> None:
        loop = asyncio.get_running_loop()
        async with self._client(f"demo-{group}") as client:
            await create_topics(client)
            async with _consumer(client, group) as consumer:
                consumer.subscribe(TOPICS)
                commit_at = loop.time()
                while True:
                    await consumer.poll(_POLL_S)
                    if loop.time() >= commit_at and consumer.assignment:
                        await consumer.commit()
                        commit_at = loop.time() + _COMMIT_EVERY_S

    def _client(self, client_id: str) -> KafkaClient:
        return KafkaClient(
            self._bootstrap_servers, client_id=client_id, credentials=from_environment(), tls=self._tls
        )


async def create_topics(client: KafkaClient) -> None:
    """Make the topics unless they are there."""
    configs = [CreatableTopicConfig(name=name, value=value) for name, value in _CONFIGS.items()]
    wanted = [
        CreatableTopic(name=name, num_partitions=-1, replication_factor=-1, configs=configs)
        for name in TOPICS
    ]
    reply: CreateTopicsResponse = await client.request(
        CREATE_TOPICS, CreateTopicsRequest(topics=wanted, timeout_ms=10_000)
    )
    for topic in reply.topics:
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS):
            raise broker_error(topic.error_code, f"creating {topic.name}", topic.error_message)


async def _count_orders(client: KafkaClient) -> int:
    """Orders that were ever written, also those that retention has taken: each is one record."""
    topic = await client.topic(ORDERS)
    ends = await client.list_offsets({TopicPartition(ORDERS, each): LATEST for each in topic.partitions})
    return sum(found.offset for found in ends.values())


async def _for_ever(name: str, work: Callable[[], Awaitable[None]]) -> None:
    while True:
        try:
            await work()
        except TailraceError as error:
            logger.warning("demo %s begins again: %s", name, error)
        await asyncio.sleep(_AGAIN_S)


async def _ticks() -> AsyncIterator[int]:
    """How many events are due, a few times a second, so that they come to RATE in the long run."""
    loop = asyncio.get_running_loop()
    due = 0.0
    before = loop.time()
    while True:
        await asyncio.sleep(_TICK_S)
        now = loop.time()
        due, before = min(due + (now - before) * RATE, _BURST_MAX), now
        yield int(due)
        due -= int(due)


@asynccontextmanager
async def _producer(client: KafkaClient) -> AsyncIterator[Producer]:
    producer = Producer(client, ProducerConfig(linger_s=0.005))
    try:
        yield producer
    finally:
        await producer.close(timeout_s=_CLOSE_S)


@asynccontextmanager
async def _consumer(client: KafkaClient, group: str) -> AsyncIterator[Consumer]:
    """A member of the group, which leaves it at the end if that does not take long."""
    settings = GroupConfig(group=group, session_timeout_s=10.0, heartbeat_interval_s=2.0)
    consumer = Consumer(client, ConsumerConfig(group=settings, reset="earliest", auto_commit=False))
    try:
        yield consumer
    finally:
        try:
            async with asyncio.timeout(_CLOSE_S):
                await consumer.close()
        except TimeoutError:
            logger.info("demo %s left without saying so", group)


def _note_loss(sent: asyncio.Future[RecordMetadata]) -> None:
    """The producer tells of what it lost; this only looks at it, so that asyncio does not complain."""
    if not sent.cancelled():
        sent.exception()
