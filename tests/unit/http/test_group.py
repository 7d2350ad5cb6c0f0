"""Consumer groups by REST, on a real node: made, read and closed by real confluent-kafka consumers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pytest
from confluent_kafka import Consumer, TopicPartition
from tests.poison import undecodable
from tests.unit.http.conftest import DEADLINE_S, Run, check_error, partition_of, wait_until

from tailrace.broker import NewTopic
from tailrace.broker.groups import CommitRequest, JoinRequest, OffsetToCommit, SyncRequest
from tailrace.http.error import Code
from tailrace.model import TopicPartition as Target
from tailrace.records import build_batch, read_batch
from tailrace.server.node import Node

GROUPS = "/api/v1/consumer-groups"
OLD_MS, NEW_MS = 1_600_000_000_000, 1_700_000_000_000


async def fill(node: Node, topic: str = "t", *, partitions: int = 2, count: int = 10) -> None:
    """So many records in each partition, the older half of them a few years older."""
    await node.broker.topics.create(NewTopic(name=topic, partitions=partitions))
    for index in range(partitions):
        times = [OLD_MS if each < count / 2 else NEW_MS for each in range(count)]
        records = [(time_ms, None, b"%d" % each, ()) for each, time_ms in enumerate(times)]
        partition = partition_of(node.broker, topic, index)
        appended = partition.append(read_batch(build_batch(records)))
        await partition.wait_acknowledged(appended.end_offset)


async def commit(node: Node, group: str, offsets: dict[tuple[str, int], int], metadata: str = "") -> None:
    errors = await node.broker.groups.commit_offsets(
        CommitRequest(
            group_id=group,
            offsets={Target(*at): OffsetToCommit(offset, -1, metadata) for at, offset in offsets.items()},
        )
    )
    assert not any(errors.values())


async def committed(client: httpx.AsyncClient, group: str) -> dict[tuple[str, int], int]:
    rows = (await client.get(f"{GROUPS}/{group}/offsets")).json()["offsets"]
    return {(row["topic"], row["partition"]): row["committed"] for row in rows}


async def reset(client: httpx.AsyncClient, group: str = "g", **body: Any) -> httpx.Response:
    return await client.put(f"{GROUPS}/{group}/offsets", json=body)


async def moves(client: httpx.AsyncClient, **body: Any) -> list[tuple[int | None, int, bool]]:
    answer = await reset(client, **body)
    assert answer.status_code == 200, answer.text
    return [(row["before"], row["after"], row["clamped"]) for row in answer.json()["offsets"]]


class Reader:
    """A real consumer in a thread; what it has read is kept, as partition and offset."""

    def __init__(self, node: Node, group: str) -> None:
        self.found: list[tuple[int, int]] = []
        self.consumer = Consumer(
            {
                "bootstrap.servers": node.kafka_address,
                "group.id": group,
                "client.id": "reader",
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self.consumer.subscribe(["t"])

    async def poll_until(self, condition: Callable[[], bool]) -> None:
        await asyncio.to_thread(self._poll, condition)

    async def commit(self, offsets: list[TopicPartition] | None = None) -> None:
        if offsets is None:
            await asyncio.to_thread(self.consumer.commit, asynchronous=False)
        else:
            await asyncio.to_thread(self.consumer.commit, offsets=offsets, asynchronous=False)

    def _poll(self, condition: Callable[[], bool]) -> None:
        deadline = time.monotonic() + DEADLINE_S / 2  # a thread does not end with its test
        while not condition():
            assert time.monotonic() < deadline, self.found
            message = self.consumer.poll(0.05)
            if message is not None:
                assert message.error() is None, message.error()
                self.found.append((message.partition() or 0, message.offset() or 0))


@asynccontextmanager
async def consuming(node: Node, group: str = "g") -> AsyncIterator[Reader]:
    """A member that has its partitions; it leaves at the end."""
    reader = Reader(node, group)
    try:
        await reader.poll_until(lambda: bool(reader.consumer.assignment()))
        yield reader
    finally:
        await asyncio.to_thread(reader.consumer.close)


# ---- look


def test_no_groups_is_an_empty_list(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        assert (await client.get(GROUPS)).json() == {"groups": []}

    run(scenario())


def test_a_real_member_is_shown_with_what_it_reads(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await fill(node)
        async with consuming(node) as reader:
            await reader.commit([TopicPartition("t", 0, 4)])
            found = (await client.get(f"{GROUPS}/g")).json()
            assert (found["group"], found["state"], found["protocol_type"]) == ("g", "Stable", "consumer")
            assert found["protocol"] in ("range", "roundrobin")
            (member,) = found["members"]
            assert (member["client_id"], member["host"], member["instance_id"]) == (
                "reader",
                "127.0.0.1",
                None,
            )
            assert member["partitions"] == [{"topic": "t", "partition": 0}, {"topic": "t", "partition": 1}]
            assert found["lag"] == 6
            first, second = found["offsets"]
            assert first == {
                "topic": "t",
                "partition": 0,
                "committed": 4,
                "start_offset": 0,
                "end_offset": 10,
                "lag": 6,
                "member_id": member["member_id"],
                "metadata": "",
            }
            assert (second["partition"], second["committed"], second["lag"]) == (1, None, None)
            assert second["member_id"] == member["member_id"]
            assert (await client.get(f"{GROUPS}/g/offsets")).json() == {"offsets": [first, second]}
            (listed,) = (await client.get(GROUPS)).json()["groups"]
            assert listed == {
                "name": "g",
                "state": "Stable",
                "protocol": found["protocol"],
                "member_count": 1,
                "topics": ["t"],
                "lag": 6,
                "lag_by_topic": {"t": 6},
                "group": "g",
                "members": 1,
            }

    run(scenario())


def test_the_list_of_groups_has_the_lag_of_each_topic(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await fill(node, "t")
        await fill(node, "u")
        await fill(node, "gone")
        await commit(node, "g", {("t", 0): 3, ("t", 1): 9, ("u", 0): 10, ("gone", 0): 1})
        await node.broker.topics.delete("gone")
        (listed,) = (await client.get(GROUPS)).json()["groups"]
        assert (listed["lag"], listed["lag_by_topic"]) == (8, {"t": 8, "u": 0, "gone": None})

    run(scenario())


def test_a_group_without_members_keeps_its_offsets(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "b", {("t", 1): 10})
        await commit(node, "a", {("t", 0): 3}, metadata="up to here")
        groups = (await client.get(GROUPS)).json()["groups"]
        assert [(each["group"], each["state"], each["members"], each["lag"]) for each in groups] == [
            ("a", "Empty", 0, 7),
            ("b", "Empty", 0, 0),
        ]
        (row,) = (await client.get(f"{GROUPS}/a/offsets")).json()["offsets"]
        assert (row["committed"], row["member_id"], row["metadata"]) == (3, None, "up to here")

    run(scenario())


def test_what_retention_took_is_no_lag(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "g", {("t", 0): 2})
        await partition_of(node.broker, "t", 0).delete_records(6)
        (row,) = (await client.get(f"{GROUPS}/g/offsets")).json()["offsets"]
        assert (row["committed"], row["start_offset"], row["end_offset"], row["lag"]) == (2, 6, 10, 4)

    run(scenario())


def test_a_member_of_another_protocol_has_no_partitions(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        groups = node.broker.groups
        joined = await groups.join(
            JoinRequest(
                group_id="connect",
                client_id="worker",
                client_host="/10.0.0.9",
                session_timeout_ms=10_000,
                protocol_type="connect",
                protocols=[("default", b"\xff")],
            )
        )
        await groups.sync(
            SyncRequest(
                group_id="connect",
                generation_id=joined.generation_id,
                member_id=joined.member_id,
                assignments={joined.member_id: b"\x00\x01not ours"},
            )
        )
        found = (await client.get(f"{GROUPS}/connect")).json()
        assert (found["protocol_type"], found["protocol"], found["offsets"]) == ("connect", "default", [])
        assert found["members"][0]["partitions"] == []
        assert found["members"][0]["host"] == "10.0.0.9"

    run(scenario())


def test_a_partition_that_is_gone_has_no_end(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "g", {("t", 0): 2})
        await node.broker.topics.delete("t")  # the topic alone: its offsets go with the broker's delete_topic
        found = (await client.get(f"{GROUPS}/g")).json()
        assert found["lag"] == 0
        (row,) = found["offsets"]
        assert (row["committed"], row["start_offset"], row["end_offset"], row["lag"]) == (2, None, None, None)

    run(scenario())


ODD_NAMES = ["with space", "ümlaut", "a%2Cb", "dots.and-dashes", "q?uestion", "h#ash", "slash/es"]


@pytest.mark.parametrize("name", ODD_NAMES)
def test_the_lag_of_a_group_with_an_odd_name_is_told(
    run: Run, node: Node, client: httpx.AsyncClient, name: str
) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, name, {("t", 0): 1})
        found = await client.get(f"/api/v1/metrics/groups/{quote(name, safe='')}")
        assert (found.status_code, found.json().keys()) == (200, {"interval_ms", "end_ms", "lag"})

    run(scenario())


@pytest.mark.parametrize("name", ODD_NAMES)
def test_a_group_may_have_an_odd_name(run: Run, node: Node, client: httpx.AsyncClient, name: str) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, name, {("t", 0): 1})
        found = await client.get(f"{GROUPS}/{quote(name, safe='')}")
        assert (found.status_code, found.json()["group"]) == (200, name)

    run(scenario())


def test_a_name_that_ends_like_a_path_of_offsets_is_listed_shown_by_its_offsets_and_deleted(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "a/offsets", {("t", 0): 1})
        (listed,) = (await client.get(GROUPS)).json()["groups"]
        assert listed["group"] == "a/offsets"
        (row,) = (await client.get(f"{GROUPS}/a/offsets/offsets")).json()["offsets"]
        assert row["committed"] == 1
        check_error(await client.get(f"{GROUPS}/a/offsets"), Code.GROUP_NOT_FOUND, "group a ")
        assert (await client.delete(f"{GROUPS}/a/offsets")).status_code == 204

    run(scenario())


@pytest.mark.parametrize(("method", "path"), [("GET", ""), ("GET", "/offsets"), ("DELETE", "")])
def test_a_group_that_nobody_knows_is_not_found(
    run: Run, client: httpx.AsyncClient, method: str, path: str
) -> None:
    async def scenario() -> None:
        check_error(await client.request(method, f"{GROUPS}/absent{path}"), Code.GROUP_NOT_FOUND, "absent")

    run(scenario())


# ---- delete


def test_a_group_is_deleted_once_its_members_have_left(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "g", {("t", 0): 1})
        async with consuming(node):
            refused = await client.delete(f"{GROUPS}/g")
            check_error(refused, Code.INVALID_REQUEST, "has members", "Stop", status=409)
        assert (await client.delete(f"{GROUPS}/g")).status_code == 204
        check_error(await client.get(f"{GROUPS}/g"), Code.GROUP_NOT_FOUND)
        assert (await client.get(GROUPS)).json() == {"groups": []}

    run(scenario())


@pytest.mark.parametrize("name", ["g\n", "\ng", "a\nb"])
def test_a_newline_is_a_part_of_a_group_s_name(
    run: Run, node: Node, client: httpx.AsyncClient, name: str
) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "g", {("t", 0): 1})
        check_error(await client.delete(f"{GROUPS}/{quote(name, safe='')}"), Code.GROUP_NOT_FOUND)
        assert await committed(client, "g") == {("t", 0): 1}
        await commit(node, name, {("t", 0): 2})
        assert (await client.delete(f"{GROUPS}/{quote(name, safe='')}")).status_code == 204
        assert [each["group"] for each in (await client.get(GROUPS)).json()["groups"]] == ["g"]

    run(scenario())


# ---- reset


def test_a_consumer_goes_on_where_the_reset_put_it(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await fill(node)
        async with consuming(node) as reader:
            await reader.poll_until(lambda: len(reader.found) == 20)
            await reader.commit()
            refused = await reset(client, to="earliest")
            check_error(refused, Code.INVALID_REQUEST, "a member", "Stop its consumers", status=409)
            assert await committed(client, "g") == {("t", 0): 10, ("t", 1): 10}
            preview = await moves(client, to={"shift": -3}, dry_run=True)
            assert preview == [(10, 7, False), (10, 7, False)]
        answer = (await reset(client, to={"shift": -3})).json()
        assert answer == {
            "name": "g",
            "group": "g",
            "applied": True,
            "offsets": [
                {
                    "topic": "t",
                    "partition": index,
                    "before": 10,
                    "after": 7,
                    "start_offset": 0,
                    "end_offset": 10,
                    "lag": 3,
                    "clamped": False,
                }
                for index in range(2)
            ],
        }
        async with consuming(node) as reader:
            await reader.poll_until(lambda: len(reader.found) >= 6)
        assert sorted(reader.found) == [(partition, offset) for partition in (0, 1) for offset in (7, 8, 9)]

    run(scenario())


def test_a_dry_run_changes_nothing(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await fill(node)
        answer = (await reset(client, to="latest", topics=["t"], dry_run=True)).json()
        assert (answer["applied"], [row["after"] for row in answer["offsets"]]) == (False, [10, 10])
        check_error(await client.get(f"{GROUPS}/g"), Code.GROUP_NOT_FOUND)
        await commit(node, "g", {("t", 0): 5})
        await reset(client, to="earliest", dry_run=True)
        assert await committed(client, "g") == {("t", 0): 5}

    run(scenario())


@pytest.mark.parametrize(
    ("to", "after", "clamped"),
    [
        ("earliest", 0, False),
        ("latest", 10, False),
        ("current", 4, False),
        ({"offset": 7}, 7, False),
        ({"offset": 10}, 10, False),
        ({"offset": 11}, 10, True),
        ({"offset": 2**63 - 1}, 10, True),
        ({"shift": 2}, 6, False),
        ({"shift": -5}, 0, True),
        ({"shift": -(2**63)}, 0, True),
        ({"time": OLD_MS}, 0, False),
        ({"time": OLD_MS + 1}, 5, False),
        ({"time": NEW_MS + 1}, 10, False),  # after every record: the end
        ({"time": "2022-01-01T00:00"}, 5, False),
        ({"time": "2h"}, 10, False),
        ({"time": "9999999w"}, 0, False),  # long before 1970
        ({"time": 0}, 0, False),
    ],
)
def test_a_reset_goes_where_it_is_told(
    run: Run, node: Node, client: httpx.AsyncClient, to: Any, after: int, clamped: bool
) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "g", {("t", 0): 4})
        assert await moves(client, to=to) == [(4, after, clamped)]
        assert await committed(client, "g") == {("t", 0): after}

    run(scenario())


def test_an_offset_that_was_deleted_is_moved_to_the_start(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "g", {("t", 0): 4})
        await partition_of(node.broker, "t", 0).delete_records(6)
        assert await moves(client, to={"offset": 2}) == [(4, 6, True)]
        assert await committed(client, "g") == {("t", 0): 6}

    run(scenario())


@pytest.mark.parametrize(
    ("what", "moved"),
    [
        ({}, [("t", 0), ("u", 1)]),  # all that is committed
        ({"topics": ["t"]}, [("t", 0), ("t", 1)]),
        ({"topics": ["t", "u", "t"]}, [("t", 0), ("t", 1), ("u", 0), ("u", 1)]),
        ({"partitions": {"u": [1, 1]}}, [("u", 1)]),
        ({"topics": ["t", "u"], "partitions": {"u": [0]}}, [("t", 0), ("t", 1), ("u", 0)]),
        ({"topics": [], "partitions": {"t": [1], "u": []}}, [("t", 1)]),
    ],
)
def test_only_what_is_named_is_moved(
    run: Run, node: Node, client: httpx.AsyncClient, what: dict[str, Any], moved: list[tuple[str, int]]
) -> None:
    async def scenario() -> None:
        await fill(node, "t")
        await fill(node, "u")
        await commit(node, "g", {("t", 0): 4, ("u", 1): 5})
        rows = (await reset(client, to="latest", **what)).json()["offsets"]
        assert [(row["topic"], row["partition"]) for row in rows] == moved
        expected = {("t", 0): 4, ("u", 1): 5} | dict.fromkeys(moved, 10)
        assert await committed(client, "g") == expected

    run(scenario())


def test_offsets_may_be_named_one_by_one(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await fill(node)
        wanted = [
            {"topic": "t", "partition": 1, "offset": 999},
            {"topic": "t", "partition": 0, "offset": 3},
        ]
        assert await moves(client, offsets=wanted) == [(None, 3, False), (None, 10, True)]
        assert await committed(client, "g") == {("t", 0): 3, ("t", 1): 10}

    run(scenario())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ({}, ["say where to"]),
        ({"to": None}, ["say where to"]),
        ({"to": "earliest", "offsets": []}, ["say where to"]),
        ({"to": "nowhere"}, ["to:"]),
        ({"to": 5}, ["to:"]),
        ({"to": {}}, ["one place", "0"]),
        ({"to": {"offset": 1, "shift": 1}}, ["one place", "2"]),
        ({"to": {"offset": -1}}, ["to.offset"]),
        ({"to": {"offset": 2**63}}, ["to.offset"]),
        ({"to": {"offset": "5"}}, ["to.offset"]),
        ({"to": {"offset": 1.5}}, ["to.offset"]),
        ({"to": {"shift": 2**63}}, ["to.shift"]),
        ({"to": {"time": -1}}, ["to.time"]),
        ({"to": {"time": "noon"}, "topics": ["t"]}, ["'noon' is no time", "2h"]),
        ({"to": {"time": "9" * 101}, "topics": ["t"]}, ["to.time"]),
        ({"to": {"place": "earliest"}}, ["place"]),
        ({"to": "earliest", "topic": "t"}, ["topic"]),
        ({"to": "earliest", "topics": "t"}, ["topics"]),
        ({"to": "earliest", "topics": []}, ["nothing to move"]),
        ({"to": "earliest", "partitions": {}}, ["nothing to move"]),
        ({"to": "earliest", "partitions": {"t": []}}, ["nothing to move"]),
        ({"to": "earliest", "partitions": {"t": [-1]}}, ["partitions"]),
        ({"to": "earliest", "dry_run": "yes"}, ["dry_run"]),
        ({"offsets": []}, ["nothing to move"]),
        ({"offsets": [{"topic": "t", "partition": 0}]}, ["offset"]),
        ({"offsets": [{"topic": "t", "partition": 0, "offset": -1}]}, ["offset"]),
        ({"offsets": [{"topic": "t", "partition": 0, "offset": 1}] * 2}, ["t-0", "twice"]),
        ({"offsets": [{"topic": "t", "partition": 0, "offset": 1}], "topics": ["t"]}, ["leave", "topics"]),
        ({"to": {"shift": 1}, "topics": ["t"]}, ["t-1 has no committed offset", "shifted"]),
        ({"to": "current", "topics": ["t"]}, ["t-1 has no committed offset", "kept"]),
    ],
)
def test_what_makes_no_sense_is_refused_and_changes_nothing(
    run: Run, node: Node, client: httpx.AsyncClient, body: dict[str, Any], words: list[str]
) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "g", {("t", 0): 4})
        check_error(await reset(client, **body), Code.INVALID_REQUEST, *words)
        assert await committed(client, "g") == {("t", 0): 4}

    run(scenario())


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"to": "earliest", "topics": ["absent"]}, Code.TOPIC_NOT_FOUND, ["absent"]),
        ({"to": "earliest", "topics": ["t", "absent"]}, Code.TOPIC_NOT_FOUND, ["absent"]),
        ({"to": "earliest", "partitions": {"absent": [0]}}, Code.TOPIC_NOT_FOUND, ["absent"]),
        ({"to": "earliest", "partitions": {"t": [0, 2]}}, Code.TOPIC_NOT_FOUND, ["2 partitions", "no 2"]),
        ({"offsets": [{"topic": "t", "partition": 9, "offset": 1}]}, Code.TOPIC_NOT_FOUND, ["no 9"]),
        ({"offsets": [{"topic": "a b", "partition": 0, "offset": 1}]}, Code.TOPIC_NOT_FOUND, ["'a b'"]),
    ],
)
def test_what_is_not_there_cannot_be_moved(
    run: Run, node: Node, client: httpx.AsyncClient, body: dict[str, Any], code: Code, words: list[str]
) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "g", {("t", 0): 4})
        check_error(await reset(client, **body), code, *words)
        assert await committed(client, "g") == {("t", 0): 4}

    run(scenario())


def test_a_group_without_a_name_is_not_made(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await fill(node)
        answer = await reset(client, group="", to="earliest", topics=["t"])
        check_error(answer, Code.INVALID_REQUEST, "name of the group is empty")
        assert (await client.get(GROUPS)).json() == {"groups": []}

    run(scenario())


def test_a_group_that_nobody_knows_needs_topics(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await fill(node)
        check_error(await reset(client, "new", to="earliest"), Code.GROUP_NOT_FOUND, "new")
        answer = await reset(client, "new", to="latest", topics=["t"])
        assert answer.json()["applied"] is True
        assert await committed(client, "new") == {("t", 0): 10, ("t", 1): 10}

    run(scenario())


def test_a_group_that_has_committed_nothing_needs_topics(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await fill(node)
        async with consuming(node):
            answer = await reset(client, to="earliest", dry_run=True)
            check_error(answer, Code.INVALID_REQUEST, "committed nothing")

    run(scenario())


def test_who_joins_while_a_reset_is_under_way_is_not_overwritten(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario() -> None:
        await fill(node)
        await commit(node, "g", {("t", 0): 4})
        groups, joins = node.broker.groups, []
        commit_offsets = groups.commit_offsets

        async def join_first(request: CommitRequest) -> Any:
            joins.append(asyncio.ensure_future(groups.join(_join("g"))))
            await wait_until(lambda: bool(groups.describe("g").members))
            return await commit_offsets(request)

        monkeypatch.setattr(groups, "commit_offsets", join_first)
        check_error(await reset(client, to="earliest"), Code.INVALID_REQUEST, "has members", status=409)
        assert await committed(client, "g") == {("t", 0): 4}
        await asyncio.gather(*joins)

    run(scenario())


def _join(group: str) -> JoinRequest:
    return JoinRequest(
        group_id=group, session_timeout_ms=10_000, protocol_type="consumer", protocols=[("range", b"")]
    )


def test_a_group_is_not_moved_to_a_time_that_may_lie_in_what_cannot_be_decoded(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await fill(node, partitions=1)
        partition = partition_of(node.broker, "t", 0)
        appended = partition.append(read_batch(undecodable(3, time_ms=NEW_MS + 5)))
        await partition.wait_acknowledged(appended.end_offset)
        await commit(node, "g", {("t", 0): 2})
        answer = await reset(client, to={"time": NEW_MS + 1})
        details = check_error(answer, Code.UNREADABLE_RECORDS, "t-0 cannot be read at offset 10")
        assert details == {"topic": "t", "partition": 0, "offset": 10, "next_offset": 13}
        assert await committed(client, "g") == {("t", 0): 2}

    run(scenario())
