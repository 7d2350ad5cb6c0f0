"""KEYS and KEYS.copy: the wrapped data keys of a directory. Little-endian.

    header  0  8s   "TRKEYS01"                   record  0  u64  key id
            8  16s  directory id                         8  u8   purpose: 1 segment, 2 values of metadata
           24  16s  id of the key-encryption key         9       3 bytes zero
           40  u64  next key id                         12  u64  life       (values: 0)
           48  u32  CRC32C of bytes 0-47                20  i64  base offset of the segment (0)
           52       records of 92 bytes                 28  12s  nonce
                                                        40  48s  the key under AES-256-GCM
                                                        88  u32  CRC32C of bytes 0-87

The AAD of a wrapped key is "TRKEYAAD", directory id, and bytes 0-27 of its record. Records are appended; one
whose CRC does not hold was never used if it is the last one, and is looked for in the other file.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from tailrace.records import crc32c

KEYS = "KEYS"
KEYS_COPY = "KEYS.copy"
SEGMENT, VALUES = 1, 2

_MAGIC = b"TRKEYS01"
_AAD_MAGIC = b"TRKEYAAD"
_HEADER = struct.Struct("<8s16s16sQ")
_CRC = struct.Struct("<I")
_PLACE = struct.Struct("<QB3xQq")
_WRAPPED_BYTES = 60

HEADER_BYTES = _HEADER.size + _CRC.size
RECORD_BYTES = _PLACE.size + _WRAPPED_BYTES + _CRC.size


@dataclass(frozen=True, slots=True)
class KeysHeader:
    """What the file says of itself."""

    directory_id: bytes
    wrapped_by: str  # id of the key-encryption key
    next_id: int


@dataclass(frozen=True, slots=True)
class WrappedKey:
    """One data key as it is kept."""

    key_id: int
    purpose: int
    life: int
    base: int
    wrapped: bytes

    def place(self, directory_id: bytes) -> bytes:
        """What the wrapping is bound to."""
        return _AAD_MAGIC + directory_id + _PLACE.pack(self.key_id, self.purpose, self.life, self.base)


@dataclass(slots=True)
class KeysFile:
    """A file that was read."""

    header: KeysHeader
    records: dict[int, WrappedKey]
    slots: int  # records that have a place in it, readable or not
    unreadable: int = 0


def write_header(header: KeysHeader) -> bytes:
    data = _HEADER.pack(_MAGIC, header.directory_id, header.wrapped_by.encode(), header.next_id)
    return data + _CRC.pack(crc32c(data))


def write_record(key: WrappedKey) -> bytes:
    data = _PLACE.pack(key.key_id, key.purpose, key.life, key.base) + key.wrapped
    return data + _CRC.pack(crc32c(data))


def read_keys(data: bytes) -> KeysFile | None:
    """None if the header is not whole: then nothing in the file can be told."""
    if len(data) < HEADER_BYTES:
        return None
    magic, directory_id, wrapped_by, next_id = _HEADER.unpack_from(data)
    (crc,) = _CRC.unpack_from(data, _HEADER.size)
    if magic != _MAGIC or crc != crc32c(data[: _HEADER.size]):
        return None
    found = KeysFile(KeysHeader(directory_id, wrapped_by.decode("ascii", "replace"), next_id), {}, 0)
    for place in range(HEADER_BYTES, len(data) - RECORD_BYTES + 1, RECORD_BYTES):
        found.slots += 1
        record = _read_record(data[place : place + RECORD_BYTES])
        if record is None:
            found.unreadable += 1
        else:
            found.records[record.key_id] = record
    return found


def _read_record(data: bytes) -> WrappedKey | None:
    (crc,) = _CRC.unpack_from(data, RECORD_BYTES - _CRC.size)
    if crc != crc32c(data[: -_CRC.size]) or not any(data):
        return None
    key_id, purpose, life, base = _PLACE.unpack_from(data)
    return WrappedKey(key_id, purpose, life, base, data[_PLACE.size : -_CRC.size])
