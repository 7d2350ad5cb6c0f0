"""A topic whose stored settings cannot be used: it is kept, shown and not served until they are mended."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.broker.health import diagnose
from tailrace.broker.health.figures import Figures
from tailrace.broker.publishing import NewMessage
from tailrace.broker.subscriptions.definition import Start, StartKind, SubscriptionConfig
from tailrace.broker.transactions.refusal import TransactionRefused
from tailrace.cluster import SqliteStore, StoredMetadata
from tailrace.metrics.health import count_partitions
from tailrace.model import BrokerError, BrokerId, ErrorCode, TopicPartition
from tailrace.model.operation import Operation
from tailrace.model.session import INTERNAL
from tailrace.records import build_batch, read_batch
from tailrace.storage.segment import SegmentStorage
from tailrace.testing import FakeClock

NODE = BrokerId(1)
LONG_AGO_MS = 1_000_000
RECORDS = 20
OFFSETS = {TopicPartition("orders", 0): OffsetToCommit(7)}

BAD = [
    ({"retention.mr": "1"}, "retention.mr"),
    ({"retention.ms": "soon"}, "retention.ms"),
    ({"retention.ms": "-7"}, "retention.ms"),
    ({"cleanup.policy": "delate"}, "cleanup.policy"),
    ({"message.timestamp.type": "CreateTimf"}, "message.timestamp.type"),
]


@asynccontextmanager
async def running(path: Path) -> AsyncIterator[tuple[Broker, StoredMetadata, SegmentStorage]]:
    clock = FakeClock()
    clock.advance(365 * 24 * 3600 * 1000)
    storage = await SegmentStorage.open(path / "data", clock=clock)
    metadata = StoredMetadata(SqliteStore(path / "metadata.sqlite"))
    broker = Broker(
        node_id=NODE,
        nodes={NODE: Node(node_id=NODE)},
        storage=storage,
        metadata=metadata,
        config=BrokerConfig.read({"log.retention.ms": "1000", "log.segment.bytes": "200"}),
        clock=clock,
    )
    try:
        await broker.start()
        yield broker, metadata, storage
    finally:
        await broker.close()
        await storage.close()
        await metadata.close()


async def fill(broker: Broker, name: str) -> None:
    """Old records in many segments, which the node's own retention would remove at once."""
    await broker.topics.create(NewTopic(name=name, partitions=1, configs={"retention.ms": "-1"}))
    partition = broker.gate.access(INTERNAL).writable(TopicPartition(name, 0))
    for number in range(RECORDS):
        appended = partition.append(read_batch(build_batch([(LONG_AGO_MS, b"k", b"v%d" % number * 9, ())])))
    await partition.wait_acknowledged(appended.end_offset)


async def damage(broker: Broker, metadata: StoredMetadata, configs: Mapping[str, str]) -> None:
    """Stores settings behind the broker's back, with a correct checksum."""
    topic = broker.topics.get("orders")
    assert topic is not None
    await metadata.set_configs(topic.id, configs)


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    asyncio.run(asyncio.wait_for(scenario(), 60))


def quarantined(
    path: Path, configs: Mapping[str, str], look: Callable[[Broker, SegmentStorage], Awaitable[None]]
) -> None:
    async def scenario() -> None:
        async with running(path) as (broker, metadata, storage):
            await fill(broker, "orders")
            await fill(broker, "payments")
            await storage.checkpoint()
            await damage(broker, metadata, configs)
        async with running(path) as (broker, _, storage):
            await look(broker, storage)

    run(scenario)


@pytest.mark.parametrize(("configs", "key"), BAD)
def test_a_bad_stored_setting_withholds_its_topic_alone(
    tmp_path: Path, configs: dict[str, str], key: str
) -> None:
    async def look(broker: Broker, _: SegmentStorage) -> None:
        access = broker.gate.access(INTERNAL)
        for find in (access.readable, access.writable):
            with pytest.raises(BrokerError) as refused:
                find(TopicPartition("orders", 0))
            assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "topic orders is quarantined" in str(refused.value) and key in str(refused.value)
        assert access.readable(TopicPartition("payments", 0)).high_watermark == RECORDS

    quarantined(tmp_path, configs, look)


def test_nothing_of_it_expires_is_compacted_or_deleted(tmp_path: Path) -> None:
    async def look(broker: Broker, storage: SegmentStorage) -> None:
        topic = broker.topics.get("orders")
        assert topic is not None
        log = storage.get(topic.partitions[0].id)
        assert log is not None
        before = log.start_offset, log.end_offset, log.size_bytes
        await storage.maintain()
        assert (log.start_offset, log.end_offset, log.size_bytes) == before == (0, RECORDS, before[2])
        for change in (broker.delete_topic("orders"), broker.topics.add_partitions("orders", 3)):
            with pytest.raises(BrokerError, match="quarantined") as refused:
                await change
            assert refused.value.code == ErrorCode.POLICY_VIOLATION
        with pytest.raises(BrokerError) as taken:
            await broker.topics.create(NewTopic(name="orders"))
        assert taken.value.code == ErrorCode.TOPIC_ALREADY_EXISTS

    quarantined(tmp_path, {"retention.mr": "-1"}, look)


def test_it_is_listed_and_health_tells_of_it(tmp_path: Path) -> None:
    async def look(broker: Broker, _: SegmentStorage) -> None:
        names = [topic.name for topic in broker.gate.access(INTERNAL).topics(Operation.DESCRIBE)]
        assert names == ["orders", "payments"]
        counts = await count_partitions(broker.topics)
        diagnosis = diagnose(Figures(partitions_offline=counts.offline, quarantined=counts.quarantined))
        assert diagnosis.status == "unhealthy"
        assert "1 topic quarantined" in diagnosis.summary
        assert any("orders" in each.advice and "retention.mr" in each.advice for each in diagnosis.findings)

    quarantined(tmp_path, {"retention.mr": "-1"}, look)


def test_it_is_served_again_once_its_settings_are_mended(tmp_path: Path) -> None:
    async def look(broker: Broker, storage: SegmentStorage) -> None:
        version = broker.topics.version
        with pytest.raises(BrokerError) as refused:
            await broker.topics.alter_configs("orders", lambda current: {**current, "segment.bytes": "300"})
        assert refused.value.code == ErrorCode.INVALID_CONFIG
        await broker.topics.alter_configs("orders", lambda _: {"retention.ms": "-1"})
        partition = broker.gate.access(INTERNAL).writable(TopicPartition("orders", 0))
        assert (partition.start_offset, partition.high_watermark) == (0, RECORDS)
        assert broker.topics.version > version  # clients are told of the leader
        await storage.maintain()
        assert partition.start_offset == 0

    quarantined(tmp_path, {"retention.mr": "-1"}, look)


def test_a_feed_does_not_take_its_messages_for_gone(tmp_path: Path) -> None:
    async def look(broker: Broker, _: SegmentStorage) -> None:
        from tailrace.broker.feed import Feed
        from tailrace.runtime import Supervisor

        topic = broker.topics.get("orders")
        assert topic is not None
        tasks = Supervisor(lambda error: None)
        feed = Feed(topic.partitions[0], 0, tasks=tasks, wake=lambda: None)
        with pytest.raises(BrokerError, match="quarantined"):
            await feed.fetch(3)

    quarantined(tmp_path, {"retention.mr": "-1"}, look)


OWN_TOPICS = ["__consumer_offsets", "__tailrace_cursors", "__tailrace_delayed", "__transaction_state"]


async def keep_state_of_every_kind(broker: Broker) -> None:
    """Something in each topic of the broker's own."""
    await broker.groups.commit_offsets(CommitRequest(group_id="g", offsets=OFFSETS))
    await broker.subscriptions.wait_loaded()
    await broker.subscriptions.create(SubscriptionConfig.read("s", "orders", {}), Start(StartKind.EARLIEST))
    due_ms = broker.clock.now_ms() + 60_000
    await broker.delayed.put("orders", 0, NewMessage(b"k", b"later", ()), due_ms)
    await broker.transactions.init("tx", timeout_ms=1000)


async def ask_every_kind(broker: Broker) -> list[str]:
    """The topics whose state cannot be told now; asserts that the state of all others is there."""
    untold = []

    async def of_group() -> None:
        assert broker.groups.fetch_offsets("g", None)[TopicPartition("orders", 0)].offset == 7

    async def of_subscription() -> None:
        assert broker.subscriptions.known("s").config.topic == "orders"

    async def of_delayed() -> None:
        due_ms = broker.clock.now_ms() + 60_000
        await broker.delayed.put("orders", 0, NewMessage(b"k", b"and later", ()), due_ms)
        await broker.delayed.wait_loaded()
        assert broker.delayed.pending > 1

    async def of_transaction() -> None:
        assert (await broker.transactions.init("tx", timeout_ms=1000)).epoch > 0, "a producer before this one"

    asked = [of_group, of_subscription, of_delayed, of_transaction]
    for topic, ask in zip(OWN_TOPICS, asked, strict=True):
        try:
            await ask()
        except (BrokerError, TransactionRefused):
            untold.append(topic)
    return untold


async def wait_all_read(broker: Broker) -> None:
    await broker.groups.wait_loaded()
    await broker.subscriptions.wait_loaded()
    await broker.delayed.wait_loaded()
    await broker.transactions.wait_loaded()


@pytest.mark.parametrize("name", OWN_TOPICS)
def test_a_topic_of_the_brokers_own_is_read_once_its_settings_are_mended(tmp_path: Path, name: str) -> None:
    """Without a restart, and the others are served meanwhile."""

    async def scenario() -> None:
        async with running(tmp_path) as (broker, metadata, _):
            await fill(broker, "orders")
            await keep_state_of_every_kind(broker)
            topic = broker.topics.get(name)
            assert topic is not None
            stored = dict(topic.configs)
            await metadata.set_configs(topic.id, {**stored, "retention.mr": "1"})
        async with running(tmp_path) as (broker, _, _storage):
            topic = broker.topics.get(name)
            assert topic is not None
            assert f"tailrace topic alter {name} --reset KEY" in topic.quarantine
            await wait_all_read(broker)
            assert await ask_every_kind(broker) == [name]
            await broker.topics.alter_configs(name, lambda _: stored)
            await wait_all_read(broker)
            assert not await ask_every_kind(broker)
            await broker.topics.alter_configs(name, lambda _: stored)  # a later change reads nothing twice
            await wait_all_read(broker)
            assert not await ask_every_kind(broker)

    run(scenario)


def test_offsets_of_a_topic_that_went_meanwhile_are_forgotten(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as (broker, metadata, _):
            await fill(broker, "orders")
            await keep_state_of_every_kind(broker)
            topic = broker.topics.get("__consumer_offsets")
            assert topic is not None
            stored = dict(topic.configs)
            await metadata.set_configs(topic.id, {**stored, "retention.mr": "1"})
        async with running(tmp_path) as (broker, _, _storage):
            await wait_all_read(broker)
            await broker.delete_topic("orders")
            await broker.topics.alter_configs("__consumer_offsets", lambda _: stored)
            await broker.groups.wait_loaded()
            assert broker.groups.fetch_offsets("g", None) == {}

    run(scenario)
