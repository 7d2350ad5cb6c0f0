"""Reads one partition of the offsets topic from its start: what is left when every record had its say.

A record that makes no sense is passed over and counted: one strange record must not keep a thousand groups
from their offsets. A damaged batch is another matter: nobody knows what it held, so the partition is not
served.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection
from dataclasses import dataclass, field

from tailrace.broker.groups.offsets import OffsetKey, read_group, read_key, read_offset
from tailrace.broker.groups.stored import StoredGroup, StoredOffset
from tailrace.broker.groups.topic import OFFSETS_TOPIC
from tailrace.broker.internal import InternalLog, MalformedFields
from tailrace.model import TopicPartition
from tailrace.records import Record

_logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Loaded:
    """The groups and positions of one partition."""

    groups: dict[str, StoredGroup] = field(default_factory=dict)
    offsets: dict[str, dict[TopicPartition, StoredOffset]] = field(default_factory=dict)
    records: int = 0
    malformed: int = 0

    def apply(self, record: Record) -> None:
        """Take over what one record says."""
        self.records += 1
        try:
            self._apply(record)
        except MalformedFields as error:
            self.malformed += 1
            if self.malformed == 1:
                _logger.warning(
                    "record passed over: topic=%s offset=%d %s", OFFSETS_TOPIC, record.offset, error
                )

    def take_offsets_beside(self, topics: Collection[str]) -> list[OffsetKey]:
        """Take out the positions in other topics than these."""
        gone = [
            OffsetKey(group_id, partition)
            for group_id, offsets in self.offsets.items()
            for partition in offsets
            if partition.topic not in topics
        ]
        for group_id, partition in gone:
            del self.offsets[group_id][partition]
        return gone

    def _apply(self, record: Record) -> None:
        if record.key is None:
            raise MalformedFields("a record without a key")
        key = read_key(record.key)
        if key is None:
            return
        if isinstance(key, OffsetKey):
            offsets = self.offsets.setdefault(key.group_id, {})
            if record.value is None:
                offsets.pop(key.partition, None)
            else:
                offsets[key.partition] = read_offset(record.value)
        elif record.value is None:
            self.groups.pop(key.group_id, None)
        else:
            self.groups[key.group_id] = read_group(record.value)


async def load_partition(log: InternalLog, partition: int) -> Loaded:
    """What the partition says; BrokerError or StorageError where it cannot be read."""
    loaded = Loaded()
    async for batch in log.read(partition):
        # The broker takes no transactional commits yet, so a batch that claims to be one never took effect.
        if not batch.batch.is_transactional:
            for record in batch.records():
                loaded.apply(record)
        await asyncio.sleep(0)  # a long log must not keep the loop from everybody else
    if loaded.malformed:
        _logger.warning(
            "records passed over: topic=%s partition=%d count=%d", OFFSETS_TOPIC, partition, loaded.malformed
        )
    return loaded
