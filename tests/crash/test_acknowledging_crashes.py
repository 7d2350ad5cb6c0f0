"""Read-process-write and dead letters, cut off after every single append: one effect for each message.

A worker takes messages of a subscription, writes one record for each, and acknowledges it in the same
transaction. All partitions share one journal, so a crash leaves a prefix of the appends of all of them. For
every prefix a broker is started that has no more than that, and another worker goes on until nothing is left.
Then every message has one committed record. The same holds for a worker that refuses everything: each message
has one dead letter. Builds without one of the rules are caught.
"""

from __future__ import annotations

import asyncio
import copy
from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests import unhurried
from tests.unit.broker.subscriptions.rig import NODE, Inbox, Rig

from tailrace.broker import Broker, BrokerConfig, Node
from tailrace.broker.internal.topic import InternalTopic
from tailrace.broker.subscriptions.acknowledging import TransactionalAcks
from tailrace.broker.subscriptions.cursor_writer import CursorWriter
from tailrace.broker.subscriptions.journal import acks_tombstone
from tailrace.broker.subscriptions.machine import PartitionMachine
from tailrace.broker.subscriptions.stored import AcksKey
from tailrace.broker.transactions.acknowledging import Acknowledgement, commit
from tailrace.broker.visible_records import read
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.model import Epoch, Offset, PartitionId
from tailrace.records import Batch, NewRecord, build_batch, read_batch
from tailrace.storage import LogConfig
from tailrace.storage.memory import MemoryLog, MemoryStorage
from tailrace.testing import FakeClock

Break = Callable[[pytest.MonkeyPatch], None]

OUT = "shipments"
MESSAGES = 4
WORKER = "worker"
LETTERS = "work.dlq"
TURNS_MAX = 5_000
"""More turns of the loop than a delivery takes: nothing here waits for a disk or a clock."""


class Journal:
    """What a node appended, in the order of its journal."""

    def __init__(self) -> None:
        self.configs: dict[PartitionId, LogConfig] = {}
        self.appends: list[tuple[PartitionId, bytes]] = []


class JournalledLog(MemoryLog):
    """A log that notes its appends."""

    def __init__(
        self, partition_id: PartitionId, config: LogConfig, *, clock: FakeClock, journal: Journal
    ) -> None:
        super().__init__(partition_id, config, clock=clock)
        self._place, self._journal = partition_id, journal

    def append(self, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        base_offset = super().append(batch, leader_epoch=leader_epoch)
        self._journal.appends.append((self._place, bytes(batch.data)))
        return base_offset


class JournalledStorage(MemoryStorage):
    """An engine of such logs; it may begin with what another one had appended."""

    def __init__(self, clock: FakeClock, journal: Journal) -> None:
        super().__init__(clock=clock)
        self._fake, self._journal = clock, journal

    async def create(self, partition_id: PartitionId, config: LogConfig) -> MemoryLog:
        self._journal.configs[partition_id] = config
        log = JournalledLog(partition_id, config, clock=self._fake, journal=self._journal)
        self._logs[partition_id] = log
        return log

    async def begin_with(self, earlier: Journal, count: int) -> None:
        for partition_id, config in earlier.configs.items():
            await self.create(partition_id, config)
        for partition_id, data in earlier.appends[:count]:
            batch = read_batch(bytearray(data))
            self._logs[partition_id].append(batch, leader_epoch=Epoch(batch.leader_epoch))


async def work_off(rig: Rig) -> None:
    """Process what is left, one message in each transaction, as a worker that was started again."""
    transactions, subscriptions = rig.broker.transactions, rig.broker.subscriptions
    await transactions.wait_loaded()
    identity = await transactions.init(WORKER, timeout_ms=60_000)
    subscription = subscriptions.known("work")
    inbox = Inbox()
    inbox.member = member = subscription.join(inbox, credit=1)
    machine = subscription.partitions[0].machine
    while machine.cursor.position < MESSAGES:
        for _ in range(TURNS_MAX):
            if inbox.got or machine.cursor.position == MESSAGES:
                break
            await asyncio.sleep(0)
        if not inbox.got:
            break
        record, epoch = inbox.got[0].record, inbox.got[0].epoch
        inbox.got.clear()
        data = build_batch(
            [(rig.clock.now_ms(), None, record.value, ())],
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=0,
            transactional=True,
        )
        transactions.verifier.append(WORKER, rig.partition(topic=OUT), read_batch(data), client_version=2)
        named = [(record.offset, record.offset + 1)]
        given = Acknowledgement(subscription, [member], "", 0, epoch, named)
        identity = await commit(transactions, subscriptions, WORKER, identity, [given])
    member.leave()


async def refuse_all(rig: Rig) -> None:
    """Refuse what is left, until every message has its dead letter."""
    await rig.broker.transactions.wait_loaded()
    subscription = rig.broker.subscriptions.known("work")
    inbox = Inbox()
    inbox.member = member = subscription.join(inbox, credit=2)
    machine = subscription.partitions[0].machine
    for _ in range(TURNS_MAX):
        for offset, _ in inbox.take():
            inbox.nack(offset)
        if machine.cursor.position == MESSAGES:
            break
        await asyncio.sleep(0)
    member.leave(failed=False)


async def outputs(rig: Rig, topic: str) -> list[bytes | None]:
    """The committed records of the output topic."""
    place, offset, found = rig.partition(topic=topic), 0, []
    while offset < place.last_stable_offset:
        portion = await read(place, offset, bytes_max=1 << 20)
        found += [record.value for record in portion.records()]
        offset = portion.next_offset
    assert place.last_stable_offset == place.high_watermark, "a transaction is still open"
    return found


async def live(journal: Journal, metadata: StoredMetadata, earlier: Journal, count: int) -> Rig:
    clock = FakeClock()
    storage = JournalledStorage(clock, journal)
    await storage.begin_with(earlier, count)
    broker = Broker(
        node_id=NODE,
        nodes={NODE: Node(node_id=NODE)},
        storage=storage,
        metadata=metadata,
        config=BrokerConfig.read({}),
        clock=clock,
    )
    await broker.start()
    await broker.subscriptions.wait_loaded()
    return Rig(broker, clock, None)


async def check_every_prefix(work: Callable[[Rig], Awaitable[None]], topic: str) -> int:
    """Play the worker, cut it off everywhere, and go on; how many prefixes there were."""
    store, first = MemoryStore(), Journal()
    rig = await live(first, StoredMetadata(store), Journal(), 0)
    await rig.topic()
    await rig.topic(topic)
    await rig.subscribe(max_deliveries=1)
    await rig.broker.transactions.find_partition(WORKER)
    await rig.publish(*[b"%d" % number for number in range(MESSAGES)])
    prepared = len(first.appends)
    await work(rig)
    await rig.turns()
    await rig.broker.close()
    for count in range(prepared, len(first.appends) + 1):
        again = await live(Journal(), StoredMetadata(copy.deepcopy(store)), first, count)
        await work(again)
        found = await outputs(again, topic)
        await again.broker.close()
        assert sorted(map(str, found)) == sorted(str(b"%d" % number) for number in range(MESSAGES)), (
            f"cut off after {count - prepared} appends of the worker: {found}"
        )
    return len(first.appends) - prepared


def play(work: Callable[[Rig], Awaitable[None]] = work_off, topic: str = OUT) -> int:
    return unhurried.run(asyncio.wait_for(check_every_prefix(work, topic), 300))


def test_every_message_has_one_effect_wherever_a_crash_comes() -> None:
    assert play() > MESSAGES * 8


def test_every_message_has_one_dead_letter_wherever_a_crash_comes() -> None:
    assert play(refuse_all, LETTERS) > MESSAGES


def test_a_letter_beside_the_transaction_of_its_cursor_is_there_twice(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The broken build: nothing has a start pass a message whose letter is there."""
    monkeypatch.setattr(TransactionalAcks, "pass_buried", lambda acks, subscription, dead, **_: [])
    with pytest.raises(AssertionError, match="cut off after"):
        play(refuse_all, LETTERS)


# ---- builds with one rule broken


def open_acknowledgements_are_forgotten_by_a_start(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(PartitionMachine, "restore_pending", lambda machine, offsets: None)


def committed_acknowledgements_are_not_loaded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("tailrace.broker.subscriptions.loading._Newest.end", lambda newest, marker: None)


def acknowledgements_count_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    def sequence_transactional(
        topic: InternalTopic, partition: int, records: Sequence[NewRecord], **_: int
    ) -> Offset:
        return topic.sequence(partition, records)

    patch.setattr(InternalTopic, "sequence_transactional", sequence_transactional)


def tombstone_before_the_cursor_holds_the_same(patch: pytest.MonkeyPatch) -> None:
    committed, take_records = CursorWriter.acks_committed, CursorWriter._take_records
    early: list[AcksKey] = []

    def acks_committed(writer: CursorWriter, keys: Sequence[AcksKey]) -> None:
        early.extend(keys)
        committed(writer, keys)

    def take(writer: CursorWriter) -> list[NewRecord]:
        if not early:
            return take_records(writer)
        tombstones = [acks_tombstone(key, time_ms=0) for key in early]
        early.clear()
        asyncio.get_running_loop().call_soon(writer.flush_soon)
        return tombstones

    patch.setattr(CursorWriter, "acks_committed", acks_committed)
    patch.setattr(CursorWriter, "_take_records", take)


BROKEN: list[Break] = [
    open_acknowledgements_are_forgotten_by_a_start,
    committed_acknowledgements_are_not_loaded,
    acknowledgements_count_before_the_commit,
    tombstone_before_the_cursor_holds_the_same,
]


@pytest.mark.parametrize("broken", BROKEN, ids=[broken.__name__ for broken in BROKEN])
def test_a_broken_rule_is_caught(broken: Break, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    with pytest.raises(AssertionError, match="cut off after"):
        play()
