"""Records of the delayed topic.

A message is stored with its own value and headers, so that only what surrounds it needs a form of ours. Its
key is its own offset: the leader knows the next offset before it appends.

    key     'M' | offset i64                          a message that waits
            'I' | topic id 16 bytes | partition i32   an intent: messages are about to be moved to this target

    of a message: value as published, empty for null; headers as delivered, and behind them one of ours:
            '_delayed'  version u8 | flags u8 (1: key is null, 2: value is null) | due i64 | topic id 16 bytes
                        | partition i32 (-1: chosen when due) | key
    of an intent: version u8 | end offset of the target i64 | count i32 | offset i64 of each message

A null value is a tombstone: the message was moved or dropped, the intent carried out.
"""

from __future__ import annotations

import struct
from array import array
from collections.abc import Iterable, Sequence
from typing import NamedTuple
from uuid import UUID

from tailrace.broker.internal import FieldReader, FieldWriter, MalformedFields
from tailrace.broker.publishing import NewMessage
from tailrace.model import PartitionId
from tailrace.records import NewRecord, Record

CHOSEN_WHEN_DUE = -1

_MESSAGE = b"M"
_INTENT = b"I"
_VERSION = 1
_KEY_IS_NULL = 1
_VALUE_IS_NULL = 2
_HEADER = "_delayed"
_MESSAGE_KEY = struct.Struct(">cq")
_INTENT_KEY = struct.Struct(">c16si")
_ENVELOPE = struct.Struct(">BBq16si")


class StoredMessage(NamedTuple):
    """A message that waits."""

    due_ms: int
    target: PartitionId  # its partition may be CHOSEN_WHEN_DUE
    message: NewMessage


class Intent(NamedTuple):
    """Messages that are being moved: those that arrived lie at or after `end_offset` of the target."""

    end_offset: int
    offsets: Sequence[int]  # in the delayed topic


def write_message(offset: int, stored: StoredMessage, *, time_ms: int) -> NewRecord:
    key, value, headers = stored.message
    flags = (_KEY_IS_NULL if key is None else 0) | (_VALUE_IS_NULL if value is None else 0)
    target = stored.target
    envelope = _ENVELOPE.pack(_VERSION, flags, stored.due_ms, target.topic_id.bytes, target.partition)
    return time_ms, message_key(offset), value or b"", (*headers, (_HEADER, envelope + (key or b"")))


def read_message(record: Record) -> StoredMessage:
    """What `write_message` wrote; MalformedFields for anything else."""
    if record.key != message_key(record.offset):
        raise MalformedFields(f"key {record.key!r} is not that of a message at offset {record.offset}")
    name, envelope = record.headers[-1] if record.headers else ("", None)
    if name != _HEADER or envelope is None or len(envelope) < _ENVELOPE.size:
        raise MalformedFields("a delayed message without its envelope")
    version, flags, due_ms, topic_id, partition = _ENVELOPE.unpack_from(envelope)
    if version != _VERSION or flags & ~(_KEY_IS_NULL | _VALUE_IS_NULL) or due_ms < 0:
        raise MalformedFields(f"an envelope of version {version} with flags {flags}, due {due_ms}")
    key = None if flags & _KEY_IS_NULL else envelope[_ENVELOPE.size :]
    value = None if flags & _VALUE_IS_NULL else record.value
    target = PartitionId(UUID(bytes=topic_id), partition)
    return StoredMessage(due_ms, target, NewMessage(key, value, record.headers[:-1]))


def message_key(offset: int) -> bytes:
    return _MESSAGE_KEY.pack(_MESSAGE, offset)


def intent_key(target: PartitionId) -> bytes:
    return _INTENT_KEY.pack(_INTENT, target.topic_id.bytes, target.partition)


def read_key(key: bytes | None) -> int | PartitionId | None:
    """The offset of a message, or the target of an intent; None for a kind that we do not know."""
    if not key:
        raise MalformedFields("a record without a key")
    if key[:1] == _MESSAGE and len(key) == _MESSAGE_KEY.size:
        return int(_MESSAGE_KEY.unpack(key)[1])
    if key[:1] == _INTENT and len(key) == _INTENT_KEY.size:
        _, topic_id, partition = _INTENT_KEY.unpack(key)
        return PartitionId(UUID(bytes=topic_id), partition)
    if key[:1] in (_MESSAGE, _INTENT):
        raise MalformedFields(f"a key of {len(key)} bytes")
    return None


def write_intent(target: PartitionId, intent: Intent, *, time_ms: int) -> NewRecord:
    out = FieldWriter()
    out.int8(_VERSION)
    out.int64(intent.end_offset)
    out.int32(len(intent.offsets))
    for offset in intent.offsets:
        out.int64(offset)
    return time_ms, intent_key(target), bytes(out.data), ()


def read_intent(data: bytes) -> Intent:
    fields = FieldReader(data)
    version = fields.int8()
    if version != _VERSION:
        raise MalformedFields(f"an intent of version {version}")
    end_offset = fields.int64()
    count = fields.count(element_bytes_min=8)
    intent = Intent(end_offset, array("q", [fields.int64() for _ in range(count)]))
    fields.end()
    return intent


def write_tombstones(keys: Iterable[bytes], *, time_ms: int) -> list[NewRecord]:
    return [(time_ms, key, None, ()) for key in keys]
