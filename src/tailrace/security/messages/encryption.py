"""`Encryption`: which keys a client encrypts and decrypts messages with, and what it refuses.

encryption = Encryption(keys={"k1": "/etc/orders/k1.key"}, active="k1")
BrokerClient(encryption=encryption)
MessageProducer(properties, encryption=encryption)
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping
from typing import Final, Literal, TypeAlias, get_args

from tailrace.model import ConfigError
from tailrace.security.messages.key_ring import GivenKey, KeyRing

Policy: TypeAlias = Literal["require", "allow"]
OnFailure: TypeAlias = Literal["fail", "dead-letter", "skip"]

DEAD_LETTER_SUFFIX: Final = ".dlq"


class Encryption:
    """The settings of message encryption. One object may be handed to many clients."""

    __slots__ = ("active", "dead_letter_topic", "keys", "mirrors", "on_failure", "origins", "policy")

    def __init__(
        self,
        keys: Mapping[str, GivenKey],
        active: str | None = None,
        *,
        policy: Policy = "require",
        on_failure: OnFailure = "fail",
        mirrors: Collection[str] = (),
        origins: Collection[str] | None = None,
        dead_letter_topic: str | None = None,
    ) -> None:
        """Keys are 32 bytes, or files that only their owner may read.

        active      the id of the key that encrypts; the only one, if there is one. A client that only reads
                    needs none.
        policy      `require` refuses records that are not encrypted, `allow` hands them out as they are.
        on_failure  what becomes of a record that is refused: `fail` raises DecryptionFailed and stays in
                    front of it, `dead-letter` moves it to a dead-letter topic, `skip` passes it; both count.
        mirrors     aliases of clusters whose topics MirrorMaker brings here: with `us`, records written to
                    `orders` are accepted in `us.orders`.
        origins     topics that dead letters, replays and mirrored records may come from; None: any.
        dead_letter_topic
                    where a consumer of Kafka's protocol puts refused records; None: the topic read and
                    `.dlq`. Subscriptions have one of their own.
        """
        self.keys = KeyRing(keys)
        self.active = _active(active, self.keys)
        self.policy = _choice("policy", policy, get_args(Policy))
        self.on_failure = _choice("on_failure", on_failure, get_args(OnFailure))
        self.mirrors = _names("mirrors", mirrors)
        self.origins = None if origins is None else _names("origins", origins)
        self.dead_letter_topic = dead_letter_topic

    def __repr__(self) -> str:
        return (
            f"Encryption(keys={', '.join(self.keys.ids)}, active={self.active}, policy={self.policy},"
            f" on_failure={self.on_failure})"
        )


def parse_keys(texts: Collection[str], *, what: str) -> dict[str, GivenKey]:
    """`k1=FILE` of command lines and options; ConfigError, which does not repeat what may be a key."""
    keys: dict[str, GivenKey] = {}
    for text in texts:
        key_id, found, path = text.strip().partition("=")
        if not found or not path:
            raise ConfigError(f"{what} is not ID=FILE, such as k1={os.sep}etc{os.sep}keys{os.sep}k1.key")
        if key_id in keys:
            raise ConfigError(f"{what} names the key {key_id} twice")
        keys[key_id] = path
    return keys


def _active(active: str | None, keys: KeyRing) -> str | None:
    if active is None:
        return keys.ids[0] if len(keys.ids) == 1 else None
    if keys.get(active) is None:
        raise ConfigError(f"the active key {active!r} is none of the keys: {', '.join(keys.ids)}")
    return active


def _choice(name: str, value: str, choices: Collection[str]) -> str:
    if value not in choices:
        raise ConfigError(f"encryption {name} = {value!r} is none of {', '.join(choices)}")
    return value


def _names(name: str, given: Collection[str]) -> frozenset[str]:
    if isinstance(given, str):
        raise ConfigError(f"encryption {name} is a list of names, not one text. Try: {name}=[{given!r}]")
    return frozenset(given)
