"""The one budget of a node's requests, met by real clients of its listeners: none of them starves another."""

from __future__ import annotations

import asyncio
from contextlib import AsyncExitStack

import httpx
import pytest

from tailrace.broker import NewTopic
from tailrace.broker.appending import Stored
from tailrace.client import AsyncClient
from tailrace.http import HttpConfig
from tailrace.http.error import Code
from tailrace.net.budget import LISTENERS
from tailrace.server.node import Node

from .conftest import Run, Serve, Wire, both_loops, check_error, wait_until
from .rig import get, listening, only_connection
from .test_produce import RECORDS, create

KIB = 1024
SMALL = {"queued.max.request.bytes": str(600 * KIB)}  # 100 KiB of it for each listener, half of that for all


def take_everything(node: Node, *listeners: str) -> dict[str, int]:
    """Take all that some listeners may use, as their clients would."""
    taken = dict.fromkeys(listeners, 0)
    for listener in listeners:
        budget = node.budget.share(listener)
        for size in (10 * KIB, 1):
            while budget.take_nowait(size):
                taken[listener] += size
    return taken


@both_loops
def test_the_listeners_of_a_node_share_one_budget(run: Run, node: Node) -> None:
    shares = node.budget.shares
    assert node.http_app().service.budget is shares["http"]
    assert node._kafka[0].budget is shares["kafka"]
    assert node._native[0].budget is shares["native"]


@pytest.mark.parametrize("greedy", LISTENERS)
def test_a_greedy_listener_leaves_the_others_something(run: Run, serve: Serve, greedy: str) -> None:
    node, client = serve(broker=SMALL)

    async def scenario() -> None:
        await create(node)
        taken = take_everything(node, greedy)
        body = b"x" * 40 * KIB
        if greedy != "http":
            answer = await client.post(
                RECORDS, content=body, headers={"content-type": "application/octet-stream"}
            )
            assert answer.status_code == 200
        if greedy != "native":
            async with AsyncClient(port=node.native_port) as native:
                await native.publish("t", body)
        node.budget.share(greedy).give(taken[greedy])

    run(scenario())


@both_loops
def test_a_body_without_room_is_not_read_and_answered_when_there_is(run: Run, serve: Serve) -> None:
    node, _ = serve(broker=SMALL)
    budget = node.budget.share("http")

    async def scenario() -> None:
        await create(node)
        taken = take_everything(node, "kafka", "native", "http")
        head = (
            b"POST %s HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/octet-stream\r\n"
            % RECORDS.encode()
        )
        async with Wire.to(node) as wire:
            await wire.send(head + b"content-length: %d\r\n\r\n" % (1000 * KIB))
            sending = asyncio.create_task(wire.send(*[b"x" * KIB] * 1000))
            await wait_until(lambda: budget.exhausted)
            await asyncio.sleep(0.05)
            assert budget.used == taken["http"]
            for listener, size in taken.items():
                node.budget.share(listener).give(size)
            await sending
            status, _, _ = await wire.answer()
            assert status == 200
        assert budget.used == 0

    run(scenario())


def test_a_body_for_which_no_room_comes_is_refused(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(body_timeout_s=0.05), broker=SMALL)

    async def scenario() -> None:
        await create(node)
        taken = take_everything(node, "http")
        answer = await client.post(RECORDS, json={"records": [{"value": "x"}]})
        check_error(answer, Code.BROKER_NOT_AVAILABLE, "no room for this request")
        assert answer.headers["retry-after"] == "10"
        answer = await client.post(
            RECORDS, content=b'{"value": "x"}\n', headers={"content-type": "application/x-ndjson"}
        )
        check_error(answer, Code.BROKER_NOT_AVAILABLE, "no room for this request")
        assert (await client.get(RECORDS)).status_code == 200, "a request without a body needs no room"
        node.budget.share("http").give(taken["http"])

    run(scenario())


def test_a_body_counts_until_its_request_is_answered(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    budget = node.budget.share("http")
    used: list[int] = []
    wait_acknowledged = Stored.wait_acknowledged

    async def wait_noting(stored: Stored) -> None:
        used.append(budget.used)
        await wait_acknowledged(stored)

    monkeypatch.setattr(Stored, "wait_acknowledged", wait_noting)

    async def scenario() -> None:
        await create(node)
        content = b'{"records": [{"value": "x"}]}'
        answer = await client.post(RECORDS, content=content, headers={"content-type": "application/json"})
        assert answer.status_code == 200
        assert used == [len(content)] and budget.used == 0

    run(scenario())


def test_a_pull_that_waits_for_messages_does_not_count(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await node.broker.topics.create(NewTopic(name="t", partitions=1))
        made = await client.post("/api/v1/subscriptions", json={"name": "s", "topic": "t"})
        assert made.status_code == 201
        service = node.http_app().service
        pulling = asyncio.create_task(client.post("/api/v1/subscriptions/s/pull", json={"wait_ms": 20_000}))
        subscription = node.broker.subscriptions.get("s")
        await wait_until(lambda: bool(subscription is not None and subscription.members))
        assert service.budget.used == 0
        await client.post(RECORDS, json={"records": [{"value": "x"}]})
        assert len((await pulling).json()["messages"]) == 1

    run(scenario())


# ---- answers that nobody reads


@both_loops
def test_answers_that_are_not_read_are_bounded_for_the_node(run: Run) -> None:
    async def scenario() -> None:
        async with listening(HttpConfig()) as (listener, stage), AsyncExitStack() as stack:
            unread = listener.service.budget.unread
            unread.node.bytes_max = 64 << 20
            stage.answer_bytes = 32 << 20
            for _ in range(8):
                wire = await stack.enter_async_context(Wire.to(listener))
                await wire.send(get("/large"))
            await wait_until(lambda: len(stage.began) == 8 and len(listener.connections) <= 4)
            assert unread.bytes <= unread.node.bytes_max and unread.node.closed >= 4
            await wait_until(
                lambda: sum(each.buffered_bytes for each in listener.connections) <= unread.node.bytes_max
            )
            last = await wire.answer()  # which stalled last
            assert len(last[2]) == stage.answer_bytes
            await stack.aclose()
            await wait_until(lambda: unread.bytes == 0)

    run(scenario())


@both_loops
def test_a_request_behind_an_unread_answer_is_not_served_until_that_is_read(run: Run) -> None:
    async def scenario() -> None:
        async with listening(HttpConfig()) as (listener, stage), Wire.to(listener) as wire:
            stage.answer_bytes = 32 << 20
            await wire.send(get("/large"))
            connection = await only_connection(listener)
            await wait_until(lambda: connection.buffered_bytes > 1 << 20)
            await wire.send(get("/large"))
            await wire.send(get("/hello/x"))
            for _ in range(50):
                await asyncio.sleep(0)
            assert stage.began == ["large"]
            assert len((await wire.answer())[2]) == stage.answer_bytes
            assert len((await wire.answer())[2]) == stage.answer_bytes
            assert (await wire.answer())[0] == 200
            assert stage.began == ["large", "large"]

    run(scenario())
