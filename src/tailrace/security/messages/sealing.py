"""Encrypts the records that one client session writes.

A session has a salt of its own, and so a data key of its own. Its nonce is a counter, which never says the
same number twice: after 2^32 messages, and in a process that was forked, a new salt begins. So no pair of key
and nonce is used twice, in this process or by others with the same named key.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import Iterable
from typing import Final

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tailrace.model import ConfigError
from tailrace.records import BytesLike
from tailrace.security.messages.encryption import Encryption
from tailrace.security.messages.envelope import (
    ENVELOPE,
    ORIGIN,
    SALT_BYTES,
    derive,
    key_data,
    topic_data,
    write_prefix,
)

MESSAGES_MAX: Final = 1 << 32
"""Of one data key; the counter has 96 bits."""
_OVERHEAD_BYTES: Final = 300
_TOPICS_MAX: Final = 1_024

_NONCE_BYTES: Final = 12


class Sealer:
    """One session. It is used by one thread, or one event loop, at a time."""

    __slots__ = (
        "__weakref__",
        "_cipher",
        "_count",
        "_key_id",
        "_keys",
        "_prefix",
        "_topics",
        "sealed",
        "sessions",
    )

    def __init__(self, encryption: Encryption) -> None:
        self._keys = encryption.keys
        self._key_id = encryption.active
        self._cipher: AESGCM | None = None
        self._prefix = b""
        self._count = 0
        self._topics: dict[str, tuple[bytes, bytes, bytes]] = {}
        self.sealed = 0
        """Messages encrypted so far; the number only grows."""
        self.sessions = 0
        """Data keys used so far."""
        _sealers.add(self)

    def __repr__(self) -> str:
        return f"<Sealer with {self._key_id}, {self.sealed} messages>"

    def seal(
        self, topic: str, key: BytesLike | None, value: BytesLike | None
    ) -> tuple[bytes | None, list[tuple[str, bytes]]]:
        """The value as it is to be written, and the headers to add; ConfigError without an active key."""
        cipher = self._cipher
        if cipher is None or self._count >= MESSAGES_MAX:
            cipher = self._begin()
        number = self._count
        self._count = number + 1
        self.sealed += 1
        name, with_value, without = self._topics.get(topic) or self._learn(topic)
        nonce = number.to_bytes(_NONCE_BYTES, "big")
        envelope = b"%b%024x" % (self._prefix, number)
        if value is not None:
            sealed = cipher.encrypt(nonce, value, with_value + key_data(key))
            return sealed, [(ENVELOPE, envelope), (ORIGIN, name)]
        tag = cipher.encrypt(nonce, b"", without + key_data(key))
        return None, [(ENVELOPE, b"%b;%b" % (envelope, tag.hex().encode())), (ORIGIN, name)]

    def check_key(self) -> bytes:
        """The key that encrypts; ConfigError if there is none."""
        key = None if self._key_id is None else self._keys.get(self._key_id)
        if key is None:
            raise ConfigError(
                f"encryption has the keys {', '.join(self._keys.ids)}, and active names none of them."
                " Set active to the key that encrypts"
            )
        return key

    def check_names(self, topic: str, names: Iterable[str]) -> None:
        """ConfigError if a record is encrypted already."""
        for name in names:
            if name in (ENVELOPE, ORIGIN):
                raise ConfigError(
                    f"a record for {topic} has the header {name} already. Records that are encrypted are"
                    " passed on by a client without encryption"
                )

    def overhead_bytes(self, topic: str) -> int:
        """What a sealed record may take in a batch beside the plain one, at most."""
        return _OVERHEAD_BYTES + 4 * len(topic)

    def forget_key(self) -> None:
        """Begin with a new salt at the next message."""
        self._cipher = None

    def _begin(self) -> AESGCM:
        key, key_id = self.check_key(), self._key_id or ""
        salt = os.urandom(SALT_BYTES)
        cipher = AESGCM(derive(key, key_id=key_id, salt=salt))
        self._cipher, self._count = cipher, 0
        self._prefix = write_prefix(key_id, salt)
        self.sessions += 1
        return cipher

    def _learn(self, topic: str) -> tuple[bytes, bytes, bytes]:
        if len(self._topics) >= _TOPICS_MAX:
            self._topics.clear()
        parts = topic.encode(), topic_data(topic, has_value=True), topic_data(topic, has_value=False)
        self._topics[topic] = parts
        return parts


_sealers: weakref.WeakSet[Sealer] = weakref.WeakSet()


def _forget_keys() -> None:
    """In a forked child: the parent goes on with these counters."""
    for sealer in list(_sealers):
        sealer.forget_key()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_keys)
