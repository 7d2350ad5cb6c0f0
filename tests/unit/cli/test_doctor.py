"""`tailrace doctor`: what it prints and how it ends; its findings are tested where they are made."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from tailrace.broker.health import Finding
from tailrace.cli.doctor import command
from tailrace.cli.main import run
from tailrace.server import checkup
from tailrace.server.config import ServerConfig

FINE = Finding(check="uvloop", status="ok", found="0.21")
SO_SO = Finding(check="fsync latency", status="warning", found="p50 25.00 ms", advice="Use a faster disk")
BAD = Finding(check="free space", status="problem", found="1 MiB", advice="Free some space")


@pytest.fixture(autouse=True)
def _nothing_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in list(os.environ):
        if name.startswith(("TAILRACE_", "QB_")):
            monkeypatch.delenv(name)


def find(monkeypatch: pytest.MonkeyPatch, *findings: Finding) -> list[object]:
    """Let the doctor find these; what it was asked is in the list."""
    asked: list[object] = []

    def examine(config: object, *, bootstrap: str | None) -> list[Finding]:
        asked.extend([config, bootstrap])
        return list(findings)

    monkeypatch.setattr(checkup, "examine", examine)
    return asked


def test_a_warning_is_shown_and_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find(monkeypatch, FINE, SO_SO)
    assert run(command, []) == 0
    lines = [" ".join(line.split()) for line in capsys.readouterr().out.splitlines()]
    assert "ok uvloop 0.21" in lines
    assert "warning fsync latency p50 25.00 ms Use a faster disk" in lines


def test_a_problem_is_a_failure(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    find(monkeypatch, FINE, BAD)
    assert run(command, []) == 1
    shown = capsys.readouterr()
    assert "Free some space" in shown.out
    assert shown.err == "error: 1 problem found\n"


@pytest.mark.parametrize(("found", "code"), [((FINE, SO_SO), 0), ((FINE, BAD), 1)], ids=["healthy", "not"])
def test_json_says_it_all(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    found: tuple[Finding, ...],
    code: int,
) -> None:
    find(monkeypatch, *found)
    assert run(command, ["-o", "json"]) == code
    row = json.loads(capsys.readouterr().out)
    assert row["healthy"] is (code == 0)
    assert row["findings"][0] == {"check": "uvloop", "status": "ok", "found": "0.21", "advice": ""}
    assert len(row["findings"]) == 2


def test_jsonl_is_a_finding_a_line(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    find(monkeypatch, FINE, BAD)
    assert run(command, ["-o", "jsonl"]) == 1
    rows = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [row["check"] for row in rows] == ["uvloop", "free space"]


def test_flags_say_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    config, bootstrap = find(monkeypatch), "broker.lan:9092"
    assert run(command, ["--data-dir", "d", "--kafka-port", "1", "--bootstrap", bootstrap]) == 0
    asked = config[0]
    assert isinstance(asked, ServerConfig)
    assert (asked.data_dir, asked.kafka_port, config[1]) == (Path("d"), 1, bootstrap)


def test_this_machine_is_looked_at(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, ["--kafka-port", "0", "-o", "json"]) == 0
    row = json.loads(capsys.readouterr().out)
    assert "fsync latency" in [finding["check"] for finding in row["findings"]]
    assert os.listdir(tmp_path) == []


def test_a_wrong_setting_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(command, ["--kafka-port", "x"]) == 2
    assert "must be a whole number" in capsys.readouterr().err
