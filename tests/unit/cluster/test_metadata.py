"""Metadata in a store: it is there after a reopening, epochs grow at every start, races are retried."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.broker.ports import MetadataImage, PartitionRecord, TopicRecord
from tailrace.cluster import MemoryStore, Rows, SqliteStore, StoredMetadata
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


def use(path: Path, work: Callable[[StoredMetadata], Awaitable[object]]) -> MetadataImage:
    """Do something with the store, then the image that the next start sees."""

    async def scenario() -> MetadataImage:
        store = StoredMetadata(SqliteStore(path))
        try:
            await store.begin(NODE)
            await work(store)
        finally:
            await store.close()
        store = StoredMetadata(SqliteStore(path))
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
    async def work(store: StoredMetadata) -> None:
        await store.create_topic(topic(number=1))
        with pytest.raises(BrokerError) as refused:
            await store.create_topic(topic(number=2))
        assert refused.value.code == ErrorCode.TOPIC_ALREADY_EXISTS
        await store.mark_deleted(UUID(int=1))
        await store.create_topic(topic(number=2))

    image = use(path, work)
    assert {(each.id.int, each.deleted) for each in image.topics} == {(1, True), (2, False)}


def test_a_forgotten_topic_is_gone_with_its_partitions(path: Path) -> None:
    async def work(store: StoredMetadata) -> None:
        await store.create_topic(topic())
        await store.mark_deleted(UUID(int=1))
        await store.forget_topic(UUID(int=1))
        await store.create_topic(topic(partitions=1))

    assert len(use(path, work).topics[0].partitions) == 1


def test_partitions_and_settings_change(path: Path) -> None:
    async def work(store: StoredMetadata) -> None:
        await store.create_topic(topic())
        await store.add_partitions(UUID(int=1), [partition(2), partition(3)])
        await store.set_configs(UUID(int=1), {"cleanup.policy": "compact"})

    [found] = use(path, work).topics
    assert [each.index for each in found.partitions] == [0, 1, 2, 3]
    assert found.configs == {"cleanup.policy": "compact"}


def test_settings_of_nodes_are_kept_by_owner_and_replaced_whole(path: Path) -> None:
    async def work(store: StoredMetadata) -> None:
        await store.set_settings("broker/1", {"a": "1", "b": "2"})
        await store.set_settings("broker/1", {"b": "3"})
        await store.set_settings("broker/10", {"c": "4"})
        await store.set_settings("broker/", {"d": "5"})
        await store.set_settings("broker/", {})
        await store.set_settings("broker/7", {})

    assert use(path, work).settings == {"broker/1": {"b": "3"}, "broker/10": {"c": "4"}}


def test_no_producer_id_is_reserved_twice(path: Path) -> None:
    taken: list[int] = []

    async def work(store: StoredMetadata) -> None:
        for _ in range(2):
            first = await store.reserve_producer_ids(10)
            taken.extend(range(first, first + 10))

    use(path, work)
    use(path, work)
    assert len(set(taken)) == 40


def test_a_first_start_gives_the_cluster_its_id_and_a_refused_one_changes_nothing(path: Path) -> None:
    def refuse(image: MetadataImage) -> None:
        assert (image.cluster_id, list(image.topics)) == ("", [])
        raise StorageError("start", str(path), "no")

    async def scenario() -> None:
        metadata = StoredMetadata(SqliteStore(path))
        try:
            with pytest.raises(StorageError):
                await metadata.begin(NODE, check=refuse)
        finally:
            await metadata.close()

    asyncio.run(scenario())
    assert not path.exists()


def test_a_check_sees_the_epochs_before_they_grow(path: Path) -> None:
    seen: list[int] = []

    async def work(metadata: StoredMetadata) -> None:
        await metadata.create_topic(topic())
        image = await metadata.begin(
            NODE, check=lambda before: seen.append(before.topics[0].partitions[0].leader_epoch)
        )
        assert image.topics[0].partitions[0].leader_epoch == 1

    use(path, lambda metadata: metadata.begin(NODE))
    use(path, work)
    assert seen == [0]


class Meddling(MemoryStore):
    """Another node changes a key between the reading and the commit, a number of times."""

    def __init__(self) -> None:
        super().__init__()
        self.key, self.times = "", 0

    async def read(self, prefix: str = "") -> Rows:
        found = await super().read(prefix)
        if self.times and self.key in found.entries:
            self.times -= 1
            await super().commit(checks={}, puts={self.key: found.entries[self.key].value})
        return found


def test_a_change_that_lost_a_race_is_planned_again() -> None:
    async def scenario() -> None:
        store = Meddling()
        metadata = StoredMetadata(store)
        await metadata.begin(NODE)
        store.key, store.times = "ids/producer", 3
        assert (await metadata.reserve_producer_ids(10), store.times) == (1, 0)
        assert await metadata.reserve_producer_ids(10) == 11

    asyncio.run(scenario())


def test_a_change_that_loses_every_race_is_refused() -> None:
    async def scenario() -> None:
        store = Meddling()
        metadata = StoredMetadata(store)
        await metadata.begin(NODE)
        store.key, store.times = "ids/producer", 1000
        with pytest.raises(BrokerError, match="Try again"):
            await metadata.reserve_producer_ids(10)
        assert store.times > 900

    asyncio.run(scenario())


@pytest.mark.parametrize("change", ["set_configs", "add_partitions", "mark_deleted"])
def test_a_topic_that_does_not_exist_is_not_changed(change: str) -> None:
    async def scenario() -> None:
        metadata = StoredMetadata(MemoryStore())
        await metadata.begin(NODE)
        arguments: dict[str, list[object]] = {"set_configs": [{}], "add_partitions": [[partition(0)]]}
        with pytest.raises(BrokerError) as refused:
            await getattr(metadata, change)(UUID(int=7), *arguments.get(change, []))
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_ID

    asyncio.run(scenario())


BAD_VALUES = [
    ("cluster", '{"format":2,"id":"x"}', "format 2"),
    ("cluster", '{"format":1}', "None as id"),
    ("topics/00000000-0000-0000-0000-000000000001", "[]", "no JSON object"),
    ("topics/00000000-0000-0000-0000-000000000001", "{", "no JSON"),
    (
        "topics/00000000-0000-0000-0000-000000000001",
        '{"name":"orders","partitions":3,"configs":{},"internal":false}',
        "'orders'.*2 have a record",
    ),
    (
        "topics/00000000-0000-0000-0000-000000000001",
        '{"name":"orders","partitions":2,"configs":{"a":1},"internal":false}',
        "'orders'.*not texts",
    ),
    (
        "topics/00000000-0000-0000-0000-000000000001",
        '{"name":"orders","partitions":2,"configs":{},"internal":0}',
        "0 as internal",
    ),
    ("topics/not-an-id", '{"name":"x","partitions":0,"configs":{},"internal":false}', "not-an-id"),
    (
        "partitions/00000000-0000-0000-0000-000000000001/0",
        '{"leader":1,"epoch":true,"replicas":[1],"isr":[1]}',
        "True as epoch",
    ),
    (
        "partitions/00000000-0000-0000-0000-000000000001/0",
        '{"leader":1,"epoch":0,"replicas":["1"],"isr":[1]}',
        "as replicas",
    ),
    ("partitions/00000000-0000-0000-0000-000000000001/x", "{}", "no key of a partition"),
    (
        "partitions/00000000-0000-0000-0000-000000000009/0",
        '{"leader":1,"epoch":0,"replicas":[1],"isr":[1]}',
        "no record",
    ),
    ("names/orders", '{"topic":"00000000-0000-0000-0000-000000000009"}', "names/orders leads to"),
    ("names/other", '{"topic":"00000000-0000-0000-0000-000000000001"}', "names/other leads to"),
    ("settings/broker/1", '{"log.retention.ms":5}', "settings/broker/1.*not texts"),
    ("settings/broker/1", "[]", "no JSON object"),
]


@pytest.mark.parametrize(("key", "value", "reason"), BAD_VALUES)
def test_a_record_that_makes_no_sense_is_refused_by_its_key(key: str, value: str, reason: str) -> None:
    async def scenario() -> None:
        store = MemoryStore()
        metadata = StoredMetadata(store)
        await metadata.begin(NODE)
        await metadata.create_topic(topic())
        await store.commit(checks={}, puts={key: value})
        with pytest.raises(StorageError, match=reason) as refused:
            await metadata.begin(NODE)
        assert "rebuild-metadata" in str(refused.value)

    asyncio.run(scenario())
