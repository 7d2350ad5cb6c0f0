"""Records into several topics at once by HTTP, and transactions as an administrator sees and ends them."""

from __future__ import annotations

from typing import Any

import httpx
import pytest

from tailrace.broker import NewTopic
from tailrace.broker.transactions import Identity
from tailrace.http import HttpConfig
from tailrace.http.error import Code
from tailrace.model import LogBusy, TopicPartition
from tailrace.records import build_batch, read_batch
from tailrace.server.node import Node
from tailrace.storage.memory.log import MemoryLog

from .conftest import Run, Serve, check_error, partition_of, wait_until

TRANSACTIONS = "/api/v1/transactions"
T0 = TopicPartition("t", 0)


async def create(node: Node, **topics: int) -> None:
    for name, partitions in topics.items():
        await node.broker.topics.create(NewTopic(name=name, partitions=partitions))


async def begin(node: Node, name: str = "billing/1", tp: TopicPartition = T0) -> Identity:
    """A producer with a transaction that has written one record."""
    coordinator = node.broker.transactions
    identity = await coordinator.init(name, timeout_ms=60_000)
    await coordinator.add(name, identity, [tp])
    write(node, identity, tp, verified=True)
    return identity


def write(node: Node, identity: Identity, tp: TopicPartition, *, verified: bool) -> None:
    batch = build_batch(
        [(0, b"k", b"open", ())],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=0,
        transactional=True,
    )
    partition_of(node.broker, *tp).append(read_batch(batch), verified=verified)


async def values(client: httpx.AsyncClient, topic: str) -> list[str]:
    answer = await client.get(f"/api/v1/topics/{topic}/records")
    return [each["value"] for each in answer.json()["records"]]


# ---- storing


def test_records_of_several_topics_are_stored_together(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, a=2, b=1)
        sent = {
            "b": [{"value": "3"}],
            "a": [{"value": "1", "partition": 1}, {"value": "2", "partition": 0}, {"value": 4, "key": "k"}],
        }
        answer = await client.post(TRANSACTIONS, json={"topics": sent})
        assert answer.status_code == 200
        places = answer.json()["topics"]
        assert list(places) == ["b", "a"] and places["b"] == [{"partition": 0, "offset": 0}]
        assert places["a"][:2] == [{"partition": 1, "offset": 0}, {"partition": 0, "offset": 0}]
        assert sorted(await values(client, "a")) == ["1", "2", "4"] and await values(client, "b") == ["3"]

    run(scenario())


def test_an_atomic_produce_is_a_transaction(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, t=2)
        records = [{"value": "1", "partition": 0}, {"value": "2", "partition": 1}]
        for number in (0, 2):  # 1 is a marker
            answer = await client.post("/api/v1/topics/t/records", json={"records": records, "atomic": True})
            assert answer.json() == {
                "offsets": [{"partition": 0, "offset": number}, {"partition": 1, "offset": number}]
            }
        answer = await client.post("/api/v1/topics/t/records", json={"records": records, "atomic": False})
        assert [each["offset"] for each in answer.json()["offsets"]] == [4, 4]
        assert partition_of(node.broker, "t", 0).end_offset == 5

    run(scenario())


def test_defaults_of_the_query_count_for_an_atomic_produce_too(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, t=2)
        answer = await client.post(
            "/api/v1/topics/t/records?key=k&partition=1", json={"records": [{"value": "v"}], "atomic": True}
        )
        assert answer.json() == {"offsets": [{"partition": 1, "offset": 0}]}
        read = await client.get("/api/v1/topics/t/records?partition=1")
        assert read.json()["records"][0]["key"] == "k"

    run(scenario())


@pytest.mark.parametrize("refused", range(9))
def test_a_refusal_in_the_middle_shows_no_reader_a_part(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch, refused: int
) -> None:
    async def scenario() -> None:
        await create(node, a=2, b=1)
        body = {
            "topics": {
                "a": [{"value": "x", "partition": 0}, {"value": "x", "partition": 1}],
                "b": [{"value": "x"}],
            }
        }
        assert (await client.post(TRANSACTIONS, json=body)).status_code == 200
        count, append = 0, MemoryLog.append

        def refusing(self: MemoryLog, *args: Any, **options: Any) -> Any:
            nonlocal count
            count += 1
            if count == refused + 1:
                raise LogBusy("more waits than may")
            return append(self, *args, **options)

        monkeypatch.setattr(MemoryLog, "append", refusing)
        answer = await client.post(TRANSACTIONS, json=body)
        monkeypatch.undo()
        if refused < 5:  # up to Prepare
            check_error(answer, Code.BROKER_NOT_AVAILABLE, "more waits than may")
            assert await values(client, "a") == ["x", "x"] and await values(client, "b") == ["x"]
        else:
            assert answer.status_code == 200
            places = [partition_of(node.broker, *tp) for tp in (("a", 0), ("a", 1), ("b", 0))]
            # A marker that was refused is tried again.
            await wait_until(lambda: all(each.last_stable_offset == 4 for each in places))
            assert len(await values(client, "a")) == 4 and len(await values(client, "b")) == 2

    run(scenario())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["topics"]),
        ({"topics": {}}, ["topics"]),
        ({"topics": {"a": []}}, ["topics"]),
        ({"topics": {"a": [{"key": "k"}]}}, ["value"]),
        ({"topics": {"a": [{"value": "v"}]}, "more": 1}, ["more"]),
        ({"topics": {"a": [{"value": "v"}, {"value": "?", "encoding": "base64"}]}}, ["topics['a'][1]"]),
        ({"topics": {"__transaction_state": [{"value": "v"}]}}, ["belongs to the broker"]),
    ],
)
def test_a_body_that_is_wrong_stores_nothing(
    run: Run, node: Node, client: httpx.AsyncClient, body: dict[str, Any], words: list[str]
) -> None:
    async def scenario() -> None:
        await create(node, a=1)
        check_error(await client.post(TRANSACTIONS, json=body), Code.INVALID_REQUEST, *words)
        assert partition_of(node.broker, "a", 0).end_offset == 0

    run(scenario())


def test_one_record_that_cannot_be_stored_costs_all_topics(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, a=1)
        compacted = NewTopic(name="c", partitions=1, configs={"cleanup.policy": "compact"})
        await node.broker.topics.create(compacted)
        body: dict[str, Any] = {"topics": {"a": [{"value": "1"}], "c": [{"value": "without a key"}]}}
        check_error(await client.post(TRANSACTIONS, json=body), Code.INVALID_REQUEST, "key")
        wrong = {"key": "k", "value": "2", "partition": 7}
        body = {"topics": {"a": [{"value": "1"}], "c": [wrong]}}
        check_error(await client.post(TRANSACTIONS, json=body), Code.TOPIC_NOT_FOUND, "7")
        assert partition_of(node.broker, "a", 0).end_offset == 0

    run(scenario())


def test_a_body_is_bounded_as_a_produce_is(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(body_bytes_max=100))

    async def scenario() -> None:
        await create(node, a=1)
        body = {"topics": {"a": [{"value": "x" * 100}]}}
        check_error(await client.post(TRANSACTIONS, json=body), Code.MESSAGE_TOO_LARGE)

    run(scenario())


def test_a_wait_for_no_topic_is_told_which_one(run: Run, serve: Serve) -> None:
    node, client = serve(broker={"auto.create.topics.enable": "false"})

    async def scenario() -> None:
        await create(node, a=1)
        body = {"topics": {"a": [{"value": "1"}], "missing": [{"value": "1"}]}}
        check_error(await client.post(TRANSACTIONS, json=body), Code.TOPIC_NOT_FOUND, "missing")
        assert partition_of(node.broker, "a", 0).end_offset == 0

    run(scenario())


# ---- what readers see


def test_readers_are_told_where_committed_records_end(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, t=1)
        await client.post("/api/v1/topics/t/records", json={"records": [{"value": "before"}]})
        await begin(node)
        page = (await client.get("/api/v1/topics/t/records?partition=0")).json()
        assert [each["value"] for each in page["records"]] == ["before"]
        assert (page["high_watermark"], page["last_stable_offset"]) == (2, 1)
        assert page["last_stable_offsets"] == {"0": 1}
        (detail,) = (await client.get("/api/v1/topics/t")).json()["partition_details"]
        assert (detail["end_offset"], detail["last_stable_offset"]) == (2, 1)
        await node.broker.transactions.abort("billing/1")
        page = (await client.get("/api/v1/topics/t/records")).json()
        assert (page["high_watermark"], page["last_stable_offset"]) == (3, 3)

    run(scenario())


# ---- administration


def test_open_transactions_are_listed_described_and_aborted(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, t=1, u=1)
        assert (await client.get(TRANSACTIONS)).json() == {"transactions": [], "hanging": []}
        identity = await begin(node)
        await node.broker.transactions.add("billing/1", identity, [TopicPartition("u", 0)])
        await node.broker.transactions.init("idle", timeout_ms=1000)
        listed = (await client.get(TRANSACTIONS)).json()["transactions"]
        assert [each["transactional_id"] for each in listed] == ["billing/1", "idle"]
        assert listed[1]["started_ms"] is None and listed[1]["open_ms"] is None
        (shown,) = (await client.get(f"{TRANSACTIONS}?state=Ongoing")).json()["transactions"]
        assert shown["partition_count"] == 2 and shown["open_ms"] >= 0
        query = {"open_longer_than": 10**9}
        assert (await client.get(TRANSACTIONS, params=query)).json()["transactions"] == []
        detail = (await client.get(f"{TRANSACTIONS}/billing/1")).json()
        assert detail["partitions"] == [
            {"topic": "t", "partition": 0, "first_offset": 0, "error": None},
            {"topic": "u", "partition": 0, "first_offset": None, "error": None},
        ]
        abort = f"{TRANSACTIONS}/billing/1/abort"
        other = {"started_ms": shown["started_ms"] - 1}
        check_error(await client.post(abort, json=other), Code.INVALID_REQUEST, "another one", status=409)
        answer = await client.post(abort, json={"started_ms": shown["started_ms"]})
        assert (answer.status_code, answer.content) == (204, b"")
        assert (await client.get(f"{TRANSACTIONS}/billing/1")).json()["state"] == "CompleteAbort"
        check_error(await client.post(abort), Code.INVALID_REQUEST, "no open transaction", status=409)

    run(scenario())


def test_an_id_that_is_not_known_is_not_found(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        check_error(await client.get(f"{TRANSACTIONS}/x"), Code.TRANSACTION_NOT_FOUND, "'x'")
        check_error(await client.post(f"{TRANSACTIONS}/x/abort"), Code.TRANSACTION_NOT_FOUND, "'x'")

    run(scenario())


def test_the_ids_of_the_node_are_seen_and_can_be_aborted(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, t=1)
        await begin(node, "__tailrace-1-7")
        answer = await client.post(f"{TRANSACTIONS}/__tailrace-1-7/abort")
        assert answer.status_code == 204

    run(scenario())


def test_a_partition_of_a_deleted_topic_says_so(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, t=1)
        await begin(node)
        await node.broker.delete_topic("t")
        (shown,) = (await client.get(f"{TRANSACTIONS}/billing/1")).json()["partitions"]
        assert shown["first_offset"] is None and "does not exist" in shown["error"]

    run(scenario())


def test_one_that_hangs_is_listed_and_ended_in_its_partition(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, t=1)
        write(node, Identity(77, 3), T0, verified=True)  # as no coordinator lets it come to be
        shown = {"topic": "t", "partition": 0, "first_offset": 0, "producer_id": 77, "producer_epoch": 3}
        assert (await client.get(TRANSACTIONS)).json()["hanging"] == [shown]
        path = "/api/v1/hanging-transactions/abort"
        place = {"topic": "t", "partition": 0, "first_offset": 0}
        answer = await client.post(path, json=place)
        assert (answer.status_code, answer.content) == (204, b"")
        assert (await client.get(TRANSACTIONS)).json()["hanging"] == []
        assert partition_of(node.broker, "t", 0).last_stable_offset == 2
        check_error(await client.post(path, json=place), Code.INVALID_REQUEST, "offset 0", status=409)
        await begin(node)  # one that its coordinator knows does not hang
        known = {**place, "first_offset": 2}
        check_error(await client.post(path, json=known), Code.INVALID_REQUEST, "by its", status=409)

    run(scenario())
