"""Records without a batch, gathered for a broker in memory: where they go, as which batches, and refusals."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

from tailrace.broker import Appended, Broker, BrokerConfig, NewTopic, Node, Partition, Topic
from tailrace.broker.appending import Gathering, Span
from tailrace.broker.sequence import SEQUENCE_MAX, build_batches
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.model import BrokerError, BrokerId, ErrorCode, LogBusy, Offset
from tailrace.model.session import EMBEDDED
from tailrace.records import Batch, NewRecord, Record, iter_batches, read_batch
from tailrace.storage.memory import MemoryStorage
from tailrace.testing import FakeClock
from tailrace.wire.kafka.partitioner import partition_of_key

NODE = BrokerId(1)


@asynccontextmanager
async def running(**values: str) -> AsyncIterator[Broker]:
    """A broker in memory; settings with underscores for dots."""
    clock = FakeClock()
    storage, metadata = MemoryStorage(clock=clock), StoredMetadata(MemoryStore())
    broker = Broker(
        node_id=NODE,
        nodes={NODE: Node(node_id=NODE)},
        storage=storage,
        metadata=metadata,
        config=BrokerConfig.read({key.replace("_", "."): value for key, value in values.items()}),
        clock=clock,
    )
    try:
        await broker.start()
        yield broker
    finally:
        await broker.close()
        await storage.close()
        await metadata.close()


def play(scenario: Callable[[Broker], Awaitable[None]], **values: str) -> None:
    async def main() -> None:
        async with running(**values) as broker:
            await scenario(broker)

    asyncio.run(asyncio.wait_for(main(), 120))


async def topic_of(broker: Broker, partitions: int = 1, **configs: str) -> Topic:
    named = {key.replace("_", "."): value for key, value in configs.items()}
    return await broker.topics.create(NewTopic(name="t", partitions=partitions, configs=named))


async def batches_of(topic: Topic, partition: int = 0) -> list[Batch]:
    found = topic.partitions[partition]
    if found.high_watermark == found.start_offset:
        return []
    piece = await found.read(Offset(found.start_offset), bytes_max=1 << 30)
    return list(iter_batches(await piece.load()))


async def records_of(topic: Topic, partition: int = 0) -> list[Record]:
    return [record for batch in await batches_of(topic, partition) for record in batch.records()]


def test_every_record_is_told_its_place_in_the_order_of_sending() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker, partitions=3)
        gathering = gathering_of(broker, topic)
        for number, partition in enumerate([2, 0, 2, 1, 2]):
            gathering.add(None, b"%d" % number, partition=partition)
        assert len(gathering) == 5
        stored = gathering.append()
        await stored.wait_acknowledged()
        assert stored.offsets() == [(2, 0), (0, 0), (2, 1), (1, 0), (2, 2)]
        assert stored.spans == [Span(2, 0, 3), Span(0, 0, 1), Span(1, 0, 1)]
        assert [each.value for each in await records_of(topic, 2)] == [b"0", b"2", b"4"]
        assert len(await batches_of(topic, 2)) == 1

    play(scenario)


def test_a_key_says_the_partition_and_what_has_none_stays_together() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker, partitions=5)
        keys = [b"a", b"", b"customer-7"]
        turns = []
        for _ in range(5):
            gathering = gathering_of(broker, topic)
            for key in [*keys, None, None, None]:
                gathering.add(key, b"v")
            indexes = [partition for partition, _ in gathering.append().offsets()]
            assert indexes[:3] == [partition_of_key(key, partitions=5) for key in keys]
            assert len(set(indexes[3:])) == 1
            turns.append(indexes[3])
        assert sorted(turns) == [0, 1, 2, 3, 4]

    play(scenario)


def test_a_record_is_stored_as_it_was_given() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker)
        gathering = gathering_of(broker, topic)
        at = broker.clock.now_ms() - 5
        gathering.add(b"k", None, headers=[("h", b"1"), ("h", None)], timestamp_ms=at)
        gathering.add(None, b"")
        gathering.append()
        first, second = await records_of(topic)
        assert first == Record(0, at, b"k", None, (("h", b"1"), ("h", None)))
        assert second == Record(1, at + 5, None, b"", ())

    play(scenario)


def test_where_the_topic_stamps_its_records_theirs_is_the_brokers_time() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker, message_timestamp_type="LogAppendTime")
        gathering = gathering_of(broker, topic)
        gathering.add(None, b"v", timestamp_ms=7)
        gathering.append()
        (batch,) = await batches_of(topic)
        assert batch.is_log_append_time and batch.check_crc()
        assert [each.timestamp for each in batch.records()] == [broker.clock.now_ms()]

    play(scenario)


def test_what_is_too_much_for_a_batch_becomes_several_that_follow_each_other() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker, max_message_bytes="1000")
        gathering = gathering_of(broker, topic)
        for number in range(50):
            gathering.add(None, b"%d" % number * 30)
        stored = gathering.append()
        assert stored.spans == [Span(0, 0, 50)]
        assert stored.offsets() == [(0, offset) for offset in range(50)]
        batches = await batches_of(topic)
        assert len(batches) > 2
        assert all(batch.size <= 1000 for batch in batches)
        assert [each.value for each in await records_of(topic)] == [b"%d" % n * 30 for n in range(50)]

    play(scenario)


def gathering_of(broker: Broker, topic: Topic) -> Gathering:
    return Gathering(broker.gate.access(EMBEDDED), topic, broker.publisher)


def refusal(gathering: Gathering) -> ErrorCode:
    with pytest.raises(BrokerError) as told:
        gathering.append()
    return told.value.code


def test_one_record_that_is_too_large_costs_all_and_none_is_stored() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker, partitions=2, max_message_bytes="1000")
        gathering = gathering_of(broker, topic)
        gathering.add(None, b"fine", partition=0)
        gathering.add(None, bytes(1000), partition=1)
        assert refusal(gathering) == ErrorCode.MESSAGE_TOO_LARGE
        assert [each.high_watermark for each in topic.partitions] == [0, 0]

    play(scenario)


def test_a_compacted_topic_wants_keys() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker, cleanup_policy="compact")
        gathering = gathering_of(broker, topic)
        gathering.add(b"k", b"v")
        gathering.add(None, b"v")
        assert refusal(gathering) == ErrorCode.INVALID_RECORD
        assert topic.partitions[0].high_watermark == 0

    play(scenario)


def test_what_cannot_be_is_refused() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker)
        assert refusal(gathering_of(broker, topic)) == ErrorCode.INVALID_REQUEST
        gathering = gathering_of(broker, topic)
        gathering.add(None, b"v", partition=1)
        assert refusal(gathering) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        gathering = gathering_of(broker, topic)
        gathering.add(None, b"v", timestamp_ms=1 << 63)
        assert refusal(gathering) == ErrorCode.INVALID_RECORD
        gathering = gathering_of(broker, topic)
        gathering.add(None, b"v", headers=[("h", b"")] * 65_537)
        assert refusal(gathering) == ErrorCode.INVALID_RECORD
        assert topic.partitions[0].high_watermark == 0

    play(scenario)


def test_a_log_that_is_busy_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker)

        def refuse(*_: object, **__: object) -> Appended:
            raise LogBusy("much waits")

        monkeypatch.setattr(Partition, "append", refuse)
        gathering = gathering_of(broker, topic)
        gathering.add(None, b"v")
        assert refusal(gathering) == ErrorCode.THROTTLING_QUOTA_EXCEEDED

    play(scenario)


def test_a_topic_is_made_as_for_a_kafka_producer() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await broker.gate.access(EMBEDDED).writable_topic(NewTopic(name="new"))
        assert len(topic.partitions) == 3
        assert not topic.settings.append_time
        assert await broker.gate.access(EMBEDDED).writable_topic(NewTopic(name="new")) is topic
        for name in ("__consumer_offsets", "__transaction_state", "__tailrace_cursors"):
            with pytest.raises(BrokerError, match="belongs to the broker"):
                await broker.gate.access(EMBEDDED).writable_topic(NewTopic(name=name))
        with pytest.raises(BrokerError, match="legal topic name"):
            await broker.gate.access(EMBEDDED).writable_topic(NewTopic(name="no/slash"))

    play(scenario, num_partitions="3")


def test_no_topic_is_made_where_that_is_forbidden() -> None:
    async def scenario(broker: Broker) -> None:
        with pytest.raises(BrokerError) as told:
            await broker.gate.access(EMBEDDED).writable_topic(NewTopic(name="new"))
        assert told.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    play(scenario, auto_create_topics_enable="false")


def test_batches_of_a_producer_go_on_in_its_sequence_past_the_last_one() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker, max_message_bytes="2000")
        records: list[NewRecord] = [(0, None, bytes(900), ()) for _ in range(6)]
        built = build_batches(
            records, topic.settings, stamp_ms=None, producer_id=7, epoch=0, sequence=SEQUENCE_MAX - 2
        )
        batches = [read_batch(data) for data in built]
        assert [each.base_sequence for each in batches] == [SEQUENCE_MAX - 2, SEQUENCE_MAX, 1]
        assert {(each.producer_id, each.producer_epoch) for each in batches} == {(7, 0)}

    play(scenario)


def test_batches_are_as_few_as_the_topic_allows() -> None:
    async def scenario(broker: Broker) -> None:
        topic = await topic_of(broker, max_message_bytes="2000")
        records: list[NewRecord] = [(0, None, bytes(size), ()) for size in (1900, 10, 1900, 900, 900)]
        batches = build_batches(records, topic.settings, stamp_ms=None)
        assert [read_batch(each).count for each in batches] == [1, 1, 1, 2]

    play(scenario)
