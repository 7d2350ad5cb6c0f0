"""Appends that take effect together, in a broker in memory: all or nothing, wherever a log refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager

import pytest
from tests import unhurried

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node, Partition
from tailrace.broker.appending import Gathering, Stored, append_together
from tailrace.broker.gate import Access
from tailrace.broker.transactions import TRANSACTIONS_TOPIC, TransactionRefused
from tailrace.broker.visible_records import read
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.model import BrokerError, BrokerId, Epoch, ErrorCode, LogBusy, Offset, TopicPartition
from tailrace.model.operation import Operation
from tailrace.model.session import EMBEDDED
from tailrace.records import Batch
from tailrace.storage.memory import MemoryStorage
from tailrace.storage.memory.log import MemoryLog
from tailrace.testing import FakeClock

NODE = BrokerId(1)
PLACES = [TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)]
APPENDS = ["Ongoing", "a-0", "a-1", "b-0", "Prepare", "marker a-0", "marker a-1", "marker b-0", "Complete"]
"""What is appended for a transaction over these partitions, in this order."""
DECIDED_FROM = APPENDS.index("Prepare") + 1


@asynccontextmanager
async def running() -> AsyncIterator[tuple[Broker, FakeClock]]:
    """A broker with two topics and an id in its pool."""
    clock = FakeClock()
    storage, metadata = MemoryStorage(clock=clock), StoredMetadata(MemoryStore())
    broker = Broker(
        node_id=NODE,
        nodes={NODE: Node(node_id=NODE)},
        storage=storage,
        metadata=metadata,
        config=BrokerConfig.read(),
        clock=clock,
    )
    try:
        await broker.start()
        await broker.topics.create(NewTopic(name="a", partitions=2, configs={"max.message.bytes": "400"}))
        await broker.topics.create(NewTopic(name="b", partitions=1, configs={"cleanup.policy": "compact"}))
        access = broker.gate.access(EMBEDDED)
        access.give_back_transactional_id(await access.take_transactional_id())
        yield broker, clock
    finally:
        await broker.close()
        await storage.close()
        await metadata.close()


def play(scenario: Callable[[Broker, FakeClock], Awaitable[None]]) -> None:
    async def main() -> None:
        async with running() as (broker, clock):
            await scenario(broker, clock)

    unhurried.run(asyncio.wait_for(main(), 120))


def gather(access: Access, broker: Broker, tag: bytes, *tps: TopicPartition) -> list[Gathering]:
    """A record for each partition, topic by topic."""
    gatherings: dict[str, Gathering] = {}
    for tp in tps or PLACES:
        topic = access.writable_topic_nowait(tp.topic)
        assert topic is not None
        if tp.topic not in gatherings:
            gatherings[tp.topic] = Gathering(access, topic, broker.gate.publisher)
        gatherings[tp.topic].add(b"k" + tag, tag, partition=tp.partition)
    return list(gatherings.values())


async def store(broker: Broker, tag: bytes, *tps: TopicPartition) -> list[Stored]:
    access = broker.gate.access(EMBEDDED)
    return await append_together(access, gather(access, broker, tag, *tps))


def partition_of(broker: Broker, tp: TopicPartition) -> Partition:
    return broker.gate.access(EMBEDDED).partition(tp, Operation.READ)


async def committed(broker: Broker) -> list[list[bytes]]:
    """What a reader of committed records sees, by partition, without a limit from what is open."""
    found = []
    for tp in PLACES:
        partition, values, offset = partition_of(broker, tp), [], 0
        while offset < partition.last_stable_offset:
            portion = await read(partition, offset, bytes_max=1 << 20)
            values += [
                bytes(each.value or b"") for visible in portion.batches() for each in visible.records()
            ]
            offset = portion.next_offset
        found.append(values)
    return found


def is_nothing_open(broker: Broker) -> bool:
    partitions = [partition_of(broker, tp) for tp in PLACES]
    return all(
        each.last_stable_offset == each.high_watermark and not list(each.producers.open_transactions())
        for each in partitions
    )


@contextmanager
def refusing(monkeypatch: pytest.MonkeyPatch, first: int, last: int) -> Iterator[list[int]]:
    """The appends of these numbers, from 0, are refused as by a full log; counts all."""
    count, original = [0], MemoryLog.append

    def append(self: MemoryLog, batch: Batch, *, leader_epoch: Epoch | None = None) -> Offset:
        number, count[0] = count[0], count[0] + 1
        if first <= number <= last:
            raise LogBusy("the log is full")
        return original(self, batch, leader_epoch=leader_epoch)

    with monkeypatch.context() as patched:
        patched.setattr(MemoryLog, "append", append)
        yield count


def test_records_of_several_topics_become_visible_together() -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        first, second = await store(broker, b"1")
        assert first.offsets() == [(0, 0), (1, 0)] and second.offsets() == [(0, 0)]
        assert await committed(broker) == [[b"1"], [b"1"], [b"1"]]
        assert is_nothing_open(broker)
        (again,) = await store(broker, b"2", PLACES[0])
        assert again.offsets() == [(0, 2)]  # offset 1 is the marker

    play(scenario)


def test_everything_is_appended_in_one_turn_in_the_order_of_the_protocol(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        with refusing(monkeypatch, 100, 100) as count:
            work = asyncio.ensure_future(store(broker, b"1"))
            await asyncio.sleep(0)
            assert count[0] == len(APPENDS)
            await work
        assert count[0] == len(APPENDS)

    play(scenario)


def test_one_id_serves_many_callers_at_once() -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        await asyncio.gather(*[store(broker, b"%d" % number) for number in range(50)])
        assert [len(values) for values in await committed(broker)] == [50, 50, 50]
        assert len(broker.transactions.list()) == 1

    play(scenario)


def test_records_over_the_size_of_a_batch_are_several_batches_of_the_transaction() -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        access = broker.gate.access(EMBEDDED)
        gathering = Gathering(access, access.topic("a", Operation.WRITE), broker.gate.publisher)
        for number in range(10):
            gathering.add(None, b"%d" % number * 100, partition=0)
        (stored,) = await append_together(access, [gathering])
        assert stored.offsets() == [(0, number) for number in range(10)]
        assert len((await committed(broker))[0]) == 10
        assert partition_of(broker, PLACES[0]).high_watermark == 11

    play(scenario)


@pytest.mark.parametrize("number", range(len(APPENDS)), ids=APPENDS)
def test_one_refusal_at_any_append_leaves_all_or_nothing(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        await store(broker, b"before")
        with refusing(monkeypatch, number, number):
            if number < DECIDED_FROM:
                with pytest.raises(BrokerError, match="the log is full"):
                    await store(broker, b"x")
                assert is_nothing_open(broker)  # the markers followed in the same turn
            else:
                await store(broker, b"x")
        clock.advance(broker.config.transactions.retry_ms)
        broker.transactions.tick()
        tags = [b"before", b"x"] if number >= DECIDED_FROM else [b"before"]
        assert await committed(broker) == [tags] * 3 and is_nothing_open(broker)
        await store(broker, b"after")
        assert await committed(broker) == [[*tags, b"after"]] * 3

    play(scenario)


@pytest.mark.parametrize("number", range(len(APPENDS)), ids=APPENDS)
def test_a_log_that_is_full_for_long_leaves_all_or_nothing(
    monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        await store(broker, b"before")
        with refusing(monkeypatch, number, 1 << 30):
            for tag in (b"x", b"y"):
                if tag == b"x" and number >= DECIDED_FROM:
                    await store(broker, tag)
                else:
                    with pytest.raises(BrokerError, match="the log is full"):
                        await store(broker, tag)
            for _ in range(3):  # tried again in vain
                clock.advance(broker.config.transactions.retry_ms)
                broker.transactions.tick()
            for each in await committed(broker):
                assert each in ([b"before"], [b"before", b"x"])
                assert number >= DECIDED_FROM or each == [b"before"]
        for _ in range(3):
            clock.advance(broker.config.transactions.retry_ms_max)
            broker.transactions.tick()
        tags = [b"before", b"x"] if number >= DECIDED_FROM else [b"before"]
        assert await committed(broker) == [tags] * 3 and is_nothing_open(broker)
        await store(broker, b"after")
        assert await committed(broker) == [[*tags, b"after"]] * 3

    play(scenario)


@pytest.mark.parametrize("bad", ["too large", "no key", "no partition"])
def test_what_can_be_checked_is_refused_before_the_first_append(
    monkeypatch: pytest.MonkeyPatch, bad: str
) -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        access = broker.gate.access(EMBEDDED)
        gatherings = gather(access, broker, b"x")
        if bad == "too large":
            gatherings[0].add(b"k", b"v" * 500, partition=0)
            code = ErrorCode.MESSAGE_TOO_LARGE
        elif bad == "no key":
            gatherings[1].add(None, b"v", partition=0)
            code = ErrorCode.INVALID_RECORD
        else:
            gatherings[1].add(b"k", b"v", partition=1)
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        with refusing(monkeypatch, 100, 100) as count:
            with pytest.raises(BrokerError) as caught:
                await append_together(access, gatherings)
            assert caught.value.code is code and count[0] == 0
        await store(broker, b"after")
        assert await committed(broker) == [[b"after"]] * 3

    play(scenario)


def test_a_partition_that_is_lost_meanwhile_costs_no_append(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        access = broker.gate.access(EMBEDDED)
        gatherings = gather(access, broker, b"x")
        access.writable(PLACES[2]).close()  # admitted before, and not looked up again
        with refusing(monkeypatch, 100, 100) as count:
            with pytest.raises(BrokerError) as caught:
                await append_together(access, gatherings)
            assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR and count[0] == 0

    play(scenario)


def test_a_topic_that_is_deleted_meanwhile_costs_all_of_it() -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        access = broker.gate.access(EMBEDDED)
        gatherings = gather(access, broker, b"x")
        await broker.delete_topic("b")
        with pytest.raises(BrokerError, match="topic 'b' does not exist"):
            await append_together(access, gatherings)
        assert partition_of(broker, PLACES[0]).high_watermark == 0

    play(scenario)


def test_nothing_is_refused_with_a_word() -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        access = broker.gate.access(EMBEDDED)
        empty = Gathering(access, access.topic("a", Operation.WRITE), broker.gate.publisher)
        with pytest.raises(BrokerError, match="no record"):
            await append_together(access, [empty])

    play(scenario)


def test_it_is_acknowledged_when_the_decision_is_durable(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        held: list[asyncio.Future[None]] = []
        original = Partition.acknowledged

        def acknowledged(self: Partition, end: Offset, acks: int, waiter: asyncio.Future[None]) -> None:
            if self.topic == TRANSACTIONS_TOPIC:
                held.append(waiter)
                assert end == self.end_offset
            else:
                original(self, end, acks, waiter)

        monkeypatch.setattr(Partition, "acknowledged", acknowledged)
        work = asyncio.ensure_future(store(broker, b"x"))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not work.done() and len(held) == 1
        held[0].set_result(None)
        await work

    play(scenario)


def test_a_caller_that_gives_up_leaves_no_id_behind(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        monkeypatch.setattr(Partition, "acknowledged", lambda *_: None)
        work = asyncio.ensure_future(store(broker, b"x"))
        await asyncio.sleep(0)
        work.cancel()
        await asyncio.wait({work})
        assert work.cancelled()
        monkeypatch.undo()
        await store(broker, b"y")
        assert len(broker.transactions.list()) == 1
        assert await committed(broker) == [[b"x", b"y"]] * 3

    play(scenario)


def test_clients_have_no_use_of_ids_of_the_node_but_may_look_at_them_and_abort() -> None:
    async def scenario(broker: Broker, clock: FakeClock) -> None:
        access = broker.gate.access(EMBEDDED)
        pooled = await access.take_transactional_id()
        with pytest.raises(BrokerError, match="reserved"):
            access.transaction(pooled.transactional_id, Operation.WRITE)
        with pytest.raises(BrokerError, match="not one that the broker gave out"):
            access.pooled_transaction("mine")
        handle = access.pooled_transaction(pooled.transactional_id)
        await handle.add(pooled.identity, [PLACES[0]])
        described = access.transaction(pooled.transactional_id, Operation.DESCRIBE).describe()
        assert described.partitions == (PLACES[0],)
        await access.abort_transaction(pooled.transactional_id)
        with pytest.raises(TransactionRefused, match="no open transaction"):
            await access.abort_transaction(pooled.transactional_id)
        access.give_back_transactional_id(pooled)

    play(scenario)
