"""The cluster and its health by REST, on real nodes: what is counted, and what is said on a bad day."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any
from uuid import UUID

import httpx
import pytest
from tests.unit.http.conftest import Run

import tailrace
from tailrace.broker import NewTopic
from tailrace.broker.groups import CommitRequest, OffsetToCommit
from tailrace.http import HttpApp
from tailrace.model import BrokerError, ErrorCode, NoSpace, StorageError, TopicPartition
from tailrace.records import build_batch, read_batch
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node
from tailrace.storage.segment import SegmentStorage

CLUSTER = "/api/v1/cluster"
HEALTH = "/api/v1/cluster/health"


@asynccontextmanager
async def mounted(app: HttpApp) -> AsyncIterator[httpx.AsyncClient]:
    """A client of an app that no port is bound to."""
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


@asynccontextmanager
async def node_with(**fields: Any) -> AsyncIterator[Node]:
    config = {"engine": "memory", "kafka_port": 0, "native_port": 0, "http_port": 0, **fields}
    node = Node(ServerConfig(**config), owns_loop=False)
    await node.start()
    try:
        yield node
    finally:
        await node.close()


async def ask(client: httpx.AsyncClient, path: str = HEALTH) -> dict[str, Any]:
    answer = await client.get(path)
    assert answer.status_code == 200, answer.text
    found: dict[str, Any] = answer.json()
    return found


def by_check(found: dict[str, Any]) -> dict[str, dict[str, str]]:
    return {each["check"]: each for each in found["findings"]}


# ---- the cluster


def test_a_node_alone_is_a_cluster(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        found = await ask(client, CLUSTER)
        assert found["cluster_id"] == node.broker.cluster.cluster_id
        assert (found["controller_id"], found["version"]) == (1, tailrace.__version__)
        assert (found["engine"], found["fsync"], found["data_dir"]) == ("memory", "commit", "")
        (shown,) = found["nodes"]
        assert 0 <= shown.pop("uptime_s") < 60
        assert shown == {
            "node_id": 1,
            "host": "127.0.0.1",
            "kafka": node.kafka_address,
            "native": node.native_address,
            "http": node.http_address,
            "version": tailrace.__version__,
            "is_this": True,
        }

    run(scenario())


def test_what_people_made_is_counted(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        empty = await ask(client, CLUSTER)
        counted = ("topics", "partitions", "groups", "subscriptions", "under_replicated", "offline")
        assert [empty[name] for name in counted] == [0, 0, 0, 0, 0, 0]
        await node.broker.topics.create(NewTopic(name="a", partitions=3))
        await node.broker.topics.create(NewTopic(name="b", partitions=2))
        offsets = {TopicPartition("a", 0): OffsetToCommit(0)}
        await node.broker.groups.commit_offsets(CommitRequest(group_id="g", offsets=offsets))
        assert node.broker.topics.get("__consumer_offsets") is not None  # the broker's own do not count
        created = await client.post("/api/v1/subscriptions", json={"name": "s", "topic": "a"})
        assert created.status_code == 201, created.text
        found = await ask(client, CLUSTER)
        assert [found[name] for name in counted] == [2, 5, 1, 1, 0, 0]

    run(scenario())


def test_groups_that_are_still_read_are_not_counted(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    def loading(**_: object) -> None:
        raise BrokerError("still reading", code=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)

    async def scenario() -> None:
        monkeypatch.setattr(node.broker.groups, "list_groups", loading)
        assert (await ask(client, CLUSTER))["groups"] is None

    run(scenario())


def test_an_advertised_address_is_what_others_are_told(run: Run) -> None:
    async def scenario() -> None:
        async with (
            node_with(advertised=("broker.example", 19092)) as node,
            mounted(node.http_app()) as client,
        ):
            (shown,) = (await ask(client, CLUSTER))["nodes"]
            assert (shown["host"], shown["kafka"]) == ("broker.example", "broker.example:19092")

    run(scenario())


# ---- health


def test_a_node_that_has_just_started_is_healthy(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        found = await ask(client)
        assert (found["status"], found["limit"]) == ("healthy", "none")
        assert found["summary"].startswith("Healthy: ")
        checks = by_check(found)
        assert checks.keys() >= {"broker", "partitions", "memory", "file descriptors", "connections"}
        assert "free space" not in checks  # the log is in memory
        assert checks["connections"]["found"].startswith("http 1, kafka 0, native 0, of ")

    run(scenario())


def test_what_the_sampler_saw_is_told(run: Run, node: Node) -> None:
    async def scenario() -> None:
        app = node.http_app()
        await app.service.metrics.sampler.sample()
        await asyncio.sleep(0.01)  # rates are of the time between two looks
        await app.service.metrics.sampler.sample()
        async with mounted(app) as client:
            found = await ask(client)
        assert found["summary"] == "Healthy: nothing comes in now."
        assert by_check(found).keys() >= {"cpu", "event loop", "lag"}

    run(scenario())


def test_a_disk_has_room(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with node_with(engine="segment", data_dir=tmp_path) as node, mounted(node.http_app()) as client:
            found = await ask(client)
            cluster = await ask(client, CLUSTER)
        assert (cluster["engine"], cluster["data_dir"]) == ("segment", str(tmp_path))
        assert found["status"] == "healthy"
        assert " free." in found["summary"]
        assert by_check(found)["free space"]["status"] == "ok"

    run(scenario())


def test_a_disk_without_room_is_what_limits(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = {"disk.free.min": str(1 << 62)}
        async with (
            node_with(engine="segment", data_dir=tmp_path, broker=broker) as node,
            mounted(node.http_app()) as client,
        ):
            found = await ask(client)
        assert (found["status"], found["limit"]) == ("unhealthy", "disk")
        assert found["summary"].startswith("Unhealthy: the disk is full: writes are refused")
        assert "free some space" in by_check(found)["free space"]["advice"]

    run(scenario())


def test_a_node_that_refuses_writes_says_so_whatever_is_free(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        broker = {"disk.free.min": "0"}
        async with (
            node_with(engine="segment", data_dir=tmp_path, broker=broker) as node,
            mounted(node.http_app()) as client,
        ):
            topic = await node.broker.topics.create(NewTopic(name="t"))
            storage = node.broker.storage
            assert isinstance(storage, SegmentStorage)
            directory = storage.directory
            directory.refuse_for_space("Disk quota exceeded")
            with pytest.raises(NoSpace):
                topic.partitions[0].append(read_batch(build_batch([(0, None, b"v", ())])))
            for path in ("/health", "/health/ready"):
                answer = await client.get(path)
                told = answer.json()
                assert (answer.status_code, told["status"]) == (200, "degraded")
                assert "writes are refused" in told["reason"] and "quota" in told["reason"]
            found = await ask(client)
            assert (found["status"], found["limit"]) == ("unhealthy", "disk")
            assert found["summary"].startswith("Unhealthy: the disk is full: writes are refused")
            assert "Disk quota exceeded" in by_check(found)["free space"]["advice"]
            assert (await client.get("/api/v1/topics/t/records")).status_code == 200
            directory.check_space()
            assert (await ask(client, "/health"))["status"] == "ok"
            assert (await ask(client, "/health/ready"))["status"] == "ready"
            assert (await ask(client))["status"] == "healthy"

    run(scenario())


def test_a_damaged_partition_is_told_until_its_records_are_given_up(run: Run, tmp_path: Path) -> None:
    damaged: list[UUID] = []

    async def fill() -> None:
        async with node_with(engine="segment", data_dir=tmp_path) as node, mounted(node.http_app()) as client:
            for topic in ("broken", "sound"):
                body = {"records": [{"value": "v" * 300, "partition": 0}]}
                assert (await client.post(f"/api/v1/topics/{topic}/records", json=body)).status_code == 200
            damaged.append(UUID((await ask(client, "/api/v1/topics/broken"))["topic_id"]))

    async def look() -> None:
        async with node_with(engine="segment", data_dir=tmp_path) as node, mounted(node.http_app()) as client:
            for path in ("/health", "/health/ready"):
                told = await ask(client, path)
                assert told["status"] == "degraded"
                assert told["reason"] == (
                    "1 partition takes no appends, because records are damaged: broken-0"
                )
            found = await ask(client)
            assert found["status"] == "unhealthy"
            assert "broken-0" in found["summary"]
            advice = by_check(found)["damage"]["advice"]
            assert "tailrace topic purge broken --partition 0" in advice
            records = "/api/v1/topics/broken/records"
            refused = await client.post(records, json={"records": [{"value": "w", "partition": 0}]})
            assert refused.status_code == 500 and "purge" in refused.json()["error"]["message"]
            assert (await client.delete(f"{records}?partition=0&before=latest")).status_code == 200
            stored = await client.post(records, json={"records": [{"value": "w", "partition": 0}]})
            assert stored.json() == {"offsets": [{"partition": 0, "offset": 1}]}
            assert (await ask(client, "/health"))["status"] == "ok"
            assert (await ask(client))["status"] == "healthy"

    run(fill())
    (path,) = tmp_path.glob(f"{damaged[0].hex}-0-*/*.log")
    data = bytearray(path.read_bytes())
    data[100] ^= 1
    path.write_bytes(data)
    run(look())


def test_a_clock_that_is_not_believed_is_told(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        assert (await ask(client, "/health"))["reason"] == ""
        clock = node.broker.clock
        clock.hold(clock.now_ms() - 40 * 86_400_000 - 60_000)
        for path in ("/health", "/health/ready"):
            told = await ask(client, path)
            assert told["status"] == "degraded"
            assert "the clock is 40 days ahead" in told["reason"]
            assert "nothing expires" in told["reason"]

    run(scenario())


def test_partitions_that_nobody_can_use_are_told(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        topic = await node.broker.topics.create(NewTopic(name="t", partitions=3))
        topic.partitions[0].record = replace(topic.partitions[0].record, isr=())
        found = await ask(client)
        assert (found["status"], found["limit"]) == ("degraded", "none")
        assert "1 partition with a replica that is not in sync" in found["summary"]
        topic.partitions[1].close()
        found = await ask(client)
        assert (found["status"], found["limit"]) == ("unhealthy", "none")
        assert "1 partition cannot be read or written" in found["summary"]
        cluster = await ask(client, CLUSTER)
        assert (cluster["under_replicated"], cluster["offline"]) == (1, 1)

    run(scenario())


def test_a_broker_that_failed_says_why_and_still_answers(
    run: Run, node: Node, client: httpx.AsyncClient, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        with caplog.at_level(logging.CRITICAL):
            node.broker._fail(StorageError("sync", "/d", "Input/output error", hint="Look at the disk"))
        found = await ask(client)
        assert (found["status"], found["limit"]) == ("unhealthy", "disk")
        assert found["summary"].startswith("Unhealthy: the broker failed: sync /d: Input/output error")
        assert (await client.get("/health/ready")).status_code == 503

    run(scenario())


def test_connections_are_counted_against_what_is_allowed(run: Run) -> None:
    async def scenario() -> None:
        async with (
            node_with(broker={"max.connections": "1"}) as node,
            httpx.AsyncClient(base_url=f"http://{node.http_address}") as client,
        ):
            found = await ask(client)
        assert (found["status"], found["limit"]) == ("unhealthy", "connections")
        assert found["summary"].startswith("Unhealthy: the http listener has 1 of at most 1 connections")

    run(scenario())
