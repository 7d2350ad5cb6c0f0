"""A broker in memory with a snapshot: what a clean stop keeps, what a crash loses, and what is refused."""

from __future__ import annotations

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.client import AsyncClient, BrokerClient, KafkaClient, TopicPartition
from tailrace.client.admin import delete_topic
from tailrace.errors import ConfigError, StorageError
from tailrace.server.config import ServerConfig
from tailrace.server.configuration import read_config
from tailrace.server.engines import ENGINES
from tailrace.server.node import Node
from tailrace.storage.memory import MemoryStorage, Snapshots

GROUP_TOPIC = "__consumer_offsets"


def values(broker: tailrace.Broker, topic: str) -> list[bytes | None]:
    return [record.value for record in broker.read(topic)]


async def leader_epoch(broker: tailrace.Broker, topic: str) -> int:
    async with KafkaClient(broker.bootstrap_servers) as client:
        return (await client.leader(TopicPartition(topic, 0))).leader_epoch


def test_a_clean_stop_keeps_topics_messages_and_cursors(tmp_path: Path) -> None:
    with tailrace.Broker(snapshot=tmp_path / "s") as broker:
        broker.create_topic("orders", 2, configs={"retention.ms": 86_400_000})
        with BrokerClient(port=broker.native_port) as client:
            for number in range(5):
                client.publish("orders", b"v%d" % number, key="k")
            client.create_subscription("workers", "orders")
            for message in client.pull("workers", 3):
                message.ack()
    with tailrace.Broker(snapshot=tmp_path / "s") as broker:
        assert values(broker, "orders") == [b"v%d" % number for number in range(5)]
        with BrokerClient(port=broker.native_port) as client:
            assert client.describe_topic("orders")["configs"]["retention.ms"] == "86400000"
            assert [message.body for message in client.pull("workers", 10)] == [b"v3", b"v4"]
            client.publish("orders", b"more", key="k")
    with tailrace.Broker(snapshot=tmp_path / "s") as broker:
        assert len(values(broker, "orders")) == 6


def test_a_transaction_survives_whole(tmp_path: Path) -> None:
    with tailrace.Broker(snapshot=tmp_path / "s") as broker:
        with broker.transaction() as tx:
            tx.produce("orders", b"committed")
        tx = broker.transaction()
        tx.__enter__()
        tx.produce("orders", b"aborted")
        tx.__exit__(RuntimeError, RuntimeError(), None)
    with tailrace.Broker(snapshot=tmp_path / "s") as broker:
        assert values(broker, "orders") == [b"committed"]


def crashed(source: Path, target: Path) -> Path:
    """The directory as a power cut leaves it now: what is durable of a broker that runs on."""
    shutil.copytree(source, target, ignore=shutil.ignore_patterns("LOCK"))
    return target


def test_a_crash_loses_messages_since_the_snapshot_and_no_number_is_given_out_twice(tmp_path: Path) -> None:
    first, second, third = (tmp_path / name for name in ("first", "second", "third"))
    with tailrace.Broker(snapshot=first) as broker:
        broker.produce("orders", b"kept")
    with tailrace.Broker(snapshot=first) as broker:
        broker.produce("orders", b"lost")
        broker.create_topic("later")
        broker.produce("later", b"lost too")
        epochs = [asyncio.run(leader_epoch(broker, "orders"))]
        crashed(first, second)
    with tailrace.Broker(snapshot=second) as broker:
        assert values(broker, "orders") == [b"kept"] and values(broker, "later") == []
        epochs.append(asyncio.run(leader_epoch(broker, "orders")))
        broker.produce("orders", b"other value at the same offset")
        crashed(second, third)
    with tailrace.Broker(snapshot=third) as broker:  # the same snapshot, and yet another epoch
        epochs.append(asyncio.run(leader_epoch(broker, "orders")))
        broker.produce("orders", b"third value at that offset")
        assert values(broker, "orders") == [b"kept", b"third value at that offset"]
    assert epochs == sorted(set(epochs)), "one value per (partition, offset, epoch)"


def test_a_crash_brings_no_deleted_topic_back(tmp_path: Path) -> None:
    with tailrace.Broker(snapshot=tmp_path / "s") as broker:
        broker.produce("orders", b"old")
    with tailrace.Broker(snapshot=tmp_path / "s") as broker:

        async def remake() -> None:
            async with KafkaClient(broker.bootstrap_servers) as client:
                await delete_topic(client, "orders")

        asyncio.run(remake())
        broker.create_topic("orders")
        crashed(tmp_path / "s", tmp_path / "t")
    with tailrace.Broker(snapshot=tmp_path / "t") as broker:
        assert values(broker, "orders") == []


def test_producers_go_on_after_a_clean_stop(tmp_path: Path) -> None:
    """A client that repeats what was stored before the stop is recognised after the start."""

    async def work() -> None:
        port = 0
        async with tailrace.AsyncBroker(snapshot=tmp_path / "s") as broker:
            port = broker.native_port
            client = AsyncClient("127.0.0.1", port)
            await client.connect()
            await client.publish("orders", b"one")
        async with tailrace.AsyncBroker(snapshot=tmp_path / "s", native_port=port) as broker:
            await client.publish("orders", b"two")
            assert [each.value async for each in broker.read("orders")] == [b"one", b"two"]
            await client.disconnect()

    asyncio.run(asyncio.wait_for(work(), 30))


def test_a_damaged_snapshot_stops_the_start_with_the_fix(tmp_path: Path) -> None:
    with tailrace.Broker(snapshot=tmp_path) as broker:
        broker.produce("orders", b"v")
    path = tmp_path / "rings.snapshot"
    path.write_bytes(path.read_bytes()[:-1])
    for _ in range(2):  # a refused start leaves no lock
        with pytest.raises(StorageError, match=r"it is damaged, and nothing of it was loaded.*mv .*damaged"):
            tailrace.Broker(snapshot=tmp_path).start()
    path.rename(tmp_path / "rings.snapshot.damaged")
    with tailrace.Broker(snapshot=tmp_path) as broker:
        assert values(broker, "orders") == []


def test_a_snapshot_without_its_metadata_is_refused(tmp_path: Path) -> None:
    for name in ("one", "other"):
        with tailrace.Broker(snapshot=tmp_path / name) as broker:
            broker.produce("orders", b"v")
    shutil.copy(tmp_path / "other" / "rings.snapshot", tmp_path / "one" / "rings.snapshot")
    with pytest.raises(StorageError, match=r"of cluster .* metadata beside it of .*Put back the metadata"):
        tailrace.Broker(snapshot=tmp_path / "one").start()
    for path in (tmp_path / "other").glob("metadata*"):
        path.unlink()
    with pytest.raises(StorageError, match="metadata is missing or empty"):
        tailrace.Broker(snapshot=tmp_path / "other").start()


def test_two_brokers_do_not_share_a_snapshot(tmp_path: Path) -> None:
    with (
        tailrace.Broker(snapshot=tmp_path),
        pytest.raises(StorageError, match="in use by pid"),
    ):
        tailrace.Broker(snapshot=tmp_path).start()


def test_users_come_back(tmp_path: Path) -> None:
    config = ServerConfig(
        kafka_port=0, native_port=0, engine="memory", engine_settings={"snapshot.path": str(tmp_path / "s")}
    )

    async def work(create: bool) -> list[str]:
        node = Node(config, owns_loop=True)
        await node.start()
        try:
            if create:
                from tailrace.security import Secret

                await node.broker.users.create("alice", Secret("open sesame, 42"))
            return list(node.broker.users)
        finally:
            await node.close()

    asyncio.run(work(True))
    assert asyncio.run(work(False)) == ["alice"]


# ---- settings


def test_the_settings_have_their_names_in_the_file(tmp_path: Path) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text(
        f'[storage]\nengine = "memory"\n[memory]\nsnapshot.path = "{tmp_path}"\nsnapshot.interval.ms = 500\n'
    )
    config = read_config(file=file, environment={}).server()
    assert config.engine_settings == {"snapshot.path": str(tmp_path), "snapshot.interval.ms": 500}
    facts = ENGINES["memory"].describe(config)
    assert facts.place == f"memory, snapshot in {tmp_path}" and not facts.durable


def test_the_interval_reaches_the_engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    real = Snapshots.__init__

    def init(self: Snapshots, directory: Path, **given: Any) -> None:
        seen.append(given)
        real(self, directory, **given)

    monkeypatch.setattr(Snapshots, "__init__", init)
    settings: dict[str, Any] = {"snapshot.path": str(tmp_path), "snapshot.interval.ms": 500}
    config = ServerConfig(kafka_port=0, native_port=0, engine="memory", engine_settings=settings)

    async def work() -> None:
        node = Node(config, owns_loop=True)
        await node.start()
        assert isinstance(node.broker.topics._storage, MemoryStorage)
        await node.close()

    asyncio.run(work())
    assert seen[0]["interval_ms"] == 500


def test_a_data_directory_and_a_snapshot_exclude_each_other(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="data_dir keeps everything, and snapshot is of a broker in memory"):
        tailrace.Broker(data_dir=tmp_path, snapshot=tmp_path)
