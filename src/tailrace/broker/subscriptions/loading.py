"""Reads one partition of `__tailrace_cursors`: the subscriptions that live in it, and how far each has come.

First the newest record of every key is found, as compaction would find it, so that it makes no difference
whether compaction has run. Then those are decoded and put together. A record that makes no sense is passed
over and counted: it must not keep the other subscriptions from their progress. A damaged batch is another
matter: nobody knows what it held, so the partition is not served.

Records in the batches of a transaction are acknowledgements. They wait for the marker of their producer,
which commits or drops them; a tombstone takes them away before and after it. Those that committed are part of
the cursor, unless a seek has changed its epoch since. Those that wait at the end of the log belong to
transactions that are still open.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass, field

from tailrace.broker.internal import InternalLog, MalformedFields
from tailrace.broker.subscriptions.codec import (
    DefinitionKey,
    SlotKey,
    read_acks,
    read_definition,
    read_delta,
    read_key,
    read_snapshot,
)
from tailrace.broker.subscriptions.stored import (
    CURSORS_TOPIC,
    AcksKey,
    CursorDelta,
    CursorKey,
    CursorSnapshot,
    StoredAcks,
    StoredSubscription,
)
from tailrace.records import Batch, BatchError, Record, Visible, read_marker

_logger = logging.getLogger(__name__)

_PAUSE_RECORDS = 200  # so many are read, or decoded, before others get their turn
_NOTHING = CursorSnapshot(version=0, epoch=0, position=0)


@dataclass(slots=True)
class LoadedCursors:
    """What one partition holds."""

    definitions: dict[str, StoredSubscription] = field(default_factory=dict)
    cursors: dict[CursorKey, CursorSnapshot] = field(default_factory=dict)
    orphans: list[CursorKey] = field(default_factory=list)
    """Cursors whose subscription is gone: a crash cut its deletion short. Their tombstones are due, before a
    subscription of that name is made again and takes them for its own."""
    committed: dict[CursorKey, list[AcksKey]] = field(default_factory=dict)
    """Acknowledgements that `cursors` holds, or that are void. Their tombstones are due once a record of the
    cursor holds them too."""
    undecided: dict[AcksKey, StoredAcks] = field(default_factory=dict)
    """Acknowledgements of transactions that are open."""
    orphan_acks: list[AcksKey] = field(default_factory=list)
    """Acknowledgements whose subscription is gone. Their tombstones are due like those of `orphans`."""
    records: int = 0
    malformed: int = 0


class _Slots:
    """The records of one cursor, decoded."""

    __slots__ = ("acks", "deltas", "snapshot")

    def __init__(self) -> None:
        self.snapshot = _NOTHING
        self.deltas: list[tuple[int, CursorDelta]] = []
        self.acks: list[tuple[AcksKey, StoredAcks]] = []  # of transactions that committed


class _Newest:
    """The newest record of every key, and what open transactions would add."""

    __slots__ = ("open", "values")

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}
        self.open: dict[int, dict[bytes, bytes]] = {}  # by producer id

    def apply(self, record: Record, producer_id: int | None) -> None:
        """Take over a record; with the id of a producer it is part of a transaction."""
        key, value = record.key, record.value
        if key is None:
            raise MalformedFields(f"no key at offset {record.offset}")
        if producer_id is not None:
            if value is None or not isinstance(read_key(key), AcksKey):
                raise MalformedFields(f"no acknowledgements at offset {record.offset}, in a transaction")
            self.open.setdefault(producer_id, {})[key] = value
        elif value is None:
            self.values.pop(key, None)
            for waiting in self.open.values():
                waiting.pop(key, None)
        else:
            self.values[key] = value

    def end(self, marker: Batch) -> None:
        """The transaction of a producer is decided."""
        try:
            commit = read_marker(marker).commit
        except BatchError as error:
            raise MalformedFields(f"{error} at offset {marker.base_offset}") from error
        waiting = self.open.pop(marker.producer_id, {})
        if commit:
            self.values.update(waiting)


async def load_cursors(log: InternalLog, partition: int) -> LoadedCursors:
    """What the partition says; BrokerError or StorageError where it cannot be read."""
    loaded = LoadedCursors()
    newest = await _find_newest(log, partition, loaded)
    slots: dict[CursorKey, _Slots] = {}
    for index, (key, value) in enumerate(newest.values.items()):
        try:
            _decode(loaded, slots, key, value)
        except MalformedFields as error:
            _count_malformed(loaded, error)
        if index % _PAUSE_RECORDS == 0:
            await asyncio.sleep(0)
    for waiting in newest.open.values():
        _decode_undecided(loaded, waiting)
    for index, (cursor, found) in enumerate(slots.items()):
        if cursor.subscription in loaded.definitions:
            loaded.cursors[cursor] = merge(found.snapshot, found.deltas, [acks for _, acks in found.acks])
            if found.acks:
                loaded.committed[cursor] = [key for key, _ in found.acks]
        else:
            loaded.orphans.append(cursor)
            loaded.orphan_acks += [key for key, _ in found.acks]
        if index % _PAUSE_RECORDS == 0:
            await asyncio.sleep(0)
    if loaded.malformed:
        _logger.warning(
            "records passed over: topic=%s partition=%d count=%d", CURSORS_TOPIC, partition, loaded.malformed
        )
    return loaded


def merge(
    snapshot: CursorSnapshot, deltas: Iterable[tuple[int, CursorDelta]], acks: Iterable[StoredAcks] = ()
) -> CursorSnapshot:
    """The cursor after those of the numbered deltas that were written after the snapshot.

    `acks` are of transactions that committed; those from before the last seek say nothing any more.
    """
    version, position = snapshot.version, snapshot.position
    ranges = list(snapshot.ranges)
    failures = dict(snapshot.failures)
    for number, delta in sorted(deltas, key=lambda pair: pair[0]):
        if number > snapshot.version:
            version = number
            position = max(position, delta.position)
            ranges += delta.ranges
            failures.update(delta.failures)
    for each in acks:
        if each.epoch == snapshot.epoch:
            ranges += each.ranges
    position, beyond = _join(position, ranges)
    return CursorSnapshot(
        version=version,
        epoch=snapshot.epoch,
        position=position,
        ranges=tuple(beyond),
        failures={
            offset: times
            for offset, times in failures.items()
            if times and offset >= position and not _is_within(beyond, offset)
        },
        limit=snapshot.limit,
    )


async def _find_newest(log: InternalLog, partition: int, loaded: LoadedCursors) -> _Newest:
    newest = _Newest()
    async for visible in log.read(partition, shows_control=True):
        try:
            if visible.batch.is_control:
                newest.end(visible.batch)
                continue
        except MalformedFields as error:
            _count_malformed(loaded, error)
            continue
        await _apply_batch(newest, visible, loaded)
    return newest


async def _apply_batch(newest: _Newest, visible: Visible, loaded: LoadedCursors) -> None:
    producer_id = visible.batch.producer_id if visible.batch.is_transactional else None
    for record in visible.records():
        loaded.records += 1
        try:
            newest.apply(record, producer_id)
        except MalformedFields as error:
            _count_malformed(loaded, error)
        if loaded.records % _PAUSE_RECORDS == 0:
            await asyncio.sleep(0)  # a long log must not keep the loop from everybody else


def _decode(loaded: LoadedCursors, slots: dict[CursorKey, _Slots], key: bytes, value: bytes) -> None:
    match read_key(key):
        case DefinitionKey(name):
            loaded.definitions[name] = read_definition(name, value)
        case SlotKey(cursor, slot):
            found = slots.setdefault(cursor, _Slots())
            if slot:
                found.deltas.append(read_delta(value))
            else:
                found.snapshot = read_snapshot(value)
        case AcksKey() as acks:
            slots.setdefault(acks.cursor, _Slots()).acks.append((acks, read_acks(value)))


def _decode_undecided(loaded: LoadedCursors, waiting: dict[bytes, bytes]) -> None:
    for key, value in waiting.items():
        try:
            acks = read_key(key)
            assert isinstance(acks, AcksKey), "others were refused"
            if acks.cursor.subscription in loaded.definitions:
                loaded.undecided[acks] = read_acks(value)
            else:
                loaded.orphan_acks.append(acks)
        except MalformedFields as error:
            _count_malformed(loaded, error)


def _join(position: int, ranges: list[tuple[int, int]]) -> tuple[int, list[tuple[int, int]]]:
    """The position and the ranges beyond it after everything that touches has become one."""
    beyond: list[tuple[int, int]] = []
    for start, end in sorted(ranges):
        if start <= position:
            position = max(position, end)
        elif beyond and start <= beyond[-1][1]:
            beyond[-1] = (beyond[-1][0], max(beyond[-1][1], end))
        else:
            beyond.append((start, end))
    return position, beyond


def _is_within(ranges: list[tuple[int, int]], offset: int) -> bool:
    index = bisect_right(ranges, offset, key=lambda pair: pair[0])
    return index > 0 and offset < ranges[index - 1][1]


def _count_malformed(loaded: LoadedCursors, error: MalformedFields) -> None:
    loaded.malformed += 1
    if loaded.malformed == 1:
        _logger.warning("record passed over: topic=%s %s", CURSORS_TOPIC, error)
