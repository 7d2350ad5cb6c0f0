"""The whole broker over real engines: what it serves, what survives a restart, and how it ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from tailrace.broker import Broker, BrokerConfig, NewTopic, Node, Partition
from tailrace.broker.config import cleaner_backoff_ms
from tailrace.broker.configs import ConfigSource
from tailrace.broker.groups import OFFSETS_TOPIC, UNSTABLE, CommitRequest, OffsetToCommit
from tailrace.cluster import SqliteStore, StoredMetadata
from tailrace.model import BrokerError, BrokerId, ErrorCode, Offset, StorageError, TopicPartition
from tailrace.model.session import INTERNAL
from tailrace.records import Batch, build_batch, read_batch, write_marker
from tailrace.runtime import SystemClock
from tailrace.storage.api import StorageEngine
from tailrace.storage.memory import MemoryStorage
from tailrace.storage.segment import SegmentStorage

NODE = BrokerId(1)
DYNAMIC_BROKER, DYNAMIC_DEFAULT_BROKER = ConfigSource.DYNAMIC_BROKER, ConfigSource.DYNAMIC_DEFAULT_BROKER


def batch(sequence: int, producer: int = 5) -> Batch:
    records = [(4_102_444_800_000, b"k", b"v%d" % sequence, ())]
    return read_batch(build_batch(records, producer_id=producer, producer_epoch=0, base_sequence=sequence))


@asynccontextmanager
async def running(
    path: Path, *, storage: StorageEngine | None = None, **values: str
) -> AsyncIterator[Broker]:
    """A broker on a data directory; settings with underscores for dots."""
    if storage is None:
        storage = await SegmentStorage.open(path / "data")
    metadata = StoredMetadata(SqliteStore(path / "metadata.sqlite"))
    broker = Broker(
        node_id=NODE,
        nodes={NODE: Node(node_id=NODE)},
        storage=storage,
        metadata=metadata,
        config=BrokerConfig.read({key.replace("_", "."): value for key, value in values.items()}),
        clock=SystemClock(),
    )
    try:
        await broker.start()
        yield broker
    finally:
        await broker.close()
        await storage.close()
        await metadata.close()


def partition_of(broker: Broker, topic: str, index: int) -> Partition:
    return broker.gate.access(INTERNAL).readable(TopicPartition(topic, index))


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(), 60)

    asyncio.run(main())


def test_a_restart_keeps_topics_records_and_what_producers_sent(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            topic = await broker.topics.create(NewTopic(name="orders", partitions=2))
            partition = partition_of(broker, "orders", 1)
            for sequence in range(3):
                appended = partition.append(batch(sequence))
            await partition.wait_acknowledged(appended.end_offset)
            cluster_id = broker.cluster.cluster_id
        async with running(tmp_path) as broker:
            again = broker.topics.get("orders")
            assert again is not None
            assert (again.id, broker.cluster.cluster_id) == (topic.id, cluster_id)
            partition = partition_of(broker, "orders", 1)
            assert (partition.high_watermark, partition.leader_epoch) == (3, 1)
            assert partition.append(batch(1)).base_offset == 1  # sent again, stored once
            assert partition.append(batch(3)).base_offset == 3
            with pytest.raises(BrokerError) as refused:
                partition.append(batch(9))
            assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    run(scenario)


def test_committed_offsets_survive_and_go_with_their_topic(tmp_path: Path) -> None:
    place = TopicPartition("orders", 0)

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create(NewTopic(name="orders", partitions=1))
            errors = await broker.groups.commit_offsets(
                CommitRequest(group_id="g", offsets={place: OffsetToCommit(7, metadata="note")})
            )
            assert errors == {place: ErrorCode.NONE}
            assert broker.topics.get(OFFSETS_TOPIC) is not None
        async with running(tmp_path) as broker:
            await broker.groups.wait_loaded()
            found = broker.groups.fetch_offsets("g", [place])[place]
            assert (found.offset, found.metadata) == (7, "note")
            await broker.delete_topic("orders")
            assert broker.groups.fetch_offsets("g", [place])[place].offset == -1
        async with running(tmp_path) as broker:
            await broker.groups.wait_loaded()
            assert broker.groups.fetch_offsets("g", [place])[place].offset == -1

    run(scenario)


@pytest.mark.parametrize("commits", [True, False])
def test_offsets_of_a_transaction_survive_until_its_marker_decides(tmp_path: Path, commits: bool) -> None:
    place = TopicPartition("orders", 0)

    async def pend(broker: Broker, offset: int) -> None:
        request = CommitRequest(group_id="g", offsets={place: OffsetToCommit(offset)})
        answer = await broker.groups.commit_transactional(request, producer_id=9, producer_epoch=0)
        assert answer == {place: ErrorCode.NONE}

    async def found(broker: Broker) -> tuple[int, bool]:
        await broker.groups.wait_loaded()
        loose = broker.groups.fetch_offsets("g", [place])[place]
        strict = broker.groups.fetch_offsets("g", [place], require_stable=True)[place]
        return loose.offset, strict == UNSTABLE

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create(NewTopic(name="orders", partitions=1))
            await commit(broker, place, 1)
            await pend(broker, 7)
            assert await found(broker) == (1, True)
        async with running(tmp_path) as broker:
            assert await found(broker) == (1, True)
            number = await broker.groups.find_partition("g")
            partition = partition_of(broker, OFFSETS_TOPIC, number)
            assert partition.log is not None
            marker = write_marker(9, 0, commit=commits, coordinator_epoch=0, timestamp_ms=0)
            partition.log.append(marker, leader_epoch=partition.leader_epoch)
            broker.groups.transaction_ended(number, 9, commit=commits)
            assert await found(broker) == (1, True)
            await partition.wait_acknowledged(partition.end_offset)
            assert await found(broker) == (7 if commits else 1, False)
        async with running(tmp_path) as broker:
            assert await found(broker) == (7 if commits else 1, False)

    run(scenario)


@pytest.mark.parametrize("records", [0, 1])
def test_a_position_stays_valid_over_restarts_in_whose_epochs_nothing_was_written(
    tmp_path: Path, records: int
) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create(NewTopic(name="orders", partitions=1))
            partition = partition_of(broker, "orders", 0)
            for sequence in range(records):
                await partition.wait_acknowledged(partition.append(batch(sequence)).end_offset)
            told = [partition.epoch_at(records)]
        for _ in range(3):
            async with running(tmp_path) as broker:
                partition = partition_of(broker, "orders", 0)
                told += [partition.epoch_at(records), partition.leader_epoch]
                ends = [partition.end_of_epoch(epoch) for epoch in told]
                assert [end and end[1] for end in ends] == [records] * len(told)
                assert partition.end_of_epoch(partition.leader_epoch + 1) is None

    run(scenario)


async def commit(broker: Broker, place: TopicPartition, offset: int) -> None:
    request = CommitRequest(group_id="g", offsets={place: OffsetToCommit(offset)})
    assert await broker.groups.commit_offsets(request) == {place: ErrorCode.NONE}


def test_a_deletion_goes_on_to_its_end_when_nobody_waits_for_it(tmp_path: Path) -> None:
    place = TopicPartition("orders", 0)

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create(NewTopic(name="orders", partitions=1))
            await commit(broker, place, 7)
            deletion = asyncio.ensure_future(broker.delete_topic("orders"))
            while broker.topics.get("orders") is not None:  # noqa: ASYNC110 - there is no event for either
                await asyncio.sleep(0)
            deletion.cancel()
            while broker.groups.fetch_offsets("g", [place])[place].offset != -1:  # noqa: ASYNC110
                await asyncio.sleep(0.001)

    run(scenario)


def test_a_later_topic_does_not_get_the_offsets_of_a_deletion_that_a_crash_cut_short(tmp_path: Path) -> None:
    place, other = TopicPartition("orders", 0), TopicPartition("bills", 0)

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            for name in ("orders", "bills"):
                await broker.topics.create(NewTopic(name=name, partitions=1))
            await commit(broker, place, 7)
            await commit(broker, other, 8)
            await broker.topics.delete("orders")  # and no further
        async with running(tmp_path) as broker:
            await broker.topics.create(NewTopic(name="orders", partitions=1))
            await broker.groups.wait_loaded()
            found = broker.groups.fetch_offsets("g", [place, other])
            assert [found[place].offset, found[other].offset] == [-1, 8]

    run(scenario)


def test_no_producer_id_is_given_twice(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: set[int] = set()
        for _ in range(2):
            async with running(tmp_path, storage=MemoryStorage()) as broker:
                taken = await asyncio.gather(*(broker.next_producer_id() for _ in range(1500)))
                assert not seen & set(taken)
                seen.update(taken)
        assert len(seen) == 3000

    run(scenario)


def test_retention_happens_by_itself(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, retention_check_interval_ms="10") as broker:
            configs = {"retention.ms": "1", "segment.bytes": "200"}
            await broker.topics.create(NewTopic(name="t", partitions=1, configs=configs))
            partition = partition_of(broker, "t", 0)
            for _ in range(5):
                partition.append(read_batch(build_batch([(1000, b"k", bytes(150), ())])))
            while partition.start_offset == 0:  # noqa: ASYNC110 - retention tells nobody
                await asyncio.sleep(0.01)

    run(scenario)


def test_compaction_has_a_rhythm_of_its_own(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, log_cleaner_backoff_ms="10") as broker:
            configs = {"cleanup.policy": "compact", "segment.bytes": "200"}
            await broker.topics.create(NewTopic(name="t", partitions=1, configs=configs))
            partition = partition_of(broker, "t", 0)
            for _ in range(5):
                partition.append(read_batch(build_batch([(1000, b"k", bytes(150), ())])))
            await partition.wait_acknowledged(Offset(5))
            while partition.size_bytes > 2 * 250:  # noqa: ASYNC110 - compaction tells nobody
                await asyncio.sleep(0.01)

    run(scenario)


def test_settings_that_clients_gave_the_node_outlive_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.topics.create(NewTopic(name="t", partitions=1))
            await broker.topics.alter_node(DYNAMIC_BROKER, lambda _: {"log.retention.ms": "5"})
            await broker.topics.alter_node(DYNAMIC_DEFAULT_BROKER, lambda _: {"log.retention.ms": "6"})
        async with running(tmp_path, log_retention_ms="4") as broker:
            layers = broker.cluster.settings.layers
            assert [layer["log.retention.ms"] for layer in layers.values()] == ["5", "6", "4"]
            assert partition_of(broker, "t", 0).settings.log.retention_ms == 5
            await broker.topics.alter_node(DYNAMIC_BROKER, lambda _: {})
        async with running(tmp_path) as broker:
            assert partition_of(broker, "t", 0).settings.log.retention_ms == 6
            assert not broker.cluster.settings.layers[DYNAMIC_BROKER]

    run(scenario)


def test_a_kept_setting_that_is_not_accepted_any_more_is_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path):
            pass
        metadata = StoredMetadata(SqliteStore(tmp_path / "metadata.sqlite"))
        kept = {"of.a.later.version": "1", "log.retention.ms": "soon", "log.segment.bytes": "5000"}
        await metadata.set_settings("broker/1", kept)
        await metadata.close()
        async with running(tmp_path) as broker:
            assert dict(broker.cluster.settings) == {"log.segment.bytes": "5000"}

    run(scenario)


def test_settings_of_groups_outlive_a_restart_and_the_group(tmp_path: Path) -> None:
    given = {"consumer.session.timeout.ms": "50000", "consumer.heartbeat.interval.ms": "6000"}

    async def scenario() -> None:
        async with running(tmp_path) as broker:
            await broker.group_settings.alter("billing", lambda _: given)
            await broker.group_settings.alter("a/b", lambda _: given)
        async with running(tmp_path) as broker:
            assert dict(broker.group_settings) == {"a/b": given, "billing": given}
            await broker.group_settings.alter("a/b", lambda _: {})
        async with running(tmp_path) as broker:
            assert dict(broker.group_settings) == {"billing": given}

    run(scenario)


def test_a_kept_setting_of_a_group_that_is_not_accepted_any_more_is_left_out(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path):
            pass
        metadata = StoredMetadata(SqliteStore(tmp_path / "metadata.sqlite"))
        good = {"consumer.session.timeout.ms": "50000"}
        await metadata.set_settings("group/billing", {"of.a.later.version": "1", **good})
        await metadata.set_settings("group/audit", {"consumer.heartbeat.interval.ms": "soon"})
        await metadata.close()
        async with running(tmp_path) as broker:
            assert dict(broker.group_settings) == {"billing": good}

    run(scenario)


def test_logs_are_looked_at_for_compaction_as_often_as_by_kafka() -> None:
    assert cleaner_backoff_ms({}) == 15_000
    assert cleaner_backoff_ms({"log.cleaner.backoff.ms": "20"}) == 20


class FailingStorage(MemoryStorage):
    """An engine whose disk has died."""

    async def wait_failed(self) -> Exception:
        return StorageError("sync", "journal", "the disk is gone")


def test_trouble_of_the_storage_ends_the_broker(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with running(tmp_path, storage=FailingStorage()) as broker:
            assert "the disk is gone" in str(await broker.wait_failed())

    run(scenario)


def test_who_waits_for_a_partition_is_called_when_the_broker_closes(tmp_path: Path) -> None:
    async def scenario() -> None:
        calls: list[Offset] = []
        async with running(tmp_path, storage=MemoryStorage()) as broker:
            await broker.topics.create(NewTopic(name="t", partitions=1))
            partition_of(broker, "t", 0).waiters.add(lambda: calls.append(Offset(0)))
        assert calls

    run(scenario)


def test_trouble_with_the_metadata_ends_the_broker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def failing(*_: object) -> int:
        raise StorageError("keep metadata in", "here", "the disk is gone")

    async def scenario() -> None:
        monkeypatch.setattr(StoredMetadata, "reserve_producer_ids", failing)
        async with running(tmp_path) as broker:
            with pytest.raises(StorageError):
                await broker.next_producer_id()
            assert "the disk is gone" in str(await broker.wait_failed())

    run(scenario)
