"""Metadata in SQLite: what was stored is there after a reopening, and epochs grow at every start."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.broker.ports import MetadataImage, PartitionRecord, TopicRecord
from tailrace.cluster import SqliteMetadata, sqlite
from tailrace.model import BrokerError, BrokerId, Epoch, ErrorCode, StorageError

NODE = BrokerId(1)


def partition(index: int, *, leader: int = 1, epoch: int = 0) -> PartitionRecord:
    nodes = (BrokerId(leader), BrokerId(leader + 1))
    return PartitionRecord(
        index=index, leader=BrokerId(leader), leader_epoch=Epoch(epoch), replicas=nodes, isr=nodes[:1]
    )


def topic(name: str = "orders", number: int = 1, partitions: int = 2) -> TopicRecord:
    return TopicRecord(
        id=UUID(int=number),
        name=name,
        partitions=tuple(map(partition, range(partitions))),
        configs={"retention.ms": "1000"},
    )


def use(path: Path, work: Callable[[SqliteMetadata], Awaitable[object]]) -> MetadataImage:
    """Do something with the store, then the image that the next start sees."""

    async def scenario() -> MetadataImage:
        store = SqliteMetadata(str(path))
        try:
            await work(store)
        finally:
            await store.close()
        store = SqliteMetadata(str(path))
        image = await store.begin(NODE)
        await store.close()
        return image

    return asyncio.run(asyncio.wait_for(scenario(), 120))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "metadata.sqlite"


def test_a_topic_is_there_after_a_restart_and_its_epochs_have_grown(path: Path) -> None:
    image = use(path, lambda store: store.create_topic(topic()))
    [found] = image.topics
    assert (found.name, found.id, found.configs) == ("orders", UUID(int=1), {"retention.ms": "1000"})
    assert [(each.index, each.leader_epoch, each.replicas, each.isr) for each in found.partitions] == [
        (0, 1, (1, 2), (1,)),
        (1, 1, (1, 2), (1,)),
    ]


def test_the_epoch_of_another_nodes_partition_is_left_alone(path: Path) -> None:
    foreign = TopicRecord(id=UUID(int=1), name="t", partitions=(partition(0, leader=7, epoch=3),))
    image = use(path, lambda store: store.create_topic(foreign))
    assert image.topics[0].partitions[0].leader_epoch == 3


def test_the_cluster_keeps_its_id(path: Path) -> None:
    ids = {use(path, lambda store: store.begin(NODE)).cluster_id for _ in range(2)}
    assert len(ids) == 1
    assert len(ids.pop()) == 22


def test_a_name_is_taken_until_its_topic_is_marked(path: Path) -> None:
    async def work(store: SqliteMetadata) -> None:
        await store.create_topic(topic(number=1))
        with pytest.raises(BrokerError) as refused:
            await store.create_topic(topic(number=2))
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await store.mark_deleted(UUID(int=1))
        await store.create_topic(topic(number=2))

    image = use(path, work)
    assert {(each.id.int, each.deleted) for each in image.topics} == {(1, True), (2, False)}


def test_a_forgotten_topic_is_gone_with_its_partitions(path: Path) -> None:
    async def work(store: SqliteMetadata) -> None:
        await store.create_topic(topic())
        await store.mark_deleted(UUID(int=1))
        await store.forget_topic(UUID(int=1))
        await store.create_topic(topic(partitions=1))

    assert len(use(path, work).topics[0].partitions) == 1


def test_partitions_and_settings_change(path: Path) -> None:
    async def work(store: SqliteMetadata) -> None:
        await store.create_topic(topic())
        await store.add_partitions(UUID(int=1), [partition(2), partition(3)])
        await store.set_configs(UUID(int=1), {"cleanup.policy": "compact"})

    [found] = use(path, work).topics
    assert [each.index for each in found.partitions] == [0, 1, 2, 3]
    assert found.configs == {"cleanup.policy": "compact"}


def test_no_producer_id_is_reserved_twice(path: Path) -> None:
    taken: list[int] = []

    async def work(store: SqliteMetadata) -> None:
        for _ in range(2):
            first = await store.reserve_producer_ids(10)
            taken.extend(range(first, first + 10))

    use(path, work)
    use(path, work)
    assert len(set(taken)) == 40


def test_a_file_of_a_newer_version_is_refused(path: Path) -> None:
    use(path, lambda store: store.begin(NODE))
    database = sqlite3.connect(path)
    with database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'schema'")
    database.close()
    with pytest.raises(StorageError, match="version 99"):
        use(path, lambda store: store.begin(NODE))


def test_a_file_that_is_something_else_is_refused_and_left_alone(path: Path) -> None:
    path.write_bytes(b"not a database at all" * 100)
    with pytest.raises(StorageError, match="not a database"):
        use(path, lambda store: store.begin(NODE))
    assert path.read_bytes().startswith(b"not a database")


def test_closing_twice_is_harmless(path: Path) -> None:
    async def work(store: SqliteMetadata) -> None:
        await store.begin(NODE)
        await store.close()

    use(path, work)


def test_a_first_start_that_is_cut_short_leaves_a_file_for_the_next_one(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def begin() -> MetadataImage:
        store = SqliteMetadata(str(path))
        try:
            return await store.begin(NODE)
        finally:
            await store.close()

    def cut_short() -> str:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(sqlite, "_new_cluster_id", cut_short)
        with pytest.raises(KeyboardInterrupt):
            sqlite._open(str(path))
    assert asyncio.run(begin()).cluster_id


def test_a_full_disk_refuses_a_change_and_the_next_one_succeeds(path: Path) -> None:
    async def work(store: SqliteMetadata) -> None:
        await store.begin(NODE)
        assert store._database is not None
        pages = store._database.execute("PRAGMA page_count").fetchone()[0]
        store._database.execute(f"PRAGMA max_page_count = {pages}")
        with pytest.raises(BrokerError, match="full") as refused:
            await store.create_topic(topic(partitions=2000))
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        store._database.execute("PRAGMA max_page_count = 100000")
        await store.create_topic(topic(partitions=3))

    image = use(path, work)
    assert [len(each.partitions) for each in image.topics] == [3]


def test_a_file_that_somebody_else_has_locked_refuses_a_change(path: Path) -> None:
    async def work(store: SqliteMetadata) -> None:
        await store.begin(NODE)
        assert store._database is not None
        store._database.execute("PRAGMA busy_timeout = 1")
        other = sqlite3.connect(path)
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(BrokerError, match="locked") as refused:
            await store.create_topic(topic())
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        other.rollback()
        other.close()
        await store.create_topic(topic())

    assert len(use(path, work).topics) == 1


def test_closing_leaves_no_thread(path: Path) -> None:
    use(path, lambda store: store.begin(NODE))
    assert not [each for each in threading.enumerate() if each.name.startswith("tailrace-metadata")]
