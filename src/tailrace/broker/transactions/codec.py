"""Records of `__transaction_state` in Kafka's own formats, so that other tools can read the topic.

    key    int16 version 0 | transactional id string
    value  int16 version, then
           0   producer id int64 | epoch int16 | timeout int32 | state int8
               | array of topics, null if no partition takes part: name string | array of partitions int32
               | updated at int64 | started at int64
           1   the same with compact strings and arrays, tags after every topic, and these at the end:
               tag 0      previous producer id int64
               tag 1      next producer id int64
               tag 2      client version int16 (transaction.version)
               tag 10000  our own: before id int64 | before epoch int16
                          | ended id int64 | ended epoch int16 | ended by int8: 1 commit, 0 abort
                          an id of -1 says that there is none

A null value is a tombstone: the transactional id is forgotten. We write version 1. Unknown tags are passed
over. Keys of later versions are passed over too.
"""

from __future__ import annotations

import struct
from collections import defaultdict
from functools import lru_cache

from tailrace.broker.internal import FieldReader, FieldWriter, MalformedFields
from tailrace.broker.transactions.state import (
    NO_PRODUCER_ID,
    Ended,
    Identity,
    StoredTransaction,
    TransactionState,
)
from tailrace.model import TopicPartition
from tailrace.records import BytesLike

_KEY_VERSION = 0
_VERSION_WITH_TAGS = 1
_PREVIOUS_ID, _NEXT_ID, _CLIENT_VERSION, _OWN = 0, 1, 2, 10000
_HEAD = struct.Struct(">hqhib")
_TIMES = struct.Struct(">qq")
_NOBODY = Identity(NO_PRODUCER_ID, -1)
_CLASSIC_TOPIC_BYTES_MIN = 2 + 4
_COMPACT_TOPIC_BYTES_MIN = 1 + 1 + 1


def write_key(transactional_id: str) -> bytes:
    out = FieldWriter()
    out.int16(_KEY_VERSION)
    out.string(transactional_id)
    return bytes(out.data)


def read_key(data: BytesLike) -> str | None:
    """The transactional id that a record is about; None for a kind that we do not know."""
    fields = FieldReader(data)
    version = fields.int16()
    if version < 0:
        raise MalformedFields(f"key version {version} cannot be")
    if version > _KEY_VERSION:
        return None
    transactional_id = fields.string()
    fields.end()
    return transactional_id


def write_value(stored: StoredTransaction) -> bytes:
    out = FieldWriter()
    tags = _tags_of(stored)
    out.uvarint(len(tags))
    for tag, content in tags:
        out.uvarint(tag)
        out.uvarint(len(content))
        out.raw(content)
    head = _HEAD.pack(_VERSION_WITH_TAGS, stored.producer_id, stored.epoch, stored.timeout_ms, stored.state)
    times = _TIMES.pack(stored.updated_ms, stored.started_ms)
    return b"".join((head, _partitions_as_bytes(stored.partitions), times, out.data))


def read_value(data: BytesLike) -> StoredTransaction:
    fields = FieldReader(data)
    version = fields.int16()
    if not 0 <= version <= _VERSION_WITH_TAGS:
        raise MalformedFields(f"value version {version} is not 0 or 1")
    producer_id, epoch, timeout_ms = fields.int64(), fields.int16(), fields.int32()
    state = _read_state(fields)
    has_tags = version == _VERSION_WITH_TAGS
    partitions = _read_compact_partitions(fields) if has_tags else _read_classic_partitions(fields)
    updated_ms, started_ms = fields.int64(), fields.int64()
    tags = _read_tags(fields) if has_tags else {}
    fields.end()
    if producer_id < 0 or epoch < 0:
        raise MalformedFields(f"producer {producer_id} with epoch {epoch} cannot be")
    before, ended = _read_own(tags.get(_OWN))
    return StoredTransaction(
        producer_id=producer_id,
        epoch=epoch,
        state=state,
        timeout_ms=timeout_ms,
        updated_ms=updated_ms,
        started_ms=started_ms,
        partitions=partitions,
        previous_producer_id=_read_id(tags.get(_PREVIOUS_ID)),
        next_producer_id=_read_id(tags.get(_NEXT_ID)),
        client_version=_read_client_version(tags.get(_CLIENT_VERSION)),
        before=before,
        ended=ended,
    )


@lru_cache(maxsize=256)
def _partitions_as_bytes(partitions: frozenset[TopicPartition]) -> bytes:
    """Kept: a transaction stores them twice, and a producer's transactions often have the same ones."""
    if not partitions:
        return b"\0"  # null, as Kafka writes it
    out = FieldWriter()
    topics: dict[str, list[int]] = defaultdict(list)
    for name, index in sorted(partitions):
        topics[name].append(index)
    out.uvarint(len(topics) + 1)
    for name, indexes in topics.items():
        out.compact_string(name)
        out.uvarint(len(indexes) + 1)
        for index in indexes:
            out.int32(index)
        out.uvarint(0)
    return bytes(out.data)


def _tags_of(stored: StoredTransaction) -> list[tuple[int, bytearray]]:
    """The tags that differ from their defaults, in ascending order."""
    tags = []
    for tag, producer_id in (
        (_PREVIOUS_ID, stored.previous_producer_id),
        (_NEXT_ID, stored.next_producer_id),
    ):
        if producer_id != NO_PRODUCER_ID:
            content = FieldWriter()
            content.int64(producer_id)
            tags.append((tag, content.data))
    if stored.client_version:
        content = FieldWriter()
        content.int16(stored.client_version)
        tags.append((_CLIENT_VERSION, content.data))
    if stored.before is not None or stored.ended is not None:
        tags.append((_OWN, _write_own(stored)))
    return tags


def _write_own(stored: StoredTransaction) -> bytearray:
    out = FieldWriter()
    ended = stored.ended or Ended(_NOBODY, commit=False)
    for identity in (stored.before or _NOBODY, ended.identity):
        out.int64(identity.producer_id)
        out.int16(identity.epoch)
    out.int8(ended.commit)
    return out.data


def _read_state(fields: FieldReader) -> TransactionState:
    number = fields.int8()
    try:
        return TransactionState(number)
    except ValueError:
        raise MalformedFields(f"state {number} is not known") from None


def _read_compact_partitions(fields: FieldReader) -> frozenset[TopicPartition]:
    found = []
    for _ in range(fields.compact_count(element_bytes_min=_COMPACT_TOPIC_BYTES_MIN)):
        name = fields.compact_string()
        count = fields.compact_count(element_bytes_min=4)
        found += [TopicPartition(name, fields.int32()) for _ in range(count)]
        _read_tags(fields)
    return frozenset(found)


def _read_classic_partitions(fields: FieldReader) -> frozenset[TopicPartition]:
    found = []
    for _ in range(fields.nullable_count(element_bytes_min=_CLASSIC_TOPIC_BYTES_MIN)):
        name = fields.string()
        count = fields.count(element_bytes_min=4)
        found += [TopicPartition(name, fields.int32()) for _ in range(count)]
    return frozenset(found)


def _read_tags(fields: FieldReader) -> dict[int, FieldReader]:
    tags = {}
    for _ in range(fields.uvarint()):  # a count that lies ends at the end of the data
        tag = fields.uvarint()
        tags[tag] = FieldReader(fields.raw(fields.uvarint()))
    return tags


def _read_id(content: FieldReader | None) -> int:
    return NO_PRODUCER_ID if content is None else content.int64()


def _read_client_version(content: FieldReader | None) -> int:
    return 0 if content is None else content.int16()


def _read_own(content: FieldReader | None) -> tuple[Identity | None, Ended | None]:
    if content is None:
        return None, None
    before = Identity(content.int64(), content.int16())
    ended = Ended(Identity(content.int64(), content.int16()), commit=content.int8() != 0)
    return (
        before if before.producer_id != NO_PRODUCER_ID else None,
        ended if ended.identity.producer_id != NO_PRODUCER_ID else None,
    )
