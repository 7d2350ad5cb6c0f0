"""`tailrace acl` in the directory of a stopped broker, and over the HTTP listener of a running one."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.cli.exit import ExitCode
from tailrace.cli.main import main

Run = Callable[..., tuple[int, str, str]]
READ = ("--operation", "read", "--topic", "orders")
ROW = {
    "permission": "allow",
    "principal": "User:alice",
    "host": "*",
    "operation": "read",
    "resource": "topic",
    "name": "orders",
    "pattern": "literal",
}


@pytest.fixture(params=["stopped", "running"])
def acl(request: pytest.FixtureRequest, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `tailrace acl`; returns exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["acl", *words, *place])
        out, err = capsys.readouterr()
        return code, out, err

    if request.param == "stopped":
        place = ["--data-dir", str(tmp_path / "data")]
        yield run
        return
    with tailrace.Broker(http_port=0) as broker:
        place = ["--http", broker.http_address]
        yield run


def rows(acl: Run, *words: str) -> list[dict[str, str]]:
    code, out, err = acl("list", *words, "-o", "json")
    assert code == 0, err
    found: list[dict[str, str]] = json.loads(out)
    return found


def test_entries_come_and_go(acl: Run) -> None:
    assert rows(acl) == []
    code, out, _ = acl("add", "--allow", "User:alice", *READ)
    assert (code, out) == (0, "allow User:alice to read topic orders: added\n")
    (row,) = rows(acl)
    assert {**ROW, "id": row["id"]} == row
    assert acl("add", "--allow", "User:alice", *READ)[0] == 0  # again
    assert len(rows(acl)) == 1
    code, out, _ = acl("remove", "--allow", "User:alice", *READ, "--dry-run")
    assert (code, out) == (0, "allow User:alice to read topic orders: would be removed\n")
    assert len(rows(acl)) == 1
    assert (
        acl("remove", "--allow", "User:alice", *READ)[1] == "allow User:alice to read topic orders: removed\n"
    )
    assert rows(acl) == []
    code, _, err = acl("remove", "--allow", "User:alice", *READ)
    assert code == ExitCode.NOT_FOUND and "tailrace acl list" in err


def test_one_entry_for_each_combination(acl: Run) -> None:
    code, out, _ = acl(
        *(
            "add",
            "--allow",
            "User:alice",
            "--deny",
            "User:bob",
            "--operation",
            "read",
            "--operation",
            "write",
        ),
        *("--topic", "a", "--topic", "b-", "--prefixed", "-o", "json"),
    )
    assert code == 0 and len(json.loads(out)) == 8
    assert {each["pattern"] for each in rows(acl)} == {"prefixed"}
    assert len(rows(acl, "--deny", "User:bob")) == 4
    assert len(rows(acl, "--topic", "a")) == 4
    assert len(rows(acl, "--topic", "b-1", "--matching")) == 4
    assert rows(acl, "--topic", "b-1") == []
    assert acl("remove", "--deny", "User:bob")[0] == ExitCode.USAGE  # four entries, and nobody can be asked
    assert acl("remove", "--deny", "User:bob", "--yes")[0] == 0
    assert {each["principal"] for each in rows(acl)} == {"User:alice"}
    assert acl("remove", "--id", rows(acl)[0]["id"], "--yes")[0] == 0
    assert len(rows(acl)) == 3


@pytest.mark.parametrize(
    ("words", "resource", "name"),
    [
        (["--group", "g", "--operation", "read"], "group", "g"),
        (["--subscription", "s", "--operation", "alter"], "subscription", "s"),
        (["--cluster", "--operation", "history"], "cluster", "kafka-cluster"),
        (["--transactional-id", "t", "--operation", "two_phase_commit"], "transactional_id", "t"),
        (["--topic", "*", "--operation", "all", "--host", "192.0.2.7"], "topic", "*"),
    ],
)
def test_every_kind_of_resource(acl: Run, words: list[str], resource: str, name: str) -> None:
    code, _, err = acl("add", "--deny", "User:*", *words)
    assert code == 0, err
    (row,) = rows(acl)
    assert (row["resource"], row["name"], row["permission"]) == (resource, name, "deny")


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["--operation", "read", "--topic", "x"], ExitCode.USAGE, "--allow"),
        (["--allow", "User:a", "--topic", "x"], ExitCode.USAGE, "--operation"),
        (["--allow", "User:a", "--operation", "read"], ExitCode.USAGE, "--topic"),
        (["--allow", "User:a", "--operation", "fly", "--topic", "x"], ExitCode.USAGE, "fly"),
        (["--allow", "alice", *READ], ExitCode.ERROR, "User:alice"),
        (["--allow", "User:a", "--operation", "write", "--group", "g"], ExitCode.ERROR, "on a group"),
        (["--allow", "User:a", *READ, "--host", "nowhere"], ExitCode.ERROR, "Names are not looked up"),
        (
            ["--allow", "User:a", "--operation", "read", "--cluster", "--prefixed"],
            ExitCode.USAGE,
            "--prefixed",
        ),
        (
            ["--allow", "User:a", "--operation", "read", "--topic", "__tailrace", "--prefixed"],
            ExitCode.ERROR,
            "literally",
        ),
    ],
)
def test_what_cannot_be_an_entry(acl: Run, words: list[str], code: ExitCode, said: str) -> None:
    for more in ([], ["--dry-run"]):
        found, out, err = acl("add", *words, *more)
        assert found != 0 and said in " ".join(err.split()), err
        assert found == code or code is ExitCode.ERROR
        assert out == ""
    assert rows(acl) == []


def test_a_dry_run_adds_nothing(acl: Run) -> None:
    code, out, _ = acl("add", "--allow", "User:alice", *READ, "--dry-run", "-o", "json")
    assert code == 0 and {**ROW, "result": "would be added"}.items() <= json.loads(out)[0].items()
    assert rows(acl) == []


def test_remove_needs_to_be_told_what(acl: Run) -> None:
    assert acl("remove", "--yes")[0] == ExitCode.USAGE


def test_a_directory_without_a_place_for_entries(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text('[storage]\nengine = "memory"\n')
    assert main(["acl", "list", "--config", str(file)]) == ExitCode.ERROR
    assert "access control entries go with the broker" in capsys.readouterr().err
