"""The plain words of the native listener, and `inspect` and `replay`, against a broker in this process."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.cli.main import main


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture
def topic(broker: tailrace.Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name for this test alone; there is no such topic yet."""
    monkeypatch.setenv("TAILRACE_NODE", broker.native_address)
    return f"t{abs(hash(request.node.name))}"


def run_json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main([*args, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def lines(capsys: pytest.CaptureFixture[str], *args: str) -> list[str]:
    assert main([*args]) == 0
    return capsys.readouterr().out.splitlines()


def only(broker: tailrace.Broker, topic: str) -> Any:
    (record,) = broker.read(topic)
    return record


# ---- create-topic


def test_a_topic_has_the_partitions_and_settings_asked_for(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert lines(capsys, "create-topic", topic, "--partitions", "3") == [f"topic {topic} with 3 partitions"]
    assert len(run_json(capsys, "create-topic", topic, "--partitions", "3")["partitions"]) == 3
    found = run_json(capsys, "create-topic", f"{topic}-2", "-c", "retention.ms=60000")
    assert found["settings"]["retention.ms"] == "60000" and len(found["partitions"]) == 1


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["TOPIC", "--partitions", "0"], 2),
        (["TOPIC", "-c", "retention.ms"], 2),
        (["TOPIC", "-c", "=1"], 2),
        (["TOPIC", "-c", "retention.mss=1"], 1),
        (["not/legal"], 1),
        ([""], 1),
    ],
)
def test_a_topic_that_cannot_be_is_refused(
    topic: str, args: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["create-topic", *(topic if arg == "TOPIC" else arg for arg in args)]) == code
    assert capsys.readouterr().err.count("\n") == 1


# ---- publish


def test_a_message_arrives_with_everything(
    broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = [
        "--key",
        "k",
        "--property",
        "colour=red",
        "--property",
        "note=a=b",
        "--ttl",
        "60000",
        "--priority",
        "9",
    ]
    done = run_json(capsys, "publish", topic, "Hello World", *flags)
    record = only(broker, topic)
    assert (record.value, record.key) == (b"Hello World", b"k")
    assert dict(record.headers) == {
        "colour": b"red",
        "note": b"a=b",
        "ttl_ms": b"60000",
        "priority": b"9",
    }
    assert (done["topic"], done["partition"], done["offset"]) == (topic, 0, 0)
    assert done["id"].endswith("-0-0") and done["timestamp"] == record.timestamp


def test_publish_says_where_the_message_went(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = lines(capsys, "publish", topic, "text")
    assert line.startswith(f"1 message to {topic} partition 0, offset 0, id ")


def test_a_delayed_message_comes_later(
    broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["create-topic", topic]) == 0
    capsys.readouterr()
    (line,) = lines(capsys, "publish", topic, "later", "--delay", "1000")
    assert line == f"1 message for {topic}, to be delivered later"
    assert list(broker.read(topic)) == []
    assert lines(capsys, "subscribe", topic, "--count", "1") == ["later"]


def test_bytes_that_are_no_text_are_published_as_they_are(broker: tailrace.Broker, topic: str) -> None:
    assert main(["publish", topic, "\udcff", "--key", "\udcfe"]) == 0
    record = only(broker, topic)
    assert (record.value, record.key) == (b"\xff", b"\xfe")


@pytest.mark.parametrize(
    "args",
    [
        ["--property", "colour"],
        ["--property", "=red"],
        ["--property", "_topic=other"],
        ["--property", "a=1", "--property", "a=2"],
        ["--priority", "10"],
        ["--priority", "high"],
        ["--delay", "-1"],
        ["--ttl", "soon"],
    ],
)
def test_what_cannot_be_published_is_wrong_usage(
    broker: tailrace.Broker, topic: str, args: list[str]
) -> None:
    assert main(["create-topic", topic]) == 0
    assert main(["publish", topic, "text", *args]) == 2
    assert list(broker.read(topic)) == []


# ---- subscriptions


def test_the_words_work_together(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["create-topic", topic, "--partitions", "1"]) == 0
    assert main(["publish", topic, "zero"]) == 0
    assert main(["create-subscription", f"{topic}-g", topic, "--offset", "1"]) == 0
    assert main(["publish", topic, "one"]) == 0
    capsys.readouterr()
    assert lines(capsys, "join-subscription", f"{topic}-g", "--count", "1") == ["one"]
    assert lines(capsys, "subscribe", topic, "--offset", "0", "--count", "2") == ["zero", "one"]


def test_subscribe_goes_on_where_the_last_one_ended(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("a", "b", "c"):
        assert main(["publish", topic, text]) == 0
    capsys.readouterr()
    assert lines(capsys, "subscribe", topic, "--count", "2") == ["a", "b"]
    assert lines(capsys, "subscribe", topic, "--offset", "0", "--count", "1") == ["c"]
    assert lines(capsys, "subscribe", topic, "--name", f"{topic}-2", "--count", "1") == ["a"]


def test_subscribe_takes_a_subscription_whatever_its_settings(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", topic, "a"]) == 0
    assert main(["subscription", "create", f"{topic}.default", topic, "--mode", "failover"]) == 0
    capsys.readouterr()
    assert lines(capsys, "subscribe", topic, "--count", "1") == ["a"]


def test_subscribe_refuses_a_subscription_of_another_topic(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["create-topic", topic]) == main(["create-topic", f"{topic}-2"]) == 0
    assert main(["create-subscription", topic, topic]) == 0
    assert main(["subscribe", f"{topic}-2", "--name", topic, "--count", "1"]) == 1
    assert "exists with another topic" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args",
    [
        ["subscribe", "TOPIC", "--count", "1"],
        ["create-subscription", "g", "TOPIC"],
        ["join-subscription", "TOPIC", "--count", "1"],
        ["consume", "--destination", "TOPIC", "--count", "1"],
        ["replay", "TOPIC"],
        ["replay", "TOPIC", "--subscription", "TOPIC", "--yes"],
    ],
    ids=lambda args: " ".join(args),
)
def test_what_does_not_exist_is_not_found(
    topic: str, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([topic if arg == "TOPIC" else arg for arg in args]) == 3
    shown = capsys.readouterr().err
    assert f"'{topic}' does not exist" in shown and "Try: tailrace " in shown and shown.count("\n") == 1


# ---- produce and consume


def test_what_is_produced_is_consumed(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["produce", "--destination", topic, "--message", "Hello", "--message", "again"]) == 0
    assert [line.split(", id")[0] for line in capsys.readouterr().out.splitlines()] == [
        f"1 message to {topic} partition 0, offset 0",
        f"1 message to {topic} partition 0, offset 1",
    ]
    assert lines(capsys, "consume", "--destination", topic, "--count", "2") == ["Hello", "again"]
    (row,) = [row for row in run_json(capsys, "subscription", "list") if row["topic"] == topic]
    assert (row["name"], row["lag"], row["mode"]) == (f"{topic}.default", 0, "shared")


def test_a_node_may_be_named(
    broker: tailrace.Broker, topic: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("TAILRACE_NODE")
    at = ["--node", broker.native_address]
    form = ["--destination", topic, "--message", "Hello", "-k", "k", "-H", "a=1", "-p", "0"]
    assert main(["produce", *at, *form]) == 0
    record = only(broker, topic)
    assert (record.key, record.headers) == (b"k", (("a", b"1"),))
    capsys.readouterr()
    (row,) = run_json(capsys, "consume", *at, "--destination", topic, "--count", "1")
    assert (row["body"], row["properties"]) == ("Hello", {"a": "1"})


@pytest.mark.parametrize(
    ("args", "cause"),
    [
        (["--destination", "t"], "go together"),
        (["--message", "m"], "go together"),
        (["--node", "localhost:1"], "go together"),
        (["t", "--destination", "t", "--message", "m"], "exclude each other"),
        (["--destination", "t", "--message", "m", "--tombstone"], "tombstone"),
        (["--destination", "t", "--message", "m", "-z", "lz4"], "compression"),
        (["--destination", "t", "--message", "m", "--bootstrap", "h:1"], "bootstrap"),
        (["--destination", "t", "--message", "m", "-H", "bad"], "NAME=VALUE"),
        ([], "Missing argument 'TOPIC'"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else value,
)
def test_a_mixture_of_forms_is_wrong_usage(
    topic: str, args: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["produce", *args]) == 2
    assert cause in capsys.readouterr().err


def test_an_environment_with_a_node_changes_nothing_for_kafka(
    broker: tailrace.Broker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
    assert main(["produce", topic, "value"]) == 0
    assert only(broker, topic).value == b"value"


def test_json_without_an_end_is_wrong_usage(topic: str) -> None:
    assert main(["consume", "--destination", topic, "-o", "json"]) == 2


# ---- inspect


def test_inspect_shows_topics_and_subscriptions(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["create-topic", topic, "--partitions", "2"]) == 0
    for text in ("a", "b", "c"):
        assert main(["publish", topic, text]) == 0
    assert main(["create-subscription", f"{topic}-g", topic]) == 0
    capsys.readouterr()
    found = run_json(capsys, "inspect")
    (shown,) = [row for row in found["topics"] if row["name"] == topic]
    assert (shown["partitions"], shown["messages"], shown["subscriptions"]) == (2, 3, 1)
    assert sum(each["end"] for each in shown["extents"]) == 3
    (row,) = [row for row in found["subscriptions"] if row["name"] == f"{topic}-g"]
    assert (row["topic"], row["lag"], row["members"], row["retry_buffer_bytes"]) == (topic, 3, [], 0)
    assert not [row for row in found["topics"] if row["name"].startswith("__")]


def test_inspect_is_two_tables_or_lines_that_say_what_they_are(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["publish", topic, "a"]) == 0
    assert main(["create-subscription", f"{topic}-g", topic]) == 0
    capsys.readouterr()
    text = "\n".join(lines(capsys, "inspect"))
    assert (
        text.index("Topics (") < text.index(topic) < text.index("Subscriptions (") < text.index(f"{topic}-g")
    )
    rows = [json.loads(line) for line in lines(capsys, "inspect", "-o", "jsonl")]
    assert {"kind": "topic", "name": topic}.items() <= next(r for r in rows if r["name"] == topic).items()
    assert next(row for row in rows if row["name"] == f"{topic}-g")["kind"] == "subscription"


# ---- replay


@pytest.fixture
def past(topic: str, capsys: pytest.CaptureFixture[str]) -> str:
    """A topic with two partitions and a thousand messages, in order of time."""
    assert main(["create-topic", topic, "--partitions", "2"]) == 0
    for turn in range(4):
        messages = [part for index in range(250) for part in ("--message", str(turn * 250 + index))]
        assert main(["produce", "--destination", topic, *messages]) == 0
    capsys.readouterr()
    return topic


def test_replay_shows_all_that_is_there_and_leaves_nothing(
    past: str, capsys: pytest.CaptureFixture[str]
) -> None:
    shown = lines(capsys, "replay", past)
    assert sorted(shown, key=int) == [str(index) for index in range(1000)]
    turns = [int(each) // 250 for each in shown]
    assert turns == sorted(turns), "partitions are not merged by time"
    assert not [row for row in run_json(capsys, "subscription", "list") if row["topic"] == past]


def test_replay_says_nothing_of_its_own_subscription(topic: str) -> None:
    """In a process of its own: here the logs of the client have a reader anyway."""
    assert main(["publish", topic, "a"]) == 0
    command = [sys.executable, "-m", "tailrace", "replay", topic]
    env = {**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "a\n", "")


def test_replay_shows_no_more_than_asked_for(past: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert len(lines(capsys, "replay", past, "--count", "600")) == 600


def test_replay_begins_where_it_is_told(past: str, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_json(capsys, "replay", past, "--from", "offset:450")
    assert len(rows) == 100
    assert {row["offset"] for row in rows} == set(range(450, 500))
    assert lines(capsys, "replay", past, "--from", "latest") == []
    assert len(lines(capsys, "replay", past, "--from", "time:1h")) == 1000


def test_replay_of_an_empty_topic_shows_nothing(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["create-topic", topic]) == 0
    capsys.readouterr()
    assert lines(capsys, "replay", topic) == []
    assert run_json(capsys, "replay", topic) == []


def test_replay_moves_a_subscription_instead(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    for text in ("a", "b"):
        assert main(["publish", topic, text]) == 0
    assert main(["subscribe", topic, "--count", "2"]) == 0
    name = f"{topic}.default"
    assert main(["replay", topic, "--subscription", name]) == 2
    capsys.readouterr()
    (row,) = run_json(capsys, "replay", topic, "--subscription", name, "--dry-run")
    assert (row["before"], row["after"], row["applied"]) == (2, 0, False)
    (row,) = run_json(capsys, "replay", topic, "--subscription", name, "--from", "offset:1", "--yes")
    assert (row["before"], row["after"], row["applied"]) == (2, 1, True)
    assert lines(capsys, "subscribe", topic, "--count", "1") == ["b"]


@pytest.mark.parametrize(
    ("args", "code", "cause"),
    [
        (["--subscription", "NAME", "--count", "1"], 2, "--count"),
        (["--dry-run"], 2, "--subscription"),
        (["--yes"], 2, "--subscription"),
        (["--from", "then"], 2, "earliest"),
        (["--subscription", "OTHER", "--yes"], 1, "is one of"),
        (["--from", "offset:9"], 3, "offset 9"),
    ],
)
def test_a_replay_that_makes_no_sense_is_refused(
    topic: str, args: list[str], code: int, cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    other = f"{topic}-other"
    assert main(["create-topic", topic]) == main(["create-topic", other]) == 0
    assert main(["create-subscription", other, other]) == 0
    capsys.readouterr()
    words = {"NAME": topic, "OTHER": other}
    assert main(["replay", topic, *(words.get(arg, arg) for arg in args)]) == code
    assert cause in capsys.readouterr().err
