"""A broker with subscriptions for tests: real parts, a clock that stands still, members that note everything.

Over the memory engine the log is one that a test may hold back or have refuse; over the segment engine a test
may end the broker, orderly or not, and go on with what the disk has.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests import unhurried

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node, Partition, Topic
from tailrace.broker.publishing import NewMessage
from tailrace.broker.subscriptions import (
    CURSORS_TOPIC,
    Delivery,
    Member,
    Notice,
    Start,
    Subscription,
    SubscriptionConfig,
)
from tailrace.cluster import MemoryStore, SqliteStore, StoredMetadata
from tailrace.model import BrokerId, Offset, PartitionExists, PartitionId, TopicPartition
from tailrace.model.session import INTERNAL
from tailrace.records import Batch
from tailrace.storage import LogConfig, Slice, Waiter
from tailrace.storage.memory import MemoryLog, MemoryStorage
from tailrace.storage.segment import DirectoryConfig, SegmentStorage
from tailrace.testing import FakeClock
from tailrace.testing.faults.image import copy_as_killed

TOPIC = "orders"
DEADLINE_S = 120.0
NODE = BrokerId(1)
SMALL = DirectoryConfig(free_bytes_min=0, checkpoint_interval_ms=3_600_000)
COLD = DirectoryConfig(free_bytes_min=0, checkpoint_interval_ms=3_600_000, tail_bytes_max=0)


def make_cold(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have every record come from the disk. What the kernel has cached is nobody's to say in a test."""
    monkeypatch.setattr(Partition, "read_nowait", lambda partition, offset, *, bytes_max, up_to: None)


class HeldLog(MemoryLog):
    """A ring that makes durable only what the test lets it, and refuses what the test wants refused."""

    def __init__(self, partition_id: PartitionId, config: LogConfig, *, clock: FakeClock) -> None:
        super().__init__(partition_id, config, clock=clock)
        self._durable: Offset | None = None
        self._told: list[tuple[Offset, Waiter]] = []
        self.refusal: Exception | None = None  # of appends
        self.damage: Exception | None = None  # of reads

    @property
    def durable_offset(self) -> Offset:
        return self.end_offset if self._durable is None else self._durable

    def hold(self) -> None:
        """From now on nothing becomes durable."""
        self._durable = self.durable_offset

    def settle(self) -> None:
        """What was held back becomes durable, and what comes after it."""
        self._durable = None
        self.on_change()
        told, self._told = self._told, []
        for _, waiter in told:
            if not waiter.done():
                waiter.set_result(None)

    def append(self, batch: Batch, *, leader_epoch: int | None = None) -> Offset:
        if self.refusal is not None:
            raise self.refusal
        return super().append(batch, leader_epoch=leader_epoch)  # type: ignore[arg-type]

    def tell_durable(self, end: Offset, waiter: Waiter) -> None:
        if end <= self.durable_offset:
            waiter.set_result(None)
        else:
            self._told.append((end, waiter))

    def read_nowait(self, offset: Offset, *, bytes_max: int, up_to: Offset) -> Slice:
        if self.damage is not None:
            raise self.damage
        return super().read_nowait(offset, bytes_max=bytes_max, up_to=up_to)


class HeldStorage(MemoryStorage):
    """An engine of such logs."""

    def __init__(self, clock: FakeClock) -> None:
        self._fake = clock
        super().__init__(clock=clock)

    async def create(self, partition_id: PartitionId, config: LogConfig) -> HeldLog:
        if self.get(partition_id) is not None:
            raise PartitionExists(partition_id)
        log = self._logs[partition_id] = HeldLog(partition_id, config, clock=self._fake)
        return log


class Inbox:
    """A recipient that keeps what it is given."""

    def __init__(self, name: str = "ann") -> None:
        self._name = name
        self.got: list[Delivery] = []
        self.notices: list[Notice] = []
        self.open = True
        self.member: Member | None = None

    @property
    def name(self) -> str:
        return self._name

    def is_open(self) -> bool:
        return self.open

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.got.extend(deliveries)

    def notice(self, notice: Notice) -> None:
        self.notices.append(notice)

    @property
    def offsets(self) -> list[int]:
        return [each.record.offset for each in self.got]

    @property
    def values(self) -> list[bytes | None]:
        return [each.record.value for each in self.got]

    @property
    def events(self) -> list[str]:
        return [each.event for each in self.notices]

    def has(self, count: int) -> bool:
        return len(self.got) == count

    def take(self) -> list[tuple[int, int]]:
        """Offset and count of what came since the last time."""
        taken = [(each.record.offset, each.count) for each in self.got]
        self.got.clear()
        return taken

    # ---- as a member

    def joined(self) -> Member:
        assert self.member is not None
        return self.member

    def ack_nowait(
        self, *offsets: int, topic: str = "", partition: int = 0, epoch: int = 0
    ) -> tuple[int, asyncio.Future[None]]:
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        ranges = [(offset, offset + 1) for offset in offsets]
        return self.joined().ack(topic, partition, epoch, ranges, waiter), waiter

    async def ack(self, *offsets: int, topic: str = "", partition: int = 0, epoch: int = 0) -> int:
        """Acknowledge, and wait until that is durable."""
        count, waiter = self.ack_nowait(*offsets, topic=topic, partition=partition, epoch=epoch)
        await waiter
        return count

    def nack(
        self,
        *offsets: int,
        topic: str = "",
        partition: int = 0,
        epoch: int = 0,
        delay_ms: int | None = None,
        reason: str = "",
    ) -> int:
        ranges = [(offset, offset + 1) for offset in offsets]
        return self.joined().nack(topic, partition, epoch, ranges, delay_ms=delay_ms, reason=reason)

    def extend(self, *offsets: int, extend_ms: int, epoch: int = 0) -> int:
        ranges = [(offset, offset + 1) for offset in offsets]
        return self.joined().extend("", 0, epoch, ranges, extend_ms=extend_ms)


class Rig:
    """One broker, and what a test does with it."""

    def __init__(self, broker: Broker, clock: FakeClock, path: Path | None) -> None:
        self.broker = broker
        self.clock = clock
        self.path = path

    # ---- topics and messages

    async def topic(self, name: str = TOPIC, *, partitions: int = 1, **configs: str) -> Topic:
        texts = {name.replace("_", "."): value for name, value in configs.items()}
        return await self.broker.topics.create(NewTopic(name=name, partitions=partitions, configs=texts))

    def partition(self, index: int = 0, topic: str = TOPIC) -> Partition:
        return self.broker.gate.access(INTERNAL).readable(TopicPartition(topic, index))

    def log(self, index: int = 0, topic: str = TOPIC) -> HeldLog:
        found = self.partition(index, topic).log
        assert isinstance(found, HeldLog)
        return found

    def cursor_logs(self) -> list[HeldLog]:
        topic = self.broker.topics.get(CURSORS_TOPIC)
        assert topic is not None
        return [self.log(index, CURSORS_TOPIC) for index in range(len(topic.partitions))]

    async def publish(
        self,
        *values: bytes | None,
        partition: int = 0,
        topic: str = TOPIC,
        key: bytes | None = None,
        **headers: str,
    ) -> int:
        """Publish as one batch; the offset of the first, once all are durable."""
        carried = [(name, text.encode()) for name, text in headers.items()]
        place = self.partition(partition, topic)
        published = self.broker.publisher.publish(
            place, [NewMessage(key, value, carried) for value in values]
        )
        await place.wait_acknowledged(published.end_offset)
        return published.base_offset

    async def publish_keys(self, *pairs: tuple[bytes, bytes]) -> None:
        """Publish (key, value) one by one."""
        for key, value in pairs:
            await self.publish(value, key=key)

    # ---- subscriptions

    async def subscribe(
        self, name: str = "work", *, topic: str = TOPIC, start: str = "earliest", **settings: str | int
    ) -> Subscription:
        await self.broker.subscriptions.wait_loaded()
        texts = {name: str(value) for name, value in settings.items()}
        config = SubscriptionConfig.read(name, topic, texts)
        return await self.broker.subscriptions.create(config, Start.parse(start))

    def join(self, subscription: Subscription, name: str = "ann", *, credit: int = 100) -> Inbox:
        inbox = Inbox(name)
        inbox.member = subscription.join(inbox, credit=credit)
        return inbox

    # ---- time

    async def wait_until(self, condition: Callable[[], object]) -> None:
        """Let the loop turn until something is so; the scenario's deadline ends a hopeless wait."""
        while not condition():  # noqa: ASYNC110 - there is no event for whatever a test may ask
            await asyncio.sleep(0.001)

    async def turns(self, count: int = 60) -> None:
        """Let the loop turn so often that whatever is under way without a disk has come to its end."""
        for _ in range(count):
            await asyncio.sleep(0)

    async def advance(self, ms: int) -> None:
        """Let time pass, and what is due then happen."""
        self.clock.advance(ms)
        for subscription in self.broker.subscriptions:
            subscription.wake()
        await self.turns()


Scenario = Callable[[Rig], Awaitable[None]]


def play(scenario: Scenario) -> None:
    """Run a scenario over the memory engine, within a deadline."""

    async def main() -> None:
        clock = FakeClock()
        storage, metadata = HeldStorage(clock), StoredMetadata(MemoryStore())
        broker = _broker(storage, metadata, clock)
        await broker.start()
        try:
            await scenario(Rig(broker, clock, None))
        finally:
            await broker.close()
            await storage.close()
            await metadata.close()

    unhurried.run(asyncio.wait_for(main(), DEADLINE_S))


def play_lives(path: Path, *lives: Scenario, config: DirectoryConfig = SMALL) -> None:
    """Run scenarios over the segment engine, each in a new life of the same broker."""

    async def main() -> None:
        clock = FakeClock()
        for life in lives:
            async with opened(path, clock, config=config) as rig:
                await life(rig)
            clock.advance(1_000)

    unhurried.run(asyncio.wait_for(main(), DEADLINE_S))


@asynccontextmanager
async def opened(path: Path, clock: FakeClock, *, config: DirectoryConfig = SMALL) -> AsyncIterator[Rig]:
    """A broker over the segment engine."""
    storage = await SegmentStorage.open(path, config=config, clock=clock)
    metadata = StoredMetadata(SqliteStore(path / "metadata.sqlite"))
    broker = _broker(storage, metadata, clock)
    await broker.start()
    await broker.subscriptions.wait_loaded()
    try:
        yield Rig(broker, clock, path)
    finally:
        await broker.close()
        await storage.close()
        await metadata.close()


def killed_copy(rig: Rig, path: Path) -> Path:
    """The directory as a kill at this moment would leave it."""
    assert rig.path is not None
    return copy_as_killed(rig.path, path)


def _broker(storage: HeldStorage | SegmentStorage, metadata: StoredMetadata, clock: FakeClock) -> Broker:
    return Broker(
        node_id=NODE,
        nodes={NODE: Node(node_id=NODE)},
        storage=storage,
        metadata=metadata,
        config=BrokerConfig.read({}),
        clock=clock,
    )
