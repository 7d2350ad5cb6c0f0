"""Where a key-encryption key is read from: a file, an environment variable, or a command (a KMS client).

The text is 64 hexadecimal digits or Base64 of 32 bytes; a file may also hold the 32 bytes as they are. Errors
name the place and never the content.
"""

from __future__ import annotations

import base64
import binascii
import os
import shlex
import stat
import subprocess
from collections.abc import MutableMapping
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tailrace.model import ConfigError
from tailrace.security.keys.wrapping import KEY_BYTES, KeyEncryptionKey

CONTENT_BYTES_MAX = 4096
COMMAND_SECONDS = 30
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


@dataclass(frozen=True, slots=True)
class KeySource:
    """One place that holds a key."""

    kind: Literal["file", "env", "command"]
    place: str

    def __str__(self) -> str:
        return f"{self.kind} {self.place}" if self.kind != "command" else "the configured command"

    def read(self, environment: MutableMapping[str, str] | None = None) -> KeyEncryptionKey:
        """The key; ConfigError if there is none, or others could read it.

        A variable is taken out of the environment, so that no process that is started later has it.
        """
        if self.kind == "file":
            content = _read_file(Path(self.place))
        elif self.kind == "env":
            content = _take_variable(self.place, os.environ if environment is None else environment)
        else:
            content = _run(self.place)
        return KeyEncryptionKey(_decode(content, self))


def _read_file(path: Path) -> bytes:
    try:
        with open(path, "rb") as file:
            mode = os.fstat(file.fileno()).st_mode
            content = file.read(CONTENT_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"the key file {path} cannot be read: {error.strerror}") from error
    if not stat.S_ISREG(mode):
        raise ConfigError(f"{path} is no file")
    if mode & _OTHERS:
        raise ConfigError(
            f"the key file {path} can be read by others. Try: chmod 600 {shlex.quote(str(path))}"
        )
    return content


def _take_variable(name: str, environment: MutableMapping[str, str]) -> bytes:
    text = environment.pop(name, None)
    if text is None:
        raise ConfigError(f"the environment has no {name}, which encryption names as the place of its key")
    return text.encode()


def _run(command: str) -> bytes:
    """What a command prints. It is run without a shell."""
    try:
        words = shlex.split(command)
        done = subprocess.run(
            words, stdin=subprocess.DEVNULL, capture_output=True, timeout=COMMAND_SECONDS, check=False
        )
    except ValueError as error:
        raise ConfigError(f"the command of the encryption key cannot be parsed: {error}") from error
    except subprocess.TimeoutExpired:
        raise ConfigError(
            f"the command of the encryption key did not end within {COMMAND_SECONDS} s"
        ) from None
    except OSError as error:
        raise ConfigError(f"the command of the encryption key cannot be run: {error.strerror}") from error
    if done.returncode:
        raise ConfigError(f"the command of the encryption key failed with exit code {done.returncode}")
    return done.stdout


def _decode(content: bytes, source: KeySource) -> bytes:
    if source.kind == "file" and len(content) == KEY_BYTES:
        return content
    text = content.strip()
    if len(content) <= CONTENT_BYTES_MAX:
        for decode in (binascii.unhexlify, _base64):
            try:
                key = decode(text)
            except ValueError:
                continue
            if len(key) == KEY_BYTES:
                return key
    raise ConfigError(
        f"{source} holds no key: it must be {KEY_BYTES} random bytes as {2 * KEY_BYTES} hexadecimal digits "
        "or Base64. Try: tailrace key create FILE"
    )


def _base64(text: bytes) -> bytes:
    return base64.b64decode(text, validate=True)


def create_key_file(path: Path) -> KeyEncryptionKey:
    """Write a new random key, which only its owner can read; ConfigError if the file is there already."""
    secret = os.urandom(KEY_BYTES)
    try:
        number = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    except OSError as error:
        raise ConfigError(f"cannot create {path}: {error.strerror}. Nothing was written") from error
    with os.fdopen(number, "w") as file:
        file.write(secret.hex() + "\n")
        file.flush()
        os.fsync(file.fileno())
    return KeyEncryptionKey(secret)
