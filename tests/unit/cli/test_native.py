"""What commands of the native listener share: addresses, starts, deadlines, lost brokers, shown messages."""

from __future__ import annotations

import asyncio
import json
import re
import socket
import time
from typing import Any

import pytest
import rich_click as click
from tests.port import refusing_port

import tailrace
from tailrace.cli.delivery import body_line, message_row
from tailrace.cli.main import ALIASES, NOUNS, build_root, main
from tailrace.cli.native import NativeNode, NodeType, StartType
from tailrace.client.async_client import AsyncClient
from tailrace.client.native.message import Delivered
from tailrace.model.address import Address
from tailrace.testing.port import free_port
from tailrace.wire.native import Frame, MessageType, properties_of_record, read_properties

# ---- addresses and starts


@pytest.mark.parametrize(
    ("text", "address"),
    [
        ("localhost:9001", ("localhost", 9001)),
        (" 127.0.0.1:1 ", ("127.0.0.1", 1)),
        ("broker", ("broker", 9999)),
        ("[::1]:65535", ("::1", 65535)),
        ("[::1]", ("::1", 9999)),
        ("unix:/run/tailrace.sock", ("unix:/run/tailrace.sock", 0)),
    ],
)
def test_a_node_is_host_and_port(text: str, address: tuple[str, int]) -> None:
    assert NodeType().convert(text, None, None) == Address(*address)


@pytest.mark.parametrize(
    "text",
    ["", ":9999", "host:0", "host:65536", "host:x", "host:99999999", "::1:9999", "[]:1", "h:٣", "unix:"],
)
def test_what_is_no_node_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"HOST:PORT|port from 1|Unix socket"):
        NodeType().convert(text, None, None)


@pytest.mark.parametrize(
    ("text", "start"),
    [
        ("earliest", "earliest"),
        ("latest", "latest"),
        ("offset:0", "offset:0"),
        ("offset:007", "offset:7"),
        ("offset:9223372036854775807", "offset:9223372036854775807"),
        ("time:1700000000000", "time:1700000000000"),
        ("time:2023-11-14T22:13:20+00:00", "time:1700000000000"),
        ("time:1900-01-01T00:00+00:00", "time:0"),
    ],
)
def test_a_start_is_turned_into_the_protocols_words(text: str, start: str) -> None:
    assert StartType().convert(text, None, None) == start


def test_a_start_may_be_so_long_ago() -> None:
    start = StartType().convert("time:2h", None, None)
    ago_ms = time.time() * 1000 - int(start.removeprefix("time:"))
    assert 7_200_000 <= ago_ms + 1 < 7_260_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "newest",
        "5",
        "offset:",
        "offset:-1",
        "offset:x",
        "offset:9223372036854775808",
        "time:",
        "time:soon",
    ],
)
def test_what_is_no_start_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"earliest, latest|is no time"):
        StartType().convert(text, None, None)


# ---- the root


def test_help_shows_the_further_words_below_the_nouns(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--help"]) == 0
    shown = capsys.readouterr().out
    for text in ALIASES.values():
        assert text in shown
    above, title, below = shown.partition("Plain words")
    assert title
    assert all(f" {noun} " in above for noun in NOUNS) and all(f" {word} " in below for word in ALIASES)


def test_every_word_is_there_and_teaches_by_example() -> None:
    root = build_root(NOUNS, aliases=ALIASES)
    for word, text in ALIASES.items():
        _name, command, _rest = root.resolve_command(click.Context(root), [word])
        assert command is not None
        assert (command.help or "").splitlines()[0] == text
        assert f"tailrace {word} " in (command.epilog or "")


def test_every_verb_of_subscription_teaches_by_example() -> None:
    root = build_root(NOUNS)
    _name, command, _rest = root.resolve_command(click.Context(root), ["subscription"])
    assert isinstance(command, click.Group)
    verbs = {"list", "describe", "create", "delete", "join", "replay", "redrive", "dead-letters"}
    shown = {verb: each for verb, each in command.commands.items() if not each.hidden}
    assert set(shown) == verbs
    for verb, each in shown.items():
        assert f"tailrace subscription {verb}" in (each.epilog or "")


# ---- nobody there


@pytest.mark.parametrize(
    "args",
    [
        ["subscription", "list"],
        ["subscription", "join", "s"],
        ["subscription", "delete", "s", "--yes"],
        ["inspect"],
        ["replay", "t"],
        ["publish", "t", "text"],
        ["subscribe", "t"],
        ["produce", "--destination", "t", "--message", "text"],
        ["consume", "--destination", "t"],
    ],
    ids=lambda args: " ".join(args),
)
def test_nobody_listens_is_one_line_with_the_way_out(
    args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    with refusing_port() as port:
        assert main([*args, "--node", f"127.0.0.1:{port}"]) == 1
    shown = capsys.readouterr()
    assert shown.out == ""
    assert shown.err.startswith(f"error: cannot reach 127.0.0.1:{port} (connection refused). Is the broker ")
    assert "Try: tailrace up" in shown.err
    assert shown.err.count("\n") == 1


def test_the_kafka_port_is_not_the_native_one(capsys: pytest.CaptureFixture[str]) -> None:
    with tailrace.Broker() as broker:
        assert main(["inspect", "--node", broker.bootstrap_servers]) == 1
    assert "Is this the native port?" in capsys.readouterr().err


def test_a_broker_that_says_nothing_is_a_timeout(capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as mute:
        node = f"127.0.0.1:{mute.getsockname()[1]}"
        assert main(["inspect", "--node", node, "--timeout", "0.05"]) == 5
    assert capsys.readouterr().err.startswith(f"error: cannot reach {node} ")


def test_the_configuration_gives_the_deadline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_CLIENT__REQUEST_TIMEOUT_MS", "50")
    with socket.create_server(("127.0.0.1", 0)) as mute:
        monkeypatch.setenv("TAILRACE_NODE", f"127.0.0.1:{mute.getsockname()[1]}")
        assert main(["inspect"]) == 5
    assert re.search(r"no answer within 0\.0\d{1,3} s", capsys.readouterr().err)


def test_a_wrong_configuration_is_named(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("TAILRACE_CLIENT__HEARTBEAT_INTERVAL_MS", "often")
    assert main(["inspect"]) == 2
    assert "client.heartbeat_interval_ms" in capsys.readouterr().err


def test_a_wrong_node_is_wrong_usage(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["inspect", "--node", "host:nine"]) == 2
    assert re.match(r"error: .*--node.*host:nine.*Try: tailrace inspect --help\n$", capsys.readouterr().err)


# ---- the connection


def test_a_lost_connection_is_told_and_opened_again(capsys: pytest.CaptureFixture[str]) -> None:
    with tailrace.Broker(native_port=free_port()) as broker:
        node = NativeNode(Address("127.0.0.1", broker.native_port))

        async def work(client: AsyncClient) -> None:
            await client.describe_topics()
            await asyncio.to_thread(broker.close)
            await asyncio.to_thread(broker.start)
            await client.describe_topics()

        node.stay(work)
    lost, again = capsys.readouterr().err.splitlines()
    assert lost.startswith(f"warning: connection lost, trying again: {node.address} ")
    assert again == "connected again"


def test_a_command_that_does_not_stay_is_told_of_a_loss_at_once() -> None:
    with tailrace.Broker() as broker:

        async def work(client: AsyncClient) -> None:
            await asyncio.to_thread(broker.close)
            await client.describe_topics()

        with pytest.raises(ConnectionError):
            NativeNode(Address("127.0.0.1", broker.native_port)).run(work)


# ---- messages


def delivered(
    *, key: bytes | None = None, value: bytes | None = b"body", headers: Any = (), count: int = 1
) -> Delivered:
    properties = {
        "_subscription": "s",
        "_topic": "t",
        "_partition": "1",
        "_epoch": "0",
        "_id": "ab-1-7",
        "_delivery": str(count),
        **read_properties(properties_of_record(key, value, headers)[0]),
    }
    return Delivered(Frame(int(MessageType.DATA), 7, 1234, properties, value or b""))


@pytest.mark.parametrize(
    ("value", "line"),
    [
        (b"text", "text"),
        ("ü".encode(), "ü"),
        (b"", ""),
        (b"two\nlines", "two\\nlines"),
        (b"\x1b]0;title\x07", "\\x1b]0;title\\x07"),
        (b"\xff\xfe", "\\xff\\xfe"),
        ("‮abc".encode(), "\\u202eabc"),
        (None, "(tombstone)"),
    ],
)
def test_a_line_cannot_steer_a_terminal(value: bytes | None, line: str) -> None:
    assert body_line(delivered(value=value)) == line


def test_a_row_has_what_a_message_has() -> None:
    row = message_row(delivered(key=b"k", headers=[("colour", b"red")], count=3))
    assert row == {
        "subscription": "s",
        "topic": "t",
        "partition": 1,
        "offset": 7,
        "id": "ab-1-7",
        "timestamp": 1234,
        "delivery_count": 3,
        "key": "k",
        "value": "body",
        "body": "body",
        "properties": {"colour": "red"},
    }


def test_what_is_no_text_is_base64_in_a_row() -> None:
    row = message_row(delivered(key=b"\xff", value=b"\x80"))
    assert (row["key"], row["key_encoding"]) == ("/w==", "base64")
    assert (row["value"], row["value_encoding"]) == ("gA==", "base64")
    assert json.loads(json.dumps(row)) == row


def test_headers_that_are_no_properties_stand_beside_them() -> None:
    row = message_row(delivered(headers=[("a", b"1"), ("a", b"\xff"), ("b", None), ("c", b"3")], value=None))
    assert row["value"] is None
    assert row["headers"] == [
        {"name": "a", "value": "1"},
        {"name": "a", "value": "/w==", "encoding": "base64"},
        {"name": "b", "value": None},
        {"name": "c", "value": "3"},
    ]
