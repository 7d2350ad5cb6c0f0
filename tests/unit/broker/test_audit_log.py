"""The audit topic of a broker: what gets into it, who may touch it, and what a log that fails costs."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from tests.unit.broker.internal.memory_log import MemoryLog

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node
from tailrace.broker.audit_log import AUDIT_TOPIC, RETENTION_MS, AuditLog, check_kept
from tailrace.broker.configs import ConfigSource
from tailrace.broker.gate import Gate
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.broker.subscriptions import Start, SubscriptionConfig
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.model import BrokerError, BrokerId, ErrorCode, TopicPartition
from tailrace.model.operation import Operation
from tailrace.model.session import INTERNAL, Principal, Session
from tailrace.runtime import SystemClock
from tailrace.security.audit import Audit, Event
from tailrace.storage.memory import MemoryStorage

ALICE = Session(
    principal=Principal("User", "alice"), host="192.0.2.7", listener="kafka", mechanism="SCRAM-SHA-256"
)
ORDERS = TopicPartition("orders", 0)
_NO_WAIT = 30.0


@asynccontextmanager
async def started(*, audits: bool = True) -> AsyncIterator[Broker]:
    clock, node = SystemClock(), BrokerId(1)
    storage, metadata = MemoryStorage(clock=clock), StoredMetadata(MemoryStore())
    broker = Broker(
        node_id=node,
        nodes={node: Node(node_id=node)},
        storage=storage,
        metadata=metadata,
        config=BrokerConfig.read(),
        clock=clock,
        audits=audits,
    )
    await broker.start()
    await broker.subscriptions.wait_loaded()
    try:
        yield broker
    finally:
        await broker.close()
        await storage.close()
        await metadata.close()


def play(scenario: Callable[[Broker], Awaitable[None]], *, audits: bool = True) -> None:
    async def main() -> None:
        async with started(audits=audits) as broker:
            await broker.topics.create(NewTopic(name="orders", partitions=2))
            await asyncio.wait_for(scenario(broker), _NO_WAIT)

    asyncio.run(main())


async def written(broker: Broker, count: int) -> list[dict[str, Any]]:
    """The first entries of the topic, as soon as there are that many."""
    log = broker._audit_log._log
    while True:
        found: list[dict[str, Any]] = []
        if broker.topics.get(AUDIT_TOPIC) is not None:
            async for batch in log.read(0):
                found += [json.loads(each.value or b"") for each in batch.records()]
        if len(found) >= count:
            return found[:count]
        await asyncio.sleep(0)


def test_changes_denials_and_their_results_are_written() -> None:
    async def scenario(broker: Broker) -> None:
        access = Gate(broker).access(ALICE)
        await access.create_topic(NewTopic(name="new", partitions=1))
        with pytest.raises(BrokerError):
            await access.create_topic(NewTopic(name="new", partitions=1))
        await access.add_partitions("new", 2)
        await access.alter_topic("new", lambda found: {**found, "retention.ms": "1000"})
        await access.alter_node(ConfigSource.DYNAMIC_BROKER, lambda found: {**found, "log.retention.ms": "1"})
        await access.alter_group("g", lambda found: {**found, "consumer.session.timeout.ms": "50000"})
        await access.delete_records(ORDERS, 0)
        group = access.group("g", Operation.READ)
        await group.commit_offsets(CommitRequest(group_id="g", offsets={ORDERS: OffsetToCommit(0)}))
        await group.delete_offsets([ORDERS])
        await group.delete()
        await access.create_subscription(SubscriptionConfig.read("s", "orders", {}), Start.parse("earliest"))
        await access.delete_subscription("s")
        await access.delete_topic("new")
        start, *rows = await written(broker, 14)
        assert (start["event"], start["principal"]) == ("audit.start", "Broker:internal")
        assert [(row["event"], row["result"], row["resource"]) for row in rows] == [
            ("topic.create", "ok", "topic 'new'"),
            ("topic.create", "TOPIC_ALREADY_EXISTS", "topic 'new'"),
            ("topic.partitions", "ok", "topic 'new'"),
            ("topic.configs", "ok", "topic 'new'"),
            ("node.configs", "ok", "kafka-cluster"),
            ("group.configs", "ok", "group 'g'"),
            ("records.delete", "ok", "partition orders-0 before 0"),
            ("group.offsets", "ok", "group 'g'"),
            ("group.offsets.delete", "ok", "group 'g'"),
            ("group.delete", "ok", "group 'g'"),
            ("subscription.create", "ok", "subscription 's'"),
            ("subscription.delete", "ok", "subscription 's'"),
            ("topic.delete", "ok", "topic 'new'"),
        ]
        assert {(row["principal"], row["address"], row["listener"], row["mechanism"]) for row in rows} == {
            ("User:alice", "192.0.2.7", "kafka", "SCRAM-SHA-256")
        }

    play(scenario)


def test_what_is_only_validated_is_no_change() -> None:
    async def scenario(broker: Broker) -> None:
        access = Gate(broker).access(ALICE)
        await access.create_topic(NewTopic(name="new", partitions=1), validate_only=True)
        await access.add_partitions("orders", 4, validate_only=True)
        await access.alter_topic("orders", lambda found: {**found, "retention.ms": "1"}, validate_only=True)
        assert broker.audit.counts.recorded == 1  # the start

    play(scenario)


def test_a_denial_is_written_and_refuses_all_the_same() -> None:
    async def scenario(broker: Broker) -> None:
        access = Gate(broker, authorize=lambda *_: False).access(ALICE)
        for _ in range(3):
            with pytest.raises(BrokerError, match="may not write"):
                access.writable(ORDERS)
        _, row = await written(broker, 2)
        assert (row["event"], row["result"], row["operation"]) == ("access", "denied", "WRITE")
        assert row["resource"] == "topic 'orders'"
        assert broker.audit.counts.recorded == 2

    play(scenario)


def test_clients_cannot_write_empty_or_delete_the_topic() -> None:
    async def scenario(broker: Broker) -> None:
        await written(broker, 1)
        access = Gate(broker).access(ALICE)
        tp = TopicPartition(AUDIT_TOPIC, 0)
        with pytest.raises(BrokerError, match="belongs to the broker"):
            access.writable(tp)
        with pytest.raises(BrokerError, match="internal and stays"):
            await access.delete_topic(AUDIT_TOPIC)
        with pytest.raises(BrokerError, match="internal and keeps its records"):
            await access.delete_records(tp, -1)
        with pytest.raises(BrokerError, match="internal and stays"):
            await access.add_partitions(AUDIT_TOPIC, 3)
        with pytest.raises(BrokerError, match="kept for 90 days at least"):
            await access.alter_topic(AUDIT_TOPIC, lambda found: {**found, "retention.ms": "1"})
        await access.alter_topic(AUDIT_TOPIC, lambda found: {**found, "retention.ms": "-1"})

    play(scenario)


def test_the_defaults_of_the_node_do_not_shorten_it() -> None:
    async def scenario(broker: Broker) -> None:
        await written(broker, 1)
        await (
            Gate(broker)
            .access(ALICE)
            .alter_node(
                ConfigSource.DYNAMIC_BROKER,
                lambda _: {"log.retention.ms": "1", "log.retention.bytes": "1", "message.max.bytes": "1"},
            )
        )
        topic = broker.topics.get(AUDIT_TOPIC)
        assert topic is not None
        settings = topic.settings
        assert settings.log.retention_ms == RETENTION_MS and settings.log.retention_bytes == -1
        assert settings.message_bytes_max == 1 << 20

    play(scenario)


@pytest.mark.parametrize(
    "after",
    [
        {},
        {"retention.ms": str(RETENTION_MS - 1)},
        {"retention.ms": "0"},
        {"retention.ms": "-1", "max.message.bytes": "1"},
        {"retention.ms": "-1", "cleanup.policy": "compact"},
    ],
)
def test_settings_that_would_lose_entries_are_refused(after: dict[str, str]) -> None:
    with pytest.raises(BrokerError) as refused:
        check_kept({"retention.ms": str(RETENTION_MS)}, after)
    assert refused.value.code == ErrorCode.POLICY_VIOLATION


@pytest.mark.parametrize("kept", [-1, RETENTION_MS, RETENTION_MS * 4])
def test_it_may_be_kept_longer(kept: int) -> None:
    check_kept({"retention.ms": str(RETENTION_MS)}, {"retention.ms": str(kept)})


def test_a_broker_without_audit_makes_no_topic() -> None:
    async def scenario(broker: Broker) -> None:
        await Gate(broker).access(ALICE).create_topic(NewTopic(name="new", partitions=1))
        await asyncio.sleep(0)
        assert broker.topics.get(AUDIT_TOPIC) is None

    play(scenario, audits=False)


def test_nothing_is_lost_by_an_orderly_end() -> None:
    async def main() -> None:
        audit, log = Audit(lambda: 5), MemoryLog(1)
        writer = AuditLog(audit, log, on_failure=lambda error: None)
        writer.start()
        for _ in range(3):
            audit.login(name="", host="h", listener="kafka", mechanism="PLAIN", result="failed")
        await writer.close()
        found = [
            json.loads(record.value or b"")["count"]
            async for batch in log.read(0)
            for record in batch.records()
        ]
        assert found == [1, 1, 1, 2]  # the start, the first failure, the end, what was folded

    asyncio.run(main())


def test_entries_wait_while_the_topic_cannot_be_written() -> None:
    async def main() -> None:
        audit, log = Audit(lambda: 5, entries_max=2), MemoryLog(1)
        log.append_error = BrokerError("the disk is full", code=ErrorCode.KAFKA_STORAGE_ERROR)
        writer = AuditLog(audit, log, on_failure=lambda error: None)
        writer.start()
        for number in range(4):
            audit.record(Event(what="x", result="ok", resource=str(number)))
        assert audit.counts.dropped == 3
        assert not await writer._write_all()
        log.append_error = None
        await writer.close()
        found = [
            json.loads(record.value or b"")["resource"]
            async for batch in log.read(0)
            for record in batch.records()
        ]
        assert found[:2] == ["", "0"]

    asyncio.run(main())


def test_work_of_the_broker_itself_is_put_down_to_it() -> None:
    async def scenario(broker: Broker) -> None:
        Gate(broker).access(INTERNAL).changing("user.create", "user 'bob'").done()
        _, row = await written(broker, 2)
        assert row["principal"] == "Broker:internal" and row["address"] == ""

    play(scenario)
