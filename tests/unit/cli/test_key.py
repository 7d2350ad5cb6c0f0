"""`tailrace key` over small data directories of the real engine."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from tests.unit.storage.encryption.test_encrypted_directory import COUNT, check, make

from tailrace.cli.exit import ExitCode
from tailrace.cli.main import main
from tailrace.security.keys import KeySource
from tailrace.storage.encryption.config import Encryption
from tailrace.storage.encryption.keys_file import KEYS


class Workshop:
    """A directory, key files, and the configuration that names them."""

    def __init__(self, path: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.data = path / "data"
        self.config = path / "tailrace.toml"
        self.path = path
        self._capsys = capsys

    def key(self, name: str) -> str:
        assert self.run("create", str(self.path / name))["file"] == str(self.path / name)
        return KeySource("file", str(self.path / name)).read().key_id

    def encryption(self, *names: str) -> Encryption:
        return Encryption(keys=tuple(KeySource("file", str(self.path / name)).read() for name in names))

    def configure(self, text: str) -> None:
        self.config.write_text(f'[storage]\ndata_dir = "{self.data}"\n[encryption]\n{text}\n')

    def run(self, *arguments: str, code: int = 0) -> Any:
        assert main(["key", *arguments, "-o", "json"]) == code
        shown = self._capsys.readouterr()
        return json.loads(shown.out) if code == 0 else shown.err

    def file(self, name: str) -> str:
        return f'{{ file = "{self.path / name}" }}'


@pytest.fixture
def workshop(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Workshop:
    return Workshop(tmp_path, capsys)


def test_a_plain_directory_is_encrypted_and_its_status_shows_it(workshop: Workshop) -> None:
    make(workshop.data, None)
    key_id = workshop.key("one")
    workshop.configure(f"key = {workshop.file('one')}")
    at = ("--config", str(workshop.config))
    status = workshop.run("status", *at)
    assert status["key"] is None and status["plain_segments"] == len(status["plain"]) > 1
    make(workshop.data, workshop.encryption("one"))  # the newest segment is an encrypted one now
    planned = workshop.run("encrypt", "--dry-run", *at)
    assert workshop.run("status", *at)["plain_segments"] == planned["rewritten"] > 1
    done = workshop.run("encrypt", *at)
    assert done == {**planned, "dry_run": False}
    status = workshop.run("status", *at)
    assert (status["key"], status["plain_segments"], status["plain_bytes"]) == (key_id, 0, 0)
    assert workshop.run("encrypt", *at)["rewritten"] == 0


def test_a_key_is_rotated(workshop: Workshop) -> None:
    before, after = workshop.key("one"), workshop.key("two")
    found = make(workshop.data, workshop.encryption("one"))
    workshop.configure(f"key = {workshop.file('two')}")
    at = ("--config", str(workshop.config))
    assert before in workshop.run("rotate", *at, code=1)
    workshop.configure(f"key = {workshop.file('two')}\nprevious_key = {workshop.file('one')}")
    planned = workshop.run("rotate", "--dry-run", *at)
    assert (planned["before"], planned["after"], planned["dry_run"]) == (before, after, True)
    assert workshop.run("status", *at)["key"] == before
    assert workshop.run("rotate", *at)["after"] == after
    assert workshop.run("status", *at)["key"] == after
    check(workshop.data, found, workshop.encryption("two"))


def test_data_gets_new_keys(workshop: Workshop) -> None:
    workshop.key("one")
    found = make(workshop.data, workshop.encryption("one"))
    workshop.configure(f"key = {workshop.file('one')}")
    done = workshop.run("rotate", "--data", "--config", str(workshop.config))
    assert done["rewritten"] >= 1 and done["left"] == 1
    check(workshop.data, found, workshop.encryption("one"))
    assert len(found) == COUNT


def test_what_is_missing_is_named(workshop: Workshop) -> None:
    workshop.configure("enabled = true")
    at = ("--config", str(workshop.config))
    assert "holds no log" in workshop.run("status", *at, code=ExitCode.NOT_FOUND)
    make(workshop.data, None)
    assert "no key is configured" in workshop.run("encrypt", *at, code=1)
    workshop.key("one")
    workshop.configure(f"key = {workshop.file('one')}")
    assert "nothing in it is encrypted" in workshop.run("rotate", *at, code=1)


def test_status_tells_that_one_of_the_two_files_is_lost(workshop: Workshop) -> None:
    workshop.key("one")
    make(workshop.data, workshop.encryption("one"))
    (workshop.data / KEYS).unlink()
    assert "a start writes both again" in workshop.run("status", "--data-dir", str(workshop.data), code=1)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ('key = { file = "a", env = "B" }', "encryption.key has 2 places"),
        ('previous_key = { file = "a" }', "no effect without encryption.key"),
        ('key = { fiel = "a" }', "encryption.key.fiel is not a setting. Did you mean encryption.key.file?"),
    ],
)
def test_a_wrong_configuration_is_refused(workshop: Workshop, text: str, reason: str) -> None:
    workshop.configure(text)
    assert reason in workshop.run("encrypt", "--config", str(workshop.config), code=ExitCode.USAGE)


def test_no_key_leaves_the_process(workshop: Workshop, capsys: pytest.CaptureFixture[str]) -> None:
    workshop.key("one")
    secret = (workshop.path / "one").read_text().strip()
    make(workshop.data, workshop.encryption("one"))
    for arguments in (["status", "--data-dir", str(workshop.data)], ["create", str(workshop.path / "two")]):
        main(["key", *arguments])
    shown = capsys.readouterr()
    assert secret not in shown.out + shown.err
    assert not [
        path for path in workshop.data.rglob("*") if path.is_file() and secret.encode() in path.read_bytes()
    ]
