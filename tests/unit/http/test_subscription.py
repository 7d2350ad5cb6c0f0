"""Subscriptions by REST against a real node: the life of one, settling, moving, dead letters, bad input."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest
from tests.poison import undecodable

from tailrace.broker import NewTopic
from tailrace.broker.publishing import NewMessage
from tailrace.broker.subscriptions.cursor_writer import CursorWriter
from tailrace.http.error import Code
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import read_batch
from tailrace.server.node import Node
from tailrace.storage import Waiter

from .conftest import Run, check_error, partition_of, wait_until

TOPIC = "jobs"
ALL = "/api/v1/subscriptions"
WORK = f"{ALL}/work"
LONG_MS = 20_000


async def prepare(node: Node, client: httpx.AsyncClient, *, partitions: int = 1, **settings: object) -> None:
    """A topic and the subscription `work` of it."""
    await node.broker.topics.create(NewTopic(name=TOPIC, partitions=partitions))
    await post(client, "", 201, name="work", topic=TOPIC, settings=settings)


async def post(client: httpx.AsyncClient, path: str, status: int = 200, /, **body: object) -> dict[str, Any]:
    answer = await client.post(ALL + path, json=body)
    assert answer.status_code == status, answer.text
    told: dict[str, Any] = answer.json()
    return told


async def pull(client: httpx.AsyncClient, **body: object) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = (await post(client, "/work/pull", **body))["messages"]
    return messages


async def ack(client: httpx.AsyncClient, messages: list[dict[str, Any]]) -> int:
    return int((await post(client, "/work/ack", ack_ids=ids(messages)))["acknowledged"])


async def detail(client: httpx.AsyncClient) -> dict[str, Any]:
    answer = await client.get(WORK)
    assert answer.status_code == 200, answer.text
    told: dict[str, Any] = answer.json()
    return told


def ids(messages: list[dict[str, Any]]) -> list[str]:
    return [each["ack_id"] for each in messages]


def deliveries(messages: list[dict[str, Any]]) -> list[tuple[str, int]]:
    return [(each["value"], each["delivery_count"]) for each in messages]


def publish(node: Node, *values: bytes, partition: int = 0) -> None:
    place = partition_of(node.broker, TOPIC, partition)
    node.broker.publisher.publish(place, [NewMessage(None, value, []) for value in values])


# ---- the life of one


def test_a_subscription_is_made_used_looked_at_and_deleted(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await node.broker.topics.create(NewTopic(name=TOPIC, partitions=1))
        made = await post(client, "", 201, name="work", topic=TOPIC, settings={"max_deliveries": 3})
        assert (made["name"], made["topic"], made["mode"], made["state"]) == ("work", TOPIC, "shared", "idle")
        assert (made["settings"], made["dead_letter_topic"]) == ({"max_deliveries": "3"}, "work.dlq")

        publish(node, b"a", b"b", b"c")
        messages = await pull(client, max=2)
        assert await ack(client, messages[:1]) == 1
        told = await detail(client)
        assert told["members"] == [{"name": "http", "held": 1, "credit": 0}]
        assert (told["state"], told["lag"], told["in_flight"], told["acknowledged"]) == ("active", 2, 1, 1)
        (cursor,) = told["partitions"]
        assert (cursor["position"], cursor["end"], cursor["epoch"]) == (1, 3, 0)

        listed = (await client.get(ALL)).json()
        assert listed == {
            "subscriptions": [
                {
                    "name": "work",
                    "topic": TOPIC,
                    "mode": "shared",
                    "state": "active",
                    "member_count": 1,
                    "lag": 2,
                    "unacknowledged": 1,
                    "members": 1,
                }
            ]
        }
        gone = await client.delete(WORK)
        assert (gone.status_code, gone.content) == (204, b"")
        assert (await client.get(ALL)).json() == {"subscriptions": []}
        check_error(await client.get(WORK), Code.SUBSCRIPTION_NOT_FOUND, "'work'")
        check_error(await client.delete(WORK), Code.SUBSCRIPTION_NOT_FOUND, "'work'")

    run(scenario())


def test_making_it_once_more_is_success_if_it_is_the_same(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await prepare(node, client, ack_timeout_ms=1000)
        body = {"name": "work", "topic": TOPIC, "settings": {"ack_timeout_ms": "1000"}}
        assert (await client.post(ALL, json=body)).status_code == 201
        other = await client.post(ALL, json={**body, "settings": {"mode": "exclusive"}})
        check_error(other, Code.INVALID_REQUEST, "work exists", "mode", status=409)

    run(scenario())


@pytest.mark.parametrize(
    ("start", "expected"),
    [("earliest", ["a", "b", "c"]), ("offset:1", ["b", "c"]), ("time:1", ["a", "b", "c"]), ("latest", [])],
)
def test_it_starts_where_it_shall(
    run: Run, node: Node, client: httpx.AsyncClient, start: str, expected: list[str]
) -> None:
    async def scenario() -> None:
        await node.broker.topics.create(NewTopic(name=TOPIC, partitions=1))
        publish(node, b"a", b"b", b"c")
        await post(client, "", 201, name="work", topic=TOPIC, start=start)
        assert [each["value"] for each in await pull(client)] == expected

    run(scenario())


# ---- settling


def test_what_is_acknowledged_is_durable_and_does_not_come_again(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await prepare(node, client, partitions=2, ack_timeout_ms=50, backoff_ms=0)
        publish(node, b"a", b"b", partition=0)
        publish(node, b"c", partition=1)
        messages = await pull(client)
        assert len(messages) == 3
        assert await ack(client, messages) == 3
        assert await ack(client, messages) == 0
        positions = [each["position"] for each in (await detail(client))["partitions"]]
        assert positions == [2, 1]
        assert await pull(client, wait_ms=150) == []

    run(scenario())


def test_an_acknowledgement_is_answered_when_it_is_durable(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        publish(node, b"a", b"b")
        messages = await pull(client)
        told: list[Waiter] = []
        monkeypatch.setattr(CursorWriter, "tell", lambda _, waiter: told.append(waiter))
        waiting = asyncio.create_task(ack(client, messages[:1]))
        await wait_until(lambda: len(told) == 1)
        await client.get("/health")  # which is a good while later
        assert not waiting.done()
        told[0].set_result(None)
        assert await waiting == 1

        failing = asyncio.create_task(client.post(f"{WORK}/ack", json={"ack_ids": ids(messages)}))
        await wait_until(lambda: len(told) == 2)
        told[1].set_exception(BrokerError("the cursor could not be stored", code=ErrorCode.NOT_COORDINATOR))
        check_error(await failing, Code.BROKER_NOT_AVAILABLE, "could not be stored")

    run(scenario())


def test_ids_in_any_order_and_twice_are_the_same_messages(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        publish(node, *[b"x"] * 1000)
        messages = await pull(client, max=1000)
        while len(messages) < 1000:
            messages += await pull(client, max=1000)
        backwards = [*reversed(messages), *messages]
        assert await ack(client, backwards) == 1000
        assert (await detail(client))["lag"] == 0

    run(scenario())


def test_what_is_not_settled_in_time_comes_again(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await prepare(node, client, ack_timeout_ms=100, backoff_ms=0)
        publish(node, b"a")
        first = await pull(client)
        assert deliveries(first) == [("a", 1)]
        again = await pull(client, wait_ms=LONG_MS)
        assert deliveries(again) == [("a", 2)]
        assert again[0]["id"] == first[0]["id"]
        assert await ack(client, first) == 1  # whoever processed it may say so, also when he is late

    run(scenario())


def test_what_is_refused_comes_again_after_the_delay(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await prepare(node, client, backoff_ms=LONG_MS)
        publish(node, b"a")
        messages = await pull(client)
        started = asyncio.get_running_loop().time()
        assert await post(client, "/work/nack", ack_ids=ids(messages), delay_ms=3000) == {"refused": 1}
        assert await pull(client) == []
        assert deliveries(await pull(client, wait_ms=LONG_MS)) == [("a", 2)]
        assert asyncio.get_running_loop().time() - started > 2.9

    run(scenario())


def test_what_is_refused_without_a_delay_waits_for_the_back_off(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await prepare(node, client, backoff_ms=3_600_000, backoff_ms_max=3_600_000)
        publish(node, b"a")
        messages = await pull(client)
        assert await post(client, "/work/nack", ack_ids=ids(messages)) == {"refused": 1}
        assert await post(client, "/work/nack", ack_ids=ids(messages)) == {"refused": 0}
        assert await pull(client, wait_ms=50) == []

    run(scenario())


def test_a_message_can_be_held_for_longer(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await prepare(node, client, ack_timeout_ms=3000, backoff_ms=0)
        publish(node, b"kept", b"not kept")
        messages = await pull(client)
        kept = ids(messages)[:1]
        assert await post(client, "/work/extend", ack_ids=kept, extend_ms=LONG_MS) == {"extended": 1}
        assert deliveries(await pull(client, wait_ms=LONG_MS)) == [("not kept", 2)]
        assert (await detail(client))["in_flight"] == 2

    run(scenario())


@pytest.mark.parametrize("verb", ["nack", "extend"])
def test_what_nobody_holds_cannot_be_refused_or_extended(
    run: Run, node: Node, client: httpx.AsyncClient, verb: str
) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        publish(node, b"a")
        messages = await pull(client)
        await ack(client, messages)
        body: dict[str, object] = {"ack_ids": ids(messages)}
        if verb == "extend":
            body["extend_ms"] = 1000
        assert list((await post(client, f"/work/{verb}", **body)).values()) == [0]
        (member,) = node.broker.subscriptions.known("work").members
        member.leave(failed=False)  # the listener has left, as it does when it is idle
        assert list((await post(client, f"/work/{verb}", **body)).values()) == [0]

    run(scenario())


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
def test_no_ids_are_no_messages(run: Run, node: Node, client: httpx.AsyncClient, verb: str) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        body: dict[str, object] = {"ack_ids": []}
        if verb == "extend":
            body["extend_ms"] = 1000
        assert list((await post(client, f"/work/{verb}", **body)).values()) == [0]

    run(scenario())


# ---- moving


def test_a_seek_delivers_again_and_makes_older_ids_void(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        publish(node, b"a", b"b")
        before = await pull(client)
        assert (await post(client, "/work/replay", to="earliest"))["epoch"] == 1
        after = await pull(client)
        assert deliveries(after) == [("a", 1), ("b", 1)]
        assert await ack(client, before) == 0
        assert await post(client, "/work/nack", ack_ids=ids(before)) == {"refused": 0}
        assert (await detail(client))["unacknowledged"] == 2
        assert await ack(client, after) == 2

    run(scenario())


def test_a_seek_can_be_of_one_partition(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await prepare(node, client, partitions=2)
        publish(node, b"a", partition=0)
        publish(node, b"b", partition=1)
        assert await ack(client, await pull(client)) == 2
        assert (await post(client, "/work/replay", to="offset:0", partition=1))["epoch"] == 1
        assert deliveries(await pull(client)) == [("b", 1)]

    run(scenario())


def test_a_dry_run_shows_what_a_seek_does_and_changes_nothing(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await prepare(node, client, partitions=2)
        publish(node, b"a", b"b", partition=0)
        publish(node, b"c", b"d", b"e", partition=1)
        messages = await pull(client)
        first = [each for each in messages if each["partition"] == 0]
        assert await ack(client, first) == 2
        before = await detail(client)
        cursor = {"topic": TOPIC, "partition": 0, "before": 2, "after": 0, "end_offset": 2}
        moves = [
            {**cursor, "again": 2, "passed_over": 0},
            {**cursor, "partition": 1, "before": 0, "end_offset": 3, "again": 0, "passed_over": 0},
        ]
        shown = await post(client, "/work/replay", to="earliest", dry_run=True)
        assert shown == {"epoch": 0, "applied": False, "offsets": moves}
        ahead = await post(client, "/work/replay", to="latest", partition=1, dry_run=True)
        (move,) = ahead["offsets"]
        assert (move["after"], move["again"], move["passed_over"]) == (3, 0, 3)
        assert await detail(client) == before
        done = await post(client, "/work/replay", to="earliest")
        assert done == {"epoch": 1, "applied": True, "offsets": moves}

    run(scenario())


@pytest.mark.parametrize(
    ("time", "after"),
    [
        ("1700000000000", 2),
        ("1h", 2),
        ("0", 0),
        ("2023-01-01", 1),
        ("2023-01-01T00:00Z", 1),
        ("1960-01-01", 0),
    ],
)
def test_a_time_may_be_as_people_write_it(
    run: Run, node: Node, client: httpx.AsyncClient, time: str, after: int
) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        old, later = (
            {"value": "a", "timestamp": 1_600_000_000_000},
            {"value": "b", "timestamp": 1_690_000_000_000},
        )
        answer = await client.post(f"/api/v1/topics/{TOPIC}/records", json={"records": [old, later]})
        assert answer.status_code == 200, answer.text
        shown = await post(client, "/work/replay", to=f"time:{time}", dry_run=True)
        assert [each["after"] for each in shown["offsets"]] == [after]
        made = await post(client, "", 201, name="other", topic=TOPIC, start=f"time:{time}")
        assert [each["position"] for each in made["partitions"]] == [after]

    run(scenario())


# ---- dead letters


def test_a_message_that_failed_too_often_is_a_dead_letter_and_can_be_redriven(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await prepare(node, client, max_deliveries=2)
        assert (await client.get(f"{WORK}/dead-letters")).json() == {"dead_letters": [], "dead": 0}
        publish(node, b"bad", b"good")
        for _ in range(2):
            messages = await pull(client, max=1, wait_ms=LONG_MS)
            await post(client, "/work/nack", ack_ids=ids(messages), delay_ms=0, reason="cannot read it")
        subscription = node.broker.subscriptions.known("work")
        await wait_until(lambda: subscription.dead == 1)

        told = (await client.get(f"{WORK}/dead-letters")).json()
        (letter,) = told["dead_letters"]
        assert told["dead"] == 1
        assert (letter["value"], letter["reason"], letter["deliveries"]) == ("bad", "cannot read it", 2)
        assert letter["origin"] == {"topic": TOPIC, "partition": 0, "offset": 0}
        assert {"name": "_dlq_reason", "value": "cannot read it"} in letter["headers"]

        assert await ack(client, await pull(client)) == 1  # the other one, which was good
        assert await post(client, "/work/redrive") == {"redriven": 1}
        (again,) = await pull(client, wait_ms=LONG_MS)
        assert (again["topic"], again["value"]) == ("work.dlq", "bad")
        assert await ack(client, [again]) == 1
        assert await post(client, "/work/redrive") == {"redriven": 0}
        assert (await client.get(f"{WORK}/dead-letters")).json()["dead_letters"] == []
        assert await pull(client) == []

    run(scenario())


def test_a_dead_letter_that_is_no_text_is_base64(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await prepare(node, client, max_deliveries=1)
        publish(node, b"\xff")
        await post(client, "/work/nack", ack_ids=ids(await pull(client)))
        subscription = node.broker.subscriptions.known("work")
        await wait_until(lambda: subscription.dead == 1)
        (letter,) = (await client.get(f"{WORK}/dead-letters")).json()["dead_letters"]
        assert (letter["value"], letter["value_encoding"], letter["key"]) == ("/w==", "base64", None)
        assert "key_encoding" not in letter

    run(scenario())


def test_dead_letters_are_shown_and_redriven_as_many_as_asked_for(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await prepare(node, client, max_deliveries=1)
        publish(node, b"a", b"b", b"c")
        await post(client, "/work/nack", ack_ids=ids(await pull(client)))
        subscription = node.broker.subscriptions.known("work")
        await wait_until(lambda: subscription.dead == 3)
        shown = (await client.get(f"{WORK}/dead-letters", params={"limit": 2})).json()
        assert [each["value"] for each in shown["dead_letters"]] == ["a", "b"]
        assert await post(client, "/work/redrive", count=2) == {"redriven": 2}
        assert sorted(deliveries(await pull(client, wait_ms=LONG_MS))) == [("a", 1), ("b", 1)]
        left = (await client.get(f"{WORK}/dead-letters")).json()["dead_letters"]
        assert [each["value"] for each in left] == ["c"]

    run(scenario())


# ---- bad input

GOOD = {"name": "fine", "topic": TOPIC}


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({}, Code.INVALID_REQUEST, "name"),
        ({"name": "x"}, Code.INVALID_REQUEST, "topic"),
        ({**GOOD, "color": 1}, Code.INVALID_REQUEST, "color"),
        ({**GOOD, "name": ""}, Code.INVALID_CONFIG, "legal name"),
        ({**GOOD, "name": "a/b"}, Code.INVALID_CONFIG, "legal name"),
        ({**GOOD, "name": "x" * 246}, Code.INVALID_CONFIG, "1 to 245"),
        ({**GOOD, "name": 7}, Code.INVALID_REQUEST, "name"),
        ({**GOOD, "topic": "nope"}, Code.TOPIC_NOT_FOUND, "nope"),
        ({**GOOD, "topic": "no pe"}, Code.INVALID_REQUEST, "no pe"),
        ({**GOOD, "start": "yesterday"}, Code.INVALID_REQUEST, "earliest, latest"),
        ({**GOOD, "start": "offset:-1"}, Code.INVALID_REQUEST, "offset:-1"),
        ({**GOOD, "start": "offset:99"}, Code.OFFSET_OUT_OF_RANGE, "99"),
        ({**GOOD, "start": "time:noon"}, Code.INVALID_REQUEST, "'noon' is no time"),
        ({**GOOD, "settings": {"mode": "alone"}}, Code.INVALID_CONFIG, "mode"),
        ({**GOOD, "settings": {"ack_timeout_ms": 0}}, Code.INVALID_CONFIG, "ack_timeout_ms"),
        ({**GOOD, "settings": {"ack_timeout_ms": 1.5}}, Code.INVALID_CONFIG, "ack_timeout_ms"),
        ({**GOOD, "settings": {"ack_timeout_ms": None}}, Code.INVALID_REQUEST, "settings"),
        ({**GOOD, "settings": {"colour": "red"}}, Code.INVALID_CONFIG, "colour"),
        ({**GOOD, "settings": {"dead_letter_topic": TOPIC}}, Code.INVALID_CONFIG, "dead_letter_topic"),
        ({**GOOD, "settings": []}, Code.INVALID_REQUEST, "settings"),
        ([], Code.INVALID_REQUEST, "body"),
    ],
)
def test_a_subscription_that_makes_no_sense_is_refused(
    run: Run, node: Node, client: httpx.AsyncClient, body: object, code: Code, words: str
) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        check_error(await client.post(ALL, json=body), code, words)
        assert len(node.broker.subscriptions) == 1

    run(scenario())


@pytest.mark.parametrize(
    ("verb", "body", "words"),
    [
        ("pull", {"max": 0}, "max"),
        ("pull", {"max": -1}, "max"),
        ("pull", {"max": 1001}, "1000 messages at most"),
        ("pull", {"max": 10**30}, "max"),
        ("pull", {"max": "5"}, "max"),
        ("pull", {"max": 1.5}, "max"),
        ("pull", {"max": True}, "max"),
        ("pull", {"wait_ms": -1}, "wait_ms"),
        ("pull", {"wait_ms": 60_001}, "60000 ms at most"),
        ("pull", {"count": 1}, "count"),
        ("pull", [], "body"),
        ("ack", {}, "ack_ids"),
        ("ack", {"ack_ids": "x"}, "ack_ids"),
        ("ack", {"ack_ids": [1]}, "ack_ids[0]"),
        ("ack", {"ack_ids": [None]}, "ack_ids[0]"),
        ("ack", {"ack_ids": ["0"] * 10_001}, "10000"),
        ("ack", {"ack_ids": [], "more": 1}, "more"),
        ("ack", {"ack_ids": ["nonsense"]}, "'nonsense'"),
        ("nack", {"ack_ids": ["nonsense"]}, "'nonsense'"),
        ("extend", {"ack_ids": ["nonsense"], "extend_ms": 1}, "'nonsense'"),
        ("nack", {"ack_ids": [], "delay_ms": -1}, "delay_ms"),
        ("nack", {"ack_ids": [], "delay_ms": 7 * 24 * 3_600_000 + 1}, "delay_ms"),
        ("nack", {"ack_ids": [], "reason": None}, "reason"),
        ("nack", {"ack_ids": [], "reason": "x" * 1001}, "reason"),
        ("extend", {"ack_ids": []}, "extend_ms"),
        ("extend", {"ack_ids": [], "extend_ms": 0}, "extend_ms"),
        ("extend", {"ack_ids": [], "extend_ms": None}, "extend_ms"),
        ("replay", {}, "to"),
        ("replay", {"to": "nowhere"}, "'nowhere'"),
        ("replay", {"to": 5}, "to"),
        ("replay", {"to": "time:99999999999999999999"}, "time:"),
        ("replay", {"to": "time:"}, "is no time"),
        ("replay", {"to": "time:-5"}, "is no time"),
        ("replay", {"to": "time:" + "9" * 400 + "d"}, "to"),
        ("replay", {"to": "earliest", "dry_run": 1}, "dry_run"),
        ("replay", {"to": "earliest", "partition": -1}, "partition"),
        ("replay", {"to": "earliest", "partition": "0"}, "partition"),
        ("redrive", {"count": 0}, "count"),
        ("redrive", {"count": 2**63}, "count"),
        ("redrive", {"all": True}, "all"),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(
    run: Run, node: Node, client: httpx.AsyncClient, verb: str, body: object, words: str
) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        check_error(await client.post(f"{WORK}/{verb}", json=body), Code.INVALID_REQUEST, words)
        assert not node.broker.subscriptions.known("work").members

    run(scenario())


@pytest.mark.parametrize("limit", ["0", "-1", "1001", "x", "1.5", ""])
def test_a_limit_that_makes_no_sense_is_refused(
    run: Run, node: Node, client: httpx.AsyncClient, limit: str
) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        answer = await client.get(f"{WORK}/dead-letters", params={"limit": limit})
        check_error(answer, Code.INVALID_REQUEST, "limit")

    run(scenario())


def test_a_seek_out_of_the_log_is_refused(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        publish(node, b"a")
        answer = await client.post(f"{WORK}/replay", json={"to": "offset:5"})
        details = check_error(answer, Code.OFFSET_OUT_OF_RANGE, "5")
        assert details == {"start_offset": 0, "end_offset": 1}
        answer = await client.post(f"{WORK}/replay", json={"to": "earliest", "partition": 9})
        check_error(answer, Code.TOPIC_NOT_FOUND, "jobs-9")

    run(scenario())


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", "", None),
        ("DELETE", "", None),
        ("GET", "/dead-letters", None),
        ("POST", "/pull", {}),
        ("POST", "/ack", {"ack_ids": []}),
        ("POST", "/nack", {"ack_ids": []}),
        ("POST", "/extend", {"ack_ids": [], "extend_ms": 1}),
        ("POST", "/replay", {"to": "latest"}),
        ("POST", "/redrive", {}),
    ],
)
@pytest.mark.parametrize("name", ["nobody", "n" * 300, "%20", "%2E%2E%2Fetc"])
def test_a_subscription_that_does_not_exist_is_told_so(
    run: Run, client: httpx.AsyncClient, method: str, path: str, body: object, name: str
) -> None:
    async def scenario() -> None:
        url = f"{ALL}/{name}{path}"
        answer = await client.request(method, url, json=body)
        if "%2F" in name:  # a slash makes another path of it, which is nobody's
            assert answer.status_code in (404, 405)
        else:
            check_error(answer, Code.SUBSCRIPTION_NOT_FOUND, "does not exist")
        assert len(answer.content) < 1_000

    run(scenario())


def test_a_time_that_may_lie_in_what_cannot_be_decoded_is_no_start(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await prepare(node, client)
        now_ms = node.broker.clock.now_ms()
        partition = partition_of(node.broker, TOPIC, 0)
        appended = partition.append(read_batch(undecodable(3, time_ms=now_ms)))
        await partition.wait_acknowledged(appended.end_offset)
        place = {"topic": TOPIC, "partition": 0, "offset": 0, "next_offset": 3}
        new = {"name": "late", "topic": TOPIC, "start": f"time:{now_ms}"}
        for path, body in ((ALL, new), (f"{WORK}/replay", {"to": f"time:{now_ms}"})):
            answer = await client.post(path, json=body)
            told = check_error(answer, Code.UNREADABLE_RECORDS, f"{TOPIC}-0 cannot be read at offset 0")
            assert told == place

    run(scenario())
