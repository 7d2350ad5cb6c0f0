"""Administration for plain threads, of any broker that speaks the Kafka protocol.

    with AdminClient("127.0.0.1:9092") as admin:
        admin.create_topic("orders", partitions=4, configs={"retention.ms": 86_400_000})
        print(admin.list_topics(), admin.describe_topic("orders").partitions)
        admin.delete_topic("orders")

It is `tailrace.client.admin` over a `KafkaClient` in an event loop of its own thread, and may be called from
every thread. Each method asks one question or makes one change; a BrokerError is what the broker answered.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self, TypeVar

from tailrace.client import admin
from tailrace.client.bearer import GiveToken
from tailrace.client.credentials import credentials_of
from tailrace.client.error import ClientClosed
from tailrace.client.kafka import CONNECT_TIMEOUT_S, REQUEST_TIMEOUT_S, KafkaClient
from tailrace.client.loop_thread import LoopThread
from tailrace.client.tls import ClientTls
from tailrace.model import TopicPartition
from tailrace.security import Secret

T = TypeVar("T")

_BROKER_DEFAULT = -1


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionDescription:
    """One partition: who has it, and which offsets it holds."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    start_offset: int
    end_offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDescription:
    """One topic with its partitions and every setting in force."""

    name: str
    topic_id: str
    internal: bool
    partitions: tuple[PartitionDescription, ...]
    configs: Mapping[str, str | None]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDescription:
    """One consumer group: its state, its members, and its committed offsets."""

    name: str
    state: str
    members: tuple[admin.MemberInfo, ...]
    offsets: Mapping[TopicPartition, int]


class AdminClient:
    """Topics, their settings, and consumer groups of one cluster. Use it in `with`, or close it."""

    def __init__(
        self,
        bootstrap_servers: str = "127.0.0.1:9092",
        *,
        client_id: str = "tailrace-admin",
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        username: str | None = None,
        password: str | Secret | None = None,
        token: str | Secret | GiveToken | None = None,
        tls: ClientTls | str | os.PathLike[str] | bool | None = None,
    ) -> None:
        """Connect; CannotConnect if no broker can be reached. `tls` is that of `KafkaClient`."""
        self._bootstrap_servers = bootstrap_servers
        self._thread = LoopThread("tailrace-admin")
        self._client: KafkaClient | None = None

        async def connect() -> KafkaClient:
            client = KafkaClient(
                bootstrap_servers,
                client_id=client_id,
                request_timeout_s=request_timeout_s,
                connect_timeout_s=connect_timeout_s,
                credentials=credentials_of(username, password, token),
                tls=tls,
            )
            return await client.__aenter__()

        try:
            self._client = self._thread.call(connect())
        except BaseException:
            self._thread.close()
            raise

    def __repr__(self) -> str:
        state = "closed" if self._client is None else "open"
        return f"<AdminClient {self._bootstrap_servers} {state}>"

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Disconnect. A second call does nothing."""
        client, self._client = self._client, None
        if client is not None:
            try:
                self._thread.call(client.close())
            finally:
                self._thread.close()

    # ---- topics

    def list_topics(self, *, internal: bool = False) -> list[str]:
        """The names of all topics; those of the broker's own only if asked for."""

        async def work(client: KafkaClient) -> list[str]:
            found = await client.metadata()
            return sorted(name for name, info in found.items() if internal or not info.internal)

        return self._run(work)

    def describe_topic(self, name: str) -> TopicDescription:
        """A topic with its partitions and settings; UnknownTopic if there is none."""
        return self._run(lambda client: _describe_topic(client, name))

    def create_topic(
        self,
        name: str,
        partitions: int = _BROKER_DEFAULT,
        replication_factor: int = _BROKER_DEFAULT,
        configs: Mapping[str, object] | None = None,
    ) -> None:
        """Make a topic; BrokerError if there is one already. -1 leaves a number to the broker."""
        texts = {key: _text(value) for key, value in (configs or {}).items()}
        self._run(
            lambda client: admin.create_topic(
                client, name, partitions=partitions, replication_factor=replication_factor, configs=texts
            )
        )

    def delete_topic(self, name: str) -> None:
        """Delete a topic and everything in it; UnknownTopic if there is none."""
        self._run(lambda client: admin.delete_topic(client, name))

    def add_partitions(self, name: str, total: int) -> None:
        """Give a topic more partitions: `total` of them from now on."""
        self._run(lambda client: admin.add_partitions(client, name, total))

    def alter_configs(self, name: str, changes: Mapping[str, object], resets: Iterable[str] = ()) -> None:
        """Change settings of a topic, and set others back to their defaults."""
        texts = {key: _text(value) for key, value in changes.items()}
        self._run(lambda client: admin.alter_configs(client, name, changes=texts, resets=resets))

    # ---- groups

    def list_groups(self) -> list[str]:
        """The names of all consumer groups."""

        async def work(client: KafkaClient) -> list[str]:
            return sorted(each.group for each in await admin.list_groups(client))

        return self._run(work)

    def describe_group(self, name: str) -> GroupDescription:
        """A consumer group with its members and offsets; BrokerError if there is none."""
        return self._run(lambda client: _describe_group(client, name))

    def delete_group(self, name: str) -> None:
        """Delete a group that has no members, with its offsets."""
        self._run(lambda client: admin.delete_group(client, name))

    def _run(self, work: Callable[[KafkaClient], Coroutine[Any, Any, T]]) -> T:
        if self._client is None:
            raise ClientClosed("this admin client is closed")
        return self._thread.call(work(self._client))


async def _describe_topic(client: KafkaClient, name: str) -> TopicDescription:
    client.cluster.topics.pop(name, None)  # what was learnt before may have changed
    info = await client.topic(name)
    targets = [TopicPartition(name, each) for each in sorted(info.partitions)]
    reach = await admin.extents(client, targets)
    return TopicDescription(
        name=name,
        topic_id=str(info.topic_id),
        internal=info.internal,
        partitions=tuple(
            PartitionDescription(
                partition=target.partition,
                leader=info.partitions[target.partition].leader,
                replicas=info.partitions[target.partition].replicas,
                isr=info.partitions[target.partition].isr,
                start_offset=reach[target].start,
                end_offset=reach[target].end,
            )
            for target in targets
        ),
        configs={each.name: each.value for each in await admin.topic_configs(client, name)},
    )


async def _describe_group(client: KafkaClient, name: str) -> GroupDescription:
    described = await admin.describe_group(client, name)
    committed = await client.committed(name)
    return GroupDescription(
        name=name,
        state=described.state,
        members=tuple(described.members),
        offsets={target: each.offset for target, each in committed.items()},
    )


def _text(value: object) -> str:
    """A setting as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
