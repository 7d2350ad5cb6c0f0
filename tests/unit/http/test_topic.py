"""/api/v1/topics against a real node: topics come, are looked at, are changed and go."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import httpx
import pytest
from tests.unit.http.conftest import Run, check_error

from tailrace.broker import NewTopic
from tailrace.http.error import Code
from tailrace.http.rest.topic import config_text, possible_factor
from tailrace.server.node import Node

TOPICS = "/api/v1/topics"


def create(run: Run, client: httpx.AsyncClient, **body: Any) -> httpx.Response:
    return run(client.post(TOPICS, json=body))


def test_a_topic_is_made_as_it_was_asked_for(run: Run, client: httpx.AsyncClient) -> None:
    answer = create(run, client, name="orders", partitions=3, configs={"retention.ms": 1000})
    assert answer.status_code == 201
    body = answer.json()
    UUID(body.pop("topic_id"))
    assert body == {
        "name": "orders",
        "partitions": 3,
        "replication_factor": 1,
        "configs": {"retention.ms": "1000"},
        "warnings": [],
        "internal": False,
    }


def test_what_is_left_out_is_as_the_node_is_set(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    body = create(run, client, name="orders").json()
    assert body["partitions"] == node.broker.config.num_partitions
    assert body["replication_factor"] == 1 and body["configs"] == {}


def test_more_replicas_than_nodes_are_lowered_and_said(run: Run, client: httpx.AsyncClient) -> None:
    body = create(run, client, name="orders", partitions=10, replication_factor=3).json()
    assert (body["partitions"], body["replication_factor"]) == (10, 1)
    (warning,) = body["warnings"]
    assert warning == "replication_factor 3 needs as many nodes; this cluster has 1 node: 1 is stored"


def test_the_factor_that_can_be_had() -> None:
    assert possible_factor(None, nodes=1)[1] == []
    assert possible_factor(2, nodes=2) == (2, [])
    assert possible_factor(3, nodes=2)[0] == 2
    assert "2 nodes" in possible_factor(3, nodes=2)[1][0]


@pytest.mark.parametrize(
    ("body", "code", "words"),
    [
        ({"name": ""}, Code.INVALID_REQUEST, []),
        ({"name": "a b"}, Code.INVALID_REQUEST, ["a b"]),
        ({"name": "."}, Code.INVALID_REQUEST, []),
        ({"name": "x" * 250}, Code.INVALID_REQUEST, []),
        ({"name": "x", "partitions": 0}, Code.INVALID_PARTITIONS, ["partitions: 0"]),
        ({"name": "x", "partitions": -1}, Code.INVALID_PARTITIONS, ["partitions: -1"]),
        ({"name": "x", "partitions": 1 << 31}, Code.INVALID_REQUEST, ["partitions"]),
        ({"name": "x", "partitions": (1 << 31) - 1}, Code.INVALID_PARTITIONS, []),
        ({"name": "x", "replication_factor": 0}, Code.INVALID_REPLICATION_FACTOR, ["replication_factor: 0"]),
        ({"name": "x", "replication_factor": -1}, Code.INVALID_REPLICATION_FACTOR, ["-1"]),
        ({"name": "x", "configs": {"no.such": "1"}}, Code.INVALID_CONFIG, ["no.such"]),
        ({"name": "x", "configs": {"retention.ms": "soon"}}, Code.INVALID_CONFIG, ["retention.ms"]),
        ({"name": "x", "configs": {"retention.ms": None}}, Code.INVALID_REQUEST, ["configs"]),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    run: Run, client: httpx.AsyncClient, body: dict[str, Any], code: Code, words: list[str]
) -> None:
    check_error(run(client.post(TOPICS, json=body)), code, *words)
    assert run(client.get(TOPICS)).json() == {"topics": []}


@pytest.mark.parametrize("body", ["TopicBody", "TopicChange"])
def test_the_least_number_of_partitions_is_described(run: Run, client: httpx.AsyncClient, body: str) -> None:
    schema = run(client.get("/openapi.json")).json()["components"]["schemas"][body]
    assert {"type": "integer", "minimum": 1, "maximum": 2**31 - 1} in schema["properties"]["partitions"][
        "anyOf"
    ]


def test_a_name_that_is_taken_is_a_conflict(run: Run, client: httpx.AsyncClient) -> None:
    create(run, client, name="orders")
    check_error(create(run, client, name="orders"), Code.TOPIC_ALREADY_EXISTS, "orders", status=409)


def test_the_list_is_by_name_and_without_the_brokers_own(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        for name in ("b", "a"):
            await client.post(TOPICS, json={"name": name})
        await node.broker.topics.create(
            NewTopic(name="__inner", partitions=1, replication_factor=1, internal=True)
        )
        shown = (await client.get(TOPICS)).json()["topics"]
        assert [each["name"] for each in shown] == ["a", "b"]
        everything = (await client.get(f"{TOPICS}?internal=true")).json()["topics"]
        assert {"__inner", "a", "b"} <= {each["name"] for each in everything}

    run(scenario())


def test_one_topic_has_its_partitions(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    create(run, client, name="orders", partitions=2)
    body = run(client.get(f"{TOPICS}/orders")).json()
    assert body["partition_details"] == [
        {
            "partition": index,
            "leader": 1,
            "replicas": [1],
            "isr": [1],
            "start_offset": 0,
            "end_offset": 0,
            "last_stable_offset": 0,
            "bytes": 0,
        }
        for index in range(2)
    ]


@pytest.mark.parametrize("method", ["GET", "DELETE", "PATCH"])
@pytest.mark.parametrize("name", ["absent", "a%20b", "%00", "%C3%BC", "x" * 300, "a%2Fb"])
def test_a_topic_that_is_not_there_is_not_found(
    run: Run, client: httpx.AsyncClient, method: str, name: str
) -> None:
    json = {"partitions": 2} if method == "PATCH" else None
    answer = run(client.request(method, f"{TOPICS}/{name}", json=json))
    assert answer.status_code == 404, answer.text


def test_a_topic_grows_and_is_set_otherwise(run: Run, client: httpx.AsyncClient) -> None:
    create(run, client, name="orders", partitions=1, configs={"retention.ms": 1000, "segment.bytes": 1 << 20})

    async def scenario() -> None:
        change = {"partitions": 3, "configs": {"retention.ms": None, "cleanup.policy": "compact"}}
        body = (await client.patch(f"{TOPICS}/orders", json=change)).json()
        assert body["partitions"] == len(body["partition_details"]) == 3
        assert body["configs"] == {"segment.bytes": "1048576", "cleanup.policy": "compact"}
        same = await client.patch(f"{TOPICS}/orders", json={"partitions": 3})
        assert same.status_code == 200 and same.json()["partitions"] == 3
        assert (await client.patch(f"{TOPICS}/orders", json={})).json()["configs"] == body["configs"]

    run(scenario())


def test_a_change_that_is_half_wrong_changes_nothing(run: Run, client: httpx.AsyncClient) -> None:
    create(run, client, name="orders", partitions=2)

    async def scenario() -> None:
        wrong = {"partitions": 3, "configs": {"no.such": "1"}}
        check_error(await client.patch(f"{TOPICS}/orders", json=wrong), Code.INVALID_CONFIG, "no.such")
        fewer = {"partitions": 1, "configs": {"retention.ms": "5"}}
        check_error(await client.patch(f"{TOPICS}/orders", json=fewer), Code.INVALID_PARTITIONS)
        for count in (0, -1):
            none = await client.patch(f"{TOPICS}/orders", json={"partitions": count})
            check_error(none, Code.INVALID_PARTITIONS, str(count))
        body = (await client.get(f"{TOPICS}/orders")).json()
        assert (body["partitions"], body["configs"]) == (2, {})

    run(scenario())


def test_a_deleted_topic_is_gone(run: Run, client: httpx.AsyncClient) -> None:
    create(run, client, name="orders")

    async def scenario() -> None:
        answer = await client.delete(f"{TOPICS}/orders")
        assert (answer.status_code, answer.content) == (204, b"")
        check_error(await client.delete(f"{TOPICS}/orders"), Code.TOPIC_NOT_FOUND)
        assert (await client.get(TOPICS)).json() == {"topics": []}

    run(scenario())


def test_every_setting_is_explained(run: Run, client: httpx.AsyncClient) -> None:
    create(run, client, name="orders", configs={"retention.ms": 5})
    configs = {each["name"]: each for each in run(client.get(f"{TOPICS}/orders/configs")).json()["configs"]}
    retention = configs["retention.ms"]
    assert (retention["value"], retention["source"], retention["type"]) == ("5", "topic", "long")
    assert retention["default"] != "5" and retention["doc"] and retention["read_only"] is False
    assert all(each["source"] in ("topic", "node", "default") for each in configs.values())
    check_error(run(client.get(f"{TOPICS}/absent/configs")), Code.TOPIC_NOT_FOUND)


@pytest.mark.parametrize(
    ("value", "text"), [(True, "true"), (False, "false"), (1, "1"), (0.5, "0.5"), ("x", "x"), ("", "")]
)
def test_a_setting_in_json_is_the_text_that_settings_are(value: str | float | bool, text: str) -> None:
    assert config_text(value) == text
