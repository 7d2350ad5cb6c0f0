"""`tailrace export` and `tailrace apply` against a broker in this process, and files that make no sense."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.cli.definition import read_definitions
from tailrace.cli.main import main
from tailrace.client import BrokerClient
from tailrace.model import ConfigError

Tailrace = Callable[..., Any]

FILE: dict[str, Any] = {
    "version": 1,
    "topics": [
        {"name": "orders", "partitions": 3, "configs": {"retention.ms": 86400000}},
        {"name": "users", "configs": {"cleanup.policy": "compact"}},
    ],
    "subscriptions": [
        {"name": "workers", "topic": "orders", "settings": {"max_deliveries": 3, "mode": "shared"}}
    ],
}


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        monkeypatch.setenv("TAILRACE_NODE", running.native_address)
        monkeypatch.setenv("TAILRACE_BOOTSTRAP", running.bootstrap_servers)
        yield running


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Tailrace:
    def call(*arguments: object, code: int = 0) -> Any:
        found = main([*map(str, arguments)])
        printed = capsys.readouterr()
        assert found == code, printed.out + printed.err
        return json.loads(printed.out) if "json" in arguments else printed.out + printed.err

    return call


@pytest.fixture
def write(tmp_path: Path) -> Callable[[dict[str, Any]], Path]:
    def save(content: dict[str, Any]) -> Path:
        path = tmp_path / "broker.json"
        path.write_text(json.dumps(content))
        return path

    return save


def exported(run: Tailrace) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run("export", "-"))
    return found


@pytest.mark.usefixtures("broker")
def test_a_file_is_applied_once_and_exported_as_it_was(
    run: Tailrace, write: Callable[[dict[str, Any]], Path], tmp_path: Path
) -> None:
    path = write(FILE)
    planned = run("apply", path, "--dry-run")
    assert "+ topic orders: 3 partitions, retention.ms=86400000" in planned
    assert "+ subscription workers: of orders, from earliest, max_deliveries=3" in planned
    assert exported(run) == {"version": 1, "topics": [], "subscriptions": []}
    done = run("apply", path, "-o", "json")
    assert [row["result"] for row in done] == ["done"] * 3
    assert "nothing to change" in run("apply", path)
    found = exported(run)
    assert found["topics"] == [
        {"name": "orders", "partitions": 3, "configs": {"retention.ms": "86400000"}},
        {"name": "users", "partitions": 1, "configs": {"cleanup.policy": "compact"}},
    ]
    assert found["subscriptions"] == [
        {"name": "workers", "topic": "orders", "configs": {"max_deliveries": "3"}}
    ]
    run("export", tmp_path / "again.json")
    assert "nothing to change" in run("apply", tmp_path / "again.json")


@pytest.mark.usefixtures("broker")
def test_settings_and_partitions_follow_the_file(
    run: Tailrace, write: Callable[[dict[str, Any]], Path]
) -> None:
    run("apply", write(FILE))
    changed = {
        "version": 1,
        "topics": [{"name": "orders", "partitions": 5, "configs": {"max.message.bytes": 2000}}],
    }
    said = run("apply", write(changed))
    assert "~ topic orders: partitions: 3 -> 5" in said
    assert "max.message.bytes: default -> 2000" in said and "retention.ms: 86400000 -> default" in said
    assert "  topic users: not in the file, not touched" in said and "subscription" not in said
    orders = exported(run)["topics"][0]
    assert orders == {"name": "orders", "partitions": 5, "configs": {"max.message.bytes": "2000"}}


@pytest.mark.usefixtures("broker")
def test_what_cannot_be_done_fails_alone(run: Tailrace, write: Callable[[dict[str, Any]], Path]) -> None:
    run("apply", write(FILE))
    wrong = {
        "version": 1,
        "topics": [
            {"name": "orders", "partitions": 1, "configs": {}},
            {"name": "bad", "configs": {"retention.mss": 1}},
            {"name": "good"},
        ],
        "subscriptions": [{"name": "workers", "topic": "orders", "settings": {"max_deliveries": 9}}],
    }
    said = run("apply", write(wrong), code=1)
    assert "fewer partitions" in said and "keeps its topic and settings" in said
    assert "retention.ms" in said  # the broker's own suggestion
    assert "3 of 5 changes failed" in said
    found = {each["name"]: each for each in exported(run)["topics"]}
    assert found["orders"]["partitions"] == 3 and found["orders"]["configs"]  # nothing of it was changed
    assert "good" in found and "bad" not in found


def test_nothing_is_deleted_without_prune_and_yes(
    run: Tailrace, write: Callable[[dict[str, Any]], Path], broker: tailrace.Broker
) -> None:
    run("apply", write(FILE))
    broker.produce("workers.dlq", b"a dead letter")
    less = {"version": 1, "topics": [{"name": "users"}], "subscriptions": []}
    assert "- topic" not in run("apply", write(less))
    assert "--yes" in run("apply", write(less), "--prune", code=2)
    planned = run("apply", write(less), "--prune", "--dry-run")
    assert planned.index("- subscription workers") < planned.index("- topic orders")
    assert "orders" in {each["name"] for each in exported(run)["topics"]}
    run("apply", write(less), "--prune", "--yes")
    found = exported(run)
    assert [each["name"] for each in found["topics"]] == ["users", "workers.dlq"]
    assert found["subscriptions"] == []


def test_a_subscription_begins_where_the_file_says(
    run: Tailrace, write: Callable[[dict[str, Any]], Path], broker: tailrace.Broker
) -> None:
    broker.produce("orders", b"old")
    run(
        "apply", write({"version": 1, "subscriptions": [{"name": "s", "topic": "orders", "start": "latest"}]})
    )
    with BrokerClient(*_address(broker)) as client:
        assert client.describe_subscription("s")["lag"] == 0


def _address(broker: tailrace.Broker) -> tuple[str, int]:
    host, _, port = broker.native_address.rpartition(":")
    return host, int(port)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not JSON"),
        ("[]", "the file is not an object"),
        ("{}", "version is null"),
        ('{"version": 2}', "this program knows 1"),
        ('{"version": true}', "version is true"),
        ('{"version": 1, "topic": []}', "Did you mean topics?"),
        ('{"version": 1, "users": []}', "It may have version, topics, subscriptions"),
        ('{"version": 1, "topics": {}}', "topics is not a list"),
        ('{"version": 1, "topics": [1]}', "topics[0] is not an object"),
        ('{"version": 1, "topics": [{}]}', "topics[0].name is missing"),
        ('{"version": 1, "topics": [{"name": "a", "partition": 3}]}', "Did you mean partitions?"),
        ('{"version": 1, "topics": [{"name": "a", "partitions": 0}]}', "topics[0].partitions is not"),
        ('{"version": 1, "topics": [{"name": "a", "partitions": true}]}', "topics[0].partitions is not"),
        ('{"version": 1, "topics": [{"name": "a", "configs": []}]}', "configs is not an object"),
        ('{"version": 1, "topics": [{"name": "a", "configs": {"b": 1.5}}]}', "configs.b is neither"),
        ('{"version": 1, "topics": [{"name": "a"}, {"name": "a"}]}', "'a' twice"),
        ('{"version": 1, "version": 1}', "'version' is there twice"),
        ('{"version": 1, "subscriptions": [{"name": "a"}]}', "subscriptions[0].topic is missing"),
        (
            '{"version": 1, "subscriptions": [{"name": "a", "topic": "b", "settings": {"modes": "x"}}]}',
            "Did you mean mode?",
        ),
    ],
)
def test_a_file_that_makes_no_sense_is_refused_by_its_place(text: str, words: str) -> None:
    with pytest.raises(ConfigError) as caught:
        read_definitions(text)
    assert words in str(caught.value)


def test_a_file_that_is_missing_or_no_text_is_refused(run: Tailrace, tmp_path: Path) -> None:
    assert "No such file" in run("apply", tmp_path / "none.json", code=3)
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    assert "is not UTF-8" in run("apply", tmp_path / "bytes", code=2)
