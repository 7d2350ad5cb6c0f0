"""A node with access control on real sockets, and clients without a login, for the matrix of rights.

A case is an operation of a listener and the rights that it needs. Each right is a choice: one of several
grants is enough. What a listener answers is reduced to whether access control refused it, and to the answer
itself, by which a topic that exists is compared with one that does not.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
from tests.unit.kafka import rig as kafka_rig
from tests.unit.native import rig as native_rig

from tailrace.broker import NewTopic
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.broker.subscriptions import Start, SubscriptionConfig
from tailrace.model import ErrorCode, TopicPartition
from tailrace.model.operation import CLUSTER, Operation, ResourceKind
from tailrace.security.acl import EVERY_ACL, AclBinding, Pattern, Permission
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node
from tailrace.wire.kafka import Message

TOPIC, MISSING = "orders", "absent"  # as long as each other: one is put in the place of the other
GROUP, SUBSCRIPTION, TRANSACTION = "readers", "workers", "billing"
LETTERS = f"{SUBSCRIPTION}.dlq"
PRINCIPAL = "User:ANONYMOUS"

REFUSALS = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)


class Grant(NamedTuple):
    """A right to one thing."""

    operation: Operation
    kind: ResourceKind
    name: str

    def binding(self, permission: Permission = Permission.ALLOW) -> AclBinding:
        return AclBinding(
            principal=PRINCIPAL,
            operation=self.operation,
            permission=permission,
            kind=self.kind,
            name=self.name,
            pattern=Pattern.LITERAL,
        )


Right = tuple[Grant, ...]
"""Grants of which one is enough."""


class Outcome(NamedTuple):
    """What came of an operation."""

    refused: bool  # by access control, or what may not be seen was left out
    answer: object


class Case(NamedTuple):
    """An operation with the rights that it needs: all of them."""

    name: str
    rights: Sequence[Right]
    send: Callable[[World, str], Awaitable[Outcome]]  # with the name of the topic
    names_topic: bool = False  # its answer is compared for a topic that does not exist


class World:
    """The node, and a client of each listener."""

    def __init__(
        self, node: Node, kafka: kafka_rig.Client, native: native_rig.Client, http: httpx.AsyncClient
    ) -> None:
        self.node = node
        self.kafka = kafka
        self.native = native
        self.http = http

    async def allow(self, *grants: Grant) -> None:
        """Exactly these rights from now on."""
        await self.node.broker.acls.remove([EVERY_ACL])
        await self.node.broker.acls.add([each.binding() for each in grants])

    async def restore(self) -> None:
        """Everything that cases use, whatever they have deleted."""
        broker = self.node.broker
        for each in list(broker.subscriptions):
            if each.config.name != SUBSCRIPTION:
                await broker.subscriptions.delete(each.config.name)
        for topic in list(broker.topics):
            is_kept = topic.name in (TOPIC, LETTERS) and len(topic.partitions) == 1
            if not topic.internal and not is_kept:
                await broker.delete_topic(topic.name)
        for name in (TOPIC, LETTERS):
            await broker.topics.ensure(NewTopic(name=name, partitions=1))
        if broker.subscriptions.get(SUBSCRIPTION) is None:
            config = SubscriptionConfig.read(SUBSCRIPTION, TOPIC, {})
            await broker.subscriptions.create(config, Start.parse("earliest"))
        offsets = {TopicPartition(TOPIC, 0): OffsetToCommit(0)}
        await broker.groups.commit_offsets(CommitRequest(group_id=GROUP, offsets=offsets))
        await broker.transactions.init(TRANSACTION, timeout_ms=60_000)


@asynccontextmanager
async def world(directory: Path) -> AsyncIterator[World]:
    config = ServerConfig(
        kafka_port=0, native_port=0, http_port=0, engine="memory", data_dir=directory, authorizer="acl"
    )
    node = Node(config, owns_loop=False)
    await node.start()
    streams: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []
    try:
        await node.broker.subscriptions.wait_loaded()
        streams += [
            await asyncio.open_connection("127.0.0.1", port) for port in (node.kafka_port, node.native_port)
        ]
        async with httpx.AsyncClient(base_url=f"http://{node.http_address}", timeout=60) as http:
            found = World(node, kafka_rig.Client(*streams[0]), native_rig.Client(*streams[1]), http)
            await found.restore()
            yield found
    finally:
        for _, writer in streams:
            writer.transport.abort()
        await node.close()


def codes_of(answer: object) -> set[int]:
    """Every error code in a Kafka response."""
    found: set[int] = set()
    if isinstance(answer, Message):
        for name in type(answer).__annotations__:
            value = getattr(answer, name)
            if name.endswith("error_code") and name != "topic_config_error_code":
                found.add(value)
            else:
                found |= codes_of(value)
    elif isinstance(answer, list | tuple):
        for each in answer:
            found |= codes_of(each)
    return found


def on_topic(operation: Operation, name: str = TOPIC) -> Right:
    return (Grant(operation, ResourceKind.TOPIC, name),)


def on_group(operation: Operation, name: str = GROUP) -> Right:
    return (Grant(operation, ResourceKind.GROUP, name),)


def on_cluster(operation: Operation) -> Right:
    return (Grant(operation, ResourceKind.CLUSTER, CLUSTER.name),)


def on_subscription(operation: Operation, name: str = SUBSCRIPTION) -> Right:
    return (Grant(operation, ResourceKind.SUBSCRIPTION, name),)


def on_transaction(operation: Operation, name: str = TRANSACTION) -> Right:
    return (Grant(operation, ResourceKind.TRANSACTIONAL_ID, name),)


def creating(name: str) -> Right:
    """To create a topic, the right to it or to the cluster is enough."""
    return (*on_topic(Operation.CREATE, name), *on_cluster(Operation.CREATE))


def idempotent(*topics: str) -> Right:
    """A producer id goes with the cluster, or with a topic that may be written (KIP-679)."""
    written = [each for name in topics for each in on_topic(Operation.WRITE, name)]
    return (*on_cluster(Operation.IDEMPOTENT_WRITE), *written)


def plain(value: Any, missing: str) -> str:
    """An answer as text, with the name of the existing topic in the place of the missing one's."""
    return repr(value).replace(missing, TOPIC)
