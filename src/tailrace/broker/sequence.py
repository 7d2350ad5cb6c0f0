"""Records of the broker's own, appended as one batch: the one way from state to a log.

Committed offsets, cursors, delayed messages and dead letters all come this way. The call is synchronous: the
batch has its offsets when it returns, and nothing waits for the durability of the batch before it. A caller
that must know when it is durable asks the partition.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.broker.partition import Partition
from tailrace.model import NO_PRODUCER, Offset
from tailrace.records import NewRecord, build_batch, read_batch

_NO_SEQUENCE = -1


def sequence(
    partition: Partition,
    records: Sequence[NewRecord],
    *,
    producer_id: int = NO_PRODUCER,
    producer_epoch: int = -1,
    base_sequence: int = _NO_SEQUENCE,
) -> Offset:
    """Append records as one batch; returns the offset past it. BrokerError if nothing was appended."""
    data = build_batch(
        records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence
    )
    return partition.append(read_batch(data)).end_offset
