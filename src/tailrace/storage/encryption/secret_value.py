"""Secrets in the metadata: a JSON text, encrypted under a data key of the directory, and JSON again.

    {"encrypted": "<key id>:<Base64 of nonce, ciphertext and tag>"}

AES-256-GCM with a random nonce; the AAD is "TRVALUE1", the directory id and the name of the value. Values are
few and change rarely, so random nonces of 96 bits do for one key. A value that is plain passes as it is.
"""

from __future__ import annotations

import base64
import json
import os
from typing import Final

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tailrace.model import StorageError
from tailrace.storage.encryption.keyring import Keyring
from tailrace.storage.encryption.stored_batch import NotAuthentic

_FIELD: Final = "encrypted"
_NONCE_BYTES: Final = 12
_MAGIC: Final = b"TRVALUE1"


class SecretValues:
    """Encrypts and decrypts values by their names. `open` it once the keyring is loaded."""

    def __init__(self, ring: Keyring, key_id: int) -> None:
        self._ring = ring
        self._key_id = key_id
        self.encrypts = ring.encrypts

    @classmethod
    async def open(cls, ring: Keyring) -> SecretValues:
        """With a key that is durable."""
        key_id = ring.value_key()
        await ring.save()
        return cls(ring, key_id)

    def encrypt(self, name: str, text: str) -> str:
        """The value as it is stored."""
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + self._aead(self._key_id).encrypt(nonce, text.encode(), self._place(name))
        return json.dumps({_FIELD: f"{self._key_id}:{base64.b64encode(sealed).decode()}"})

    def decrypt(self, name: str, text: str) -> str:
        """The value; StorageError if it is not what was encrypted under this name."""
        if not is_secret(text):
            return text
        try:
            key_id, _, sealed = str(json.loads(text)[_FIELD]).partition(":")
            data = base64.b64decode(sealed, validate=True)
            aead = self._aead(int(key_id))
            return aead.decrypt(data[:_NONCE_BYTES], data[_NONCE_BYTES:], self._place(name)).decode()
        except (InvalidTag, NotAuthentic, ValueError):
            raise StorageError(
                "decrypt",
                name,
                "it is not what was encrypted under this name",
                hint="Restore the metadata of a backup",
            ) from None

    def _aead(self, key_id: int) -> AESGCM:
        return AESGCM(self._ring.value_secret(key_id))

    def _place(self, name: str) -> bytes:
        return _MAGIC + self._ring.directory_id + name.encode()


def is_secret(text: str) -> bool:
    """Whether this is a value that was encrypted."""
    return text.startswith(f'{{"{_FIELD}":')
