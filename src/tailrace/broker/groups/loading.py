"""Reads one partition of the offsets topic from its start: what is left when every record had its say.

A record that makes no sense is passed over and counted: one strange record must not keep a thousand groups
from their offsets. A damaged batch is another matter: nobody knows what it held, so the partition is not
served.

Positions in a transactional batch are pending until the marker of their producer, which commits or drops
them. What is pending at the end of the log belongs to transactions that are still open. A tombstone removes
pending positions too, and a pending position never replaces one that is behind it in the log.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from tailrace.broker.groups.committed import Placed
from tailrace.broker.groups.offsets import OffsetKey, read_group, read_key, read_offset
from tailrace.broker.groups.stored import StoredGroup
from tailrace.broker.groups.topic import OFFSETS_TOPIC
from tailrace.broker.internal import InternalLog, MalformedFields
from tailrace.model import TopicPartition
from tailrace.records import Batch, BatchError, Record, Visible, read_marker

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Loaded:
    """The groups and positions of one partition."""

    groups: dict[str, StoredGroup] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, Placed]] = field(default_factory=dict)
    pending: dict[int, dict[OffsetKey, Placed]] = field(default_factory=dict)  # by producer id
    records: int = 0
    malformed: int = 0

    def apply_batch(self, visible: Visible) -> None:
        """Take over what one batch says."""
        batch = visible.batch
        if batch.is_control:
            self._end(batch)
            return
        producer_id = batch.producer_id if batch.is_transactional else None
        for record in visible.records():
            self.apply(record, producer_id)

    def apply(self, record: Record, producer_id: int | None = None) -> None:
        """Take over what one record says; with the id of a producer it is part of a transaction."""
        self.records += 1
        try:
            if producer_id is None:
                self._apply(record)
            else:
                self._pend(record, producer_id)
        except MalformedFields as error:
            self._pass_over(record.offset, error)

    def take_offsets_beside(self, topics: Collection[str]) -> list[OffsetKey]:
        """Take out the positions in other topics than these, pending ones too."""
        keys = [OffsetKey(group_id, each) for group_id, known in self.offsets.items() for each in known]
        keys += [key for pending in self.pending.values() for key in pending]
        gone = [key for key in dict.fromkeys(keys) if key.partition.topic not in topics]
        for key in gone:
            self._remove(key)
        return gone

    def _apply(self, record: Record) -> None:
        if record.key is None:
            raise MalformedFields("a record without a key")
        key = read_key(record.key)
        if key is None:
            return
        if isinstance(key, OffsetKey):
            if record.value is None:
                self._remove(key)
            else:
                self._set(key, Placed(read_offset(record.value), record.offset))
        elif record.value is None:
            self.groups.pop(key.group_id, None)
        else:
            self.groups[key.group_id] = read_group(record.value)

    def _pend(self, record: Record, producer_id: int) -> None:
        key = None if record.key is None else read_key(record.key)
        if not isinstance(key, OffsetKey) or record.value is None:
            raise MalformedFields("a record of a transaction that is no position")
        placed = Placed(read_offset(record.value), record.offset)
        self.pending.setdefault(producer_id, {})[key] = placed

    def _end(self, batch: Batch) -> None:
        """A marker: the transaction of its producer is decided."""
        try:
            commit = read_marker(batch).commit
        except BatchError as error:
            self._pass_over(batch.base_offset, error)
            return
        for key, placed in self.pending.pop(batch.producer_id, {}).items():
            if commit:
                self._set(key, placed)

    def _set(self, key: OffsetKey, placed: Placed) -> None:
        offsets = self.offsets.setdefault(key.group_id, {})
        known = offsets.get(key.partition)
        if known is None or known.at < placed.at:
            offsets[key.partition] = placed

    def _remove(self, key: OffsetKey) -> None:
        self.offsets.get(key.group_id, {}).pop(key.partition, None)
        for pending in self.pending.values():
            pending.pop(key, None)

    def _pass_over(self, offset: int, error: Exception) -> None:
        self.malformed += 1
        if self.malformed == 1:
            _logger.warning("record passed over: topic=%s offset=%d %s", OFFSETS_TOPIC, offset, error)


async def load_partition(log: InternalLog, partition: int) -> Loaded:
    """What the partition says; BrokerError or StorageError where it cannot be read."""
    loaded = Loaded()
    async for batch in log.read(partition, shows_control=True):
        loaded.apply_batch(batch)
        await asyncio.sleep(0)  # a long log must not keep the loop from everybody else
    if loaded.malformed:
        _logger.warning(
            "records passed over: topic=%s partition=%d count=%d", OFFSETS_TOPIC, partition, loaded.malformed
        )
    return loaded
