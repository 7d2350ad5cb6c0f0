"""Reads the delayed topic from its start: which messages wait, and which intents were not carried out.

A record that makes no sense is passed over and counted: it must not keep the others. A damaged batch is
another matter: nobody knows what it held, so nothing is moved until a person has looked.

While it reads, a message takes sixteen bytes, also one that is gone; where half of them are, they are let go.
"""

from __future__ import annotations

import asyncio
import logging
from array import array
from bisect import bisect_left
from collections.abc import Iterator

from tailrace.broker.delayed.log import DELAYED_TOPIC, DelayedLog
from tailrace.broker.delayed.stored import Intent, read_intent, read_key, read_message
from tailrace.broker.internal import MalformedFields
from tailrace.model import Offset, PartitionId
from tailrace.records import Record

_logger = logging.getLogger(__name__)

_GONE = -1
_PURGE_AT_MIN = 65_536


class Loaded:
    """What the topic says, record by record."""

    __slots__ = ("_due", "_gone", "_offsets", "intents", "malformed")

    def __init__(self) -> None:
        self._offsets = array("q")  # ascending
        self._due = array("q")  # of each; _GONE where a tombstone came
        self._gone = 0
        self.intents: dict[PartitionId, Intent] = {}
        self.malformed = 0

    def __len__(self) -> int:
        return len(self._offsets) - self._gone

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """(due, offset) of every message that waits, by offset."""
        for offset, due_ms in zip(self._offsets, self._due, strict=True):
            if due_ms != _GONE:
                yield due_ms, offset

    def take(self, offset: int) -> int | None:
        """When a message is due, which is not here any more; None if it was not."""
        place = bisect_left(self._offsets, offset)
        if place == len(self._offsets) or self._offsets[place] != offset or self._due[place] == _GONE:
            return None
        due_ms, self._due[place] = self._due[place], _GONE
        self._gone += 1
        if self._gone > _PURGE_AT_MIN and self._gone * 2 > len(self._offsets):
            self._purge()
        return due_ms

    def apply(self, record: Record) -> None:
        """Take over what one record says."""
        try:
            self._apply(record)
        except MalformedFields as error:
            self.malformed += 1
            if self.malformed == 1:
                _logger.warning(
                    "record passed over: topic=%s offset=%d %s", DELAYED_TOPIC, record.offset, error
                )

    def _apply(self, record: Record) -> None:
        key = read_key(record.key)
        if isinstance(key, PartitionId):
            if record.value is None:
                self.intents.pop(key, None)
            else:
                self.intents[key] = read_intent(record.value)
        elif key is not None:
            if record.value is None:
                self.take(key)
            else:
                self._due.append(read_message(record).due_ms)
                self._offsets.append(key)

    def _purge(self) -> None:
        left = list(self)
        self._due = array("q", [due_ms for due_ms, _ in left])
        self._offsets = array("q", [offset for _, offset in left])
        self._gone = 0


async def load_delayed(log: DelayedLog, *, end: Offset) -> Loaded:
    """What the topic says below `end`; BrokerError or StorageError where it cannot be read."""
    loaded = Loaded()
    async for records in log.read(end=end):
        for record in records:
            loaded.apply(record)
        await asyncio.sleep(0)  # a long log must not keep the loop from everybody else
    if loaded.malformed:
        _logger.warning("records passed over: topic=%s count=%d", DELAYED_TOPIC, loaded.malformed)
    return loaded
