"""The audit log of a real node that asks for logins: what REST and the command show of it."""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest

from tailrace.cli.exit import ExitCode
from tailrace.cli.main import main
from tailrace.client.broker_client import BrokerClient
from tailrace.model import BrokerError
from tailrace.model.address import Address
from tailrace.security import Secret
from tailrace.server.config import ServerConfig
from tailrace.server.listener import ListenerConfig
from tailrace.server.node import Node

WORD = "open: sesame, 42"
"""A password that must be in no entry and no log line."""


def config(**more: object) -> ServerConfig:
    any_port = Address("127.0.0.1", 0)
    listeners = (
        ListenerConfig(name="kafka", protocol="kafka", address=any_port, sasl=("SCRAM-SHA-256",)),
        ListenerConfig(name="native", protocol="native", address=any_port, sasl=("SCRAM-SHA-256", "PLAIN")),
        ListenerConfig(name="web", protocol="http", address=any_port, sasl=("PLAIN",)),
    )
    return ServerConfig(engine="memory", listeners=listeners, **more)  # type: ignore[arg-type]


@asynccontextmanager
async def started(**more: object) -> AsyncIterator[tuple[Node, httpx.AsyncClient]]:
    node = Node(config(**more), owns_loop=False)
    await node.start()
    try:
        await node.broker.users.create("alice", Secret(WORD))
        address = f"http://{node.http_address}"
        async with httpx.AsyncClient(base_url=address, auth=("alice", WORD)) as client:
            yield node, client
    finally:
        await node.close()


async def entries(client: httpx.AsyncClient, count: int, **query: str) -> list[dict[str, object]]:
    """The first entries, once there are that many."""
    found: list[dict[str, object]] = []
    async with asyncio.timeout(30):
        while len(found) < count:
            answer = await client.get("/api/v1/audit", params={"offset": 0, "timeout": 1000, **query})
            assert answer.status_code == 200, answer.text
            found = answer.json()["entries"]
    return found


def test_logins_and_changes_of_a_node_are_told() -> None:
    async def scenario() -> None:
        async with started() as (_, client):
            wrong = await client.get("/api/v1/topics", auth=("alice", "not-the-word"))
            unknown = await client.get("/api/v1/topics", auth=("pa55word-typed-as-a-name", "x" * 9))
            assert (wrong.status_code, unknown.status_code) == (401, 401)
            created = await client.post("/api/v1/topics", json={"name": "orders"})
            assert created.status_code == 201
            made = {"name": "bob", "password": WORD + "!"}
            assert (await client.post("/api/v1/users", json=made)).status_code == 201
            assert (await client.patch("/api/v1/users/bob", json={"enabled": False})).status_code == 200
            assert (await client.delete("/api/v1/users/bob")).status_code == 204
            found = await entries(client, 8)
            assert [
                (each["event"], each["result"], each["principal"], each["resource"]) for each in found
            ] == [
                ("audit.start", "ok", "Broker:internal", ""),
                ("login", "failed", "User:alice", ""),
                ("login", "failed", "", ""),
                ("login", "ok", "User:alice", ""),
                ("topic.create", "ok", "User:alice", "topic 'orders'"),
                ("user.create", "ok", "User:alice", "user 'bob'"),
                ("user.disable", "ok", "User:alice", "user 'bob'"),
                ("user.delete", "ok", "User:alice", "user 'bob'"),
            ]
            login = found[3]
            assert (login["address"], login["listener"], login["mechanism"]) == ("127.0.0.1", "web", "Basic")
            assert WORD not in json.dumps(found) and "pa55word" not in json.dumps(found)

    asyncio.run(scenario())


@pytest.mark.parametrize("word", [WORD, "not-the-word"])
def test_native_logins_by_scram_are_told_with_the_listener(word: str) -> None:
    async def scenario() -> None:
        async with started() as (node, client):

            def connect() -> bool:
                native = BrokerClient(
                    host="127.0.0.1", port=node.native_port, username="alice", password=word, reconnect=None
                )
                try:
                    native.connect()
                except BrokerError:
                    return False
                native.disconnect()
                return True

            came = await asyncio.to_thread(connect)
            _, login, *_ = await entries(client, 2)
            assert came is (word == WORD)
            assert (login["event"], login["result"]) == ("login", "ok" if came else "failed")
            assert (login["listener"], login["mechanism"]) == ("native", "SCRAM-SHA-256")
            assert login["principal"] == "User:alice"

    asyncio.run(scenario())


@pytest.mark.parametrize(
    ("query", "events"),
    [
        ({"event": "topic"}, ["topic.create", "topic.delete"]),
        ({"event": "topic.delete"}, ["topic.delete"]),
        ({"event": "top"}, []),
        ({"result": "failed"}, []),
        ({"principal": "Broker:internal"}, ["audit.start"]),
    ],
)
def test_entries_are_filtered(query: dict[str, str], events: list[str]) -> None:
    async def scenario() -> None:
        async with started() as (_, client):
            await client.post("/api/v1/topics", json={"name": "orders"})
            await client.delete("/api/v1/topics/orders")
            await entries(client, 4)
            answer = await client.get("/api/v1/audit", params=query)
            assert [each["event"] for each in answer.json()["entries"]] == events
            newest = await client.get("/api/v1/audit", params={"limit": 1})
            assert [each["event"] for each in newest.json()["entries"]] == ["topic.delete"]
            assert newest.json()["next_offset"] == 4

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "query", [{"limit": "0"}, {"limit": "1001"}, {"offset": "-1"}, {"event": ""}, {"x": "1"}]
)
def test_a_query_that_makes_no_sense_is_refused(query: dict[str, str]) -> None:
    async def scenario() -> None:
        async with started() as (_, client):
            assert (await client.get("/api/v1/audit", params=query)).status_code == 400

    asyncio.run(scenario())


def test_a_node_without_logins_has_no_audit_log_and_says_how_to_have_one() -> None:
    async def scenario() -> None:
        node = Node(ServerConfig(engine="memory", kafka_port=0, native_port=0, http_port=0), owns_loop=False)
        await node.start()
        try:
            async with httpx.AsyncClient(base_url=f"http://{node.http_address}") as client:
                answer = await client.get("/api/v1/audit")
            assert answer.status_code == 404
            assert 'audit = "on" in [security]' in answer.json()["error"]["message"]
        finally:
            await node.close()

    asyncio.run(scenario())


def test_it_can_be_switched_off() -> None:
    async def scenario() -> None:
        async with started(audit="off") as (_, client):
            assert (await client.get("/api/v1/audit")).status_code == 404

    asyncio.run(scenario())


# ---- the command


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A node in a thread of its own, for a command that blocks."""
    import threading

    loop, ready, done = asyncio.new_event_loop(), threading.Event(), asyncio.Event()
    found: list[str] = []

    async def serve() -> None:
        async with started() as (node, client):
            await client.post("/api/v1/topics", json={"name": "orders"})
            await entries(client, 3)
            found.append(str(node.http_address))
            ready.set()
            await done.wait()

    thread = threading.Thread(target=lambda: loop.run_until_complete(serve()))
    thread.start()
    assert ready.wait(30)
    yield found[0]
    loop.call_soon_threadsafe(done.set)
    thread.join(30)
    loop.close()


def test_the_command_lists_entries(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_USER", "alice")
    monkeypatch.setenv("TAILRACE_PASSWORD", WORD)
    assert main(["audit", "list", "--http", address, "-o", "json"]) == ExitCode.OK
    rows = json.loads(capsys.readouterr().out)
    assert [row["event"] for row in rows] == ["audit.start", "login", "topic.create"]
    assert main(["audit", "list", "--http", address, "--event", "topic"]) == ExitCode.OK
    shown = capsys.readouterr().out
    assert "topic.create" in shown and "User:alice" in shown and "login" not in shown


def test_the_command_needs_a_login(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TAILRACE_USER", raising=False)
    assert main(["audit", "list", "--http", address]) == ExitCode.AUTH
    assert "user and a password" in capsys.readouterr().err


def test_the_command_follows_the_log(
    address: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """It shows what is there, then waits: a topic that is made meanwhile ends the wait."""
    monkeypatch.setenv("TAILRACE_USER", "alice")
    monkeypatch.setenv("TAILRACE_PASSWORD", WORD)
    from tailrace.cli import audit

    rows = audit._follow(address, {"event": "topic", "principal": None, "result": None})
    assert next(rows)["resource"] == "topic 'orders'"
    token = b64encode(f"alice:{WORD}".encode()).decode()
    headers = {"authorization": f"Basic {token}"}
    httpx.post(f"http://{address}/api/v1/topics", json={"name": "later"}, headers=headers).raise_for_status()
    assert next(rows)["resource"] == "topic 'later'"
