"""`tailrace token` in the directory of a stopped broker; of one that runs: tests/interop/test_tokens.py."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.exit import ExitCode
from tailrace.cli.main import main


@pytest.fixture
def token(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `tailrace token` on a directory in which alice is known; returns exit code, stdout and stderr."""
    data = str(tmp_path / "data")
    assert main(["user", "create", "alice", "--generate", "--data-dir", data]) == 0
    capsys.readouterr()

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["token", *words, "--data-dir", data])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_tokens_of_a_stopped_broker_come_and_go(token: Any, tmp_path: Path) -> None:
    code, out, err = token("create", "--owner", "alice", "--scope", "read:topic:orders")
    assert code == 0 and out.startswith("trt_") and len(out.splitlines()) == 1
    assert "It is not shown again" in err and out.strip() not in err
    made = json.loads(
        token("create", "--owner", "alice", "--scope", "all", "--expires", "1h", "--name", "x", "-o", "json")[
            1
        ]
    )
    assert made["expires_ms"] - made["created_ms"] == 3_600_000
    listed = json.loads(token("list", "-o", "json")[1])
    assert {(each["owner"], tuple(each["scope"])) for each in listed} == {
        ("alice", ("read:topic:orders",)),
        ("alice", ("all",)),
    }
    stored = b"".join(each.read_bytes() for each in (tmp_path / "data").iterdir() if each.is_file())
    assert out.strip().encode() not in stored and out.strip()[-43:].encode() not in stored
    assert token("revoke", made["id"], "--dry-run")[1] == f"token {made['id']} would be revoked\n"
    assert token("revoke", made["id"])[0] == ExitCode.USAGE  # no terminal to ask at
    assert token("revoke", made["id"], "--yes")[:2] == (0, f"token {made['id']} revoked\n")
    assert token("revoke", made["id"], "--yes")[0] == ExitCode.NOT_FOUND
    assert len(json.loads(token("list", "--owner", "alice", "-o", "json")[1])) == 1
    assert "alice" in token("list")[1]


def test_the_server_key_is_rotated(token: Any) -> None:
    token("create", "--owner", "alice", "--scope", "all")
    assert token("rotate-key")[:2] == (0, "a new key; 1 tokens move to it when they are used\n")
    code, _, err = token("rotate-key")
    assert code == ExitCode.ERROR and "--drop" in err
    assert json.loads(token("rotate-key", "--drop", "-o", "json")[1]) == {"tokens": 0}


def test_tokens_go_with_their_owner(token: Any, tmp_path: Path) -> None:
    token("create", "--owner", "alice", "--scope", "all")
    data = str(tmp_path / "data")
    assert main(["user", "delete", "alice", "--yes", "--data-dir", data]) == 0
    assert main(["user", "create", "alice", "--generate", "--data-dir", data]) == 0
    token("list")  # reads what they printed
    assert json.loads(token("list", "-o", "json")[1]) == []


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (["create", "--owner", "alice"], ExitCode.USAGE, "--scope"),
        (["create", "--scope", "all"], ExitCode.USAGE, "--owner"),
        (["create", "--owner", "alice", "--scope", "read"], ExitCode.USAGE, "such as read:topic:orders"),
        (
            ["create", "--owner", "alice", "--scope", "all", "--expires", "x"],
            ExitCode.USAGE,
            "length of time",
        ),
        (["create", "--owner", "alice", "--scope", "all", "--expires", "400d"], ExitCode.ERROR, "365 days"),
        (["create", "--owner", "bob", "--scope", "all"], ExitCode.NOT_FOUND, "no user 'bob'"),
        (["revoke", "trt_0011223344556677_abc", "--yes"], ExitCode.USAGE, "the id of the token"),
    ],
)
def test_what_cannot_be_done_is_said(token: Any, words: list[str], code: int, said: str) -> None:
    found, _, err = token(*words)
    assert found == code and said in err
    assert json.loads(token("list", "-o", "json")[1]) == []
