"""A batch to its stored form and back; `layout` draws it."""

from __future__ import annotations

import struct

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tailrace.records import (
    ENCRYPTED_BIT,
    HEADER_BYTES,
    UNCHECKED_BYTES,
    Batch,
    crc32c,
)
from tailrace.storage.encryption.layout import OVERHEAD_BYTES

BATCHES_MAX = 1 << 32
"""Batches under one key; then another one is drawn."""

_AAD = struct.Struct("<8s16sQq")
_MAGIC = b"TRBATCH1"
_PLACE = struct.Struct("<QQ")
_NONCE = struct.Struct("<Q4x")
_LENGTH, _LENGTH_AT = struct.Struct(">i"), 8
_CRC, _CRC_AT = struct.Struct(">I"), 17
_ATTRIBUTES, _ATTRIBUTES_AT = struct.Struct(">h"), 21
_BODY_AT = HEADER_BYTES + _PLACE.size
_STORED_BYTES_MIN = HEADER_BYTES + OVERHEAD_BYTES
_SIGN = 0x7FFF


class NotAuthentic(ValueError):
    """A stored batch is not what was written in this place."""


class DataKey:
    """The key of one segment, for batches of that segment alone."""

    __slots__ = ("_aead", "_prefix", "counter", "key_id")

    def __init__(self, secret: bytes, *, key_id: int, directory_id: bytes, life: int, base: int) -> None:
        self._aead = AESGCM(secret)
        self._prefix = _AAD.pack(_MAGIC, directory_id, life, base)
        self.key_id = key_id
        self.counter = (
            0  # of this object, never restored: who reads a key from the disk must not encrypt by it
        )

    def __repr__(self) -> str:
        return f"<DataKey {self.key_id} after {self.counter} batches>"

    def encrypt(self, batch: Batch) -> Batch:
        """The stored form of a batch whose offset and epoch are assigned."""
        assert self.counter < BATCHES_MAX
        place = _PLACE.pack(self.key_id, self.counter)
        nonce = _NONCE.pack(self.counter)
        self.counter += 1
        header = bytearray(batch.data[:HEADER_BYTES])
        _LENGTH.pack_into(header, _LENGTH_AT, batch.batch_length + OVERHEAD_BYTES)
        _ATTRIBUTES.pack_into(header, _ATTRIBUTES_AT, batch.attributes | ENCRYPTED_BIT)
        sealed = self._aead.encrypt(nonce, batch.data[HEADER_BYTES:], self._aad(header, place))
        data = bytearray().join((header, place, sealed))
        view = memoryview(data)
        _CRC.pack_into(data, _CRC_AT, crc32c(view[UNCHECKED_BYTES:]))
        return Batch(view)

    def decrypt(self, stored: Batch) -> Batch:
        """The batch as it was produced; NotAuthentic if a bit of it or of its place is wrong."""
        header = bytearray(stored.data[:HEADER_BYTES])
        place = stored.data[HEADER_BYTES:_BODY_AT]
        _, counter = _PLACE.unpack(place)
        try:
            records = self._aead.decrypt(
                _NONCE.pack(counter), stored.data[_BODY_AT:], self._aad(header, place)
            )
        except InvalidTag:
            raise NotAuthentic(
                f"the batch at offset {stored.base_offset} is not what key {self.key_id} encrypted here"
            ) from None
        _LENGTH.pack_into(header, _LENGTH_AT, stored.batch_length - OVERHEAD_BYTES)
        _ATTRIBUTES.pack_into(header, _ATTRIBUTES_AT, stored.attributes & _SIGN)
        data = bytearray().join((header, records))
        view = memoryview(data)
        _CRC.pack_into(data, _CRC_AT, crc32c(view[UNCHECKED_BYTES:]))
        return Batch(view)

    def _aad(self, header: bytearray, place: bytes | memoryview) -> bytes:
        return b"".join((self._prefix, header[:_CRC_AT], header[UNCHECKED_BYTES:], place))


def key_id_of(stored: Batch) -> int:
    """The key that a stored batch names; NotAuthentic if it is too short to be one."""
    if stored.size < _STORED_BYTES_MIN or len(stored.data) < _STORED_BYTES_MIN:
        raise NotAuthentic(f"the batch at offset {stored.base_offset} is too short for a stored one")
    key_id: int = _PLACE.unpack_from(stored.data, HEADER_BYTES)[0]
    return key_id


def read_place(stored: Batch) -> tuple[int, int]:
    """Key id and counter of a stored batch."""
    key_id, counter = _PLACE.unpack_from(stored.data, HEADER_BYTES)
    return key_id, counter
