"""Reads one partition of `__tailrace_cursors`: the subscriptions that live in it, and how far each has come.

First the newest record of every key is found, as compaction would find it, so that it makes no difference
whether compaction has run. Then those are decoded and put together. A record that makes no sense is passed
over and counted: it must not keep the other subscriptions from their progress. A damaged batch is another
matter: nobody knows what it held, so the partition is not served.
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
    read_definition,
    read_delta,
    read_key,
    read_snapshot,
)
from tailrace.broker.subscriptions.stored import (
    CURSORS_TOPIC,
    CursorDelta,
    CursorKey,
    CursorSnapshot,
    StoredSubscription,
)

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
    records: int = 0
    malformed: int = 0


class _Slots:
    """The records of one cursor, decoded."""

    __slots__ = ("deltas", "snapshot")

    def __init__(self) -> None:
        self.snapshot = _NOTHING
        self.deltas: list[tuple[int, CursorDelta]] = []


async def load_cursors(log: InternalLog, partition: int) -> LoadedCursors:
    """What the partition says; BrokerError or StorageError where it cannot be read."""
    loaded = LoadedCursors()
    newest = await _find_newest(log, partition, loaded)
    slots: dict[CursorKey, _Slots] = {}
    for index, (key, value) in enumerate(newest.items()):
        try:
            _decode(loaded, slots, key, value)
        except MalformedFields as error:
            _count_malformed(loaded, error)
        if index % _PAUSE_RECORDS == 0:
            await asyncio.sleep(0)
    for index, (cursor, found) in enumerate(slots.items()):
        if cursor.subscription in loaded.definitions:
            loaded.cursors[cursor] = merge(found.snapshot, found.deltas)
        else:
            loaded.orphans.append(cursor)
        if index % _PAUSE_RECORDS == 0:
            await asyncio.sleep(0)
    if loaded.malformed:
        _logger.warning(
            "records passed over: topic=%s partition=%d count=%d", CURSORS_TOPIC, partition, loaded.malformed
        )
    return loaded


def merge(snapshot: CursorSnapshot, deltas: Iterable[tuple[int, CursorDelta]]) -> CursorSnapshot:
    """The cursor after those of the numbered deltas that were written after the snapshot."""
    version, position = snapshot.version, snapshot.position
    ranges = list(snapshot.ranges)
    failures = dict(snapshot.failures)
    for number, delta in sorted(deltas, key=lambda pair: pair[0]):
        if number > snapshot.version:
            version = number
            position = max(position, delta.position)
            ranges += delta.ranges
            failures.update(delta.failures)
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


async def _find_newest(log: InternalLog, partition: int, loaded: LoadedCursors) -> dict[bytes, bytes]:
    newest: dict[bytes, bytes] = {}
    async for batch in log.read(partition):
        if batch.batch.is_transactional:  # the broker writes no such batch here
            continue
        for record in batch.records():
            loaded.records += 1
            if record.key is None:
                _count_malformed(loaded, MalformedFields(f"no key at offset {record.offset}"))
            elif record.value is None:
                newest.pop(record.key, None)
            else:
                newest[record.key] = record.value
            if loaded.records % _PAUSE_RECORDS == 0:
                await asyncio.sleep(0)  # a long log must not keep the loop from everybody else
    return newest


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
