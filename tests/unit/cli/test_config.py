"""`tailrace config`: what it prints for real files and variables, and how it ends."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.config import command
from tailrace.cli.main import run


@pytest.fixture(autouse=True)
def _nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An empty working directory, and no variables of ours."""
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("TAILRACE_", "QB_")):
            monkeypatch.delenv(name)


def as_json(capsys: pytest.CaptureFixture[str], *args: str) -> Any:
    assert run(command, [*args, "-o", "json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_show_lists_every_setting_with_its_source(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("tailrace.toml").write_text("[server]\nkafka_port = 1234\n")
    monkeypatch.setenv("QB_LOG_LEVEL", "debug")
    rows = {row["key"]: row for row in as_json(capsys, "show")}
    assert rows["server.kafka_port"] == {
        "key": "server.kafka_port",
        "value": 1234,
        "source": "tailrace.toml line 2",
    }
    assert rows["log.level"]["source"] == "environment QB_LOG_LEVEL"
    assert rows["server.host"] == {"key": "server.host", "value": "127.0.0.1", "source": "default"}
    assert rows["server.allow_plaintext"]["value"] is False
    assert rows["topic_defaults.retention.ms"]["value"] == str(31 * 24 * 3600 * 1000)


def test_what_is_not_built_is_not_shown(capsys: pytest.CaptureFixture[str]) -> None:
    keys = [row["key"] for row in as_json(capsys, "show")]
    assert not [key for key in keys if key.startswith(("tls.", "cluster."))]


def test_show_changed_leaves_the_defaults_out(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TAILRACE_BROKER__NUM_PARTITIONS", "9")
    rows = as_json(capsys, "show", "--changed")
    assert [(row["key"], row["value"]) for row in rows] == [("broker.num.partitions", "9")]


def test_show_as_a_table_writes_values_as_in_the_file(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, ["show"]) == 0
    lines = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["server.allow_plaintext", "false", "default"] in lines


def test_show_refuses_a_wrong_file_with_a_usage_error(capsys: pytest.CaptureFixture[str]) -> None:
    Path("tailrace.toml").write_text("[server]\nhst = 1\n")
    assert run(command, ["show"]) == 2
    assert "Did you mean server.host?" in capsys.readouterr().err


def test_explain_tells_everything_about_a_setting(capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.toml").write_text("[storage]\nfsync_on_write = false\n")
    row = as_json(capsys, "explain", "storage.fsync", "--config", "other.toml")
    assert row["value"] == "os"
    assert row["default"] == "commit"
    assert row["source"] == "other.toml line 2 (storage.fsync_on_write)"
    assert row["flag"] == "--fsync"
    assert row["environment"] == "TAILRACE_STORAGE__FSYNC"
    assert row["aliases"] == ["TAILRACE_FSYNC", "storage.fsync_on_write"]
    assert "acknowledgement" in row["meaning"]


@pytest.mark.parametrize(
    ("asked", "key"),
    [
        ("retention.ms", "topic_defaults.retention.ms"),
        ("num.partitions", "broker.num.partitions"),
        ("broker.num.partitions", "broker.num.partitions"),
    ],
)
def test_explain_finds_kafka_s_names(capsys: pytest.CaptureFixture[str], asked: str, key: str) -> None:
    assert as_json(capsys, "explain", asked)["key"] == key


def test_explain_as_a_table(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, ["explain", "log.format"]) == 0
    shown = capsys.readouterr().out
    assert "text or json" in shown
    assert "TAILRACE_LOG__FORMAT" in shown


@pytest.mark.parametrize("key", ["retention", "tls.port", "server.hots"])
def test_explain_of_what_is_no_setting_is_not_found(capsys: pytest.CaptureFixture[str], key: str) -> None:
    assert run(command, ["explain", key]) == 3
    assert f"{key} is not a setting" in capsys.readouterr().err


def test_validate_a_good_file(capsys: pytest.CaptureFixture[str]) -> None:
    Path("good.toml").write_text("[server]\nkafka_port = 0\n")
    assert as_json(capsys, "validate", "good.toml") == {"file": "good.toml", "valid": True, "problems": []}
    assert run(command, ["validate", "good.toml"]) == 0
    assert capsys.readouterr().out == "good.toml is valid\n"


def test_validate_shows_every_problem_and_fails(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.toml").write_text("[server]\nhst = 1\nkafka_port = 'x'\n")
    assert run(command, ["validate", "bad.toml"]) == 1
    shown = capsys.readouterr()
    assert len(shown.out.splitlines()) == 2
    assert shown.err == "error: 2 problems in bad.toml\n"


def test_validate_as_json_has_the_problems(capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.toml").write_text("x = 1\n")
    assert run(command, ["validate", "bad.toml", "-o", "json"]) == 1
    row = json.loads(capsys.readouterr().out)
    assert row["valid"] is False
    assert len(row["problems"]) == 1


def test_validate_a_file_that_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, ["validate", "absent.toml"]) == 3
    assert "absent.toml" in capsys.readouterr().err
