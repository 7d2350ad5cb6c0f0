"""A coordinator on a clock that the test moves, over one journal that its log and its partitions share.

The partitions are doubles that do what the coordinator relies on and note the order of everything. A crash
keeps a prefix of the journal, and the next coordinator starts from it.
"""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import Any, NamedTuple, cast

from tests import unhurried

from tailrace.broker.partition import Appended, Partition
from tailrace.broker.transactions import Identity, TransactionConfig, TransactionCoordinator
from tailrace.broker.transactions.codec import read_key, read_value
from tailrace.model import BrokerError, ErrorCode, Offset, TopicPartition
from tailrace.records import NewRecord, Visible, Walk, build_batch
from tailrace.storage.api import Waiter
from tailrace.testing import FakeClock

T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)
OFFSETS = TopicPartition("__consumer_offsets", 3)
BUSY = BrokerError("the log is busy", code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)


class Put(NamedTuple):
    """One entry of the journal."""

    place: str  # "state", or a partition
    what: str
    record: NewRecord | None = None


class Log:
    """The topic of the coordinator (`TransactionLog`), one partition of it."""

    partitions = 1

    def __init__(self, journal: list[Put]) -> None:
        self.journal = journal
        self.refusals: list[Exception | None] = []  # of the next appends; None lets one pass
        self.epoch = 0
        self.held: list[Waiter] | None = None

    def leads(self, partition: int) -> bool:
        return partition == 0

    def leader_epoch(self, partition: int) -> int:
        return self.epoch

    async def ensure(self) -> None:
        raise AssertionError("it exists")

    def sequence(self, partition: int, records: Sequence[NewRecord]) -> Offset:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        for record in records:
            _, _, value, _ = record
            label = "tombstone" if value is None else read_value(value).state.label
            self.journal.append(Put("state", label, record))
        return Offset(len(self.journal))

    def acknowledged(self, partition: int, end: Offset, waiter: Waiter) -> None:
        if self.held is None:
            waiter.set_result(None)
        else:
            self.held.append(waiter)

    async def read(self, partition: int) -> AsyncIterator[Visible]:
        for put in list(self.journal):
            if put.record is not None:
                await asyncio.sleep(0)
                for visible in Walk(0).over(bytes(build_batch([put.record]))):
                    yield visible


class Place:
    """A partition: whether a producer has a transaction open in it, as the journal says."""

    def __init__(self, tp: TopicPartition, journal: list[Put]) -> None:
        self.name, self.topic, self.index = tp, tp.topic, tp.partition
        self.journal = journal
        self.open: dict[int, int] = {}  # producer id -> epoch
        self.refusals: list[Exception | None] = []

    @property
    def producers(self) -> Place:
        """It knows its open transactions by itself."""
        return self

    def open_transaction(self, producer_id: int) -> int | None:
        return self.open.get(producer_id)

    def write(self, identity: Identity) -> None:
        self.open[identity.producer_id] = identity.epoch
        self.journal.append(Put(str(self.name), f"batch {identity.producer_id}/{identity.epoch}"))

    def append_marker(
        self, producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int
    ) -> Appended | None:
        refusal = self.refusals.pop(0) if self.refusals else None
        if refusal is not None:
            raise refusal
        if producer_id not in self.open:
            return None
        del self.open[producer_id]
        word = "commit" if commit else "abort"
        self.journal.append(Put(str(self.name), f"{word} {producer_id}/{producer_epoch}"))
        return Appended(Offset(0), Offset(1), -1, Offset(0))


class Groups:
    """Notes which transactions ended in the offsets topic."""

    def __init__(self) -> None:
        self.ended: list[tuple[int, int, bool]] = []
        self.loaded = asyncio.Event()
        self.loaded.set()

    async def wait_loaded(self) -> None:
        await self.loaded.wait()

    def transaction_ended(self, offsets_partition: int, producer_id: int, *, commit: bool) -> None:
        self.ended.append((offsets_partition, producer_id, commit))


class Ids:
    """Producer ids from 100 on; none while it is `dry`."""

    def __init__(self) -> None:
        self._numbers = itertools.count(100)
        self.dry = False

    async def fill(self) -> None:
        await asyncio.sleep(0)

    def take_nowait(self) -> int | None:
        return None if self.dry else next(self._numbers)


class Scene:
    """One node."""

    def __init__(self, config: TransactionConfig | None = None) -> None:
        self.config = config
        self.clock = FakeClock()
        self.journal: list[Put] = []
        self.log = Log(self.journal)
        self.places = {tp: Place(tp, self.journal) for tp in (T0, T1, U0, OFFSETS)}
        self.groups = Groups()
        self.ids = Ids()
        self.failures: list[BaseException] = []
        self.coordinator = self._new()

    def _new(self) -> TransactionCoordinator:
        return TransactionCoordinator(
            cast(Any, self.log),
            participants=self,
            states={OFFSETS.topic: self.groups},
            producer_ids=self.ids,
            clock=self.clock,
            config=self.config,
            on_failure=self.failures.append,
        )

    def find_partition(self, tp: TopicPartition) -> Partition | None:
        return cast(Partition | None, self.places.get(tp))

    def partitions(self) -> Iterator[Partition]:
        return iter(())

    async def open(self) -> None:
        self.coordinator.start()
        await self.coordinator.wait_loaded()

    async def crash(self, *, keep: int | None = None, wait: bool = True) -> None:
        """The process ends; the first `keep` entries of the journal are left, and it starts again."""
        await self.coordinator.close()
        if keep is not None:
            del self.journal[keep:]
        self.log.epoch += 1
        for tp, place in self.places.items():
            place.open = {}
            for put in self.journal:
                if put.place == str(tp):
                    word, _, identity = put.what.partition(" ")
                    producer_id, epoch = map(int, identity.split("/"))
                    if word == "batch":
                        place.open[producer_id] = epoch
                    else:
                        del place.open[producer_id]
        self.coordinator = self._new()
        self.coordinator.start()
        if wait:
            await self.coordinator.wait_loaded()

    def advance(self, ms: int) -> None:
        self.clock.advance(ms)
        self.coordinator.tick()

    async def begin(self, name: str = "x", *tps: TopicPartition, timeout_ms: int = 60_000) -> Identity:
        """A producer with a transaction that has written to partitions."""
        identity = await self.coordinator.init(name, timeout_ms=timeout_ms)
        await self.write(name, identity, *tps)
        return identity

    async def write(self, name: str, identity: Identity, *tps: TopicPartition) -> None:
        await self.coordinator.add(name, identity, tps or (T0,))
        for tp in tps or (T0,):
            self.places[tp].write(identity)

    def written(self) -> list[str]:
        """The journal, a line for each entry."""
        return [f"{put.place} {put.what}" for put in self.journal]

    def state(self, name: str = "x") -> str:
        return self.coordinator.describe(name).state.label

    def newest(self) -> dict[str, str]:
        """The newest state of every transactional id in the journal."""
        found = {}
        for put in self.journal:
            if put.record is not None:
                _, key, _, _ = put.record
                found[read_key(cast(bytes, key)) or ""] = put.what
        return found


def play(scenario: Callable[[Scene], Awaitable[None]], config: TransactionConfig | None = None) -> None:
    """Run a scenario with a coordinator of its own, within a deadline."""

    async def main() -> None:
        scene = Scene(config)
        await scene.open()
        try:
            await scenario(scene)
            assert scene.failures == []
        finally:
            await scene.coordinator.close()

    unhurried.run(asyncio.wait_for(main(), 60))
