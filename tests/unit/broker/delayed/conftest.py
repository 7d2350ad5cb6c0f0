"""Delayed messages over real topics: a stage that can be stopped anywhere and started again."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest
from tests import unhurried

from tailrace.broker import BrokerConfig, Counters, NewTopic, Partition, Topic, Topics
from tailrace.broker.delayed import DELAYED_ID, Delayed
from tailrace.broker.publishing import NewMessage, Publisher
from tailrace.cluster import MemoryStore, SqliteStore, StoredMetadata
from tailrace.model import BrokerId
from tailrace.records import Record, iter_batches
from tailrace.storage.api import StorageEngine
from tailrace.storage.memory import MemoryStorage
from tailrace.storage.segment import SegmentStorage
from tailrace.testing import FakeClock

NODE = BrokerId(1)


class Killed(Exception):
    """The process ends here, as far as the test is concerned."""


class Stage:
    """A node whose clock the test moves. Data outlives `stop`; with memory, as long as the stage does."""

    def __init__(self, path: Path | None) -> None:
        self.clock = FakeClock()
        self.failures: list[BaseException] = []
        self.messages_max = 1_000_000
        self.bytes_max: int | None = None
        self.has_task = True  # else only the test moves anything
        self._path = path
        self._memory = MemoryStorage(clock=self.clock)
        self._memory_metadata = StoredMetadata(MemoryStore())
        self.storage: StorageEngine
        self.topics: Topics
        self.publisher: Publisher
        self.delayed: Delayed

    async def start(self) -> None:
        if self._path is None:
            self.storage, self._metadata = self._memory, self._memory_metadata
        else:
            self.storage = await SegmentStorage.open(self._path / "data", clock=self.clock)
            self._metadata = StoredMetadata(SqliteStore(self._path / "metadata.sqlite"))
        config = BrokerConfig.read()
        self.topics = Topics(
            node_id=NODE,
            nodes=[NODE],
            storage=self.storage,
            metadata=self._metadata,
            config=config,
            clock=self.clock,
            counters=Counters(),
            on_failure=self.failures.append,
        )
        await self.topics.load(await self._metadata.begin(NODE))
        self.publisher = Publisher(clock=self.clock)
        self.new_delayed()
        self.delayed._mover.is_stopping = not self.has_task  # it reads the topic, and that is all
        self.delayed.start()
        await self.delayed.wait_loaded()
        self.delayed._mover.is_stopping = False

    def new_delayed(self) -> Delayed:
        self.delayed = Delayed(
            self.topics,
            self.publisher,
            clock=self.clock,
            on_failure=self.failures.append,
            messages_max=self.messages_max,
            bytes_max=self.bytes_max,
        )
        return self.delayed

    async def stop(self) -> None:
        await self.delayed.close()
        await self.topics.close()
        if self._path is not None:
            await self.storage.close()
            await self._metadata.close()

    async def restart(self) -> None:
        await self.stop()
        await self.start()

    async def close(self) -> None:
        await self.stop()
        await self._memory.close()
        await self._memory_metadata.close()

    # ---- what a test does

    async def topic(self, name: str = "t", *, partitions: int = 1, **configs: str) -> Topic:
        named = {key.replace("_", "."): value for key, value in configs.items()}
        return await self.topics.create(NewTopic(name=name, partitions=partitions, configs=named))

    async def put(
        self, value: bytes, *, delay_ms: int, topic: str = "t", partition: int | None = None
    ) -> str:
        message = NewMessage(b"k", value, [("delay_ms", b"%d" % delay_ms), ("colour", b"red")])
        due_ms = self.delayed.is_delayed(message, self.clock.now_ms())
        assert due_ms is not None
        return await self.delayed.put(topic, partition, message, due_ms)

    async def move(self) -> None:
        """Have everything moved that is due, without waiting for the part's own task."""
        await self.delayed._mover.move_due()

    async def advance(self, ms: int) -> None:
        """Let time pass and everything be moved that is due then."""
        self.clock.advance(ms)
        await self.move()

    def partition(self, topic: str = "t", index: int = 0) -> Partition:
        found = self.topics.get(topic)
        assert found is not None
        return found.partitions[index]

    async def records(self, topic: str = "t", index: int = 0) -> list[Record]:
        partition = self.partition(topic, index)
        await partition.wait_acknowledged(partition.end_offset)
        found: list[Record] = []
        offset = partition.start_offset
        while offset < partition.high_watermark:
            piece = await partition.read(offset, bytes_max=1 << 20)
            found += [record for batch in iter_batches(await piece.load()) for record in batch.records()]
            offset = piece.next_offset
        return found

    async def values(self, topic: str = "t", index: int = 0) -> list[bytes | None]:
        return [record.value for record in await self.records(topic, index)]

    async def ids(self, topic: str = "t", index: int = 0) -> list[str]:
        return [
            (value or b"").decode()
            for record in await self.records(topic, index)
            for name, value in record.headers
            if name == DELAYED_ID
        ]


Play = Callable[[Callable[[Stage], Awaitable[None]]], None]


@pytest.fixture(params=["memory", "files"])
def play(request: pytest.FixtureRequest, tmp_path: Path) -> Play:
    """Run a scenario on a started stage, within a deadline: once in memory, once on files."""

    def run(scenario: Callable[[Stage], Awaitable[None]]) -> None:
        async def main() -> None:
            stage = Stage(tmp_path if request.param == "files" else None)
            await stage.start()
            try:
                await scenario(stage)
            finally:
                await stage.close()
            assert not stage.failures

        unhurried.run(asyncio.wait_for(main(), 120))

    return run
