"""A key-encryption key: wraps data keys by AES-256-GCM, and has an id that may be shown.

The id is a fingerprint: HMAC-SHA-256 under the key, so the same key has the same id everywhere and tells
nothing of itself. It is what errors, `tailrace key status` and the file of data keys name.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from hashlib import sha256

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
NONCE_BYTES = 12
WRAPPED_BYTES = KEY_BYTES + 16
_ID_DIGITS = 16


class UnwrapError(ValueError):
    """A wrapped key is not what this key wrapped: another key, another place, or damage."""


class KeyEncryptionKey:
    """A secret of 32 bytes. Its text form shows the id alone."""

    __slots__ = ("_aead", "key_id")

    def __init__(self, secret: bytes) -> None:
        if len(secret) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, not {len(secret)}")
        self._aead = AESGCM(secret)
        self.key_id = hmac.new(secret, b"tailrace key id", sha256).hexdigest()[:_ID_DIGITS]

    def __repr__(self) -> str:
        return f"<KeyEncryptionKey {self.key_id}>"

    def wrap(self, data_key: bytes, place: bytes, *, draw: Callable[[int], bytes]) -> bytes:
        """A random nonce and the encrypted key. It opens under the same `place` only."""
        nonce = draw(NONCE_BYTES)
        return nonce + self._aead.encrypt(nonce, data_key, place)

    def unwrap(self, wrapped: bytes, place: bytes) -> bytes:
        """The data key; UnwrapError if a bit of it or of its place is wrong."""
        try:
            return self._aead.decrypt(wrapped[:NONCE_BYTES], wrapped[NONCE_BYTES:], place)
        except InvalidTag:
            raise UnwrapError("the wrapped key is damaged, or was wrapped for another place") from None
