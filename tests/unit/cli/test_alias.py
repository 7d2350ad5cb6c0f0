"""Names of options that people bring from other tools: taken by a real command, and not shown."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

import tailrace
from tailrace.cli.main import main


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        running.produce("t", b"v")
        yield running


@pytest.mark.parametrize("name", ["-b", "--bootstrap", "--bootstrap-server", "--brokers"])
def test_the_broker_may_be_named_as_elsewhere(
    broker: tailrace.Broker, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    assert main(["topic", "list", name, broker.bootstrap_servers, "-o", "json"]) == 0
    assert [row["name"] for row in json.loads(capsys.readouterr().out)] == ["t"]


def test_p_is_the_number_of_partitions_of_a_new_topic(
    broker: tailrace.Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
    monkeypatch.setenv("TAILRACE_NODE", broker.native_address)
    assert main(["topic", "create", "three", "-p", "3"]) == 0
    assert main(["topic", "alter", "three", "-p", "5"]) == 0
    assert main(["create-topic", "two", "-p", "2"]) == 0
    capsys.readouterr()
    assert main(["topic", "list", "-o", "json"]) == 0
    found = {row["name"]: row["partitions"] for row in json.loads(capsys.readouterr().out)}
    assert (found["three"], found["two"]) == (5, 2)
    assert main(["topic", "delete", "three", "two", "--yes"]) == 0


@pytest.mark.parametrize(
    "words",
    [
        ["topic", "list"],
        ["topic", "create"],
        ["tail"],
        ["bench"],
        ["bench", "native"],
        ["pipeline", "run", "sql"],
        ["log", "inspect"],
    ],
)
def test_the_help_has_one_name_for_each_thing(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main([*words, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "--bootstrap-server" not in shown
    assert "--brokers" not in shown


def test_a_topic_is_consumed_by_its_name(
    broker: tailrace.Broker, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_NODE", broker.native_address)
    assert main(["publish", "queue", "first"]) == 0
    assert main(["publish", "queue", "second"]) == 0
    capfd.readouterr()
    assert main(["consume", "queue", "--count", "1"]) == 0
    assert "first" in capfd.readouterr().out
    assert main(["consume", "--destination", "queue", "--count", "1"]) == 0  # the same subscription
    assert "second" in capfd.readouterr().out


@pytest.mark.parametrize("words", [["consume"], ["consume", "a", "--destination", "b"]])
def test_a_consumer_names_one_topic(capsys: pytest.CaptureFixture[str], words: list[str]) -> None:
    assert main(words) == 2
    assert "name one topic: tailrace consume TOPIC" in capsys.readouterr().err
