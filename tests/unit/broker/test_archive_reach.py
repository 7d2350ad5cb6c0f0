"""Retention that waits for archives: a broker over each engine, with time that is moved by hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node, Partition
from tailrace.broker.archive_reach import tell_archive_reach
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.model import BrokerId, ErrorCode, TopicPartition
from tailrace.model.session import INTERNAL
from tailrace.records import build_batch, read_batch
from tailrace.storage.api import StorageEngine
from tailrace.storage.memory import MemoryStorage
from tailrace.storage.segment import SegmentStorage
from tailrace.testing import FakeClock

NODE = BrokerId(1)
PLACE = TopicPartition("orders", 0)
HOUR_MS = 3_600_000
CONFIGS = {"retention.ms": str(HOUR_MS), "retention.archive.wait": "2h", "segment.ms": "1000"}


class Rig:
    """A broker with one topic, whose retention is done when a test says so."""

    def __init__(self, broker: Broker, clock: FakeClock) -> None:
        self.broker = broker
        self.clock = clock

    @property
    def partition(self) -> Partition:
        return self.broker.gate.access(INTERNAL).readable(PLACE)

    async def fill(self, count: int) -> None:
        """Batches of one record each, an old segment for each where there are segments."""
        for _ in range(count):
            data = build_batch([(self.clock.now_ms(), None, b"v", ())])
            appended = self.partition.append(read_batch(data))
            await self.partition.wait_acknowledged(appended.end_offset)
            self.clock.advance(1001)
            await self._maintain()  # rolls

    async def commit(self, group: str, offset: int) -> None:
        request = CommitRequest(group_id=group, offsets={PLACE: OffsetToCommit(offset)})
        assert await self.broker.groups.commit_offsets(request) == {PLACE: ErrorCode.NONE}

    async def expire(self) -> int:
        """Where the log starts after a round of retention."""
        tell_archive_reach(self.broker.topics, self.broker.groups)
        await self._maintain()
        return self.partition.start_offset

    async def _maintain(self) -> None:
        storage = self.broker.storage
        if isinstance(storage, SegmentStorage):
            await storage.wait_applied()
        await storage.maintain()


@asynccontextmanager
async def running(path: Path, *, engine: str, configs: dict[str, str]) -> AsyncIterator[Rig]:
    clock = FakeClock()
    storage: StorageEngine = MemoryStorage(clock=clock)
    if engine == "segment":
        storage = await SegmentStorage.open(path, clock=clock)
    metadata = StoredMetadata(MemoryStore())
    broker = Broker(
        node_id=NODE,
        nodes={NODE: Node(node_id=NODE)},
        storage=storage,
        metadata=metadata,
        config=BrokerConfig.read({}),
        clock=clock,
    )
    try:
        await broker.start()
        await broker.topics.create(NewTopic(name="orders", partitions=1, configs=configs))
        yield Rig(broker, clock)
    finally:
        await broker.close()
        await storage.close()
        await metadata.close()


@pytest.fixture(params=["memory", "segment"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[..., None]:
    def run(scenario: Callable[[Rig], Awaitable[None]], *, configs: dict[str, str] = CONFIGS) -> None:
        async def main() -> None:
            async with asyncio.timeout(60), running(tmp_path, engine=request.param, configs=configs) as rig:
                await scenario(rig)

        asyncio.run(main())

    return run


def test_records_go_when_the_archive_has_them(play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.fill(6)
        rig.clock.advance(HOUR_MS)
        assert await rig.expire() == 0
        await rig.commit("tailrace-archive-lake", 4)
        assert await rig.expire() == 4
        await rig.commit("tailrace-archive-lake", 6)
        assert await rig.expire() == 6

    play(scenario)


def test_the_slowest_archive_counts_and_other_groups_do_not(play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.fill(6)
        rig.clock.advance(HOUR_MS)
        await rig.commit("billing", 6)
        assert await rig.expire() == 0
        await rig.commit("tailrace-archive-lake", 5)
        await rig.commit("tailrace-archive-other", 2)
        assert await rig.expire() == 2
        await rig.broker.groups.delete(["tailrace-archive-other"])
        assert await rig.expire() == 5

    play(scenario)


def test_without_an_archive_records_wait_as_long_as_the_topic_says(play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.fill(6)
        rig.clock.advance(3 * HOUR_MS - 6 * 1001)
        assert await rig.expire() == 0
        rig.clock.advance(6 * 1001 + 1)
        assert await rig.expire() == 6

    play(scenario)


def test_a_topic_that_does_not_wait_is_left_as_it_was(play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.fill(6)
        rig.clock.advance(HOUR_MS)
        assert await rig.expire() == 6

    play(scenario, configs={"retention.ms": str(HOUR_MS), "segment.ms": "1000"})


def test_a_topic_made_anew_does_not_inherit_what_was_archived(play: Callable[..., None]) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.fill(6)
        await rig.commit("tailrace-archive-lake", 6)
        await rig.broker.delete_topic("orders")
        await rig.broker.topics.create(NewTopic(name="orders", partitions=1, configs=CONFIGS))
        await rig.fill(6)
        rig.clock.advance(HOUR_MS)
        assert await rig.expire() == 0

    play(scenario)
