"""One name per thing: the table of names in the API reference, compared with what the program answers.

A broker in this process has a little of everything. Every older name of the table must stand beside its name
with the same value where the table says so, and nothing else may be marked as deprecated.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from tests.document import ROOT, older_fields

import tailrace
from tailrace.cli.main import main
from tailrace.cli.subscription import command as subscription_command
from tailrace.client import AsyncClient, BrokerClient
from tailrace.http.openapi import write_openapi
from tailrace.http.table import OPERATIONS
from tailrace.wire.native import Frame, MessageType
from tailrace.wire.native.json_frame import read_json_frame, write_json_frame

JSON_OF_CLI = "JSON of the command line"
NATIVE = "native protocol"


class Row(NamedTuple):
    """A row of the table."""

    name: str
    older: str
    where: list[str]


def table() -> list[Row]:
    text = (ROOT / "docs" / "api-reference.md").read_text(encoding="utf-8")
    part = text.partition("<!-- names -->\n")[2].partition("<!-- end -->")[0]
    found = re.findall(r"^\| `(\w+)` \| `(\w+)` \| .* \| ([^|]*) \|$", part, re.MULTILINE)
    return [Row(name, older, where.split(", ")) for name, older, where in found]


def pairs(where: str) -> set[tuple[str, str]]:
    """The older name and the name of every row that holds somewhere."""
    return {(row.older, row.name) for row in table() if where in row.where}


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker(http_port=0) as running:
        running.create_topic("orders", configs={"retention.ms": "60000"})
        running.produce("orders", b"\xff", key=b"k")
        with BrokerClient(*address_of(running)) as client:
            client.create_subscription("workers", "orders", max_deliveries=1)
            client.create_subscription("others", "orders", max_deliveries=1)
            client.pull("others")[0].nack(reason="no")
        url = f"http://{running.http_address}/api/v1/consumer-groups/readers/offsets"
        body = {"to": "earliest", "topics": ["orders"]}
        assert httpx.put(url, json=body, trust_env=False).status_code == 200
        yield running


def address_of(broker: tailrace.Broker) -> tuple[str, int]:
    host, _, port = broker.native_address.rpartition(":")
    return host, int(port)


def objects(value: Any) -> Iterator[dict[str, Any]]:
    """Every object of a JSON value."""
    if isinstance(value, dict):
        yield value
        for each in value.values():
            yield from objects(each)
    elif isinstance(value, list):
        for each in value:
            yield from objects(each)


def together(answers: Any) -> set[tuple[str, str]]:
    """The pairs of the whole table that stand in one object with one value."""
    return {
        (row.older, row.name)
        for each in objects(answers)
        for row in table()
        if row.older in each and row.name in each and each[row.older] == each[row.name]
    }


def test_the_table_was_found() -> None:
    assert len(table()) >= 14


# ---- REST


def test_deprecated_fields_and_paths_are_those_of_the_table() -> None:
    described = write_openapi(OPERATIONS, version="0")["paths"]
    paths = set(described)
    marked = {
        path
        for path, methods in described.items()
        if any(each.get("deprecated") for each in methods.values())
    }
    older_paths = {path.rpartition("/")[2] for path in marked}
    fields = older_fields()
    assert older_paths == {"seek", "settings"}
    assert fields | {("seek", "replay"), ("settings", "configs")} == pairs("REST")
    for older, name in (("seek", "replay"), ("settings", "configs")):
        assert {each.replace(f"/{older}", f"/{name}") for each in paths if each.endswith(older)} <= paths


def test_rest_answers_with_both_names(broker: tailrace.Broker) -> None:
    with httpx.Client(base_url=f"http://{broker.http_address}/api/v1", trust_env=False) as client:
        paths = (
            "/consumer-groups",
            "/consumer-groups/readers",
            "/metrics/topics",
            "/subscriptions",
            "/subscriptions/workers",
            "/subscriptions/others/dead-letters",
        )
        answers = [client.get(path).json() for path in paths]
        assert client.get("/configs").json()["configs"] == client.get("/settings").json()["settings"]
    assert together(answers) == older_fields()


def test_rest_takes_either_name_of_the_settings_of_a_subscription(broker: tailrace.Broker) -> None:
    with httpx.Client(base_url=f"http://{broker.http_address}/api/v1", trust_env=False) as client:
        for name in ("configs", "settings"):
            body = {"name": f"by-{name}", "topic": "orders", name: {"max_deliveries": 3}}
            made = client.post("/subscriptions", json=body)
            assert made.status_code == 201
            assert made.json()["configs"] == {"max_deliveries": "3"}
        both = {"configs": {"max_deliveries": 3}, "settings": {"mode": "shared"}}
        refused = client.post("/subscriptions", json={"name": "by-both", "topic": "orders", **both})
    assert refused.status_code == 400
    assert "older name of configs" in refused.json()["error"]["message"]


def test_rest_starts_a_subscription_at_an_offset_by_either_name(broker: tailrace.Broker) -> None:
    with httpx.Client(base_url=f"http://{broker.http_address}/api/v1", trust_env=False) as client:
        for name, place in (("at-number", {"start_offset": 1}), ("at-text", {"start": "offset:1"})):
            made = client.post("/subscriptions", json={"name": name, "topic": "orders", **place}).json()
            assert [each["position"] for each in made["partitions"]] == [1]
        both = {"start": "earliest", "start_offset": 1}
        refused = client.post("/subscriptions", json={"name": "at-both", "topic": "orders", **both})
        negative = client.post(
            "/subscriptions", json={"name": "below", "topic": "orders", "start_offset": -1}
        )
    assert (refused.status_code, negative.status_code) == (400, 400)
    assert "send one of them" in refused.json()["error"]["message"]


def test_a_replay_by_either_path_moves_the_subscription(broker: tailrace.Broker) -> None:
    with httpx.Client(base_url=f"http://{broker.http_address}/api/v1", trust_env=False) as client:
        client.post("/subscriptions", json={"name": "moved", "topic": "orders"})
        for path, to, position in (("replay", "latest", 1), ("seek", "earliest", 0)):
            answer = client.post(f"/subscriptions/moved/{path}", json={"to": to})
            assert answer.json()["applied"]
            (cursor,) = client.get("/subscriptions/moved").json()["partitions"]
            assert cursor["position"] == position


# ---- Python, native protocol, command line


def test_python_has_either_method() -> None:
    assert pairs("Python") == {("seek", "replay")}
    for kind in (BrokerClient, AsyncClient):
        assert getattr(kind, "seek") is getattr(kind, "replay")  # noqa: B009 - names of the table


def test_native_frames_have_either_name() -> None:
    assert MessageType["SEEK"] is MessageType["REPLAY"]
    for name in ("seek", "replay"):
        assert read_json_frame(f'{{"type": "{name}"}}').type == int(MessageType.REPLAY)
    assert '"replay"' in write_json_frame(Frame(34, 0, 0, {}, b""))


def test_native_descriptions_have_both_names(broker: tailrace.Broker) -> None:
    async def ask() -> list[Any]:
        async with AsyncClient(*address_of(broker)) as client:
            return [
                await client.describe_topics(),
                await client.describe_topic("orders"),
                await client.describe_subscriptions(),
                await client.describe_subscription("workers"),
                await client.describe_dead_letters("others"),
            ]

    assert together(asyncio.run(ask())) == pairs(NATIVE) - {("seek", "replay")}


def test_the_command_line_has_replay_and_hides_its_older_name(
    broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = subscription_command.commands
    assert (commands["replay"].hidden, commands["seek"].hidden) == (False, True)
    assert pairs("command line") == {("seek", "replay")}
    options = ("--node", broker.native_address, "--dry-run", "-o", "json")
    rows = []
    for verb, option in (("replay", "--from"), ("seek", "--to")):
        assert main(["subscription", verb, "workers", option, "earliest", *options]) == 0
        rows.append(json.loads(capsys.readouterr().out))
    assert rows[0] == rows[1]


def test_json_of_the_command_line_has_both_names(
    broker: tailrace.Broker, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    native, kafka = ("--node", broker.native_address), ("-b", broker.bootstrap_servers)
    commands = (
        ("subscription", "list", *native),
        ("subscription", "describe", "workers", *native),
        ("subscription", "dead-letters", "others", *native),
        ("subscription", "replay", "workers", "--from", "earliest", "--dry-run", *native),
        ("subscription", "join", "workers", "--count", "1", "--no-ack", *native),
        ("inspect", *native),
        ("group", "list", *kafka),
        ("group", "describe", "readers", *kafka),
    )
    answers = []
    for each in commands:
        assert main([*each, "-o", "json"]) == 0
        answers.append(json.loads(capsys.readouterr().out))
    assert together(answers) == pairs(JSON_OF_CLI)
