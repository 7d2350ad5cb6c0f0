"""A broker behind a real native listener, and clients that speak frames to it through the codec.

Over the memory engine the log is one whose durability a test may hold back, so that "stored and not yet
durable" lasts as long as the test wants. With a directory it is the segment engine, which survives a restart.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from pathlib import Path
from typing import cast

import pytest
from tests.unhurried import LoopClock, UnhurriedLoop

from tailrace.broker import Broker, BrokerConfig, Node, Partition
from tailrace.cluster import MemoryStore, SqliteStore, StoredMetadata
from tailrace.model import BrokerId, ErrorCode, Offset, PartitionExists, PartitionId, TopicPartition
from tailrace.model.address import Address
from tailrace.model.session import INTERNAL
from tailrace.native import NativeConfig, NativeListener
from tailrace.native.connection import Connection
from tailrace.net import RequestBudget
from tailrace.records import Batch, iter_batches
from tailrace.runtime import SystemClock
from tailrace.storage import LogConfig, Slice, Waiter
from tailrace.storage.memory import MemoryLog, MemoryStorage
from tailrace.storage.segment import SegmentStorage
from tailrace.wire.native import Frame, MessageType, read_error, read_frame, write_frame

TOPIC = "events"
DEADLINE_S = 120.0

both_loops = pytest.mark.parametrize("uv", [False, True], ids=["asyncio", "uvloop"])


class HeldLog(MemoryLog):
    """A ring that shows, and acknowledges, only what the test lets become durable."""

    held_end: Offset | None = None
    reads_are_cold = False

    @property
    def durable_offset(self) -> Offset:
        return self.end_offset if self.held_end is None else self.held_end

    def hold(self) -> None:
        """From now on nothing becomes durable."""
        self.held_end = self.durable_offset
        self.held: list[tuple[Offset, Waiter]] = []

    def settle(self) -> None:
        """What was held back becomes durable."""
        self.held_end = None
        self.on_change()
        for _, waiter in self.held:
            if not waiter.done():
                waiter.set_result(None)

    def fail(self, error: Exception) -> None:
        """What was held back never becomes durable."""
        for _, waiter in self.held:
            waiter.set_exception(error)
        self.held.clear()

    def tell_durable(self, end: Offset, waiter: Waiter) -> None:
        if end <= self.durable_offset:
            waiter.set_result(None)
        else:
            self.held.append((end, waiter))

    def read_nowait(  # type: ignore[override]
        self, offset: Offset, *, bytes_max: int, up_to: Offset
    ) -> Slice | None:
        if self.reads_are_cold:
            return None
        return super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)

    async def read(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        if self.reads_are_cold:
            await asyncio.sleep(0.005)
        return super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)


class HeldStorage(MemoryStorage):
    """An engine of such logs."""

    async def create(self, partition_id: PartitionId, config: LogConfig) -> HeldLog:
        if self.get(partition_id) is not None:
            raise PartitionExists(partition_id)
        log = self._logs[partition_id] = HeldLog(partition_id, config, clock=self._clock)
        return log


class Refused(Exception):
    """An ERROR answered a request."""

    def __init__(self, frame: Frame) -> None:
        reply = read_error(frame)
        super().__init__(reply.message)
        self.code = reply.code
        self.retriable = reply.retriable


class Client:
    """One connection, spoken to in frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.sequences = itertools.count(1)
        self.kept: deque[Frame] = deque()  # that came while another one was waited for

    def frame(
        self, kind: int, properties: Mapping[str, str], body: bytes = b"", *, timestamp: int = 0
    ) -> tuple[int, bytes]:
        """A request and its sequence, not sent."""
        sequence = next(self.sequences)
        return sequence, write_frame(
            kind, sequence=sequence, timestamp=timestamp, properties=dict(properties), body=body
        )

    def send(self, kind: int, body: bytes = b"", /, **properties: object) -> int:
        """Ask, and do not wait; a reserved property is given as `_name`. Its sequence."""
        sequence, frame = self.frame(kind, {key: str(value) for key, value in properties.items()}, body)
        self.writer.write(frame)
        return sequence

    async def ask(self, kind: int, body: bytes = b"", /, **properties: object) -> Frame:
        """Ask, and wait for the reply; Refused if it is an ERROR."""
        return await self.reply(self.send(kind, body, **properties))

    async def publish(self, body: bytes, topic: str = TOPIC, /, **properties: object) -> Frame:
        return await self.ask(MessageType.PUBLISH, body, _topic=topic, **properties)

    async def reply(self, sequence: int) -> Frame:
        """The reply to a request, whatever else comes first."""
        replies = (MessageType.ACK, MessageType.ERROR, MessageType.HEARTBEAT)
        frame = await self.find(lambda each: each.sequence == sequence and each.type in replies)
        if frame.type == MessageType.ERROR:
            raise Refused(frame)
        return frame

    async def data(self) -> Frame:
        """The next message."""
        return await self.find(lambda frame: frame.type == MessageType.DATA)

    async def notice(self) -> Frame:
        return await self.find(lambda frame: frame.type == MessageType.NOTICE)

    async def find(self, wanted: Callable[[Frame], bool]) -> Frame:
        """The first frame that is wanted; the others are kept."""
        for frame in self.kept:
            if wanted(frame):
                self.kept.remove(frame)
                return frame
        while not wanted(frame := await self.receive()):
            self.kept.append(frame)
        return frame

    async def receive(self) -> Frame:
        """The next frame as it comes."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return read_frame(await self.reader.readexactly(size), properties_bytes_max=1 << 20)

    async def ack(self, *frames: Frame) -> Frame:
        """Acknowledge messages of one partition, and wait until that is durable."""
        return await self.ask(MessageType.ACK, **settling(*frames))

    async def wait_closed(self) -> list[Frame]:
        """What still comes until the broker closes the connection."""
        frames = list(self.kept)
        try:
            while True:
                frames.append(await self.receive())
        except (asyncio.IncompleteReadError, ConnectionError):
            return frames

    def stop_reading(self) -> None:
        """Let what the broker sends pile up."""
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def go_on_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).resume_reading()

    def close(self) -> None:
        self.writer.transport.abort()


def settling(*frames: Frame) -> dict[str, str]:
    """The properties that name delivered messages of one partition."""
    first = frames[0].properties
    return {
        "_subscription": first["_subscription"],
        "_topic": first["_topic"],
        "_partition": first["_partition"],
        "_epoch": first["_epoch"],
        "_offsets": ",".join(str(each) for each in sorted({frame.sequence for frame in frames})),
    }


class Rig:
    """One broker and its listener."""

    def __init__(self, broker: Broker, listener: NativeListener) -> None:
        self.broker = broker
        self.listener = listener
        self.clients: list[Client] = []

    async def connect(self, *, receive_bytes: int = 0) -> Client:
        """A client; one that is to read slowly gets a small receive buffer."""
        sock = socket.socket(proto=socket.IPPROTO_TCP)  # else asyncio leaves Nagle on
        sock.setblocking(False)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        try:
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.listener.port))
        except OSError:
            sock.close()
            raise
        client = Client(*await asyncio.open_connection(sock=sock))
        self.clients.append(client)
        return client

    async def subscriber(self, name: str = "workers", /, **properties: object) -> Client:
        """A client that has joined a subscription of the topic, which is made if need be."""
        client = await self.connect()
        await client.ask(MessageType.SUBSCRIBE, _subscription=name, _topic=TOPIC, **properties)
        return client

    async def create_topic(self, name: str = TOPIC, /, **properties: object) -> None:
        client = await self.connect()
        await client.ask(MessageType.CREATE_TOPIC, _topic=name, **properties)

    def partition(self, topic: str, index: int) -> Partition:
        return self.broker.gate.access(INTERNAL).readable(TopicPartition(topic, index))

    def log(self, topic: str = TOPIC, partition: int = 0) -> HeldLog:
        found = self.partition(topic, partition).log
        assert isinstance(found, HeldLog)
        return found

    async def batches(self, topic: str = TOPIC, partition: int = 0) -> list[Batch]:
        """Everything in a log, batch by batch."""
        found = await self.partition(topic, partition).read(Offset(0), bytes_max=1 << 26)
        return list(iter_batches(await found.load()))

    async def values(self, topic: str = TOPIC, partition: int = 0) -> list[bytes | None]:
        return [record.value for batch in await self.batches(topic, partition) for record in batch.records()]

    def connection_of(self, client: Client) -> Connection:
        """The listener's end of a client's connection."""
        _, port = client.writer.get_extra_info("sockname")
        (found,) = [each for each in self.listener.connections if each.facts.peer_port == port]
        return found

    def connection_is_open(self, client: Client) -> bool:
        """Whether the listener still has a client's connection."""
        _, port = client.writer.get_extra_info("sockname")
        return any(each.facts.peer_port == port for each in self.listener.connections)

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        """Let the loop turn until something is so; the scenario's deadline ends a hopeless wait."""
        while not condition():  # noqa: ASYNC110 - there is no event for whatever a test may ask
            await asyncio.sleep(0.001)


Scenario = Callable[[Rig], Awaitable[None]]


def play(
    *scenarios: Scenario,
    config: NativeConfig | None = None,
    budget: RequestBudget | None = None,
    uv: bool = False,
    values: Mapping[str, str] | None = None,
    directory: Path | None = None,
    addresses: Sequence[Address] = (Address("127.0.0.1", 0),),
) -> None:
    """Run scenarios, each with a broker and a listener of its own; with a directory they share its data."""

    async def run_one(scenario: Scenario) -> None:
        clock = LoopClock() if isinstance(asyncio.get_running_loop(), UnhurriedLoop) else SystemClock()
        if directory is None:
            storage: HeldStorage | SegmentStorage = HeldStorage(clock=clock)
            metadata = StoredMetadata(MemoryStore())
        else:
            storage = await SegmentStorage.open(directory / "data", clock=clock)
            metadata = StoredMetadata(SqliteStore(directory / "metadata.db"))
        node = BrokerId(1)
        broker = Broker(
            node_id=node,
            nodes={node: Node(node_id=node)},
            storage=storage,
            metadata=metadata,
            config=BrokerConfig.read(values),
            clock=clock,
        )
        await broker.start()
        await broker.subscriptions.wait_loaded()
        listener = NativeListener(broker.gate, addresses=addresses, config=config, budget=budget)
        await listener.start()
        rig = Rig(broker, listener)
        try:
            await scenario(rig)
            await rig.wait_until(lambda: listener.budget.used == 0 or bool(rig.listener.connections))
        finally:
            for client in rig.clients:
                client.close()
            await listener.close()
            await broker.close()
            await storage.close()
            await metadata.close()
        assert listener.budget.used == 0, "bytes of the budget were lost"

    async def main() -> None:
        for scenario in scenarios:
            await asyncio.wait_for(run_one(scenario), DEADLINE_S)

    factory = pytest.importorskip("uvloop").new_event_loop if uv else UnhurriedLoop
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.run(main())


def refused(error: pytest.ExceptionInfo[Refused], code: ErrorCode, *words: str) -> None:
    """What an ERROR says: its code, and words that its text must have."""
    assert error.value.code == code
    for word in words:
        assert word in str(error.value)
