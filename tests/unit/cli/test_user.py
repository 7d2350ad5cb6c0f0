"""`tailrace user` in the directory of a broker that does not run; for others: tests/interop/test_login.py."""

from __future__ import annotations

import io
import json
import os
import sys
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.exit import ExitCode
from tailrace.cli.main import main
from tailrace.runtime import DirectoryLock

WORD = "open sesame, 42"


class Stdin(io.TextIOWrapper):
    """Text that a program is piped."""

    def __init__(self, text: str) -> None:
        super().__init__(io.BytesIO(text.encode()))


@pytest.fixture
def user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `tailrace user` on a directory; returns exit code, stdout and stderr."""

    def run(*words: str, stdin: str = "") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", Stdin(stdin))
        code = main(["user", *words, "--data-dir", str(tmp_path / "data")])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_users_of_a_stopped_broker_come_and_go(user: Any) -> None:
    assert user("list", "-o", "json")[:2] == (0, "[]\n")
    assert user("create", "alice", stdin=WORD + "\n")[:2] == (0, "user alice created\n")
    code, _, err = user("create", "alice", stdin=WORD)
    assert code == ExitCode.ERROR and "exists already" in err and "tailrace user passwd alice" in err
    assert user("passwd", "alice", stdin="another-word")[0] == 0
    assert user("disable", "alice")[0] == 0
    assert json.loads(user("list", "-o", "json")[1]) == [
        {"name": "alice", "enabled": False, "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}
    ]
    assert user("enable", "alice")[0] == 0
    assert user("delete", "alice", "--dry-run")[1] == "user alice would be deleted\n"
    assert user("delete", "alice")[0] == ExitCode.USAGE  # nobody can be asked
    assert user("delete", "alice", "--yes")[0] == 0
    for words in (["passwd", "alice"], ["disable", "alice"], ["delete", "alice", "--yes"]):
        code, _, err = user(*words, stdin="another-word")
        assert code == ExitCode.NOT_FOUND and "there is no user 'alice'" in err, words


def test_a_password_comes_from_a_file_or_is_made(user: Any, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(WORD + "\n")
    assert user("create", "alice", "--password-file", str(file))[0] == 0
    assert user("create", "bob", "--password-file", "-", stdin=WORD)[0] == 0
    code, out, _ = user("create", "carol", "--generate", "-o", "json")
    assert code == 0 and len(json.loads(out)["password"]) >= 20
    assert user("create", "dave", "--generate", "--password-file", str(file))[0] == ExitCode.USAGE
    code, _, err = user("create", "dave", "--password-file", str(tmp_path / "none"))
    assert code == ExitCode.USAGE and "cannot read the password file" in err


def test_a_password_is_never_an_argument(user: Any) -> None:
    assert user("create", "alice", WORD)[0] == ExitCode.USAGE
    assert user("create", "alice", "--password", WORD)[0] == ExitCode.USAGE


@pytest.mark.parametrize("word", ["short", "password", "alicealice", ""])
def test_a_weak_password_is_refused_and_not_shown(user: Any, word: str) -> None:
    code, out, err = user("create", "alicealice", stdin=word + "\n")
    assert code != 0
    assert not word or word == "password" or f" {word} " not in out + err
    assert json.loads(user("list", "-o", "json")[1]) == []


def test_a_broker_that_has_the_directory_is_asked(user: Any, tmp_path: Path) -> None:
    directory = tmp_path / "data"
    directory.mkdir()
    lock = DirectoryLock(os.fspath(directory))
    try:
        code, _, err = user("list")
        assert code == ExitCode.ERROR and "has no HTTP listener that is known" in err
    finally:
        lock.release()


def test_users_of_a_broker_in_memory_cannot_be_made_before(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "tailrace.toml"
    file.write_text('[storage]\nengine = "memory"\n')
    monkeypatch.setattr(sys, "stdin", Stdin(WORD))
    assert main(["user", "create", "alice", "--config", str(file)]) == ExitCode.ERROR
    assert "whose users go with the broker" in capsys.readouterr().err
