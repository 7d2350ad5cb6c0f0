"""Looks for transactions that hang: open in a partition, and unknown to the coordinator that should end them.

The protocol excludes it: a batch is sequenced behind the record that its partition takes part, in the same
turn. It is looked for all the same, because a transaction that hangs holds back every reader of committed
records of its partition, for ever.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from tailrace.broker.partition import Partition
from tailrace.model import TopicPartition


class HangingTransaction(NamedTuple):
    """A transaction that no coordinator will end."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    first_offset: int


def find_hanging(
    partitions: Iterable[Partition], known: Collection[tuple[TopicPartition, int]]
) -> list[HangingTransaction]:
    """The open transactions that are not in `known`, which holds pairs of partition and producer id."""
    return [
        HangingTransaction(partition.name, producer_id, each.epoch, each.first_offset)
        for partition in partitions
        if partition.is_held_here and partition.is_led_here
        for producer_id, each in partition.producers.open_transactions()
        if (partition.name, producer_id) not in known
    ]
