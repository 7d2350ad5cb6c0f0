"""What is kept of a transactional id, and in which state its transaction is.

Empty, Complete*   no transaction is open; the next write begins one
Ongoing            partitions take part; waits for its end, or for its timeout
Prepare*           decided and stored; the markers are being written
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import NamedTuple

from tailrace.model import TopicPartition

EPOCH_MAX = 32766
"""The greatest epoch that a producer is given. 32767 is used in markers alone, to fence an exhausted id."""
NO_PRODUCER_ID = -1
NO_TIMEOUT_MS = 2**31 - 1
"""The timeout of a transaction with two-phase commit (KIP-939), which has none; Kafka stores it like this."""


class TransactionState(enum.IntEnum):
    """Kafka's states, by the numbers under which they are stored."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5

    @property
    def label(self) -> str:
        """The name that clients are told."""
        return "".join(word.capitalize() for word in self.name.split("_"))

    @property
    def is_prepared(self) -> bool:
        return self in (TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


class Identity(NamedTuple):
    """A producer id and an epoch: what a producer of a transactional id is given."""

    producer_id: int
    epoch: int


class Ended(NamedTuple):
    """The newest transaction that ended: under which identity, and how."""

    identity: Identity
    commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredTransaction:
    """A transactional id as `__transaction_state` keeps it. A change makes a new object."""

    producer_id: int
    epoch: int
    state: TransactionState
    timeout_ms: int
    updated_ms: int
    started_ms: int = -1  # of the transaction that is open or ended last; -1: none was begun
    partitions: frozenset[TopicPartition] = frozenset()
    previous_producer_id: int = NO_PRODUCER_ID  # before the epochs of that one were exhausted
    next_producer_id: int = NO_PRODUCER_ID  # only in Prepare*: takes over with Complete
    client_version: int = 0  # 2: the client's EndTxn moves the epoch (KIP-890 part 2)
    before: Identity | None = None
    """The identity before the newest bump, where its holder may ask for the present one: it named itself in
    InitProducerId (KIP-360), or its transaction timed out (KIP-588)."""
    ended: Ended | None = None  # to recognize an EndTxn that is repeated

    @property
    def is_two_phase(self) -> bool:
        """Whether its transactions are ended by their producer alone: by no timeout, and by no other Init."""
        return self.timeout_ms == NO_TIMEOUT_MS

    @property
    def identity(self) -> Identity:
        """What the producer goes on with; in Prepare* what Complete will make of it."""
        if self.next_producer_id != NO_PRODUCER_ID:
            return Identity(self.next_producer_id, 0)
        return Identity(self.producer_id, self.epoch)
