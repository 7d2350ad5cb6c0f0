"""The two headers of an encrypted record, and what its tag covers (docs/protocol/message-encryption.md).

    tailrace-encryption   1;<key id>;<salt, 64 hex digits>;<nonce, 24 hex digits>[;<tag, 32 hex digits>]
    tailrace-origin       the topic that the record was written to

    value                 AES-256-GCM of the value, then its tag of 16 bytes; null stays null
    data key              HKDF-SHA-256 of the named key, with the salt, and with the key id in `info`
    additional data       version 1 | form | length of topic | topic | key

A record without a value keeps none, since compaction goes by that: its tag travels in the header. The form
in the additional data (0: a value, 1: none) keeps the tag of an empty value from proving a deletion. A record
key is 0 if it is null, else 1, its length and its bytes. Lengths are 32 bits, big-endian.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from tailrace.records import BytesLike

ENVELOPE: Final = "tailrace-encryption"
ORIGIN: Final = "tailrace-origin"

KEY_BYTES: Final = 32
SALT_BYTES: Final = 32
TAG_BYTES: Final = 16
KEY_ID: Final = re.compile(r"[A-Za-z0-9._-]{1,64}")

_VERSION: Final = 1
_INFO: Final = b"tailrace message encryption 1\0"
_ENVELOPE: Final = re.compile(
    rb"1;([A-Za-z0-9._-]{1,64});([0-9a-f]{64});([0-9a-f]{24})(?:;([0-9a-f]{32}))?", re.ASCII
)
_HAS_VERSION: Final = re.compile(rb"([0-9]{1,9});")
_LENGTH: Final = struct.Struct(">I")
_NULL_KEY: Final = b"\x00"
_KEY: Final = b"\x01"

Headers: TypeAlias = Sequence[tuple[str, BytesLike | None]]
ReadHeaders: TypeAlias = Sequence[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Envelope:
    """What the header says of how a value was encrypted."""

    key_id: str
    salt: bytes
    nonce: bytes
    tag: bytes | None
    """Of a record without a value; else the tag is behind the value."""


class BadEnvelope(ValueError):
    """The header is not one of this format; the text says why, and repeats nothing of it."""


def write_prefix(key_id: str, salt: bytes) -> bytes:
    """What all headers of one data key begin with."""
    return b"%d;%b;%b;" % (_VERSION, key_id.encode(), salt.hex().encode())


def read_envelope(data: bytes | None) -> Envelope:
    """The header's content; BadEnvelope if there is none in it."""
    found = _ENVELOPE.fullmatch(data or b"")
    if found is None:
        version = _HAS_VERSION.match(data or b"")
        if version is not None and int(version[1]) != _VERSION:
            raise BadEnvelope(f"its format {int(version[1])} is newer than this client. Update the client")
        raise BadEnvelope(f"its header {ENVELOPE} is damaged")
    key_id, salt, nonce, tag = found.groups()
    return Envelope(
        key_id.decode(),
        bytes.fromhex(salt.decode()),
        bytes.fromhex(nonce.decode()),
        None if tag is None else bytes.fromhex(tag.decode()),
    )


def additional_data(topic: str, key: BytesLike | None, *, has_value: bool) -> bytes:
    """What the tag covers beside the value: no two records that differ here have the same."""
    return topic_data(topic, has_value=has_value) + key_data(key)


def topic_data(topic: str, *, has_value: bool) -> bytes:
    """The part that records of one topic share."""
    name = topic.encode()
    return bytes((_VERSION, 0 if has_value else 1)) + _LENGTH.pack(len(name)) + name


def key_data(key: BytesLike | None) -> bytes:
    """The part of one record's key."""
    return _NULL_KEY if key is None else _KEY + _LENGTH.pack(len(key)) + key


def derive(key: bytes, *, key_id: str, salt: bytes) -> bytes:
    """The data key of a session."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=salt, info=_INFO + key_id.encode()).derive(key)
