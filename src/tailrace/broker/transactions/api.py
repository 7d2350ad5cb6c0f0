"""The values that listeners and the transaction coordinator exchange."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.broker.transactions.machine import BUMPING_VERSION
from tailrace.broker.transactions.state import Identity, TransactionState
from tailrace.model import TopicPartition

__all__ = ["BUMPING_VERSION", "Identity", "TransactionDescription", "TransactionState"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionDescription:
    """A transactional id as an administrator sees it."""

    transactional_id: str
    state: TransactionState
    producer_id: int
    epoch: int
    timeout_ms: int
    started_ms: int  # -1 where no transaction is open
    open_ms: int  # for how long it is open; -1 where none is
    partitions: tuple[TopicPartition, ...]
