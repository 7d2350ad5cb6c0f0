"""Records of `__consumer_offsets` in Kafka's own formats, so that other tools can read the topic.

    key    int16 version, then
           0, 1   group string | topic string | partition int32          a committed offset
           2      group string                                            a group
    value of an offset: int16 version, then
           0, 2   offset int64 | metadata string | committed at int64
           1      offset int64 | metadata string | committed at int64 | expires at int64
           3      offset int64 | leader epoch int32 | metadata string | committed at int64
    value of a group: int16 version, then
           protocol type string | generation int32 | protocol nullable string | leader nullable string
           | state since int64 (2+) | array of members:
             member id string | instance id nullable string (3+) | client id string | client host string
             | rebalance timeout int32 (1+) | session timeout int32 | subscription bytes | assignment bytes

A null value is a tombstone: the offset or the group is gone. We write keys 1 and 2 and values 3; an offset
whose client chose how long to keep it is written as version 1, the only one with a place for that. Keys of
later versions belong to kinds of groups that we do not have, and are passed over.
"""

from __future__ import annotations

from typing import NamedTuple

from tailrace.broker.groups.stored import StoredGroup, StoredMember, StoredOffset
from tailrace.broker.internal import FieldReader, FieldWriter, MalformedFields
from tailrace.model import TopicPartition
from tailrace.records import BytesLike

_OFFSET_KEYS = (0, 1)
_GROUP_KEY = 2
_VALUE_MAX = 3
_MEMBER_BYTES_MIN = 2 + 2 + 2 + 4 + 4 + 4  # three empty strings, a timeout, two empty byte fields


class OffsetKey(NamedTuple):
    """Which committed offset a record is about."""

    group_id: str
    partition: TopicPartition


class GroupKey(NamedTuple):
    """Which group a record is about."""

    group_id: str


def write_offset_key(group_id: str, partition: TopicPartition) -> bytes:
    out = FieldWriter()
    out.int16(_OFFSET_KEYS[-1])
    out.string(group_id)
    out.string(partition.topic)
    out.int32(partition.partition)
    return bytes(out.data)


def write_group_key(group_id: str) -> bytes:
    out = FieldWriter()
    out.int16(_GROUP_KEY)
    out.string(group_id)
    return bytes(out.data)


def read_key(data: BytesLike) -> OffsetKey | GroupKey | None:
    """What a record is about; None for a kind that we do not know."""
    fields = FieldReader(data)
    version = fields.int16()
    if version in _OFFSET_KEYS:
        offset_key = OffsetKey(fields.string(), TopicPartition(fields.string(), fields.int32()))
        fields.end()
        return offset_key
    if version == _GROUP_KEY:
        group_key = GroupKey(fields.string())
        fields.end()
        return group_key
    if version < 0:
        raise MalformedFields(f"key version {version} cannot be")
    return None


def write_offset(stored: StoredOffset) -> bytes:
    out = FieldWriter()
    out.int16(3 if stored.expires_ms is None else 1)
    out.int64(stored.offset)
    if stored.expires_ms is None:
        out.int32(stored.leader_epoch)
    out.string(stored.metadata)
    out.int64(stored.committed_ms)
    if stored.expires_ms is not None:
        out.int64(stored.expires_ms)
    return bytes(out.data)


def read_offset(data: BytesLike) -> StoredOffset:
    fields = FieldReader(data)
    version = _read_value_version(fields)
    offset = fields.int64()
    leader_epoch = fields.int32() if version == 3 else -1
    metadata, committed_ms = fields.string(), fields.int64()
    expires_ms = fields.int64() if version == 1 else -1
    fields.end()
    return StoredOffset(
        offset=offset,
        leader_epoch=leader_epoch,
        metadata=metadata,
        committed_ms=committed_ms,
        expires_ms=expires_ms if expires_ms >= 0 else None,
    )


def write_group(stored: StoredGroup) -> bytes:
    out = FieldWriter()
    out.int16(_VALUE_MAX)
    out.string(stored.protocol_type)
    out.int32(stored.generation_id)
    out.string(stored.protocol_name)
    out.string(stored.leader)
    out.int64(stored.state_since_ms)
    out.int32(len(stored.members))
    for member in stored.members:
        out.string(member.member_id)
        out.string(member.group_instance_id)
        out.string(member.client_id)
        out.string(member.client_host)
        out.int32(member.rebalance_timeout_ms)
        out.int32(member.session_timeout_ms)
        out.bytes(member.subscription)
        out.bytes(member.assignment)
    return bytes(out.data)


def read_group(data: BytesLike) -> StoredGroup:
    fields = FieldReader(data)
    version = _read_value_version(fields)
    protocol_type, generation_id = fields.string(), fields.int32()
    protocol_name, leader = fields.nullable_string(), fields.nullable_string()
    state_since_ms = fields.int64() if version >= 2 else -1
    count = fields.count(element_bytes_min=_MEMBER_BYTES_MIN)
    members = tuple(_read_member(fields, version) for _ in range(count))
    fields.end()
    if members and (protocol_name is None or leader not in {member.member_id for member in members}):
        raise MalformedFields(f"a group of {count} members has protocol {protocol_name}, leader {leader}")
    if generation_id < 0:
        raise MalformedFields(f"generation {generation_id} cannot be")
    return StoredGroup(
        protocol_type=protocol_type,
        generation_id=generation_id,
        protocol_name=protocol_name,
        leader=leader,
        state_since_ms=state_since_ms,
        members=members,
    )


def _read_member(fields: FieldReader, version: int) -> StoredMember:
    member_id = fields.string()
    group_instance_id = fields.nullable_string() if version >= 3 else None
    client_id, client_host = fields.string(), fields.string()
    rebalance_timeout_ms = fields.int32() if version >= 1 else None
    session_timeout_ms = fields.int32()
    subscription, assignment = fields.nullable_bytes() or b"", fields.nullable_bytes() or b""
    if session_timeout_ms < 0:
        raise MalformedFields(f"session timeout {session_timeout_ms} cannot be")
    return StoredMember(
        member_id=member_id,
        group_instance_id=group_instance_id,
        client_id=client_id,
        client_host=client_host,
        rebalance_timeout_ms=session_timeout_ms if rebalance_timeout_ms is None else rebalance_timeout_ms,
        session_timeout_ms=session_timeout_ms,
        subscription=subscription,
        assignment=assignment,
    )


def _read_value_version(fields: FieldReader) -> int:
    version = fields.int16()
    if not 0 <= version <= _VALUE_MAX:
        raise MalformedFields(f"value version {version} is not one of 0 to {_VALUE_MAX}")
    return version
