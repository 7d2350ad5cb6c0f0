"""Bytes of the records in `__tailrace_cursors`. Field types: `internal.fields`.

    key    definition    int8 1 | subscription string
           cursor        int8 2 | subscription string | topic id 16 | partition int32 | slot int8
           acks          int8 3 | subscription string | topic id 16 | partition int32
                         | producer id int64 | producer epoch int16
    value  definition    int8 format | topic string | topic id 16 | created ms int64
                         | count int32, settings: name string, value string
           slot 0        int8 format | version varint | epoch varint | limit + 1 varint, 0: none | progress
           slots 1-15    int8 format | version varint | progress
           acks          int8 format | epoch varint | count varint, ranges: gap varint, length varint
    progress             position varint
                         | count varint, ranges: gap varint, length varint
                         | count varint, failures: gap varint, times varint

A gap counts from the position to the first start, then from each end to the next start; with failures, from
the position to the first offset and then from offset to offset; with acks, from 0 to the first start. So the
numbers are small whatever the offsets: one message acknowledged in order is about 10 bytes of value, and 24
of key beside the name.

Slot 0 holds a snapshot, the others deltas (`journal` says when). What lies below the position is done and is
not written. Acks are in batches of a transaction: it acknowledges these messages if it commits. A null value
is a tombstone. A key of a kind that we do not know belongs to a later release and is passed over; a new
layout of a key is a new kind, a new layout of a value is a new format.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple
from uuid import UUID

from tailrace.broker.internal import FieldReader, FieldWriter, MalformedFields
from tailrace.broker.subscriptions.stored import (
    AcksKey,
    CursorDelta,
    CursorKey,
    CursorSnapshot,
    StoredAcks,
    StoredSubscription,
)
from tailrace.records import BytesLike
from tailrace.records.twin import write_varint

SLOTS = 16
_DEFINITION_KEY = 1
_CURSOR_KEY = 2
_ACKS_KEY = 3
_FORMAT = 1
_UUID_BYTES = 16
_SETTING_BYTES_MIN = 2 + 2  # two empty strings
_PAIR_BYTES_MIN = 1 + 1  # two varints
_OFFSET_MAX = (1 << 63) - 1
_INT32_MAX = (1 << 31) - 1
_ACKS_MAX = 1_000_000
"""Messages in one record of acknowledgements: far more than a transaction may have."""


class DefinitionKey(NamedTuple):
    """Which subscription a record defines."""

    subscription: str


class SlotKey(NamedTuple):
    """Which cursor a record is about, and in which of its slots it lies."""

    cursor: CursorKey
    slot: int


# Keys


def write_definition_key(subscription: str) -> bytes:
    out = FieldWriter()
    out.int8(_DEFINITION_KEY)
    out.string(subscription)
    return bytes(out.data)


def write_cursor_key(key: CursorKey) -> bytes:
    """The key of a cursor's records, but for the slot: one more byte."""
    out = FieldWriter()
    out.int8(_CURSOR_KEY)
    _write_cursor(out, key)
    return bytes(out.data)


def write_acks_key(key: AcksKey) -> bytes:
    out = FieldWriter()
    out.int8(_ACKS_KEY)
    _write_cursor(out, key.cursor)
    out.int64(key.producer_id)
    out.int16(key.producer_epoch)
    return bytes(out.data)


def read_key(data: BytesLike) -> DefinitionKey | SlotKey | AcksKey | None:
    """What a record is about; None for a kind that we do not know."""
    fields = FieldReader(data)
    kind = fields.int8()
    if kind == _DEFINITION_KEY:
        definition = DefinitionKey(fields.string())
        fields.end()
        return definition
    if kind == _CURSOR_KEY:
        cursor = _read_cursor(fields)
        slot = fields.int8()
        fields.end()
        if not 0 <= slot < SLOTS:
            raise MalformedFields(f"slot {slot} cannot be")
        return SlotKey(cursor, slot)
    if kind == _ACKS_KEY:
        acks = AcksKey(_read_cursor(fields), fields.int64(), fields.int16())
        fields.end()
        return acks
    if kind <= 0:
        raise MalformedFields(f"key kind {kind} cannot be")
    return None


def _write_cursor(out: FieldWriter, key: CursorKey) -> None:
    out.string(key.subscription)
    out.raw(key.topic_id.bytes)
    out.int32(key.partition)


def _read_cursor(fields: FieldReader) -> CursorKey:
    cursor = CursorKey(fields.string(), UUID(bytes=fields.raw(_UUID_BYTES)), fields.int32())
    if cursor.partition < 0:
        raise MalformedFields(f"partition {cursor.partition} cannot be")
    return cursor


# Definitions


def write_definition(stored: StoredSubscription) -> bytes:
    out = FieldWriter()
    out.int8(_FORMAT)
    out.string(stored.topic)
    out.raw(stored.topic_id.bytes)
    out.int64(stored.created_ms)
    out.int32(len(stored.settings))
    for name, value in stored.settings.items():
        out.string(name)
        out.string(value)
    return bytes(out.data)


def read_definition(name: str, data: BytesLike) -> StoredSubscription:
    fields = _open(data)
    topic, topic_id, created_ms = fields.string(), UUID(bytes=fields.raw(_UUID_BYTES)), fields.int64()
    count = fields.count(element_bytes_min=_SETTING_BYTES_MIN)
    pairs = [(fields.string(), fields.string()) for _ in range(count)]
    fields.end()
    settings = dict(pairs)
    if len(settings) != count:
        raise MalformedFields("a setting is there twice")
    return StoredSubscription(
        name=name, topic=topic, topic_id=topic_id, settings=settings, created_ms=created_ms
    )


# Cursors


def write_snapshot(snapshot: CursorSnapshot) -> bytes:
    out = bytearray((_FORMAT,))
    write_varint(out, snapshot.version)
    write_varint(out, snapshot.epoch)
    write_varint(out, 0 if snapshot.limit is None else snapshot.limit + 1)
    _write_progress(out, snapshot.position, snapshot.ranges, snapshot.failures)
    return bytes(out)


def write_delta(delta: CursorDelta, *, version: int) -> bytes:
    out = bytearray((_FORMAT,))
    write_varint(out, version)
    _write_progress(out, delta.position, delta.ranges, delta.failures)
    return bytes(out)


def read_snapshot(data: BytesLike) -> CursorSnapshot:
    fields = _open(data)
    version = fields.varint(at_least=1, at_most=_OFFSET_MAX)
    epoch = fields.varint(at_least=0, at_most=_INT32_MAX)
    limit = fields.varint(at_least=0, at_most=_OFFSET_MAX)
    position, ranges, failures = _read_progress(fields, times_min=1)
    return CursorSnapshot(
        version=version,
        epoch=epoch,
        position=position,
        ranges=tuple(ranges),
        failures=failures,
        limit=limit - 1 if limit else None,
    )


def read_delta(data: BytesLike) -> tuple[int, CursorDelta]:
    """A delta, after its version."""
    fields = _open(data)
    version = fields.varint(at_least=1, at_most=_OFFSET_MAX)
    position, ranges, failures = _read_progress(fields, times_min=0)
    return version, CursorDelta(position=position, ranges=ranges, failures=failures)


def write_acks(acks: StoredAcks) -> bytes:
    out = bytearray((_FORMAT,))
    write_varint(out, acks.epoch)
    write_varint(out, len(acks.ranges))
    _write_ranges(out, 0, acks.ranges)
    return bytes(out)


def read_acks(data: BytesLike) -> StoredAcks:
    fields = _open(data)
    epoch = fields.varint(at_least=0, at_most=_INT32_MAX)
    ranges = _read_ranges(fields, 0)
    fields.end()
    if sum(end - start for start, end in ranges) > _ACKS_MAX:
        raise MalformedFields(f"more than {_ACKS_MAX} messages are acknowledged together")
    return StoredAcks(epoch=epoch, ranges=tuple(ranges))


def _write_progress(
    out: bytearray, position: int, ranges: Sequence[tuple[int, int]], failures: Mapping[int, int]
) -> None:
    write_varint(out, position)
    beyond = [pair for pair in ranges if pair[1] > position] if ranges else ranges
    write_varint(out, len(beyond))
    _write_ranges(out, position, beyond)
    pending = sorted(pair for pair in failures.items() if pair[0] >= position) if failures else ()
    _write_failures(out, position, pending)


def _write_ranges(out: bytearray, place: int, ranges: Iterable[tuple[int, int]]) -> None:
    """Write ranges that ascend; of what lies below `place` nothing is written."""
    least = place
    for start, end in ranges:
        start = max(start, least)
        assert place <= start < end, "ranges ascend and do not overlap"
        write_varint(out, start - place)
        write_varint(out, end - start)
        place = end


def _write_failures(out: bytearray, place: int, failures: Iterable[tuple[int, int]]) -> None:
    failures = list(failures)
    write_varint(out, len(failures))
    for offset, times in failures:
        write_varint(out, offset - place)
        write_varint(out, times)
        place = offset


def _read_progress(
    fields: FieldReader, *, times_min: int
) -> tuple[int, list[tuple[int, int]], dict[int, int]]:
    """The rest of a value: position, ranges, failures."""
    position = place = fields.varint(at_least=0, at_most=_OFFSET_MAX)
    ranges = _read_ranges(fields, position)
    failures: dict[int, int] = {}
    for _ in range(fields.varint_count(element_bytes_min=_PAIR_BYTES_MIN)):
        place += fields.varint(at_least=min(len(failures), 1), at_most=_OFFSET_MAX - place)
        failures[place] = fields.varint(at_least=times_min, at_most=_INT32_MAX)
    fields.end()
    return position, ranges, failures


def _read_ranges(fields: FieldReader, place: int) -> list[tuple[int, int]]:
    ranges = []
    for _ in range(fields.varint_count(element_bytes_min=_PAIR_BYTES_MIN)):
        start = place + fields.varint(at_least=0, at_most=_OFFSET_MAX - place)
        place = start + fields.varint(at_least=1, at_most=_OFFSET_MAX - start)
        ranges.append((start, place))
    return ranges


def _open(data: BytesLike) -> FieldReader:
    fields = FieldReader(data)
    if (format_ := fields.int8()) != _FORMAT:
        raise MalformedFields(f"format {format_} is not known")
    return fields
