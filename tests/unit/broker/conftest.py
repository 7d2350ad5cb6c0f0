"""Topics over the memory engine and metadata in memory, for tests of the broker's parts."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import TypeVar

import pytest
from tests import unhurried

from tailrace.broker import BrokerConfig, Counters, Topics
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.model import BrokerId
from tailrace.storage.api import StorageEngine
from tailrace.storage.memory import MemoryStorage
from tailrace.testing import FakeClock

_T = TypeVar("_T")
NODE = BrokerId(1)


class Rig:
    """The parts, and a way to start again with the same data."""

    def __init__(self, *, nodes: Sequence[int] = (1,), values: Mapping[str, str] | None = None) -> None:
        self.clock = FakeClock()
        self.storage: StorageEngine = MemoryStorage(clock=self.clock)
        self.metadata = StoredMetadata(MemoryStore())
        self.config = BrokerConfig.read(values)
        self.counters = Counters()
        self.nodes = [BrokerId(node) for node in nodes]
        self.failures: list[BaseException] = []
        self.topics = self._new()

    def _new(self) -> Topics:
        return Topics(
            node_id=NODE,
            nodes=self.nodes,
            storage=self.storage,
            metadata=self.metadata,
            config=self.config,
            clock=self.clock,
            counters=self.counters,
            on_failure=self.failures.append,
        )

    async def restart(self) -> Topics:
        """The topics as the next start finds them."""
        self.topics = self._new()
        image = await self.metadata.begin(NODE, check=self.topics.check_image)
        await self.topics.load(image)
        return self.topics


@asynccontextmanager
async def opened(
    *, nodes: Sequence[int] = (1,), values: Mapping[str, str] | None = None
) -> AsyncIterator[Rig]:
    rig = Rig(nodes=nodes, values=values)
    try:
        await rig.restart()
        yield rig
    finally:
        await rig.storage.close()
        await rig.metadata.close()


Play = Callable[..., None]


@pytest.fixture
def play() -> Play:
    """Run a scenario with a rig, within a deadline."""

    def run(scenario: Callable[[Rig], Awaitable[object]], **settings: object) -> None:
        async def main() -> None:
            async with opened(**settings) as rig:  # type: ignore[arg-type]
                await scenario(rig)

        unhurried.run(asyncio.wait_for(main(), 120))

    return run
