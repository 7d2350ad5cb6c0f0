"""The named keys of message encryption: 32 bytes each, out of files that nobody else may read.

A key file holds the 32 bytes as they are, or as 64 hexadecimal digits, or as base64. Keys show themselves
nowhere, and are not pickled: a program that ships work to other processes ships the names of the files.
"""

from __future__ import annotations

import binascii
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final, NoReturn, TypeAlias

from tailrace.model import ConfigError
from tailrace.security.messages.envelope import KEY_BYTES, KEY_ID

GivenKey: TypeAlias = "bytes | bytearray | str | os.PathLike[str]"
"""The key itself, or the file that holds it."""

_KEYS_MAX: Final = 1_000
_FILE_BYTES_MAX: Final = 1_024
_RIGHTS_OF_OTHERS: Final = 0o077
_HEX: Final = re.compile(rb"[0-9A-Fa-f]{64}")
_BASE64: Final = re.compile(rb"[0-9A-Za-z+/]{43}=")


class KeyRing:
    """Keys by their id."""

    __slots__ = ("_keys",)

    def __init__(self, given: Mapping[str, GivenKey]) -> None:
        """ConfigError names the key id, the cause and the fix, and never the key."""
        if not given:
            raise ConfigError('encryption has no keys. Give at least one: keys={"k1": "k1.key"}')
        if len(given) > _KEYS_MAX:
            raise ConfigError(f"encryption has {len(given)} keys, and {_KEYS_MAX} are the most")
        self._keys = {check_key_id(key_id): _read(key_id, key) for key_id, key in given.items()}

    def get(self, key_id: str) -> bytes | None:
        """The key, if there is one of this id."""
        return self._keys.get(key_id)

    @property
    def ids(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def __repr__(self) -> str:
        return f"<KeyRing of {', '.join(self._keys)}>"

    def __reduce_ex__(self, protocol: Any) -> NoReturn:
        raise TypeError("keys cannot be pickled: hand over the names of the key files instead")


def check_key_id(key_id: str) -> str:
    """The id, which is 1 to 64 letters that a header can hold."""
    if not isinstance(key_id, str) or KEY_ID.fullmatch(key_id) is None:
        raise ConfigError(f"key id {key_id!r} is not 1 to 64 of A-Z a-z 0-9 . _ -")
    return key_id


def is_key_text(text: str) -> bool:
    """Whether a text that should name a file looks like a key: then it must not be shown."""
    data = text.strip().encode("utf-8", "replace")
    return _HEX.fullmatch(data) is not None or _BASE64.fullmatch(data) is not None


def _read(key_id: str, given: GivenKey) -> bytes:
    if isinstance(given, bytes | bytearray):
        if len(given) != KEY_BYTES:
            raise ConfigError(f"key {key_id} has {len(given)} bytes, and {KEY_BYTES} are needed")
        return bytes(given)
    if isinstance(given, str) and is_key_text(given):
        raise ConfigError(
            f"key {key_id} was given as text, where others can see it. Write it to a file with mode 0600,"
            " and name the file"
        )
    if not isinstance(given, str | os.PathLike):
        raise ConfigError(
            f"key {key_id} is {KEY_BYTES} bytes or the name of a file, not {type(given).__name__}"
        )
    return _read_file(key_id, Path(given).expanduser())


def _read_file(key_id: str, path: Path) -> bytes:
    try:
        with path.open("rb") as file:
            _check_rights(key_id, path, os.fstat(file.fileno()).st_mode)
            data = file.read(_FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the file of key {key_id}, {path}: {error.strerror}") from error
    key = _decoded(data)
    if key is None:
        raise ConfigError(
            f"the file of key {key_id}, {path}, does not hold {KEY_BYTES} bytes, raw, in hex or in base64."
            f" Make one: (umask 077; head -c {KEY_BYTES} /dev/urandom > {path})"
        )
    return key


def _check_rights(key_id: str, path: Path, mode: int) -> None:
    if os.name == "posix" and mode & _RIGHTS_OF_OTHERS:
        raise ConfigError(
            f"the file of key {key_id}, {path}, has mode {mode & 0o777:04o}: other users have rights on it."
            f" Try: chmod 600 {path}"
        )


def _decoded(data: bytes) -> bytes | None:
    if len(data) == KEY_BYTES:
        return data
    text = data.strip()
    if _HEX.fullmatch(text):
        return bytes.fromhex(text.decode())
    return binascii.a2b_base64(text) if _BASE64.fullmatch(text) else None
