"""`tailrace subscription` against a broker in this process: results, exit codes, and what comes again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.cli.main import main
from tailrace.client import BrokerClient

OLD_MS = int(time.time() * 1000) - 7_200_000


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture
def name(broker: tailrace.Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name for this test alone, for a topic and its subscription."""
    monkeypatch.setenv("TAILRACE_NODE", broker.native_address)
    return f"n{abs(hash(request.node.name))}"


@pytest.fixture
def topic(broker: tailrace.Broker, name: str) -> str:
    """A topic with ten messages, the first five of them two hours old."""
    for index in range(10):
        timestamp = OLD_MS if index < 5 else None
        broker.produce(name, b"m%d" % index, key=b"k", timestamp=timestamp)
    return name


@pytest.fixture
def subscription(topic: str, capsys: pytest.CaptureFixture[str]) -> str:
    """A subscription of that topic, of the same name."""
    create(capsys, topic, topic)
    return topic


def run_json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["subscription", *args, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def create(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    return run_json(capsys, "create", *args)


def take(capsys: pytest.CaptureFixture[str], name: str, count: int, *args: str) -> list[str]:
    """Bodies of the next messages, acknowledged."""
    assert main(["subscription", "join", name, "--count", str(count), *args]) == 0
    return capsys.readouterr().out.splitlines()


def position(capsys: pytest.CaptureFixture[str], name: str) -> int:
    (partition,) = run_json(capsys, "describe", name)["partitions"]
    return int(partition["position"])


# ---- create, look, delete


def test_a_new_subscription_begins_at_the_beginning(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["subscription", "create", topic, topic]) == 0
    assert capsys.readouterr().out == f"subscription {topic} of {topic}: 10 messages to deliver\n"
    assert take(capsys, topic, 2) == ["m0", "m1"]


@pytest.mark.parametrize(
    ("start", "lag"), [("earliest", 10), ("latest", 0), ("offset:7", 3), ("time:1h", 5), ("time:2d", 10)]
)
def test_a_subscription_begins_where_it_is_told(
    topic: str, start: str, lag: int, capsys: pytest.CaptureFixture[str]
) -> None:
    assert create(capsys, topic, topic, "--start", start)["lag"] == lag


def test_settings_reach_the_broker(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    flags = {
        "--mode": "failover",
        "--ack-timeout": "5000",
        "--max-deliveries": "3",
        "--backoff": "10",
        "--backoff-max": "100",
        "--unacked-max": "50",
        "--order": "timestamp",
        "--dead-letter-topic": f"{topic}.dead",
    }
    found = create(capsys, topic, topic, "--at-most-once", *(word for pair in flags.items() for word in pair))
    assert found["settings"] == {
        "mode": "failover",
        "delivery": "at_most_once",
        "ack_timeout_ms": "5000",
        "max_deliveries": "3",
        "backoff_ms": "10",
        "backoff_ms_max": "100",
        "unacked_max": "50",
        "order": "timestamp",
        "dead_letter_topic": f"{topic}.dead",
    }
    assert main(["subscription", "describe", topic]) == 0
    shown = capsys.readouterr().out
    assert "Settings" in shown and "ack_timeout_ms" in shown and "Partitions" in shown


def test_priority_is_a_flag(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert create(capsys, topic, topic, "--priority")["settings"] == {"priority": "true"}


def test_creating_again_changes_nothing(subscription: str, capsys: pytest.CaptureFixture[str]) -> None:
    take(capsys, subscription, 3)
    assert create(capsys, subscription, subscription)["lag"] == 7


@pytest.mark.parametrize(
    ("args", "cause"),
    [
        (["--mode", "exclusive"], "exists with another mode"),
        (["--backoff", "99", "--backoff-max", "9"], "backoff_ms"),
        (["--ack-timeout", "0"], "ack_timeout_ms"),
        (["--priority", "--mode", "key_shared"], "priority"),
    ],
)
def test_what_the_broker_refuses_is_one_line(
    subscription: str, args: list[str], cause: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["subscription", "create", subscription, subscription, *args]) == 1
    shown = capsys.readouterr().err
    assert cause in shown and shown.count("\n") == 1


@pytest.mark.parametrize(
    "args", [["--mode", "nosuch"], ["--start", "never"], ["--max-deliveries", "x"], ["--order", "random"]]
)
def test_wrong_settings_are_wrong_usage(name: str, args: list[str]) -> None:
    assert main(["subscription", "create", name, name, *args]) == 2


def test_a_list_shows_every_subscription(subscription: str, capsys: pytest.CaptureFixture[str]) -> None:
    (row,) = [row for row in run_json(capsys, "list") if row["name"] == subscription]
    assert (row["topic"], row["mode"], row["members"], row["lag"]) == (subscription, "shared", 0, 10)
    assert main(["subscription", "list"]) == 0
    assert subscription in capsys.readouterr().out


def test_a_member_is_described(
    broker: tailrace.Broker, subscription: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with BrokerClient(port=broker.native_port, client_id="worker-1") as client:
        client.subscribe_to_subscription(subscription, handler=lambda message: None, prefetch=7)
        (member,) = run_json(capsys, "describe", subscription)["members"]
        assert main(["subscription", "describe", subscription]) == 0
    assert "worker-1" in member["name"] and member["credit"] == 7
    assert "Members" in capsys.readouterr().out


def test_delete_asks_and_deletes(subscription: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["subscription", "delete", subscription]) == 2
    assert "--yes" in capsys.readouterr().err
    assert main(["subscription", "delete", subscription, "--dry-run", "--yes"]) == 0
    assert capsys.readouterr().out == f"would delete {subscription}\n"
    assert position(capsys, subscription) == 0
    (row,) = run_json(capsys, "delete", subscription, "--yes")
    assert row == {"name": subscription, "topic": subscription, "lag": 10, "deleted": True}
    assert main(["subscription", "describe", subscription]) == 3


@pytest.mark.parametrize(
    "args",
    [
        ["describe", "NAME"],
        ["delete", "NAME", "--yes"],
        ["delete", "NAME", "--dry-run"],
        ["join", "NAME"],
        ["join", "NAME", "--count", "1"],
        ["join", "NAME", "--count", "1", "-o", "json"],
        ["replay", "NAME", "--from", "earliest", "--yes"],
        ["redrive", "NAME", "--yes"],
        ["dead-letters", "NAME"],
        ["create", "s", "NAME"],
    ],
    ids=lambda args: " ".join(args),
)
def test_what_does_not_exist_is_not_found(
    name: str, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["subscription", *(name if arg == "NAME" else arg for arg in args)]) == 3
    shown = capsys.readouterr()
    assert shown.out == ""
    assert name in shown.err and "Try: tailrace " in shown.err and shown.err.count("\n") == 1


def test_deleting_several_deletes_none_if_one_is_missing(
    subscription: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["subscription", "delete", subscription, f"{subscription}x", "--yes"]) == 3
    capsys.readouterr()
    assert position(capsys, subscription) == 0


# ---- join


def test_a_message_is_acknowledged_once_it_was_printed(
    subscription: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take(capsys, subscription, 4) == ["m0", "m1", "m2", "m3"]
    found = run_json(capsys, "describe", subscription)
    assert (found["delivered"], found["unacknowledged"], found["lag"]) == (4, 0, 6)


def test_jsonl_has_everything(subscription: str, capsys: pytest.CaptureFixture[str]) -> None:
    (line,) = take(capsys, subscription, 1, "-o", "jsonl")
    row = json.loads(line)
    assert (row["body"], row["key"], row["offset"], row["delivery_count"]) == ("m0", "k", 0, 1)


def test_without_acknowledgement_it_comes_again(
    subscription: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert take(capsys, subscription, 1, "--no-ack") == ["m0"]
    (line,) = take(capsys, subscription, 1, "-o", "jsonl")
    assert (json.loads(line)["body"], json.loads(line)["delivery_count"]) == ("m0", 2)


def test_what_a_message_says_cannot_steer_the_terminal(
    broker: tailrace.Broker, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.produce(name, b"\x1b[2Jgone\r\nnew")
    create(capsys, name, name)
    assert take(capsys, name, 1) == ["\\x1b[2Jgone\\r\\nnew"]


@pytest.mark.parametrize(("flags", "after"), [([], 10), (["--no-ack"], 0)], ids=["ack", "no ack"])
def test_messages_come_until_ctrl_c(
    subscription: str, flags: list[str], after: int, capsys: pytest.CaptureFixture[str]
) -> None:
    command = [sys.executable, "-m", "tailrace", "subscription", "join", subscription, *flags]
    env = {**os.environ, "PYTHONPATH": str(Path(tailrace.__file__).parents[1])}
    with subprocess.Popen(
        command, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(10)] == [f"m{index}\n" for index in range(10)]
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")
    assert position(capsys, subscription) == after


def test_json_without_an_end_is_wrong_usage(subscription: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["subscription", "join", subscription, "-o", "json"]) == 2
    assert "jsonl" in capsys.readouterr().err


# ---- replay


@pytest.mark.parametrize(
    ("start", "after"), [("earliest", 0), ("latest", 10), ("offset:3", 3), ("time:1h", 5)]
)
def test_a_replay_delivers_again_from_there(
    subscription: str, start: str, after: int, capsys: pytest.CaptureFixture[str]
) -> None:
    take(capsys, subscription, 6)
    (row,) = run_json(capsys, "replay", subscription, "--from", start, "--yes")
    assert (row["before"], row["after"], row["end"], row["applied"]) == (6, after, 10, True)
    assert position(capsys, subscription) == after


def test_a_replay_asks_first(subscription: str, capsys: pytest.CaptureFixture[str]) -> None:
    take(capsys, subscription, 6)
    assert main(["subscription", "replay", subscription, "--from", "earliest"]) == 2
    assert "--yes" in capsys.readouterr().err
    (row,) = run_json(capsys, "replay", subscription, "--from", "offset:2", "--dry-run", "--yes")
    assert (row["before"], row["after"], row["applied"]) == (6, 2, False)
    assert position(capsys, subscription) == 6


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["--from", "offset:11", "--yes"], 3),
        (["--from", "offset:11", "--dry-run"], 3),
        (["--from", "earliest", "--partition", "7", "--yes"], 3),
        (["--from", "yesterday", "--yes"], 2),
        (["--yes"], 2),
    ],
)
def test_a_replay_to_nowhere_is_refused(
    subscription: str, args: list[str], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    take(capsys, subscription, 1)
    assert main(["subscription", "replay", subscription, *args]) == code
    capsys.readouterr()
    assert position(capsys, subscription) == 1


# ---- dead letters


@pytest.fixture
def dead(topic: str, capsys: pytest.CaptureFixture[str]) -> str:
    """A subscription whose first two messages were given up."""
    create(capsys, topic, topic, "--max-deliveries", "1")
    for _ in range(2):
        take(capsys, topic, 1, "--no-ack")
    deadline = time.monotonic() + 60
    while run_json(capsys, "describe", topic)["dead"] < 2:
        assert time.monotonic() < deadline
    return topic


def test_dead_letters_say_what_and_why(dead: str, capsys: pytest.CaptureFixture[str]) -> None:
    letters = run_json(capsys, "dead-letters", dead)
    assert [(each["value"], each["deliveries"]) for each in letters] == [("m0", 1), ("m1", 1)]
    assert letters[1]["origin"] == {"topic": dead, "partition": 0, "offset": 1}
    assert len(run_json(capsys, "dead-letters", dead, "--count", "1")) == 1
    assert main(["subscription", "dead-letters", dead]) == 0
    assert f"{dead}-0 at 1" in capsys.readouterr().out


def test_redrive_delivers_them_once_more(dead: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["subscription", "redrive", dead, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would redrive 2 dead letters of {dead}\n"
    assert main(["subscription", "redrive", dead]) == 2
    assert "Deliver 2 dead letters" in capsys.readouterr().err
    assert main(["subscription", "redrive", dead, "--count", "1", "--yes"]) == 0
    assert capsys.readouterr().out == f"redrove 1 dead letter of {dead}\n"
    assert run_json(capsys, "redrive", dead, "--yes") == {"name": dead, "count": 1, "redriven": True}
    rows = [json.loads(line) for line in take(capsys, dead, 10, "-o", "jsonl")]
    assert sorted(row["body"] for row in rows if row["topic"] == f"{dead}.dlq") == ["m0", "m1"]


def test_without_dead_letters_there_is_nothing_to_ask(
    subscription: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["subscription", "redrive", subscription]) == 0
    assert capsys.readouterr().out == f"redrove 0 dead letters of {subscription}\n"
    assert run_json(capsys, "dead-letters", subscription) == []
