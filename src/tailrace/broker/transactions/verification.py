"""Whether a batch may go into a partition as part of a transaction (KIP-890 part 1).

A batch for a partition in which its transaction is open goes in. Any other one is verified: the coordinator
says whether the partition takes part in the transaction of this producer and epoch. A client of
BUMPING_VERSION does not announce its partitions: for such a client the partition is added here.

Sequences of a producer that a partition does not know:
- A client of BUMPING_VERSION begins every transaction in a new epoch, at sequence 0.
- Any other client keeps its epoch, and goes on where its last transaction in that partition ended. The
  partition may have forgotten the producer since (producer.id.expiration.ms), so any sequence is taken, as in
  Kafka.
- A batch is not taken if one with a lower sequence was refused in the same transaction, and is to be sent
  again: clients have several batches in flight. Kafka has the same rule (the lowest sequence of a
  verification).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

from tailrace.broker.partition import Appended, Partition
from tailrace.broker.transactions.directory import Directory
from tailrace.broker.transactions.machine import BUMPING_VERSION, check_added, check_identity
from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.state import Identity
from tailrace.model import BrokerError, ErrorCode, StorageError, TopicPartition
from tailrace.records import Batch

REFUSED_MAX = 1_000
"""Producers with a refused first batch that are remembered; over it the oldest is forgotten."""

_RETRIED = (
    Situation.LOADING,
    Situation.NOT_COORDINATOR,
    Situation.LOG_REFUSES,
    Situation.NOT_COMPLETE,
)
"""After these the client sends the batch again."""

Add = Callable[[str, Identity, TopicPartition, int], None]
"""Has a partition in the transaction of an id, at a client version; TransactionRefused."""


class Verifier:
    """Appends transactional batches, and verifies those that begin a transaction in their partition."""

    def __init__(self, directory: Directory, *, add: Add) -> None:
        self._directory = directory
        self._add = add
        self._refused: OrderedDict[tuple[TopicPartition, Identity], int] = OrderedDict()
        """The lowest sequence that was refused, of producers that their partition does not know."""

    def __repr__(self) -> str:
        return f"<Verifier, {len(self._refused)} refused>"

    def append(
        self,
        transactional_id: str,
        partition: Partition,
        batch: Batch,
        *,
        client_version: int = 0,
        append_time_ms: int | None = None,
        keys_checked: bool = False,
    ) -> Appended:
        """Sequence a transactional batch, in a partition that takes part in its transaction.

        `append_time_ms` is that of `Partition.append`; for a client below BUMPING_VERSION there is none.
        """
        producers = partition.producers
        opened = producers.open_transaction(batch.producer_id)
        if opened is not None and opened.epoch == batch.producer_epoch:
            return partition.append(
                batch, append_time_ms=append_time_ms, keys_checked=keys_checked, verified=True
            )
        identity = Identity(batch.producer_id, batch.producer_epoch)
        if batch.producer_id in producers or client_version >= BUMPING_VERSION:
            if self._is_new(transactional_id, identity, partition, batch):
                self.verify(transactional_id, identity, partition.name, client_version=client_version)
            return partition.append(
                batch, append_time_ms=append_time_ms, keys_checked=keys_checked, verified=True
            )
        return self._append_of_unknown(transactional_id, identity, partition, batch, keys_checked)

    def verify(
        self, transactional_id: str, identity: Identity, partition: TopicPartition, *, client_version: int
    ) -> None:
        """The partition takes part in the transaction, or is refused."""
        if client_version >= BUMPING_VERSION:
            self._add(transactional_id, identity, partition, client_version)
        else:
            entry = self._directory.find(transactional_id)
            check_added(None if entry is None else entry.stored, identity, partition)

    def transaction_ended(self, identity: Identity) -> None:
        """What was refused of a transaction is not sent again: it has ended."""
        if self._refused:
            for key in [key for key in self._refused if key[1] == identity]:
                del self._refused[key]

    def _append_of_unknown(
        self,
        transactional_id: str,
        identity: Identity,
        partition: Partition,
        batch: Batch,
        keys_checked: bool,
    ) -> Appended:
        key, sequence = (partition.name, identity), batch.base_sequence
        lowest = self._refused.get(key)
        if lowest is not None and sequence > lowest:
            raise BrokerError(
                f"producer {batch.producer_id} sent sequence {sequence}, and {lowest} was refused before it",
                code=ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            )
        try:
            self.verify(transactional_id, identity, partition.name, client_version=0)
            appended = partition.append(batch, keys_checked=keys_checked, verified=True, any_sequence=True)
        except (BrokerError, StorageError) as error:
            if not isinstance(error, TransactionRefused) or error.situation in _RETRIED:
                self._refused[key] = sequence
                if len(self._refused) > REFUSED_MAX:
                    self._refused.popitem(last=False)
            raise
        self._refused.pop(key, None)
        return appended

    def _is_new(self, transactional_id: str, identity: Identity, partition: Partition, batch: Batch) -> bool:
        """Whether a batch is not in the partition yet: one that is repeated begins no transaction."""
        try:
            return partition.producers.check(batch) is None
        except BrokerError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_EPOCH:
                # The coordinator knows whether the producer is a zombie or its transaction timed out.
                entry = self._directory.find(transactional_id)
                check_identity(None if entry is None else entry.stored, identity)
            raise
