"""The registry of topics: creating, growing, setting, deleting, and what a start makes of a crash."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import uuid4

import pytest

from tailrace.broker import NewTopic, TopicRecord
from tailrace.model import BrokerError, BrokerId, Epoch, ErrorCode, PartitionId, StorageError
from tailrace.records import build_batch, read_batch
from tailrace.storage.api import LogConfig
from tailrace.storage.memory import MemoryStorage

from .conftest import NODE, Play, Rig


async def refused(work: object) -> ErrorCode:
    with pytest.raises(BrokerError) as error:
        await work  # type: ignore[misc]
    return error.value.code


def test_a_topic_has_the_default_number_of_partitions(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name="orders"))
        assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3]
        assert all(partition.is_led_here and partition.leader_epoch == 0 for partition in topic.partitions)
        assert rig.topics.get("orders") is topic is rig.topics.by_id(topic.id)

    play(scenario)


def test_every_change_is_noticed_by_its_version(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        seen = [rig.topics.version]
        await rig.topics.create(NewTopic(name="a"))
        seen.append(rig.topics.version)
        await rig.topics.add_partitions("a", 5)
        seen.append(rig.topics.version)
        await rig.topics.delete("a")
        seen.append(rig.topics.version)
        assert seen == sorted(set(seen))

    play(scenario)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "a\n"])
def test_an_illegal_name_is_refused(play: Play, name: str) -> None:
    async def scenario(rig: Rig) -> None:
        assert await refused(rig.topics.create(NewTopic(name=name))) == ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await refused(rig.topics.auto_create(NewTopic(name=name))) == ErrorCode.INVALID_TOPIC_EXCEPTION

    play(scenario)


@pytest.mark.parametrize(
    ("new", "code"),
    [
        (NewTopic(name="t", partitions=0), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partitions=-2), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", partitions=10_001), ErrorCode.INVALID_PARTITIONS),
        (NewTopic(name="t", replication_factor=2), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", replication_factor=0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (NewTopic(name="t", configs={"retention.msec": "1"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", configs={"retention.ms": "soon"}), ErrorCode.INVALID_CONFIG),
        (NewTopic(name="t", assignments={1: [NODE]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", assignments={0: [BrokerId(9)]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (NewTopic(name="t", partitions=1, assignments={0: [NODE]}), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_created_is_refused_and_leaves_nothing(
    play: Play, new: NewTopic, code: ErrorCode
) -> None:
    async def scenario(rig: Rig) -> None:
        assert await refused(rig.topics.create(new)) == code
        assert not rig.storage.logs()
        assert len(rig.topics) == 0

    play(scenario)


def test_validating_creates_nothing(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        planned = await rig.topics.create(NewTopic(name="t", partitions=3), validate_only=True)
        assert len(planned.partitions) == 3
        assert rig.topics.get("t") is None
        assert not rig.storage.logs()

    play(scenario)


def test_a_name_is_created_once_however_many_ask(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topics = await asyncio.gather(*(rig.topics.auto_create(NewTopic(name="t")) for _ in range(10)))
        assert len({topic.id for topic in topics}) == 1
        assert await refused(rig.topics.create(NewTopic(name="t"))) == ErrorCode.TOPIC_ALREADY_EXISTS

    play(scenario)


@pytest.mark.parametrize(("setting", "name"), [("false", "t"), ("true", "__internal")])
def test_what_may_not_create_itself_is_unknown(play: Play, setting: str, name: str) -> None:
    async def scenario(rig: Rig) -> None:
        assert (
            await refused(rig.topics.auto_create(NewTopic(name=name))) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )

    play(scenario, values={"auto.create.topics.enable": setting})


def test_a_topic_of_two_nodes_has_only_its_own_logs_here(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name="t", partitions=4))
        here = [partition for partition in topic.partitions if partition.is_led_here]
        assert len(here) == 2
        assert {log.partition_id for log in rig.storage.logs()} == {partition.id for partition in here}
        away = next(partition for partition in topic.partitions if not partition.is_led_here)
        with pytest.raises(BrokerError) as error:
            away.read_nowait(away.start_offset, bytes_max=1)
        assert error.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER

    play(scenario, nodes=(1, 2))


def test_a_topic_grows(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name="t", partitions=2))
        await rig.topics.add_partitions("t", 5, validate_only=True)
        assert len(topic.partitions) == 2
        await rig.topics.add_partitions("t", 5)
        assert [partition.index for partition in topic.partitions] == [0, 1, 2, 3, 4]
        for total in (5, 4, 0, 10_001):
            assert await refused(rig.topics.add_partitions("t", total)) == ErrorCode.INVALID_PARTITIONS
        assert await refused(rig.topics.add_partitions("u", 3)) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again = (await rig.restart()).get("t")
        assert again is not None
        assert len(again.partitions) == 5

    play(scenario)


def test_settings_reach_the_logs(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name="t", partitions=1, configs={"retention.ms": "5000"}))
        assert rig.storage.logs()[0].config.retention_ms == 5000
        await rig.topics.alter_configs("t", lambda _: {"retention.bytes": "77"}, validate_only=True)
        assert rig.storage.logs()[0].config.retention_ms == 5000
        await rig.topics.alter_configs("t", lambda _: {"retention.bytes": "77"})
        config = rig.storage.logs()[0].config
        assert (config.retention_ms, config.retention_bytes) == (31 * 24 * 3600 * 1000, 77)
        assert topic.configs == {"retention.bytes": "77"}
        unknown = rig.topics.alter_configs("t", lambda _: {"nope": "1"})
        assert await refused(unknown) == ErrorCode.INVALID_CONFIG

    play(scenario)


def test_the_nodes_defaults_count_where_a_topic_says_nothing(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topics.create(NewTopic(name="t", partitions=1))
        assert rig.storage.logs()[0].config.retention_ms == 9000

    play(scenario, values={"log.retention.ms": "9000"})


def test_deleting_wakes_who_waits_and_removes_the_logs(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name="t", partitions=2))
        calls: list[int] = []
        topic.partitions[0].waiters.add(lambda: calls.append(1))
        await rig.topics.delete("t")
        assert calls
        assert not rig.storage.logs()
        assert rig.topics.get("t") is None is rig.topics.by_id(topic.id)
        assert await refused(rig.topics.delete("t")) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        again = await rig.topics.create(NewTopic(name="t"))
        assert again.id != topic.id

    play(scenario)


def test_an_internal_topic_stays(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topics.create(NewTopic(name="__x", internal=True))
        assert await refused(rig.topics.delete("__x")) == ErrorCode.INVALID_TOPIC_EXCEPTION

    play(scenario)


PIPELINES = "__tailrace_pipelines"
COMPACTED = {"cleanup.policy": "compact"}


def test_the_topic_of_the_pipelines_is_made_by_clients_and_internal(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name=PIPELINES, partitions=1, configs=COMPACTED))
        assert topic.internal
        topic.partitions[0].append(read_batch(build_batch([(1, b"k", b"v", ())])))
        again = (await rig.restart()).get(PIPELINES)
        assert again is not None
        assert again.internal
        await rig.topics.delete(PIPELINES)
        assert rig.topics.get(PIPELINES) is None

    play(scenario)


@pytest.mark.parametrize(
    "new",
    [
        NewTopic(name=PIPELINES),
        NewTopic(name=PIPELINES, partitions=2, configs=COMPACTED),
        NewTopic(name=PIPELINES, partitions=1),
        NewTopic(name=PIPELINES, partitions=1, configs={"cleanup.policy": "delete"}),
        NewTopic(name=PIPELINES, assignments={0: [BrokerId(1)], 1: [BrokerId(1)]}, configs=COMPACTED),
    ],
)
def test_the_topic_of_the_pipelines_has_one_shape(play: Play, new: NewTopic) -> None:
    async def scenario(rig: Rig) -> None:
        assert await refused(rig.topics.create(new)) == ErrorCode.INVALID_REQUEST
        assert not rig.storage.logs()

    play(scenario)


@pytest.mark.parametrize("name", ["__tailrace_cursors", "__tailrace_pipelines2", "__consumer_offsets"])
def test_the_brokers_own_names_are_not_for_clients(play: Play, name: str) -> None:
    async def scenario(rig: Rig) -> None:
        new = NewTopic(name=name, partitions=1, configs=COMPACTED)
        assert await refused(rig.topics.create(new)) == ErrorCode.INVALID_REQUEST
        await rig.topics.create(NewTopic(name=name, partitions=1, configs=COMPACTED, internal=True))
        assert await refused(rig.topics.delete(name)) == ErrorCode.INVALID_TOPIC_EXCEPTION

    play(scenario)


def test_a_start_serves_what_was_there_in_a_new_epoch(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(
            NewTopic(name="t", partitions=1, configs={"cleanup.policy": "compact"})
        )
        topic.partitions[0].append(read_batch(build_batch([(1, b"k", b"v", ())])))
        again = (await rig.restart()).get("t")
        assert again is not None
        assert (again.id, again.configs) == (topic.id, {"cleanup.policy": "compact"})
        assert again.partitions[0].leader_epoch == 1
        assert again.partitions[0].high_watermark == 1

    play(scenario)


def test_a_start_finishes_a_deletion(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name="t", partitions=2))
        await rig.metadata.mark_deleted(topic.id)
        topics = await rig.restart()
        assert topics.get("t") is None
        assert not rig.storage.logs()
        assert not (await rig.metadata.begin(NODE)).topics

    play(scenario)


def test_a_start_removes_an_empty_log_that_no_topic_knows(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.storage.create(PartitionId(uuid4(), 0), LogConfig())
        await rig.restart()
        assert not rig.storage.logs()

    play(scenario)


def test_a_start_over_a_full_log_that_no_topic_knows_is_refused_and_changes_nothing(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        empty, full = PartitionId(uuid4(), 0), PartitionId(uuid4(), 0)
        await rig.storage.create(empty, LogConfig())
        log = await rig.storage.create(full, LogConfig())
        log.append(read_batch(build_batch([(1, b"k", b"v", ())])), leader_epoch=Epoch(0))
        with pytest.raises(StorageError, match=f"{full}.*rebuild-metadata"):
            await rig.restart()
        assert [each.partition_id for each in rig.storage.logs()] == [empty, full]

    play(scenario)


def test_a_missing_log_is_reported_and_its_partition_not_served(
    play: Play, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name="t", partitions=2))
        await rig.storage.delete(topic.partitions[1].id)
        monkeypatch.setattr(MemoryStorage, "durable", True)
        again = (await rig.restart()).get("t")
        assert again is not None
        again.partitions[0].check_led()
        assert "log of t-1 is missing" in caplog.text
        assert not again.partitions[1].is_held_here
        with pytest.raises(BrokerError) as error:
            again.partitions[1].check_led()
        assert error.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    play(scenario)


def test_a_topic_whose_record_cannot_be_stored_leaves_no_log(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        async def fail(_: object) -> None:
            raise BrokerError("no", code=ErrorCode.UNKNOWN_SERVER_ERROR)

        monkeypatch.setattr(rig.metadata, "create_topic", fail)
        await refused(rig.topics.create(NewTopic(name="t")))
        assert not rig.storage.logs()
        assert rig.topics.get("t") is None

    play(scenario)


def test_topics_are_listed_by_name(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        for name in ("b", "c", "a"):
            await rig.topics.create(NewTopic(name=name, partitions=1))
        assert [topic.name for topic in rig.topics] == ["a", "b", "c"]

    play(scenario)


@pytest.mark.parametrize("change", ["create", "add_partitions", "delete"])
def test_a_change_is_made_to_its_end_though_its_caller_gave_up(
    play: Play, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """What the metadata says afterwards is what is served, before and after the next start."""

    async def scenario(rig: Rig) -> None:
        began, go_on = asyncio.Event(), asyncio.Event()
        change_metadata = rig.metadata._change

        async def slow(prefix: str, plan: Any) -> None:
            began.set()
            await go_on.wait()
            await change_metadata(prefix, plan)

        if change != "create":
            await rig.topics.create(NewTopic(name="a", partitions=1))
        monkeypatch.setattr(rig.metadata, "_change", slow)
        works: dict[str, Callable[[], Coroutine[Any, Any, object]]] = {
            "create": lambda: rig.topics.create(NewTopic(name="a", partitions=2)),
            "add_partitions": lambda: rig.topics.add_partitions("a", 2),
            "delete": lambda: rig.topics.delete("a"),
        }
        caller = asyncio.ensure_future(works[change]())
        await began.wait()
        caller.cancel()
        await asyncio.gather(caller, return_exceptions=True)
        go_on.set()
        await rig.topics.close()
        monkeypatch.setattr(rig.metadata, "_change", change_metadata)
        served = {topic.name: len(topic.partitions) for topic in rig.topics}
        assert served == ({} if change == "delete" else {"a": 2})
        found = await rig.restart()
        assert {topic.name: len(topic.partitions) for topic in found} == served
        assert len(rig.storage.logs()) == sum(served.values())

    play(scenario)


def test_a_store_that_refuses_more_partitions_leaves_the_topic_as_it_was(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name="a", partitions=1))

        async def full(*_: object) -> None:
            raise BrokerError("the disk is full", code=ErrorCode.KAFKA_STORAGE_ERROR)

        with monkeypatch.context() as patched:
            patched.setattr(rig.metadata, "add_partitions", full)
            assert await refused(rig.topics.add_partitions("a", 3)) == ErrorCode.KAFKA_STORAGE_ERROR
        assert len(topic.partitions) == len(rig.storage.logs()) == 1
        await rig.topics.add_partitions("a", 3)
        assert len(topic.partitions) == 3
        assert not rig.failures

    play(scenario)


def test_a_failing_store_ends_the_broker_and_the_logs_stay_for_the_next_start(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        store = rig.metadata.create_topic

        async def stored_and_then_failed(record: TopicRecord) -> None:
            await store(record)
            raise StorageError("sync", "metadata", "the disk is gone")

        monkeypatch.setattr(rig.metadata, "create_topic", stored_and_then_failed)
        with pytest.raises(StorageError, match="disk is gone"):
            await rig.topics.create(NewTopic(name="a", partitions=2))
        assert [str(error) for error in rig.failures] == ["sync metadata: the disk is gone"]
        topic = (await rig.restart()).get("a")
        assert topic is not None
        assert all(partition.log is not None for partition in topic.partitions)
        assert len(rig.storage.logs()) == 2

    play(scenario)


def test_a_topic_is_gone_though_its_record_cannot_be_removed_yet(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topics.create(NewTopic(name="a"))

        async def full(*_: object) -> None:
            raise BrokerError("the disk is full", code=ErrorCode.KAFKA_STORAGE_ERROR)

        with monkeypatch.context() as patched:
            patched.setattr(rig.metadata, "forget_topic", full)
            await rig.topics.delete("a")
        await rig.topics.create(NewTopic(name="a", partitions=1))
        [topic] = await rig.restart()
        assert len(topic.partitions) == 1

    play(scenario)


def test_all_topics_together_have_a_bound_of_partitions(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topics.create(NewTopic(name="__inside", partitions=5, internal=True))
        await rig.topics.create(NewTopic(name="a", partitions=3))
        too_many = NewTopic(name="b", partitions=3)
        assert await refused(rig.topics.create(too_many)) == ErrorCode.POLICY_VIOLATION
        assert await refused(rig.topics.create(too_many, validate_only=True)) == ErrorCode.POLICY_VIOLATION
        placed = NewTopic(name="b", assignments={index: [NODE] for index in range(3)})
        assert await refused(rig.topics.create(placed)) == ErrorCode.POLICY_VIOLATION
        assert await refused(rig.topics.add_partitions("a", 6)) == ErrorCode.POLICY_VIOLATION
        await rig.topics.add_partitions("a", 5)
        await rig.topics.create(NewTopic(name="__more", partitions=1, internal=True))
        await rig.topics.delete("a")
        await rig.topics.create(too_many)

    play(scenario, values={"max.partitions": "5"})
