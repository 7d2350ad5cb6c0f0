"""A broker over the memory engine behind a real listener, and clients that speak raw frames to it.

The log is one whose durability a test may hold back, so that "appended and not yet durable" lasts as long as
the test wants.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any, cast

import pytest
from tests.unhurried import UnhurriedLoop

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node, Partition
from tailrace.broker.gate import Authorize, Gate, allow_everything
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.kafka import KafkaConfig, KafkaListener
from tailrace.kafka.connection import Connection
from tailrace.model import BrokerId, Offset, PartitionExists, PartitionId, TopicPartition
from tailrace.model.address import Address
from tailrace.model.session import INTERNAL
from tailrace.net import RequestBudget
from tailrace.records import build_batch
from tailrace.storage import LogConfig, Waiter
from tailrace.storage.memory import MemoryLog, MemoryStorage
from tailrace.testing import FakeClock
from tailrace.wire.kafka import (
    APIS,
    FETCH,
    PRODUCE,
    FetchPartition,
    FetchResponse,
    FetchResult,
    Message,
    ProduceResult,
    TopicRef,
    decode,
    encode,
    read_fetch_response,
    read_produce_response,
    read_response_head,
    response_type,
    write_fetch_request,
    write_produce_request,
    write_request,
)

TOPIC = "orders"
DEADLINE_S = 120.0
NOW_MS = FakeClock().now_ms()


class HeldLog(MemoryLog):
    """A ring that makes durable only what the test lets it."""

    def __init__(self, partition_id: PartitionId, config: LogConfig, *, clock: FakeClock) -> None:
        super().__init__(partition_id, config, clock=clock)
        self._durable: Offset | None = None
        self._waiting: list[tuple[Offset, Waiter]] = []
        self.reads_are_cold = False

    @property
    def durable_offset(self) -> Offset:
        return self.end_offset if self._durable is None else self._durable

    def hold(self) -> None:
        """From now on nothing becomes durable."""
        self._durable = self.durable_offset

    def settle(self, end: int | None = None) -> None:
        """What was held back, below `end`, becomes durable."""
        self._durable = self.end_offset if end is None else Offset(end)
        self.on_change()
        for waited, waiter in self._waiting:
            if waited <= self._durable and not waiter.done():
                waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """What was held back never becomes durable."""
        for _, waiter in self._waiting:
            waiter.set_exception(error)
        self._waiting.clear()

    def tell_durable(self, end: Offset, waiter: Waiter) -> None:
        if end <= self.durable_offset:
            waiter.set_result(None)
        else:
            self._waiting.append((end, waiter))


class HeldStorage(MemoryStorage):
    """An engine of such logs."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        super().__init__(clock=self.clock)

    async def create(self, partition_id: PartitionId, config: LogConfig) -> HeldLog:
        if self.get(partition_id) is not None:
            raise PartitionExists(partition_id)
        log = self._logs[partition_id] = HeldLog(partition_id, config, clock=self.clock)
        return log


class Client:
    """One connection, spoken to in frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.correlation_id = 0

    def send(self, key: int, version: int, body: bytes) -> int:
        """Ask, and do not wait; the number that the answer will carry."""
        self.correlation_id += 1
        self.writer.write(write_request(key, version, self.correlation_id, "tests", body))
        return self.correlation_id

    async def receive(self, key: int, version: int) -> tuple[int, memoryview]:
        """The next reply: its number and its body."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return read_response_head(key, version, memoryview(await self.reader.readexactly(size)))

    async def call(self, key: int, version: int, body: bytes) -> memoryview:
        """Ask, and wait for the answer."""
        wanted = self.send(key, version, body)
        found, answer = await self.receive(key, version)
        assert found == wanted
        return answer

    async def ask(self, key: int, request: Message, *, version: int | None = None) -> Any:
        """The same with messages."""
        version = APIS[key].max_version if version is None else version
        return decode(response_type(key), version, await self.call(key, version, encode(request, version)))

    async def produce(self, records: bytes, *, partition: int = 0, **options: Any) -> ProduceResult:
        """Append to one partition."""
        version = options.pop("version", 9)
        body = produce_body({partition: records}, version=version, **options)
        answer = read_produce_response(await self.call(PRODUCE, version, body), version)
        ((_, (result,)),) = answer.topics
        return result

    async def fetch(self, offsets: Mapping[int, int], *, version: int = 12, **options: Any) -> FetchResponse:
        """Read from partitions of the topic, at these offsets."""
        body = fetch_body(offsets, version=version, **options)
        return read_fetch_response(await self.call(FETCH, version, body), version)

    async def wait_closed(self) -> bytes:
        """What still comes until the broker closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""

    def stop_reading(self) -> None:
        """Let what the broker sends pile up."""
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def go_on_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).resume_reading()

    def close(self) -> None:
        self.writer.transport.abort()


class Rig:
    """One broker and its listener."""

    def __init__(self, broker: Broker, listener: KafkaListener, storage: HeldStorage) -> None:
        self.broker = broker
        self.listener = listener
        self.storage = storage
        self.clients: list[Client] = []

    async def connect(self) -> Client:
        client = Client(*await asyncio.open_connection("127.0.0.1", self.listener.port))
        self.clients.append(client)
        return client

    def partition(self, index: int = 0, topic: str = TOPIC) -> Partition:
        return self.broker.gate.access(INTERNAL).readable(TopicPartition(topic, index))

    def log(self, partition: int = 0, topic: str = TOPIC) -> HeldLog:
        found = self.partition(partition, topic).log
        assert isinstance(found, HeldLog)
        return found

    def connection_of(self, client: Client) -> Connection:
        """The listener's end of a client's connection."""
        _, port = client.writer.get_extra_info("sockname")
        (found,) = [each for each in self.listener.connections if each.facts.peer_port == port]
        return found

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Let the loop turn until something is so; the scenario's deadline ends a hopeless wait."""
        while not condition():  # noqa: ASYNC110 - there is no event for whatever a test may ask
            await asyncio.sleep(0.001)


def play(
    scenario: Callable[[Rig], Awaitable[None]],
    *,
    config: KafkaConfig | None = None,
    budget: RequestBudget | None = None,
    uv: bool = False,
    partitions: int = 2,
    values: Mapping[str, str] | None = None,
    authorize: Authorize = allow_everything,
    addresses: Sequence[Address] = (Address("127.0.0.1", 0),),
) -> None:
    """Run a scenario with a topic, a broker and a listener of its own, within a deadline."""

    async def main() -> None:
        storage, metadata = HeldStorage(), StoredMetadata(MemoryStore())
        node = BrokerId(1)
        broker = Broker(
            node_id=node,
            nodes={node: Node(node_id=node)},
            storage=storage,
            metadata=metadata,
            config=BrokerConfig.read(values),
            clock=storage.clock,
        )
        await broker.start()
        await broker.topics.create(NewTopic(name=TOPIC, partitions=partitions))
        listener = KafkaListener(
            Gate(broker, authorize=authorize), addresses=addresses, config=config, budget=budget
        )
        await listener.start()
        rig = Rig(broker, listener, storage)
        try:
            await scenario(rig)
        finally:
            for client in rig.clients:
                client.close()
            await listener.close()
            await broker.close()
            await storage.close()
            await metadata.close()

    async def bounded() -> None:
        await asyncio.wait_for(main(), DEADLINE_S)

    factory = pytest.importorskip("uvloop").new_event_loop if uv else UnhurriedLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(bounded())


def batch(*values: bytes, timestamp: int = NOW_MS) -> bytes:
    """One record batch; a value each."""
    return bytes(build_batch([(timestamp, None, value, ()) for value in values or (b"v",)]))


def produce_body(
    partitions: Mapping[int, bytes],
    *,
    version: int = 9,
    topic: str = TOPIC,
    acks: int = -1,
    timeout_ms: int = 10_000,
    transactional_id: str | None = None,
) -> bytes:
    """A Produce request for partitions of one topic."""
    return b"".join(
        write_produce_request(
            version,
            transactional_id=transactional_id,
            acks=acks,
            timeout_ms=timeout_ms,
            topics={topic: partitions},
        )
    )


def fetch_body(
    offsets: Mapping[int, int],
    *,
    version: int = 12,
    topic: TopicRef = TOPIC,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    max_bytes: int = 1 << 26,
    isolation_level: int = 0,
    session_id: int = 0,
    session_epoch: int = -1,
    forgotten: Mapping[TopicRef, Sequence[int]] | None = None,
) -> bytes:
    """A Fetch request for partitions of one topic."""
    asked = [
        FetchPartition(index, leader_epoch, offset, -1, -1, partition_max_bytes)
        for index, offset in offsets.items()
    ]
    return write_fetch_request(
        version,
        topics={topic: asked} if asked else {},
        replica_id=-1,
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        isolation_level=isolation_level,
        session_id=session_id,
        session_epoch=session_epoch,
        forgotten=forgotten,
        rack_id="",
    )


def only(response: FetchResponse) -> FetchResult[memoryview]:
    """The one partition in an answer."""
    ((_, (result,)),) = response.topics
    return result
