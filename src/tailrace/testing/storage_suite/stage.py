"""What a case works with: one engine in one directory, and the hooks by which a subclass supplies it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from uuid import UUID

from tailrace.model import PartitionId
from tailrace.storage.api import LogConfig, StorageEngine
from tailrace.testing.clock import FakeClock
from tailrace.testing.storage_suite.history import History

TOPIC = UUID(int=0x7A11_0ACE)
FIRST = PartitionId(TOPIC, 0)
SECOND = PartitionId(TOPIC, 1)
OTHER_TOPIC = PartitionId(UUID(int=0x7A11_0ACF), 0)


class Cases:
    """The hooks, and how a scenario is run."""

    config = LogConfig()
    """Settings of every log, but for what a case itself is about."""
    declares_durable = False
    deadline_s = 60.0
    """A scenario that takes longer hangs."""

    async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
        """Open the engine over `path`, which is empty at first; the clock is all the time there is."""
        raise NotImplementedError("a storage suite needs open_engine")

    async def settle(self, engine: StorageEngine) -> None:
        """Let an engine finish what it does behind its callers' backs; called before `maintain`."""

    def run(self, path: Path, scenario: Callable[[Stage], Awaitable[None]]) -> None:
        """Play one scenario, in a loop of its own."""
        asyncio.run(self._play(path, scenario))

    async def _play(self, path: Path, scenario: Callable[[Stage], Awaitable[None]]) -> None:
        stage = Stage(self, path)
        await stage.open()
        try:
            async with asyncio.timeout(self.deadline_s) as deadline:
                await scenario(stage)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            raise AssertionError(f"the scenario hangs: {self.deadline_s} s have passed") from error
        finally:
            await stage.engine.close()


class Stage:
    """The engine of one scenario."""

    engine: StorageEngine

    def __init__(self, cases: Cases, path: Path) -> None:
        self._cases = cases
        self._path = path
        self.clock = FakeClock()

    async def open(self) -> None:
        """Open the engine; a case does so only after having closed it."""
        self.engine = await self._cases.open_engine(self._path, self.clock)

    async def create(self, partition_id: PartitionId = FIRST, *, config: LogConfig | None = None) -> History:
        """A new log, with an empty history."""
        log = await self.engine.create(partition_id, config or self._cases.config)
        return History(log, self.clock)

    async def maintain(self) -> None:
        """Housekeeping, once everything else has come to rest."""
        await self._cases.settle(self.engine)
        await self.engine.maintain()

    async def reopen(self, *histories: History) -> None:
        """Close the engine, open another one over the same directory, and hand its logs to `histories`."""
        await self.engine.close()
        await self.open()
        for history in histories:
            partition_id = history.log.partition_id
            log = self.engine.get(partition_id)
            assert log is not None, f"{partition_id} is gone after closing and opening the engine"
            history.log = log


@contextmanager
def refused(kind: type[Exception], what: str) -> Iterator[None]:
    """The block must raise `kind`."""
    try:
        yield
    except kind:
        return
    raise AssertionError(f"{what} must be refused with {kind.__name__}, and was not")
