"""Reads one partition of the transaction topic from its start: the newest state of every transactional id.

A record that makes no sense is passed over and counted, as in the offsets topic. A damaged batch is another
matter: it may hold a decision, so the partition is not served.
"""

from __future__ import annotations

import asyncio
import logging

from tailrace.broker.internal import InternalLog, MalformedFields
from tailrace.broker.transactions.codec import read_key, read_value
from tailrace.broker.transactions.state import StoredTransaction
from tailrace.broker.transactions.topic import TRANSACTIONS_TOPIC
from tailrace.records import Record

_logger = logging.getLogger(__name__)


async def load_partition(log: InternalLog, partition: int) -> dict[str, StoredTransaction]:
    """The transactional ids of a partition; BrokerError or StorageError where it cannot be read."""
    found: dict[str, StoredTransaction] = {}
    malformed = 0
    async for batch in log.read(partition):
        for record in batch.records():
            try:
                _apply(record, found)
            except MalformedFields as error:
                malformed += 1
                if malformed == 1:
                    _logger.warning(
                        "record passed over: topic=%s offset=%d %s", TRANSACTIONS_TOPIC, record.offset, error
                    )
        await asyncio.sleep(0)  # a long log must not keep the loop from other work
    if malformed:
        _logger.warning(
            "records passed over: topic=%s partition=%d count=%d", TRANSACTIONS_TOPIC, partition, malformed
        )
    return found


def _apply(record: Record, found: dict[str, StoredTransaction]) -> None:
    if record.key is None:
        raise MalformedFields("a record without a key")
    transactional_id = read_key(record.key)
    if transactional_id is None:
        return
    if record.value is None:
        found.pop(transactional_id, None)
    else:
        found[transactional_id] = read_value(record.value)
