"""A small asyncio client of the Kafka protocol: it knows the cluster and gets requests to the right broker.

`KafkaClient` owns the connections (pool.py) and what is known of the cluster (metadata.py). On it stand the
producer, the consumer, the administration (admin.py) and the command line. It speaks to Tailrace and to
Apache Kafka alike: every connection negotiates versions first.

    async with KafkaClient("127.0.0.1:9092") as client:
        topics = await client.metadata()
        done = await client.produce("orders", 0, build_batch([(now_ms, b"k", b"v", ())]))
        reply = await client.fetch({TopicPartition("orders", 0): done.base_offset})

`request` sends once, and once more if the connection turns out to be gone. `retrying` repeats what may go
away by itself until a deadline, and asks again for whatever an error says we had wrong.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, TypeVar

from tailrace.client import offsets
from tailrace.client.address import asks_for_tls, parse_bootstrap
from tailrace.client.connection import Connection
from tailrace.client.credentials import AnyCredentials
from tailrace.client.error import (
    STALE_COORDINATOR,
    STALE_METADATA,
    CannotConnect,
    ClientClosed,
    ClientError,
    ConnectionLost,
    TimedOut,
    UnknownTopic,
    broker_error,
    check,
    is_retriable,
)
from tailrace.client.keys import FIND_COORDINATOR, METADATA
from tailrace.client.metadata import Cluster, PartitionInfo, TopicInfo, topic_error
from tailrace.client.offsets import Committed, FoundOffset
from tailrace.client.pool import REQUESTS, Channel, Pool, back_off_s
from tailrace.client.tls import ClientTls, tls_of
from tailrace.client.transfer import Fetched, Produced, fetch_from, produce_to
from tailrace.model import BrokerError, ErrorCode, ProtocolError, TopicPartition
from tailrace.records import BytesLike
from tailrace.wire.kafka import Message
from tailrace.wire.kafka.messages.find_coordinator import FindCoordinatorRequest
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataRequestTopic

REQUEST_TIMEOUT_S = 30.0
CONNECT_TIMEOUT_S = 10.0
CREATE_WAIT_S = 10.0
"""How long a topic that is being created may take to have leaders."""

_RETRY_FIRST_S = 0.05
_RETRY_MOST_S = 1.0

T = TypeVar("T")


class KafkaClient:
    """One cluster, seen from one event loop. Use it as an async context manager."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        client_id: str = "tailrace",
        request_timeout_s: float = REQUEST_TIMEOUT_S,
        connect_timeout_s: float = CONNECT_TIMEOUT_S,
        credentials: AnyCredentials | None = None,
        tls: ClientTls | str | os.PathLike[str] | bool | None = None,
    ) -> None:
        """`tls` is the file of a CA, True for the CAs of this machine, or a ClientTls."""
        self.cluster = Cluster()
        self.request_timeout_s = request_timeout_s
        self._bootstrap = parse_bootstrap(bootstrap_servers)
        self._pool = Pool(
            client_id=client_id,
            request_timeout_s=request_timeout_s,
            connect_timeout_s=min(connect_timeout_s, request_timeout_s),
            credentials=credentials,
            tls=tls_of(asks_for_tls(bootstrap_servers) if tls is None else tls),
        )
        self._coordinators: dict[tuple[int, str], int] = {}  # by kind and name
        self._refreshes: dict[tuple[str, bool], asyncio.Task[TopicInfo]] = {}
        self._closed = False

    def __repr__(self) -> str:
        where = ",".join(map(str, self._bootstrap))
        return f"<KafkaClient {where}, {len(self.cluster.nodes)} nodes, {len(self.cluster.topics)} topics>"

    async def __aenter__(self) -> Self:
        try:
            await self.connect()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def connect(self) -> None:
        """Find the cluster through the bootstrap servers; CannotConnect if none of them answers."""
        await self._pool.first(self._bootstrap)
        await self.metadata([])

    async def close(self) -> None:
        """Close every connection. Requests that still wait fail."""
        self._closed = True
        for task in self._refreshes.values():
            task.cancel()
        await asyncio.gather(*self._refreshes.values(), return_exceptions=True)
        await self._pool.close()

    # ---- requests

    async def request(
        self,
        key: int,
        message: Message,
        *,
        node: int | None = None,
        coordinator: str | None = None,
        transactional_id: str | None = None,
        channel: Channel = REQUESTS,
        newest: int | None = None,
        version: int | None = None,
        timeout_s: float | None = None,
    ) -> Any:
        """Send a request to a node, to the coordinator of a group or of a transactional id, or to any node.

        Returns the decoded reply. `newest` and `version` are those of `Connection.request`.
        """

        async def send(connection: Connection) -> Any:
            return await connection.request(key, message, newest=newest, version=version, timeout_s=timeout_s)

        if transactional_id is not None:
            node = await self.find_coordinator(transactional_id, of_transactions=True)
        return await self.on_connection(send, node=node, coordinator=coordinator, channel=channel)

    async def on_connection(
        self,
        send: Callable[[Connection], Awaitable[T]],
        *,
        node: int | None = None,
        coordinator: str | None = None,
        channel: Channel = REQUESTS,
    ) -> T:
        """Run `send` on the connection that leads there; once more if that one was lost meanwhile."""
        if coordinator is not None:
            node = await self.find_coordinator(coordinator)
        connection = await self.connection_to(node, channel)
        try:
            return await send(connection)
        except ConnectionLost:
            return await send(await self.connection_to(node, channel))

    async def connection_to(self, node: int | None, channel: Channel = REQUESTS) -> Connection:
        """The connection to a node, or to any, opened if need be."""
        if self._closed:
            raise ClientClosed("the client is closed")
        if node is None:
            return await self._any_connection()
        address = self.cluster.nodes.get(node)
        if address is None:
            raise CannotConnect(f"node {node} is not in the cluster any more")
        return await self._pool.get(address, channel)

    async def close_channel(self, channel: Channel) -> None:
        """Close the connections of a channel that is used no more."""
        await self._pool.close_channel(channel)

    async def _any_connection(self) -> Connection:
        known = list(self.cluster.nodes.values())
        return await self._pool.first([*known, *(each for each in self._bootstrap if each not in known)])

    async def retrying(
        self, what: str, attempt: Callable[[], Awaitable[T]], *, timeout_s: float | None = None
    ) -> T:
        """The result of `attempt`, repeated while its error may go away, until the deadline."""
        seconds = self.request_timeout_s if timeout_s is None else timeout_s
        loop = asyncio.get_running_loop()
        deadline, attempts = loop.time() + seconds, 0
        while True:
            try:
                return await attempt()
            except (BrokerError, ClientError) as error:
                wait_s = back_off_s(attempts, first_s=_RETRY_FIRST_S, most_s=_RETRY_MOST_S)
                if not is_retriable(error) or self._closed:
                    raise
                if loop.time() + wait_s >= deadline:
                    raise TimedOut(f"{what} did not succeed within {seconds:g} s: {error}") from error
                self.forget(error)
            await asyncio.sleep(wait_s)
            attempts += 1

    def forget(self, error: BaseException) -> None:
        """Drop what an error says is out of date, so that it is asked for again."""
        code = error.code if isinstance(error, BrokerError) else None
        if code in STALE_COORDINATOR or code is None:
            self._coordinators.clear()
        if code in STALE_METADATA or code is None:
            self.cluster.topics.clear()
        if code == ErrorCode.NOT_CONTROLLER:
            self.cluster.controller_id = -1

    # ---- the cluster

    async def metadata(
        self, topics: Iterable[str] | None = None, *, create: bool = False
    ) -> dict[str, TopicInfo]:
        """Ask about topics by name, or about all; each has its `error`. `create` allows auto-creation."""
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=create)
        return self.cluster.learn(await self.request(METADATA, request))

    async def topic(self, name: str, *, create: bool = False) -> TopicInfo:
        """One topic, from the cache if it is there; waits for leaders where there are none yet.

        A topic that does not exist is an error at once, unless the broker may `create` it.
        """
        if (known := self.cluster.topics.get(name)) is not None:
            return known

        async def attempt() -> TopicInfo:
            found = await self._refresh(name, create=create)
            if found.error and create and found.error in STALE_METADATA:
                raise broker_error(found.error, f"topic {name}")  # it may be on its way
            found.check()
            if not any(self.cluster.leader_of(TopicPartition(name, each)) for each in found.partitions):
                self.cluster.topics.pop(name, None)
                raise topic_error(ErrorCode.LEADER_NOT_AVAILABLE, name)
            return found

        try:
            return await self.retrying(f"finding topic {name}", attempt, timeout_s=CREATE_WAIT_S)
        except TimedOut as error:
            if isinstance(cause := error.__cause__, BrokerError):
                raise topic_error(cause.code, name) from None
            raise

    async def _refresh(self, name: str, *, create: bool) -> TopicInfo:
        """Ask about a topic; whoever asks meanwhile waits for the same answer."""
        key = name, create
        task = self._refreshes.get(key)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._ask(name, create=create), name="metadata")
            self._refreshes[key] = task
            task.add_done_callback(lambda _task: self._refreshes.pop(key, None))
        return await asyncio.shield(task)

    async def _ask(self, name: str, *, create: bool) -> TopicInfo:
        found = (await self.metadata([name], create=create)).get(name)
        if found is None:
            raise ProtocolError(f"the broker was asked about topic {name} and did not mention it")
        return found

    async def leader(self, partition: TopicPartition) -> PartitionInfo:
        """Who leads a partition; waits for a leader where there is none at the moment."""
        if (known := self.cluster.leader_of(partition)) is not None:
            return known

        async def attempt() -> PartitionInfo:
            self.cluster.topics.pop(partition.topic, None)  # what we had does not answer the question
            topic = await self.topic(partition.topic)
            if partition.partition not in topic.partitions:
                raise UnknownTopic(
                    f"topic {partition.topic} has no partition {partition.partition},"
                    f" only 0 to {len(topic.partitions) - 1}"
                )
            if (info := self.cluster.leader_of(partition)) is None:
                raise topic_error(ErrorCode.LEADER_NOT_AVAILABLE, str(partition))
            return info

        return await self.retrying(f"finding the leader of {partition}", attempt)

    async def find_coordinator(self, name: str, *, of_transactions: bool = False) -> int:
        """The node that coordinates a group, or the transactions of a transactional id."""
        kind = int(of_transactions)
        what = f"transactional id {name}" if of_transactions else f"group {name}"
        if (known := self._coordinators.get((kind, name))) is not None and known in self.cluster.nodes:
            return known

        async def attempt() -> int:
            reply = await self.request(FIND_COORDINATOR, FindCoordinatorRequest(key=name, key_type=kind))
            check(reply.error_code, what, reply.error_message)
            if reply.node_id not in self.cluster.nodes:
                await self.metadata([])
            node: int = reply.node_id
            return node

        node = await self.retrying(f"finding the coordinator of {what}", attempt)
        self._coordinators[kind, name] = node
        return node

    # ---- records

    async def produce(
        self,
        topic: str,
        partition: int,
        batch: BytesLike,
        *,
        acks: int = -1,
        transactional_id: str | None = None,
        timeout_s: float | None = None,
    ) -> Produced:
        """Append one batch to a partition; with acks=0 nothing is known of it (base_offset -1).

        Retried like everything else: a batch that must not be there twice needs a producer id and a sequence.
        A batch of a transaction needs its transactional id, and its partition to have joined.
        """
        target = TopicPartition(topic, partition)

        async def attempt() -> Produced:
            info = await self.leader(target)
            done = await produce_to(
                self,
                info.leader,
                {target: batch},
                acks=acks,
                timeout_s=self.request_timeout_s,
                transactional_id=transactional_id,
            )
            result = done[target]
            check(result.error_code, f"producing to {target}", result.error_message)
            return result

        return await self.retrying(f"producing to {target}", attempt, timeout_s=timeout_s)

    async def fetch(
        self,
        positions: Mapping[TopicPartition, int],
        *,
        max_wait_ms: int = 500,
        min_bytes: int = 1,
        max_bytes: int = 50 * 1024 * 1024,
        partition_max_bytes: int = 1024 * 1024,
        read_committed: bool = False,
    ) -> dict[TopicPartition, Fetched]:
        """Read from offsets on, from every leader at once; a partition's error is in its result."""
        by_leader: dict[int, dict[TopicPartition, int]] = {}
        for partition, offset in positions.items():
            info = await self.leader(partition)
            by_leader.setdefault(info.leader, {})[partition] = offset
        parts = await asyncio.gather(
            *(
                fetch_from(
                    self,
                    leader,
                    wanted,
                    max_wait_ms=max_wait_ms,
                    min_bytes=min_bytes,
                    max_bytes=max_bytes,
                    partition_max_bytes=partition_max_bytes,
                    read_committed=read_committed,
                )
                for leader, wanted in by_leader.items()
            )
        )
        return {partition: fetched for part in parts for partition, fetched in part.items()}

    # ---- offsets

    async def list_offsets(
        self, times: Mapping[TopicPartition, int], *, read_committed: bool = False
    ) -> dict[TopicPartition, FoundOffset]:
        """The offset at a time in ms, or at `offsets.EARLIEST` or `offsets.LATEST`, of each partition."""
        return await offsets.list_offsets(self, times, read_committed=read_committed)

    async def committed(
        self,
        group: str,
        partitions: Sequence[TopicPartition] | None = None,
        *,
        require_stable: bool = False,
    ) -> dict[TopicPartition, Committed]:
        """What a group has committed, of some partitions or of all; those without an offset are left out.

        With `require_stable` it waits where an open transaction may move an offset (KIP-447).
        """
        return await offsets.committed(self, group, partitions, require_stable=require_stable)

    async def commit(
        self,
        group: str,
        positions: Mapping[TopicPartition, int],
        *,
        generation: int = -1,
        member_id: str = "",
        instance_id: str | None = None,
    ) -> None:
        """Commit offsets for a group: as a member of it, or from outside while it is empty."""
        await offsets.commit(
            self,
            group,
            positions,
            generation=generation,
            member_id=member_id,
            instance_id=instance_id,
        )
