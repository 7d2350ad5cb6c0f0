"""`--encryption-key k1=FILE`: messages that are encrypted and decrypted here. A key is never an argument."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import rich_click as click

if TYPE_CHECKING:
    from tailrace.security.messages import Encryption


def encryption_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Give a command the options of message encryption; it receives an `Encryption` or None."""

    @functools.wraps(command)
    def encrypting(
        *args: Any,
        encryption_keys: tuple[str, ...],
        encryption_active: str | None,
        encryption_policy: str | None,
        **options: Any,
    ) -> Any:
        encryption = _read(encryption_keys, encryption_active, encryption_policy)
        return command(*args, encryption=encryption, **options)

    return _KEYS(_ACTIVE(_POLICY(encrypting)))


def _read(keys: tuple[str, ...], active: str | None, policy: str | None) -> Encryption | None:
    if not keys:
        if active is not None or policy is not None:
            raise click.UsageError("--encryption-active and --encryption-policy need --encryption-key.")
        return None
    from tailrace.security.messages import Encryption, parse_keys

    given = parse_keys(keys, what="--encryption-key")
    return Encryption(given, active, policy="allow" if policy == "allow" else "require")


_KEYS = click.option(
    "--encryption-key",
    "encryption_keys",
    multiple=True,
    metavar="ID=FILE",
    help="Encrypt and decrypt messages with the key in this file. May be repeated.",
)
_ACTIVE = click.option(
    "--encryption-active",
    metavar="ID",
    help="Which of several keys encrypts.",
)
_POLICY = click.option(
    "--encryption-policy",
    type=click.Choice(["require", "allow"]),
    help="With a key: refuse messages that are not encrypted (require, the default), or show them.",
)
