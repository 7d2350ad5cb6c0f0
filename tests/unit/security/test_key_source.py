"""Where a key-encryption key is read from, and what is refused. No error shows what was read."""

from __future__ import annotations

import base64
import os
import shlex
import sys
from pathlib import Path

import pytest

from tailrace.model import ConfigError
from tailrace.security.keys import KeyEncryptionKey, KeySource, create_key_file

SECRET = bytes(range(32))
ID = KeyEncryptionKey(SECRET).key_id


@pytest.mark.parametrize(
    "content",
    [
        SECRET,
        SECRET.hex().encode(),
        SECRET.hex().upper().encode() + b"\n",
        base64.b64encode(SECRET) + b"\r\n",
    ],
    ids=["raw", "hex", "HEX", "base64"],
)
def test_a_file_holds_a_key(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    assert KeySource("file", str(path)).read().key_id == ID


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o644, 0o660])
def test_a_file_that_others_can_read_is_refused(tmp_path: Path, mode: int) -> None:
    path = tmp_path / "key"
    path.write_bytes(SECRET)
    path.chmod(mode)
    with pytest.raises(ConfigError, match=r"can be read by others. Try: chmod 600"):
        KeySource("file", str(path)).read()


@pytest.mark.parametrize(
    "content", [b"", b"short", b"x" * 31, b"y" * 33, b"g" * 64, b"ab" * 33, b"z" * 100_000]
)
def test_what_is_no_key_is_refused_and_not_shown(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "key"
    path.write_bytes(content)
    path.chmod(0o600)
    with pytest.raises(ConfigError, match="holds no key") as refused:
        KeySource("file", str(path)).read()
    assert not content or content.decode() not in str(refused.value)


def test_a_file_that_is_missing_or_is_none(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot be read"):
        KeySource("file", str(tmp_path / "none")).read()
    with pytest.raises(ConfigError, match="cannot be read"):
        KeySource("file", str(tmp_path)).read()


def test_a_variable_is_taken_out_of_the_environment() -> None:
    environment = {"KEY": SECRET.hex(), "OTHER": "stays"}
    assert KeySource("env", "KEY").read(environment).key_id == ID
    assert environment == {"OTHER": "stays"}
    with pytest.raises(ConfigError, match="has no KEY"):
        KeySource("env", "KEY").read(environment)


def test_no_child_process_has_the_variable(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("TRACED_KEY", SECRET.hex())
    KeySource("env", "TRACED_KEY").read()
    seen = tmp_path / "seen"
    script = (
        f"import os; open({str(seen)!r}, 'w').write(str('TRACED_KEY' in os.environ)); print({SECRET.hex()!r})"
    )
    command = f"{shlex.quote(sys.executable)} -c {shlex.quote(script)}"
    assert KeySource("command", command).read().key_id == ID
    assert seen.read_text() == "False"


@pytest.mark.parametrize(
    ("command", "reason"),
    [
        ("false", "failed with exit code 1"),
        ("/no/such/program --with secret", "cannot be run"),
        ("echo 'open", "cannot be parsed"),
        ("echo no key", "holds no key"),
    ],
)
def test_a_command_that_gives_no_key(command: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason) as refused:
        KeySource("command", command).read()
    assert "secret" not in str(refused.value)


def test_a_new_key_file_is_its_owners_alone_and_replaces_none(tmp_path: Path) -> None:
    path = tmp_path / "key"
    key = create_key_file(path)
    assert os.stat(path).st_mode & 0o777 == 0o600
    assert KeySource("file", str(path)).read().key_id == key.key_id
    with pytest.raises(ConfigError, match="Nothing was written"):
        create_key_file(path)
