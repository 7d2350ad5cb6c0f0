"""`tailrace topic` against a broker in this process, on disk where files matter: results and exit codes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.cli.main import main
from tailrace.cluster import SqliteStore, StoredMetadata
from tailrace.model import BrokerId


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tailrace.Broker]:
    with tailrace.Broker(data_dir=tmp_path_factory.mktemp("broker")) as running:
        yield running


@pytest.fixture
def topic(broker: tailrace.Broker, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """A name for this test alone; nothing has that name yet."""
    monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
    return f"t{abs(hash(request.node.name))}"


def run_json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert main(["topic", *args, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def names(capsys: pytest.CaptureFixture[str]) -> list[str]:
    return [row["name"] for row in run_json(capsys, "list")]


# ---- create, list, describe


def test_a_topic_is_created_listed_and_described(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    made = run_json(capsys, "create", topic, "-P", "3", "-c", "retention.ms=86400000")
    assert (made["name"], made["created"], made["partitions"]) == (topic, True, 3)
    (row,) = [row for row in run_json(capsys, "list") if row["name"] == topic]
    assert (row["partitions"], row["replication_factor"], row["records"], row["internal"]) == (3, 1, 0, False)
    found = run_json(capsys, "describe", topic)
    assert found["topic_id"] == made["topic_id"] == row["topic_id"]
    assert found["configs"] == {"retention.ms": "86400000"}
    details = found["partition_details"]
    assert [each["partition"] for each in details] == [0, 1, 2]
    assert {each["leader"] for each in details} == {details[0]["replicas"][0]}
    assert all(each["leader_epoch"] >= 0 and each["isr"] == each["replicas"] for each in details)


def test_offsets_bytes_and_files_are_described(
    broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for _ in range(3):
        broker.produce(topic, bytes(100))
    found = run_json(capsys, "describe", topic)
    (part,) = found["partition_details"]
    assert (part["start_offset"], part["end_offset"]) == (0, 3)
    assert part["bytes"] in range(1000)  # what lies in the journal alone may not count yet
    (file,) = found["files"]
    assert file["partition"] == 0
    assert Path(file["path"]).name == "00000000000000000000.log"
    assert Path(file["path"]).parent.is_dir()


def test_files_that_are_not_shown_are_told_with_the_reason(
    broker: tailrace.Broker, topic: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.produce(topic, b"v")
    with tailrace.Broker(data_dir=tmp_path / "other") as other:
        other.produce("t", b"v")
    (tmp_path / "empty").mkdir()
    reasons = {
        "absent": "no such directory here",
        "empty": "cannot be read",
        "other": "no files of this topic",
    }
    for name, reason in reasons.items():
        directory = tmp_path / name
        found = run_json(capsys, "describe", topic, "--data-dir", str(directory))
        (hidden,) = found["files_not_shown"]
        assert found["files"] == []
        assert hidden["path"] == str(directory) and reason in hidden["reason"]
        assert main(["topic", "describe", topic, "--data-dir", str(directory)]) == 0
        shown = capsys.readouterr().out.replace("\n", " ")
        assert f"those in {directory} are not shown: " in shown and reason in shown


def test_a_broker_in_memory_says_that_it_has_no_files(capsys: pytest.CaptureFixture[str]) -> None:
    with tailrace.Broker() as broker:
        broker.produce("t", b"v")
        assert main(["topic", "describe", "t", "-b", broker.bootstrap_servers]) == 0
    assert "in memory" in capsys.readouterr().out


def test_files_of_a_relative_data_directory_are_found_from_elsewhere(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with tailrace.Broker(data_dir="data") as broker:
        broker.produce("t", b"v")
        (tmp_path / "elsewhere").mkdir()
        monkeypatch.chdir(tmp_path / "elsewhere")
        found = run_json(capsys, "describe", "t", "-b", broker.bootstrap_servers)
    assert [Path(each["path"]).is_file() for each in found["files"]] == [True]
    assert found["files_not_shown"] == []


def test_people_see_tables(broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    broker.produce(topic, b"v")
    assert main(["topic", "describe", topic]) == 0
    shown = capsys.readouterr().out
    for word in ("Partitions", "Files", "leader", "epoch", "in sync", ".log", topic):
        assert word in shown
    assert "Settings" not in shown
    assert main(["topic", "describe", topic, "--configs"]) == 0
    assert "cleanup.policy" in capsys.readouterr().out
    assert main(["topic", "list"]) == 0
    assert topic in capsys.readouterr().out


def test_internal_topics_are_listed_only_on_demand(
    broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.produce(topic, b"v")
    assert main(["group", "reset", "g", "--topic", topic, "--to-latest", "--yes"]) == 0
    capsys.readouterr()
    assert not [name for name in names(capsys) if name.startswith("__")]
    assert [row["name"] for row in run_json(capsys, "list", "--internal") if row["internal"]] == [
        "__consumer_offsets"
    ]


def test_a_topic_that_exists_is_an_error_unless_that_is_fine(
    topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "create", topic]) == 0
    assert main(["topic", "create", topic]) == 1
    assert "TOPIC_ALREADY_EXISTS" in capsys.readouterr().err
    assert run_json(capsys, "create", topic, "--if-not-exists")["created"] is False


def test_a_dry_run_creates_nothing(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "create", topic, "--dry-run"]) == 0
    assert "would create" in capsys.readouterr().out
    assert topic not in names(capsys)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["bad name!"], "INVALID_TOPIC"),
        (["{topic}", "-r", "3"], "INVALID_REPLICATION_FACTOR"),
        (["{topic}", "-c", "retention.millis=1"], "INVALID_CONFIG"),
    ],
)
def test_what_the_broker_refuses_is_told(
    topic: str, args: list[str], word: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "create", *(each.format(topic=topic) for each in args)]) == 1
    assert word in capsys.readouterr().err


# ---- alter


def test_settings_and_partitions_are_changed(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "create", topic, "-c", "retention.ms=1000000", "-c", "retention.bytes=500"]) == 0
    assert (
        main(["topic", "alter", topic, "-c", "retention.ms=2000000", "--reset", "retention.bytes", "-P", "2"])
        == 0
    )
    assert "2 partitions" in capsys.readouterr().out
    found = run_json(capsys, "describe", topic)
    assert found["configs"] == {"retention.ms": "2000000"}
    assert found["partitions"] == 2


def test_a_dry_run_changes_nothing(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "create", topic]) == 0
    assert main(["topic", "alter", topic, "-c", "retention.ms=5", "-P", "9", "--dry-run"]) == 0
    assert "would change" in capsys.readouterr().out
    found = run_json(capsys, "describe", topic)
    assert (found["configs"], found["partitions"]) == ({}, 1)


def test_fewer_partitions_are_refused(topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", "create", topic, "-P", "3"]) == 0
    assert main(["topic", "alter", topic, "-P", "2"]) == 1
    assert "INVALID_PARTITIONS" in capsys.readouterr().err


# ---- delete and purge


def test_topics_are_deleted(broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]) -> None:
    broker.produce(topic, b"v")
    assert main(["topic", "delete", topic, "--dry-run"]) == 0
    assert capsys.readouterr().out == f"would delete {topic} (1 record)\n"
    assert topic in names(capsys)
    assert main(["topic", "delete", topic, "--yes"]) == 0
    capsys.readouterr()
    assert topic not in names(capsys)


def test_nothing_is_destroyed_without_a_yes(
    broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.produce(topic, b"v")
    for verb in ("delete", "purge"):
        assert main(["topic", verb, topic]) == 2
        assert "--yes" in capsys.readouterr().err
    assert [record.value for record in broker.read(topic)] == [b"v"]


def test_one_that_is_missing_spares_the_others(
    broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    broker.produce(topic, b"v")
    assert main(["topic", "delete", topic, "absent", "--yes"]) == 3
    capsys.readouterr()
    assert topic in names(capsys)


def test_a_purge_empties_a_topic_and_offsets_go_on(
    broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    for index in range(5):
        broker.produce(topic, b"%d" % index)
    (row,) = run_json(capsys, "purge", topic, "--before-offset", "2", "--dry-run")
    assert (row["start_offset"], row["new_start_offset"], row["records"], row["deleted"]) == (0, 2, 2, False)
    assert len(list(broker.read(topic))) == 5
    run_json(capsys, "purge", topic, "--before-offset", "2", "--yes")
    assert [record.value for record in broker.read(topic)] == [b"2", b"3", b"4"]
    run_json(capsys, "purge", topic, "--yes")
    assert list(broker.read(topic)) == []
    assert broker.produce(topic, b"new").offset == 5


def test_a_purge_by_time_takes_what_is_older(
    broker: tailrace.Broker, topic: str, capsys: pytest.CaptureFixture[str]
) -> None:
    now_ms = int(time.time() * 1000)
    for age_s in (7200, 3700, 10):
        broker.produce(topic, b"%d" % age_s, timestamp=now_ms - age_s * 1000)
    (row,) = run_json(capsys, "purge", topic, "--before", "1h", "--yes")
    assert row["records"] == 2
    assert [record.value for record in broker.read(topic)] == [b"10"]


# ---- trouble


@pytest.mark.parametrize(
    "args",
    [
        ["describe", "absent"],
        ["alter", "absent", "-P", "9"],
        ["alter", "absent", "-c", "retention.ms=1"],
        ["delete", "absent", "--yes"],
        ["purge", "absent", "--yes"],
    ],
)
def test_a_topic_that_is_not_there_is_not_found(
    topic: str, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", *args]) == 3
    assert "topic absent does not exist" in capsys.readouterr().err


@pytest.mark.parametrize(
    "args",
    [
        ["create"],
        ["create", "t", "-P", "0"],
        ["create", "t", "-c", "retention.ms"],
        ["alter", "t"],
        ["delete"],
        ["purge", "t", "--before", "1h", "--before-offset", "1"],
        ["list", "-o", "xml"],
    ],
)
def test_what_makes_no_sense_is_a_usage_error(
    topic: str, args: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", *args]) == 2


@pytest.mark.parametrize("verb", ["list", "describe", "create", "alter", "delete", "purge"])
def test_every_verb_teaches_by_example(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["topic", verb, "--help"]) == 0
    assert "Examples:" in capsys.readouterr().out


# ---- a topic that is quarantined


def test_a_quarantined_topic_is_shown_and_mended(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def damage() -> None:
        metadata = StoredMetadata(SqliteStore(tmp_path / "metadata.sqlite"))
        image = await metadata.begin(BrokerId(1))
        (topic,) = (each for each in image.topics if each.name == "orders")
        await metadata.set_configs(topic.id, {"retention.mr": "-1"})
        await metadata.close()

    with tailrace.Broker(data_dir=tmp_path) as broker:
        for topic in ("orders", "payments"):
            broker.produce(topic, b"kept")
    asyncio.run(damage())
    with tailrace.Broker(data_dir=tmp_path) as broker:
        monkeypatch.setenv("TAILRACE_BOOTSTRAP", broker.bootstrap_servers)
        listed = {row["name"]: (row["offline"], row["records"]) for row in run_json(capsys, "list")}
        assert listed == {"orders": (1, 0), "payments": (0, 1)}
        found = run_json(capsys, "describe", "orders")
        assert (found["offline"], found["partition_details"][0]["leader"]) == (1, -1)
        assert main(["topic", "delete", "orders", "--yes"]) == 1
        assert "quarantined" in capsys.readouterr().err
        assert run_json(capsys, "alter", "orders", "--reset", "retention.mr")["altered"]
        (row,) = (row for row in run_json(capsys, "list") if row["name"] == "orders")
        assert (row["offline"], row["records"]) == (0, 1)
