"""The transactions that have positions in one partition of the offsets topic, and their ends.

    pend                              a transaction commits positions: they are undecided
    end      the marker is sequenced  the next transaction of that producer is another one from here on
             it is durable            the positions count, or are dropped

A position must not be seen before the marker is durable: a crash could take the marker, the transaction could
then be aborted, and a consumer that went on from that position would have skipped its records.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from tailrace.broker.groups.committed import Placed
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from tailrace.broker.groups.home import Resident


class Transaction:
    """One transaction: the groups whose positions it commits. Its identity is its key."""

    __slots__ = ("residents",)

    def __init__(self) -> None:
        self.residents: set[Resident] = set()


class Ending:
    """Waits for the durability of a marker (`storage.api.Waiter`), then decides its transaction."""

    __slots__ = ("_commit", "_decided", "_is_told", "_transaction")

    def __init__(
        self, transaction: Transaction, *, commit: bool, decided: Callable[[Resident], None]
    ) -> None:
        self._transaction = transaction
        self._commit = commit
        self._decided = decided
        self._is_told = False

    def done(self) -> bool:
        return self._is_told

    def set_result(self, result: None, /) -> None:  # noqa: ARG002
        self._is_told = True
        for resident in self._transaction.residents:
            resident.offsets.decide(self._transaction, commit=self._commit)
            self._decided(resident)

    def set_exception(self, error: Exception, /) -> None:  # noqa: ARG002
        self._is_told = True  # this node does not serve the partition any more; the next leader reads the log


class Transactions:
    """The open transactions of one partition, by producer id."""

    __slots__ = ("_open",)

    def __init__(self) -> None:
        self._open: dict[int, Transaction] = {}

    def __repr__(self) -> str:
        return f"<Transactions of {len(self._open)} producers>"

    def pend(self, producer_id: int, resident: Resident, offsets: Mapping[TopicPartition, Placed]) -> None:
        """The open transaction of a producer commits positions of a group."""
        transaction = self._open.get(producer_id)
        if transaction is None:
            transaction = self._open[producer_id] = Transaction()
        transaction.residents.add(resident)
        resident.offsets.pend(transaction, offsets)

    def end(self, producer_id: int, *, commit: bool, decided: Callable[[Resident], None]) -> Ending | None:
        """The marker of a producer is sequenced; returns what is to be told of its durability."""
        transaction = self._open.pop(producer_id, None)
        return None if transaction is None else Ending(transaction, commit=commit, decided=decided)
