"""The sampler over a real broker in memory: what a sample holds, what is bounded, how it starts and stops."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.broker.publishing import NewMessage
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.metrics import sampler as module
from tailrace.metrics.free_space import FreeSpace
from tailrace.metrics.observed import Observed
from tailrace.metrics.sampler import COLUMNS, Sampler
from tailrace.model import BrokerId, TopicPartition
from tailrace.storage.memory import MemoryStorage
from tailrace.testing import FakeClock

NODE = BrokerId(1)


class Rig:
    """A broker and a sampler on a clock that the test moves."""

    def __init__(self, broker: Broker, clock: FakeClock) -> None:
        self.broker = broker
        self.clock = clock
        self.sampler = Sampler(Observed(broker=broker))

    async def sample_after(self, ms: int) -> None:
        self.clock.advance(ms)
        await self.sampler.sample()

    def publish(self, topic: str, count: int) -> None:
        found = self.broker.topics.get(topic)
        assert found is not None
        self.broker.publisher.publish(found.partitions[0], [NewMessage(None, b"x")] * count)

    def column(self, topic: str, name: str = "records_in_per_s") -> list[float | None]:
        found = self.broker.topics.get(topic)
        assert found is not None
        return self.sampler.topics.column(found, name, tick=self.sampler.tick)


@asynccontextmanager
async def rig() -> AsyncIterator[Rig]:
    clock = FakeClock()
    broker = Broker(
        node_id=NODE,
        nodes={NODE: Node(node_id=NODE)},
        storage=MemoryStorage(clock=clock),
        metadata=StoredMetadata(MemoryStore()),
        config=BrokerConfig.read(),
        clock=clock,
    )
    await broker.start()
    made = Rig(broker, clock)
    try:
        yield made
    finally:
        await made.sampler.stop()
        await broker.close()


def test_rates_are_of_the_time_between_two_samples() -> None:
    async def main() -> None:
        async with rig() as it:
            await it.broker.topics.create(NewTopic(name="t"))
            it.publish("t", 100)
            await it.sampler.sample()  # what came before has no known time
            it.publish("t", 10)
            await it.sample_after(5_000)
            await it.sample_after(5_000)
            assert it.column("t") == [2.0, 0.0]
            assert it.sampler.node_series()["records_in_per_s"] == [2.0, 0.0]

    asyncio.run(main())


def test_a_topic_that_came_between_two_samples_is_counted_from_its_beginning() -> None:
    async def main() -> None:
        async with rig() as it:
            await it.sampler.sample()
            await it.broker.topics.create(NewTopic(name="late"))
            it.publish("late", 5)
            await it.sample_after(1_000)
            assert it.column("late") == [5.0]

    asyncio.run(main())


def test_quiet_topics_take_no_memory_and_read_as_zeros() -> None:
    async def main() -> None:
        async with rig() as it:
            await it.broker.topics.create(NewTopic(name="quiet"))
            for _ in range(4):
                await it.sample_after(5_000)
            assert len(it.sampler.topics) == 0
            assert it.column("quiet") == [0.0, 0.0, 0.0]

    asyncio.run(main())


def test_a_deleted_topic_is_forgotten() -> None:
    async def main() -> None:
        async with rig() as it:
            await it.broker.topics.create(NewTopic(name="t"))
            it.publish("t", 1)
            await it.sample_after(5_000)
            assert len(it.sampler.topics) == 1
            await it.broker.delete_topic("t")
            await it.sample_after(5_000)
            assert len(it.sampler.topics) == 0

    asyncio.run(main())


def test_series_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with rig() as it:
            await it.broker.topics.create(NewTopic(name="t"))
            offsets = {TopicPartition("t", 0): OffsetToCommit(0)}
            await it.broker.groups.commit_offsets(CommitRequest(group_id="g", offsets=offsets))
            for _ in range(module.LAG_SAMPLES_MAX + 10):
                it.publish("t", 1)
                await it.sample_after(5_000)
            assert len(it.sampler.group_lag("g")) == module.LAG_SAMPLES_MAX
            assert len(it.column("t")) == module.TOPIC_SAMPLES_MAX
            assert {len(each) for each in it.sampler.node_series().values()} == {module.LAG_SAMPLES_MAX + 9}

    monkeypatch.setattr(module, "NODE_SAMPLES_MAX", 720)
    asyncio.run(main())


def test_topics_past_the_bound_are_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 2)

    async def main() -> None:
        async with rig() as it:
            for name in ("a", "b", "c"):
                await it.broker.topics.create(NewTopic(name=name))
                it.publish(name, 1)
            await it.sample_after(5_000)
            await it.sample_after(5_000)
            assert len(it.sampler.topics) == 2
            assert it.column("c") == []

    asyncio.run(main())


def test_a_topic_that_finds_room_late_is_counted_from_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "TOPICS_MAX", 1)

    async def main() -> None:
        async with rig() as it:
            for name in ("a", "b"):
                await it.broker.topics.create(NewTopic(name=name))
            await it.sampler.sample()
            it.publish("a", 1)
            it.publish("b", 1000)
            await it.sample_after(5_000)
            await it.broker.delete_topic("a")
            await it.sample_after(5_000)  # forgets a
            await it.sample_after(5_000)  # has room for b
            it.publish("b", 10)
            await it.sample_after(5_000)
            assert it.column("b") == [0.0, 0.0, 0.0, 2.0]

    asyncio.run(main())


def test_groups_past_the_bound_are_not_followed_and_count_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(module, "READERS_MAX", 1)

    async def main() -> None:
        async with rig() as it:
            await it.broker.topics.create(NewTopic(name="t"))
            it.publish("t", 3)
            offsets = {TopicPartition("t", 0): OffsetToCommit(0)}
            for group in ("a", "b"):
                await it.broker.groups.commit_offsets(CommitRequest(group_id=group, offsets=offsets))
            sample = await it.sampler.sample()
            assert sample.lag == 6
            followed = [group for group in ("a", "b") if it.sampler.group_lag(group)]
            assert len(followed) == 1

    asyncio.run(main())


def test_a_group_that_is_gone_is_forgotten() -> None:
    async def main() -> None:
        async with rig() as it:
            await it.broker.topics.create(NewTopic(name="t"))
            offsets = {TopicPartition("t", 0): OffsetToCommit(0)}
            await it.broker.groups.commit_offsets(CommitRequest(group_id="g", offsets=offsets))
            await it.sampler.sample()
            assert it.sampler.group_lag("g") == [0]
            await it.broker.groups.delete(["g"])
            await it.sampler.sample()
            assert it.sampler.group_lag("g") == []

    asyncio.run(main())


def test_a_sample_has_a_row_of_every_column() -> None:
    async def main() -> None:
        async with rig() as it:
            first = await it.sampler.sample()
            assert first.rates is None
            await it.sample_after(5_000)
            assert it.sampler.newest is not None
            assert len(it.sampler.newest.row()) == len(COLUMNS)

    asyncio.run(main())


def test_free_space_is_asked_for_in_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    askers: list[int] = []
    read = FreeSpace.read_bytes

    def read_noting(space: FreeSpace) -> int | None:
        askers.append(threading.get_ident())
        return read(space)

    monkeypatch.setattr(FreeSpace, "read_bytes", read_noting)

    async def main() -> None:
        async with rig() as it:
            observed = Observed(broker=it.broker, free_space=FreeSpace(str(tmp_path)))
            sample = await Sampler(observed).sample()
            assert sample.disk_free_bytes is not None
            assert sample.disk_free_bytes == observed.free_space.newest_bytes
            assert len(askers) == 1 and threading.get_ident() not in askers

    asyncio.run(main())


def test_it_samples_by_itself_until_it_is_stopped() -> None:
    async def main() -> None:
        async with rig() as it:
            it.sampler.interval_ms = 1
            it.sampler.start()
            it.sampler.start()
            async with asyncio.timeout(60):
                while it.sampler.tick < 3 or not it.sampler.loop_lag.lateness.count:  # noqa: ASYNC110
                    await asyncio.sleep(0.001)
            await it.sampler.stop()
            await it.sampler.stop()
            assert {task.get_name() for task in asyncio.all_tasks()}.isdisjoint({"metrics-sampler"})

    asyncio.run(main())
