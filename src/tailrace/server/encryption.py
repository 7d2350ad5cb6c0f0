"""[encryption]: what a node encrypts its data directory with.

    [encryption]
    key = { file = "/etc/tailrace/key" }      or { env = "NAME" } or { command = "kms-client decrypt ..." }
    previous_key = { file = "..." }           while a rotation is under way
    enabled = true                            false: new data is plain, what was encrypted stays readable

Sources are read when a node opens its storage, once: a variable is gone from the environment after that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from tailrace.model import ConfigError
from tailrace.server.kind import Checked, Truth

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.server.kind import Value
    from tailrace.server.setting import Setting
    from tailrace.storage.encryption.config import Encryption

TABLE = "encryption"
_KINDS: tuple[Literal["file", "env", "command"], ...] = ("file", "env", "command")
_MEANINGS = {
    "file": "A file with 32 random bytes, raw or as hexadecimal digits or Base64; others must not read it.",
    "env": "The name of an environment variable that holds the key; no process that is started gets it.",
    "command": "A command that prints the key, such as the client of a KMS; run without a shell.",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class EncryptionConfig:
    """Where the keys are; no key is in it."""

    key: tuple[Literal["file", "env", "command"], str] | None = None
    previous_key: tuple[Literal["file", "env", "command"], str] | None = None
    enabled: bool = True

    def __post_init__(self) -> None:
        if self.previous_key is not None and self.key is None:
            raise ConfigError("encryption.previous_key has no effect without encryption.key")

    def read(self) -> Encryption | None:
        """The keys themselves; None if nothing is encrypted. ConfigError if one cannot be had."""
        if self.key is None:
            return None
        from tailrace.security.keys import KeySource  # and with it cryptography
        from tailrace.storage.encryption.config import Encryption

        places = [each for each in (self.key, self.previous_key) if each is not None]
        return Encryption(keys=tuple(KeySource(*each).read() for each in places), enabled=self.enabled)


def encryption_settings() -> list[Setting]:
    """The rows of the table of settings."""
    from tailrace.server.setting import Setting

    rows = [
        Setting(
            key=f"{TABLE}.{name}.{kind}",
            kind=Checked(f"{kind}, or nothing", str, "a text"),
            default="",
            doc=f"{prefix}{_MEANINGS[kind]}",
        )
        for name, prefix in (
            ("key", ""),
            (
                "previous_key",
                "While a rotation is under way: the key that the directory may still be under. ",
            ),
        )
        for kind in _KINDS
    ]
    doc = "Whether new data is encrypted, if there is a key. Else it is plain, and the rest stays readable."
    return [*rows, Setting(key=f"{TABLE}.enabled", kind=Truth(), default=True, doc=doc)]


def read_encryption(values: Mapping[str, Value]) -> EncryptionConfig | None:
    """The table, by its keys; None if it names no key. ConfigError if a key has two places."""
    key, previous_key = _place(values, "key"), _place(values, "previous_key")
    if key is None and previous_key is None:
        return None
    enabled = bool(values[f"{TABLE}.enabled"])
    return EncryptionConfig(key=key, previous_key=previous_key, enabled=enabled)


def _place(values: Mapping[str, Value], name: str) -> tuple[Literal["file", "env", "command"], str] | None:
    given = [(kind, str(values[f"{TABLE}.{name}.{kind}"])) for kind in _KINDS]
    given = [each for each in given if each[1]]
    if len(given) > 1:
        raise ConfigError(f"{TABLE}.{name} has {len(given)} places: set one of file, env and command")
    return given[0] if given else None
