"""Decrypts the records that one client reads, and refuses those that their key's holder did not write so.

Data keys that were derived are kept, the most recently used ones: a reader meets many writers' sessions.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tailrace.security.decryption import DecryptionFailed, Failure
from tailrace.security.messages.encryption import Encryption
from tailrace.security.messages.envelope import (
    ENVELOPE,
    ORIGIN,
    TAG_BYTES,
    BadEnvelope,
    Envelope,
    ReadHeaders,
    additional_data,
    derive,
    read_envelope,
)
from tailrace.security.messages.origin import is_accepted

DERIVED_MAX: Final = 1_024

Content: TypeAlias = "tuple[bytes | None, tuple[tuple[str, bytes | None], ...]]"
"""Value and headers of a record."""


@dataclass(slots=True)
class ReadCounts:
    """What one client read; the numbers only grow."""

    opened: int = 0
    plain: int = 0  # not encrypted, and handed out by the policy `allow`
    failed: Counter[Failure] = field(default_factory=Counter)
    skipped: int = 0  # of the failed: passed over,
    dead_letters: int = 0  # or put into a dead-letter topic, or given back to the broker for that


class Opener:
    """Of one client. It is used by one thread, or one event loop, at a time."""

    __slots__ = ("_ciphers", "counts", "encryption")

    def __init__(self, encryption: Encryption) -> None:
        self.encryption = encryption
        self.counts = ReadCounts()
        self._ciphers: OrderedDict[tuple[str, bytes], AESGCM] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Opener with {', '.join(self.encryption.keys.ids)}, {self.counts.opened} messages>"

    def open(self, topic: str, key: bytes | None, value: bytes | None, headers: ReadHeaders) -> Content:
        """Value and headers as they were before they were sealed; DecryptionFailed, which is counted."""
        try:
            return self._open(topic, key, value, headers)
        except DecryptionFailed as error:
            self.counts.failed[error.failure] += 1
            raise

    def _open(self, topic: str, key: bytes | None, value: bytes | None, headers: ReadHeaders) -> Content:
        ours = [header for header in headers if header[0] in (ENVELOPE, ORIGIN)]
        if not ours:
            return self._take_plain(value, headers)
        envelope, origin = _read(ours)
        if not is_accepted(origin, topic=topic, headers=headers, encryption=self.encryption):
            raise _refused_origin(origin, topic)
        opened = self._verified(envelope, value, additional_data(origin, key, has_value=value is not None))
        self.counts.opened += 1
        kept = tuple(header for header in headers if header[0] not in (ENVELOPE, ORIGIN))
        return (None if value is None else opened), kept

    def _take_plain(self, value: bytes | None, headers: ReadHeaders) -> Content:
        if self.encryption.policy == "allow":
            self.counts.plain += 1
            return value, tuple(headers)
        raise DecryptionFailed(
            'it is not encrypted, and encryption is required here. Set policy="allow" to read such records'
            " too, as while a topic changes over",
            failure=Failure.PLAIN,
        )

    def _verified(self, envelope: Envelope, value: bytes | None, data: bytes) -> bytes:
        content = envelope.tag if value is None else value
        if content is None or (envelope.tag is None) == (value is None) or len(content) < TAG_BYTES:
            raise DecryptionFailed("its tag is missing: the value was changed", failure=Failure.UNVERIFIED)
        cipher = self._cipher(envelope.key_id, envelope.salt)
        try:
            return cipher.decrypt(envelope.nonce, content, data)
        except InvalidTag:
            raise DecryptionFailed(
                f"it does not verify with key {envelope.key_id}: value, key, origin or header were changed,"
                f" or {envelope.key_id} is another key here",
                failure=Failure.UNVERIFIED,
            ) from None

    def _cipher(self, key_id: str, salt: bytes) -> AESGCM:
        known = self._ciphers.get((key_id, salt))
        if known is not None:
            self._ciphers.move_to_end((key_id, salt))
            return known
        key = self.encryption.keys.get(key_id)
        if key is None:
            raise DecryptionFailed(
                f"it is encrypted with key {key_id}, and the keys here are"
                f" {', '.join(self.encryption.keys.ids)}. Add {key_id} to the keys",
                failure=Failure.UNKNOWN_KEY,
            )
        cipher = AESGCM(derive(key, key_id=key_id, salt=salt))
        self._ciphers[key_id, salt] = cipher
        if len(self._ciphers) > DERIVED_MAX:
            self._ciphers.popitem(last=False)
        return cipher


def _read(ours: ReadHeaders) -> tuple[Envelope, str]:
    """What the two headers say; DecryptionFailed unless there is one of each."""
    found = dict(ours)
    if len(ours) != 2 or len(found) != 2:
        raise _malformed(f"it needs one header {ENVELOPE} and one {ORIGIN}")
    try:
        return read_envelope(found[ENVELOPE]), (found[ORIGIN] or b"").decode()
    except UnicodeDecodeError:
        raise _malformed(f"its header {ORIGIN} is not UTF-8") from None
    except BadEnvelope as error:
        raise _malformed(str(error)) from None


def _malformed(reason: str) -> DecryptionFailed:
    return DecryptionFailed(reason, failure=Failure.MALFORMED)


def _refused_origin(origin: str, topic: str) -> DecryptionFailed:
    return DecryptionFailed(
        f"it was written to topic {origin!r}, it is read from {topic!r}, and no header of a dead letter, a"
        " replay or a mirror names that. Set mirrors to the alias if MirrorMaker brought it",
        failure=Failure.ORIGIN,
    )
