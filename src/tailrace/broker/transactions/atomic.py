"""Appends to several partitions that take effect together: a whole transaction in one turn of the loop.

    Ongoing(partitions) -> batch, batch, ... -> Prepare -> marker, marker, ... -> Complete

All of it is sequenced without an await, so a crash leaves a prefix of it. The next start aborts a prefix
without Prepare (`pool`) and completes one with it (`coordinator`). The caller waits once, until Complete is
durable.

- What can be checked is checked before the first record: names and rights, leadership, sizes, keys of
  compacted topics.
- A log may still refuse an append half way (it is full, or busy). Abort markers follow in the same turn, and
  the caller gets the refusal. Readers of committed records never see a part.
- The transactional id is one of the pool. It is given back in the same turn, so one id serves many callers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.broker.partition import Partition
from tailrace.broker.sequence import Sequenced, append_batches, build_batches
from tailrace.broker.transactions.coordinator import TransactionCoordinator
from tailrace.broker.transactions.home import Entry
from tailrace.broker.transactions.machine import BUMPING_VERSION
from tailrace.broker.transactions.pool import IdPool, Pooled
from tailrace.model import TopicPartition
from tailrace.records import NewRecord


class Write(NamedTuple):
    """Records for one partition, in their order."""

    partition: Partition
    records: Sequence[NewRecord]
    stamp_ms: int | None  # their time where the topic stamps them, else None


class AtomicStep(NamedTuple):
    """What one transaction does in its only turn."""

    writes: Sequence[Write]
    homes: Sequence[TopicPartition] = ()  # further partitions that take part
    then: Callable[[int, int], None] | None = None
    """Called after the writes with producer id and epoch; appends to `homes`."""


class AtomicAppender:
    """Appends all or nothing, for callers without a transactional id."""

    def __init__(self, coordinator: TransactionCoordinator, pool: IdPool) -> None:
        self._coordinator = coordinator
        self._pool = pool

    async def append(self, plan: Callable[[], Sequence[Write]]) -> list[Sequenced]:
        """Store what `plan` says, at most one write for a partition; returns where each write is.

        `plan` is called in the turn in which everything is sequenced: it finds the partitions, or raises.
        Raises BrokerError or StorageError, and then nothing is stored, unless the wait for durability is
        what failed: that leaves open whether all of it is stored, or nothing.
        """
        pooled = await self._pool.take()
        try:
            entry, sequenced = self._sequence(pooled, AtomicStep(plan()))
        finally:
            self._pool.give_back(pooled)
        await self._coordinator.wait_durable(entry)
        return sequenced

    async def sequence(self, plan: Callable[[], AtomicStep | None]) -> None:
        """Sequence what `plan` says in the turn in which it is called; nothing if it says None.

        Returns in that turn: it does not wait until anything is durable. Raises BrokerError or StorageError,
        and then nothing takes effect.
        """
        pooled = await self._pool.take()
        try:
            step = plan()
            if step is not None:
                self._sequence(pooled, step)
        finally:
            self._pool.give_back(pooled)

    def _sequence(self, pooled: Pooled, step: AtomicStep) -> tuple[Entry, list[Sequenced]]:
        """Everything from Ongoing to Complete. What is left Ongoing is aborted when the id is given back."""
        name, identity = pooled
        writes = step.writes
        built = [(write, _build(write, pooled)) for write in writes]
        partitions = {write.partition.name for write in writes}
        assert len(partitions) == len(writes), "a second write would repeat the sequences of the first"
        partitions.update(step.homes)
        self._coordinator.add_nowait(name, identity, partitions, client_version=BUMPING_VERSION)
        sequenced = [
            append_batches(write.partition, batches, stamp_ms=write.stamp_ms, verified=True)
            for write, batches in built
        ]
        if step.then is not None:
            step.then(*identity)
        entry, _ = self._coordinator.end_nowait(name, identity, commit=True, client_version=BUMPING_VERSION)
        return entry, sequenced


def _build(write: Write, pooled: Pooled) -> list[bytearray]:
    write.partition.check_led()
    producer_id, epoch = pooled.identity
    return build_batches(
        write.records,
        write.partition.settings,
        stamp_ms=write.stamp_ms,
        producer_id=producer_id,
        epoch=epoch,
        sequence=0,  # a transaction has an epoch of its own
        transactional=True,
    )
