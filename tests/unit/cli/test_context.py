"""Saved contexts: the file, who may read it, and what wins over what."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

import pytest

from tailrace.cli.exit import ExitCode
from tailrace.cli.main import main
from tailrace.cli.saved_context import SavedContexts, apply_context, read_contexts, write_contexts
from tailrace.model import ConfigError


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where contexts are saved, in a directory of the test's own; the environment names no login."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    for each in [name for name in os.environ if name.startswith("TAILRACE_")]:
        monkeypatch.delenv(each)
    return tmp_path / "config" / "tailrace" / "contexts.toml"


@pytest.fixture
def context(file: Path, capsys: pytest.CaptureFixture[str]) -> Any:
    """Run `tailrace context`; returns exit code, stdout and stderr."""

    def run(*words: str) -> tuple[int, str, str]:
        code = main(["context", *words])
        out, err = capsys.readouterr()
        return code, out, err

    return run


def test_contexts_come_are_used_and_go(context: Any, file: Path) -> None:
    assert json.loads(context("list", "-o", "json")[1]) == []
    assert context("add", "local", "--bootstrap", "127.0.0.1:9092")[1] == "context local saved, and in use\n"
    assert context("add", "prod", "--http", "h:1", "--user", "alice", "--password-file", "p")[0] == 0
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    rows = {each["name"]: each for each in json.loads(context("list", "-o", "json")[1])}
    assert rows["local"]["current"] and not rows["prod"]["current"]
    assert rows["prod"]["password_file"] == os.path.abspath("p")
    assert context("use", "prod")[0] == 0
    assert read_contexts(file).current == "prod"
    assert context("remove", "prod")[0] == 0
    assert read_contexts(file) == SavedContexts({"local": {"bootstrap": "127.0.0.1:9092"}}, "")
    assert context("use", "--none")[0] == 0


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["add", "x"], "says something"),
        (["add", "x", "--user", "a", "--password-file", "f", "--token-file", "t"], "exclude each other"),
        (["add", "x", "--user", "a", "--token-file", "t"], "stands for its user"),
        (["add", "x", "--password-file", "f"], "Name the user"),
        (["add", "", "--user", "a"], "1 to 64"),
        (["add", "x", "--password", "word"], "No such option"),
        (["use", "other"], "there is no context 'other'"),
        (["use"], "Name a context"),
        (["remove", "other"], "there is no context 'other'"),
    ],
)
def test_what_no_context_can_be_is_refused(context: Any, file: Path, words: list[str], said: str) -> None:
    code, _, err = context(*words)
    assert code == ExitCode.USAGE and said in err
    assert not file.exists()


@pytest.mark.parametrize("mode", [0o644, 0o640, 0o604, 0o660])
def test_a_file_that_others_may_read_is_refused(context: Any, file: Path, mode: int) -> None:
    context("add", "local", "--bootstrap", "127.0.0.1:9092")
    file.chmod(mode)
    code, _, err = context("list")
    assert code == ExitCode.USAGE and f"chmod 600 {file}" in err
    assert main(["topic", "list", "--bootstrap", "127.0.0.1:1"]) == ExitCode.USAGE


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[", "is no TOML"),
        ("contexts = 3", "must be tables"),
        ("[contexts]\nx = 3", "no table of texts"),
        ("[contexts.x]\nuser = 3", "no table of texts"),
        ('[contexts.x]\npassword = "word"', "is not one of"),
        ('[contexts.x]\npassword_file = "f"', "Name the user"),
    ],
)
def test_a_file_that_makes_no_sense_is_refused(file: Path, text: str, said: str) -> None:
    file.parent.mkdir(parents=True)
    file.write_text(text)
    file.chmod(0o600)
    with pytest.raises(ConfigError, match=said):
        read_contexts(file)


def test_any_text_comes_back_as_it_was_written(file: Path) -> None:
    saved = SavedContexts({'a"b\\c.é': {"user": 'x"\\\t', "password_command": "echo 'a\nb'\x7f"}}, 'a"b\\c.é')
    write_contexts(file, saved)
    assert read_contexts(file) == saved


def test_the_environment_wins_over_the_context() -> None:
    fields = {
        "bootstrap": "b:1",
        "native": "n:1",
        "http": "h:1",
        "tls_ca": "ca",
        "user": "u",
        "password_file": "p",
    }
    found: dict[str, str] = {}
    apply_context(fields, found)
    assert found == {
        "TAILRACE_BOOTSTRAP": "b:1",
        "TAILRACE_NODE": "n:1",
        "TAILRACE_HTTP": "h:1",
        "TAILRACE_TLS_CA": "ca",
        "TAILRACE_USER": "u",
        "TAILRACE_PASSWORD_FILE": "p",
    }
    found = {"TAILRACE_BOOTSTRAP": "mine:1", "TAILRACE_TOKEN": "mine"}
    apply_context(fields, found)
    assert found["TAILRACE_BOOTSTRAP"] == "mine:1" and found["TAILRACE_HTTP"] == "h:1"
    assert "TAILRACE_USER" not in found and "TAILRACE_PASSWORD_FILE" not in found


def test_a_password_comes_out_of_a_command() -> None:
    found: dict[str, str] = {}
    apply_context({"user": "u", "password_command": "printf 'the word\\nmore'"}, found)
    assert found["TAILRACE_PASSWORD"] == "the word"
    for command in ("false", "true", "/no/such/program", "printf '\\377'", "'"):
        with pytest.raises(ConfigError, match="password_command"):
            apply_context({"user": "u", "password_command": command}, {})


def test_a_command_uses_the_context_that_is_named(context: Any, capsys: pytest.CaptureFixture[str]) -> None:
    context("add", "one", "--bootstrap", "127.0.0.1:1")
    context("add", "two", "--bootstrap", "127.0.0.1:2")

    def where(*words: str) -> str:
        for each in ("TAILRACE_BOOTSTRAP",):
            os.environ.pop(each, None)
        assert main(["topic", "list", "--timeout", "0.2", *words]) != 0
        return capsys.readouterr().err

    assert "127.0.0.1:1" in where()  # in use
    assert "127.0.0.1:2" in where("--context", "two")
    assert "127.0.0.1:3" in where("--context", "two", "--bootstrap", "127.0.0.1:3")
    assert "there is no context 'three'" in where("--context", "three")
    os.environ.pop("TAILRACE_BOOTSTRAP", None)
