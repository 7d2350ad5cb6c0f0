"""Cuts by REST, on real nodes: made, renewed, let go, and ended by themselves."""

from __future__ import annotations

import sqlite3
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.unit.http.conftest import DEADLINE_S, Run, check_error, wait_until

from tailrace.broker import NewTopic
from tailrace.http.error import Code
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node

CUTS = "/api/v1/cluster/cuts"


@asynccontextmanager
async def served(data_dir: Path) -> AsyncIterator[tuple[Node, httpx.AsyncClient]]:
    node = Node(ServerConfig(data_dir=data_dir, kafka_port=0, native_port=0, http_port=0), owns_loop=False)
    await node.start()
    try:
        base = f"http://{node.http_address}"
        async with httpx.AsyncClient(base_url=base, timeout=DEADLINE_S, trust_env=False) as client:
            yield node, client
    finally:
        await node.close()


async def begin(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.post(CUTS)
    assert answer.status_code == 201, answer.text
    found: dict[str, Any] = answer.json()
    return found


def check_files(path: Path) -> None:
    """Two logs, and a whole database without a write-ahead log."""
    logs = [each for each in path.iterdir() if each.is_dir() and each.name != "journal"]
    assert len(logs) == 2
    with closing(sqlite3.connect(path / "metadata.sqlite")) as database:
        assert database.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    assert sorted(each.name for each in path.glob("metadata.sqlite*")) == ["metadata.sqlite"]


def test_a_cut_has_logs_and_metadata_until_it_is_let_go(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path / "data") as (node, client):
            await node.broker.topics.create(NewTopic(name="orders", partitions=2))
            made = await begin(client)
            path = Path(made["path"])
            assert path.parent == tmp_path / "data" and not made["spoiled"]
            assert made["cluster_id"] == node.broker.cluster.cluster_id
            check_files(path)
            renewed = await client.put(f"{CUTS}/{made['cut']}")
            assert renewed.status_code == 200 and renewed.json() == made
            for _ in range(2):
                assert (await client.delete(f"{CUTS}/{made['cut']}")).status_code == 204
            assert not list((tmp_path / "data").glob("cut-*"))
            check_error(await client.put(f"{CUTS}/{made['cut']}"), Code.INVALID_REQUEST, "lease", status=404)

    run(scenario())


def test_a_cut_that_nobody_renews_ends(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.cuts.LEASE_S", 0.01)

    async def scenario() -> None:
        async with served(tmp_path / "data") as (_, client):
            path = Path((await begin(client))["path"])
            await wait_until(lambda: not path.exists())

    run(scenario())


def test_cuts_are_few_and_one_place_is_free_again_when_one_ends(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path / "data") as (_, client):
            names = [(await begin(client))["cut"] for _ in range(4)]
            assert len(set(names)) == 4
            check_error(await client.post(CUTS), Code.BROKER_NOT_AVAILABLE, "4 backups are under way")
            await client.delete(f"{CUTS}/{names[0]}")
            await begin(client)

    run(scenario())


def test_a_stop_removes_the_cuts(run: Run, tmp_path: Path) -> None:
    async def scenario() -> None:
        async with served(tmp_path / "data") as (_, client):
            await begin(client)

    run(scenario())
    assert not list((tmp_path / "data").glob("cut-*"))


def test_a_log_in_memory_has_no_files_to_back_up(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        check_error(await client.post(CUTS), Code.INVALID_REQUEST, "in memory")

    run(scenario())


def test_metadata_that_cannot_be_copied_leaves_no_cut_and_the_broker_goes_on(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def failing(*_: object) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    monkeypatch.setattr("tailrace.cluster.metadata.write_copy", failing)

    async def scenario() -> None:
        async with served(tmp_path / "data") as (node, client):
            check_error(await client.post(CUTS), Code.BROKER_NOT_AVAILABLE, "disk I/O error")
            assert not list((tmp_path / "data").glob("cut-*"))
            await node.broker.topics.create(NewTopic(name="orders", partitions=1))

    run(scenario())
