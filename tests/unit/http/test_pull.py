"""Pulls by HTTP against a real node: who gets what, who waits, who leaves, and clients that are gone."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from typing import Any

import httpx
import pytest
from starlette.requests import Request
from starlette.types import Message as AsgiMessage

from tailrace.broker import NewTopic
from tailrace.broker.publishing import NewMessage
from tailrace.broker.subscriptions import Delivery, Notice, Subscription
from tailrace.client.async_client import AsyncClient
from tailrace.http import HttpConfig
from tailrace.http.error import Code
from tailrace.http.rest.pulling import Puller, find_puller, join_pulls
from tailrace.server.node import Node

from .conftest import Run, Serve, Wire, both_loops, check_error, partition_of, wait_until

TOPIC = "jobs"
ALL = "/api/v1/subscriptions"
LONG_MS = 20_000


async def prepare(
    node: Node, client: httpx.AsyncClient, *, partitions: int = 1, **settings: object
) -> Subscription:
    """A topic and the subscription `work` of it."""
    await node.broker.topics.create(NewTopic(name=TOPIC, partitions=partitions))
    made = await client.post(ALL, json={"name": "work", "topic": TOPIC, "settings": settings})
    assert made.status_code == 201, made.text
    return node.broker.subscriptions.known("work")


def publish(node: Node, *values: bytes | None, partition: int = 0, key: bytes | None = None) -> None:
    place = partition_of(node.broker, TOPIC, partition)
    node.broker.publisher.publish(place, [NewMessage(key, value, []) for value in values])


def numbers(count: int) -> list[bytes]:
    return [b"%d" % number for number in range(count)]


async def ask(client: httpx.AsyncClient, **body: object) -> list[dict[str, Any]]:
    answer = await client.post(f"{ALL}/work/pull", json=body)
    assert answer.status_code == 200, answer.text
    messages: list[dict[str, Any]] = answer.json()["messages"]
    return messages


async def ack(client: httpx.AsyncClient, messages: list[dict[str, Any]]) -> int:
    ids = [each["ack_id"] for each in messages]
    answer = await client.post(f"{ALL}/work/ack", json={"ack_ids": ids})
    assert answer.status_code == 200, answer.text
    return int(answer.json()["acknowledged"])


def values(messages: list[dict[str, Any]]) -> list[str]:
    return [each["value"] for each in messages]


def offsets(messages: list[dict[str, Any]]) -> list[int]:
    return [each["offset"] for each in messages]


def wanted(subscription: Subscription) -> int:
    """How many messages pulls wait for."""
    return sum(member.wanted for member in subscription.members)


class Other:
    """Another member, that is pushed messages."""

    name = "ann"

    def __init__(self, subscription: Subscription, *, credit: int = 100) -> None:
        self.got: list[tuple[int, int]] = []  # offset, how often it was delivered
        self.member = subscription.join(self, credit=credit)

    def is_open(self) -> bool:
        return True

    def deliver(self, deliveries: object) -> None:
        assert isinstance(deliveries, list)
        self.got += [(each.record.offset, each.count) for each in deliveries]

    def notice(self, notice: Notice) -> None:
        """Nothing to do."""


# ---- what a pull brings


def test_a_pull_brings_no_more_than_was_asked_for(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        publish(node, *numbers(5))
        assert values(await ask(client, max=3)) == ["0", "1", "2"]
        assert values(await ask(client, max=3)) == ["3", "4"]
        assert await ask(client, max=3) == []

    run(scenario())


def test_a_message_shows_the_record_and_its_delivery(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await prepare(node, client, partitions=2)
        place = partition_of(node.broker, TOPIC, 1)
        headers = [("kind", b"a"), ("raw", b"\xff")]
        node.broker.publisher.publish(place, [NewMessage(b"\xfe", "grün".encode(), headers)])
        node.broker.publisher.publish(place, [NewMessage(None, None, [])])
        first, second = await ask(client)
        assert first.pop("ack_id") != second.pop("ack_id")
        assert first.pop("timestamp") > 0
        topic = node.broker.topics.get(TOPIC)
        assert topic is not None
        assert first == {
            "id": f"{topic.id.hex[:12]}-1-0",
            "topic": TOPIC,
            "partition": 1,
            "offset": 0,
            "delivery_count": 1,
            "key": "/g==",
            "key_encoding": "base64",
            "value": "grün",
            "headers": [
                {"name": "kind", "value": "a"},
                {"name": "raw", "value": "/w==", "encoding": "base64"},
            ],
        }
        assert (second["key"], second["value"], second["headers"]) == (None, None, [])

    run(scenario())


def test_a_pull_of_large_messages_ends_at_a_bound_of_bytes(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(read_bytes_max=3_000_000))

    async def scenario() -> None:
        await prepare(node, client)
        for _ in range(8):
            publish(node, b"x" * 900_000)
        got: list[dict[str, Any]] = []
        while len(got) < 8:
            some = await ask(client, max=8)
            assert 0 < len(some) <= 5
            got += some
        assert offsets(got) == list(range(8))

    run(scenario())


def test_messages_of_one_key_come_one_at_a_time(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await prepare(node, client, mode="key_shared")
        publish(node, *numbers(3), key=b"k")
        for number in range(3):
            messages = await ask(client)
            assert values(messages) == [str(number)]
            assert await ask(client) == []
            assert await ack(client, messages) == 1

    run(scenario())


# ---- several pulls at the same time


def test_pulls_at_the_same_time_get_different_messages(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, partitions=4)
        pulls = [asyncio.create_task(ask(client, max=10, wait_ms=LONG_MS)) for _ in range(20)]
        await wait_until(lambda: wanted(subscription) == 200)
        for partition in range(4):
            publish(node, *numbers(50), partition=partition)
        got = [message for messages in await asyncio.gather(*pulls) for message in messages]
        while some := await ask(client, max=100):
            got += some
        places = [(each["partition"], each["offset"]) for each in got]
        assert sorted(places) == [(partition, offset) for partition in range(4) for offset in range(50)]
        assert await ack(client, got) == 200
        assert subscription.unacked == 0

    run(scenario())


def test_pulls_are_served_in_the_order_of_asking(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client)
        first = asyncio.create_task(ask(client, max=2, wait_ms=LONG_MS))
        await wait_until(lambda: wanted(subscription) == 2)
        second = asyncio.create_task(ask(client, max=2, wait_ms=LONG_MS))
        await wait_until(lambda: wanted(subscription) == 4)
        publish(node, b"one")
        assert values(await first) == ["one"]
        assert not second.done()
        publish(node, b"two")
        assert values(await second) == ["two"]

    run(scenario())


def test_a_native_client_and_http_share_a_subscription(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client)
        host, _, port = node.native_address.rpartition(":")
        native: list[int] = []
        async with AsyncClient(host, int(port)) as other:

            async def handle(message: Any) -> None:
                native.append(message.offset)

            async with await other.subscribe_to_subscription("work", handle, prefetch=5):
                by_http: list[dict[str, Any]] = []
                for _ in range(20):
                    publish(node, *numbers(10))
                    some = await ask(client, max=5)
                    by_http += some
                    await ack(client, some)
                await wait_until(lambda: len(native) + len(by_http) == 200)
        assert native, "the native client got nothing"
        assert by_http, "HTTP got nothing"
        assert sorted(native + offsets(by_http)) == list(range(200))
        await wait_until(lambda: subscription.unacked == 0)

    run(scenario())


# ---- waiting


@both_loops
def test_a_pull_waits_for_the_first_message(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client)
        waiting = asyncio.create_task(ask(client, wait_ms=LONG_MS))
        await wait_until(lambda: wanted(subscription) == 10)
        publish(node, b"here")
        assert values(await waiting) == ["here"]

    run(scenario())


def test_a_pull_ends_when_its_time_is_over(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client)
        assert await ask(client, wait_ms=30) == []
        assert wanted(subscription) == 0

    run(scenario())


@both_loops
def test_a_node_that_stops_answers_the_pulls_that_wait(run: Run, serve: Serve) -> None:
    node, client = serve()

    async def scenario() -> None:
        subscription = await prepare(node, client)
        waiting = [asyncio.create_task(ask(client, wait_ms=LONG_MS)) for _ in range(3)]
        await wait_until(lambda: wanted(subscription) == 30)
        async with asyncio.timeout(LONG_MS / 1000 / 2):
            await node.close()
            assert await asyncio.gather(*waiting) == [[], [], []]

    run(scenario())


def test_a_subscription_that_is_deleted_ends_its_pulls(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client)
        waiting = asyncio.create_task(client.post(f"{ALL}/work/pull", json={"wait_ms": LONG_MS}))
        await wait_until(lambda: wanted(subscription) == 10)
        assert (await client.delete(f"{ALL}/work")).status_code == 204
        check_error(await waiting, Code.SUBSCRIPTION_NOT_FOUND, "'work'", "was deleted")
        check_error(await client.post(f"{ALL}/work/pull", json={}), Code.SUBSCRIPTION_NOT_FOUND, "'work'")

    run(scenario())


# ---- the listener's place


def test_the_listener_leaves_when_it_holds_nothing_and_nobody_pulls(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(pull_idle_s=0.05))

    async def scenario() -> None:
        subscription = await prepare(node, client)
        publish(node, b"x")
        messages = await ask(client)
        for _ in range(4):  # as long as it holds something it stays
            await asyncio.sleep(0.05)
            assert [each.recipient.name for each in subscription.members] == ["http"]
        await ack(client, messages)
        await wait_until(lambda: not subscription.members)
        publish(node, b"y")
        assert values(await ask(client)) == ["y"]

    run(scenario())


def test_the_listener_stays_while_a_pull_waits(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(pull_idle_s=0.02))

    async def scenario() -> None:
        subscription = await prepare(node, client)
        waiting = asyncio.create_task(ask(client, wait_ms=LONG_MS))
        await wait_until(lambda: wanted(subscription) == 10)
        await asyncio.sleep(0.1)
        publish(node, b"x")
        assert values(await waiting) == ["x"]

    run(scenario())


def test_a_listener_that_stops_gives_back_what_it_holds_and_has_not_failed(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, max_deliveries=1)
        publish(node, *numbers(3))
        service = node.http_app().service
        puller = join_pulls(service, subscription)
        assert len(await puller.pull(Line().request, count=3, wait_ms=0, admit=admitted)) == 3
        ann = Other(subscription)
        service.stop()
        await wait_until(lambda: len(ann.got) == 3)
        assert ann.got == [(0, 1), (1, 1), (2, 1)]
        assert find_puller(service, subscription) is None

    run(scenario())


@pytest.mark.parametrize("mode", ["exclusive", "failover"])
def test_a_pull_is_refused_while_another_member_has_the_subscription(
    run: Run, node: Node, client: httpx.AsyncClient, mode: str
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, mode=mode)
        ann = Other(subscription)
        answer = await client.post(f"{ALL}/work/pull", json={})
        details = check_error(answer, Code.INVALID_REQUEST, "work", mode, "ann has it", status=409)
        assert details == {"member": "ann"}
        ann.member.leave()
        publish(node, b"x")
        assert values(await ask(client)) == ["x"]
        assert values(await ask(client)) == []

    run(scenario())


def test_a_native_client_is_told_that_http_has_an_exclusive_subscription(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, mode="exclusive")
        assert await ask(client) == []
        with pytest.raises(Exception, match="exclusive and http has it"):
            Other(subscription)

    run(scenario())


def test_a_stopping_listener_takes_no_place(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client)
        service = node.http_app().service
        service.stop()
        with pytest.raises(Exception, match="stopping"):
            join_pulls(service, subscription)

    run(scenario())


# ---- clients that are gone


class Line:
    """A request without a socket, whose client goes when the test says so."""

    def __init__(self) -> None:
        self._gone = asyncio.Event()
        self.request = Request({"type": "http", "method": "POST", "headers": []}, self._receive)

    async def _receive(self) -> AsgiMessage:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    def hang_up(self) -> None:
        self._gone.set()


def gone_with_delivery(puller: Puller, line: Line, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have a client hang up in the moment in which messages come for it, once."""
    deliver = Puller.deliver

    def deliver_and_hang_up(self: Puller, deliveries: list[Delivery]) -> None:
        deliver(self, deliveries)
        if self is puller:
            line.hang_up()
            monkeypatch.setattr(Puller, "deliver", deliver)

    monkeypatch.setattr(Puller, "deliver", deliver_and_hang_up)


@both_loops
def test_a_client_that_hangs_up_while_it_waits_frees_its_place(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client)
        async with Wire.to(node) as wire:
            await wire.send(pull_request({"max": 5, "wait_ms": LONG_MS}))
            await wait_until(lambda: wanted(subscription) == 5)
        await wait_until(lambda: wanted(subscription) == 0)
        publish(node, b"x")
        (message,) = await ask(client)
        assert (message["value"], message["delivery_count"]) == ("x", 1)

    run(scenario())


def test_what_came_for_a_client_that_is_gone_goes_to_the_next_pull(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, max_deliveries=1)
        puller = join_pulls(node.http_app().service, subscription)
        lines = Line(), Line()
        first = asyncio.create_task(puller.pull(lines[0].request, count=2, wait_ms=LONG_MS, admit=admitted))
        await wait_until(lambda: wanted(subscription) == 2)
        second = asyncio.create_task(puller.pull(lines[1].request, count=5, wait_ms=LONG_MS, admit=admitted))
        await wait_until(lambda: wanted(subscription) == 7)
        gone_with_delivery(puller, lines[0], monkeypatch)
        publish(node, *numbers(2))
        assert await first == []
        assert [(each.record.offset, each.count) for each in await second] == [(0, 1), (1, 1)]
        assert wanted(subscription) == 0
        assert puller.member.held == 2

    run(scenario())


def test_what_came_for_a_client_that_is_gone_goes_to_any_member_at_once(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, max_deliveries=1, backoff_ms=LONG_MS)
        puller, line = join_pulls(node.http_app().service, subscription), Line()
        waiting = asyncio.create_task(puller.pull(line.request, count=2, wait_ms=LONG_MS, admit=admitted))
        await wait_until(lambda: wanted(subscription) == 2)
        gone_with_delivery(puller, line, monkeypatch)
        publish(node, *numbers(2))
        assert await waiting == []
        ann = Other(subscription)
        await wait_until(lambda: len(ann.got) == 2)
        assert ann.got == [(0, 1), (1, 1)]  # it was nobody's failure
        assert subscription.dead == 0

    run(scenario())


def test_a_listener_that_gave_all_back_is_not_first_in_line(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, client = serve(HttpConfig(pull_idle_s=1_000.0))

    async def scenario() -> None:
        subscription = await prepare(node, client, mode="failover")
        puller, line = join_pulls(node.http_app().service, subscription), Line()
        ann = Other(subscription)
        waiting = asyncio.create_task(puller.pull(line.request, count=1, wait_ms=LONG_MS, admit=admitted))
        await wait_until(lambda: wanted(subscription) == 1)
        gone_with_delivery(puller, line, monkeypatch)
        publish(node, b"0")
        assert await waiting == []
        await wait_until(lambda: ann.got == [(0, 1)])

    run(scenario())


def test_what_others_pulled_stays_with_them_when_a_client_is_gone(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, max_deliveries=1, backoff_ms=LONG_MS)
        puller, line = join_pulls(node.http_app().service, subscription), Line()
        publish(node, b"0")
        assert len(await puller.pull(Line().request, count=1, wait_ms=0, admit=admitted)) == 1
        waiting = asyncio.create_task(puller.pull(line.request, count=2, wait_ms=LONG_MS, admit=admitted))
        await wait_until(lambda: wanted(subscription) == 2)
        gone_with_delivery(puller, line, monkeypatch)
        publish(node, b"1", b"2")
        assert await waiting == []
        ann = Other(subscription)
        await wait_until(lambda: len(ann.got) == 2)
        assert ann.got == [(1, 1), (2, 1)]  # it was nobody's failure
        assert (puller.member.held, subscription.dead) == (1, 0)

    run(scenario())


def test_a_request_that_is_cancelled_gives_its_place_back(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client)
        puller = join_pulls(node.http_app().service, subscription)
        waiting = asyncio.create_task(puller.pull(Line().request, count=2, wait_ms=LONG_MS, admit=admitted))
        await wait_until(lambda: wanted(subscription) == 2)
        waiting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await waiting
        assert wanted(subscription) == 0

    run(scenario())


# ---- at most once


def test_at_most_once_a_message_is_done_with_when_it_comes(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, delivery="at_most_once")
        publish(node, *numbers(3))
        messages = await ask(client)
        assert values(messages) == ["0", "1", "2"]
        assert subscription.partitions[0].machine.cursor.position == 3
        assert await ack(client, messages) == 0
        assert await ask(client) == []

    run(scenario())


def test_at_most_once_the_next_pull_gets_what_came_for_a_client_that_is_gone(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, delivery="at_most_once")
        puller, line = join_pulls(node.http_app().service, subscription), Line()
        waiting = asyncio.create_task(puller.pull(line.request, count=3, wait_ms=LONG_MS, admit=admitted))
        await wait_until(lambda: wanted(subscription) == 3)
        gone_with_delivery(puller, line, monkeypatch)
        publish(node, *numbers(3))
        assert await waiting == []
        async with asyncio.timeout(LONG_MS / 1000 / 2):  # who has got something does not wait for more
            first = await puller.pull(Line().request, count=2, wait_ms=LONG_MS, admit=admitted)
            second = await puller.pull(Line().request, count=2, wait_ms=LONG_MS, admit=admitted)
        assert [each.record.offset for each in first] == [0, 1]
        assert [each.record.offset for each in second] == [2]

    run(scenario())


def test_at_most_once_a_client_that_was_gone_from_the_start_takes_nothing(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, delivery="at_most_once")
        puller, line = join_pulls(node.http_app().service, subscription), Line()
        waiting = asyncio.create_task(puller.pull(line.request, count=1, wait_ms=LONG_MS, admit=admitted))
        await wait_until(lambda: wanted(subscription) == 1)
        gone_with_delivery(puller, line, monkeypatch)
        publish(node, b"x")
        assert await waiting == []
        assert (
            await puller.pull(line.request, count=1, wait_ms=0, admit=admitted) == []
        )  # it is there at once, and he is not
        assert len(await puller.pull(Line().request, count=1, wait_ms=0, admit=admitted)) == 1

    run(scenario())


def test_a_seek_makes_void_what_is_kept(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, delivery="at_most_once")
        puller, line = join_pulls(node.http_app().service, subscription), Line()
        waiting = asyncio.create_task(puller.pull(line.request, count=3, wait_ms=LONG_MS, admit=admitted))
        await wait_until(lambda: wanted(subscription) == 3)
        gone_with_delivery(puller, line, monkeypatch)
        publish(node, *numbers(3))
        assert await waiting == []
        assert (await client.post(f"{ALL}/work/replay", json={"to": "latest"})).status_code == 200
        assert await puller.pull(Line().request, count=3, wait_ms=0, admit=admitted) == []

    run(scenario())


def test_a_seek_in_one_partition_leaves_what_is_kept_of_the_others(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        subscription = await prepare(node, client, partitions=2, delivery="at_most_once")
        puller = await keep(node, subscription, b"x", monkeypatch)
        to_latest = {"to": "latest", "partition": 1}
        assert (await client.post(f"{ALL}/work/replay", json=to_latest)).status_code == 200
        assert len(await puller.pull(Line().request, count=1, wait_ms=0, admit=admitted)) == 1

    run(scenario())


def test_the_listener_stays_with_what_it_keeps_for_the_next_pull(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    node, client = serve(HttpConfig(pull_idle_s=0.01))

    async def scenario() -> None:
        subscription = await prepare(node, client, delivery="at_most_once")
        puller = await keep(node, subscription, b"x", monkeypatch)
        await asyncio.sleep(0.1)  # some idle times
        assert find_puller(node.http_app().service, subscription) is puller
        assert len(await puller.pull(Line().request, count=1, wait_ms=0, admit=admitted)) == 1
        await wait_until(lambda: not subscription.members)

    run(scenario())


@pytest.mark.parametrize("mode", ["exclusive", "failover", "key_shared"])
def test_the_listener_gives_up_a_place_that_keeps_others_from_theirs(
    run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, mode: str
) -> None:
    node, client = serve(HttpConfig(pull_idle_s=0.01))

    async def scenario() -> None:
        subscription = await prepare(node, client, delivery="at_most_once", mode=mode)
        await keep(node, subscription, b"x", monkeypatch)
        await wait_until(lambda: not subscription.members)
        assert "subscription=work count=1" in caplog.text

    run(scenario())


def admitted() -> None:
    """The session may have the messages."""


async def keep(
    node: Node, subscription: Subscription, value: bytes, monkeypatch: pytest.MonkeyPatch
) -> Puller:
    """Have the listener keep a message of partition 0, whose client is gone."""
    service, line = node.http_app().service, Line()

    async def pull() -> list[Delivery]:
        # Join and pull in one turn of the loop, as the handler does: else an idle listener leaves in between.
        return await join_pulls(service, subscription).pull(
            line.request, count=1, wait_ms=LONG_MS, admit=admitted
        )

    waiting = asyncio.create_task(pull())
    await wait_until(lambda: wanted(subscription) == 1)
    puller = find_puller(service, subscription)
    assert puller is not None
    gone_with_delivery(puller, line, monkeypatch)
    publish(node, value)
    assert await waiting == []
    return puller


def pull_request(body: Mapping[str, object]) -> bytes:
    text = json.dumps(body).encode()
    return (
        b"POST /api/v1/subscriptions/work/pull HTTP/1.1\r\nhost: localhost\r\n"
        b"content-type: application/json\r\ncontent-length: %d\r\n\r\n%s" % (len(text), text)
    )
