"""What Kafka clients are told when the transaction coordinator refuses something, by API and version.

Clients act on these codes. 48 and 90 in EndTxn end a producer of Java or librdkafka, 47 ends one of franz-go:
a mere timeout is therefore answered 49, or 120 where a version knows it, from which all of them recover.
Produce is not retried after 14, so that a coordinator which is loading is answered 19 there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.kafka.errors import error_of
from tailrace.model import BrokerError, ErrorCode
from tailrace.model.operation import Operation

if TYPE_CHECKING:
    from tailrace.broker.gate import Access
    from tailrace.broker.partition import Appended, Partition
    from tailrace.records import Batch

PRODUCE = 0
INIT_PRODUCER_ID = 22
ADD_PARTITIONS, ADD_OFFSETS, END_TXN = 24, 25, 26
TXN_OFFSET_COMMIT = 28

EPOCH_PER_TRANSACTION = 2
"""The client version (transaction.version) of Produce 12, EndTxn 5 and TxnOffsetCommit 5 (KIP-890 part 2)."""

Codes = tuple[tuple[int, ErrorCode], ...]  # from which version on, the newest first; and the code

_PRODUCE_BUMPING_FROM = 12
_E = ErrorCode
_LATER = ((0, _E.NOT_ENOUGH_REPLICAS),)

_PRODUCE: Mapping[Situation, Codes] = {
    Situation.LOADING: _LATER,
    Situation.NOT_COORDINATOR: _LATER,
    Situation.LOG_REFUSES: _LATER,
    Situation.NOT_COMPLETE: ((12, _E.CONCURRENT_TRANSACTIONS), (0, _E.NOT_ENOUGH_REPLICAS)),
    Situation.OTHER_ID: ((0, _E.INVALID_PRODUCER_ID_MAPPING),),
    Situation.FENCED: ((0, _E.INVALID_PRODUCER_EPOCH),),
    Situation.TIMED_OUT: ((11, _E.TRANSACTION_ABORTABLE), (0, _E.INVALID_PRODUCER_EPOCH)),
    Situation.NOT_IN_TRANSACTION: ((11, _E.TRANSACTION_ABORTABLE), (0, _E.INVALID_TXN_STATE)),
}
_COORDINATOR: Mapping[Situation, Codes] = {
    Situation.LOADING: ((0, _E.COORDINATOR_LOAD_IN_PROGRESS),),
    Situation.NOT_COORDINATOR: ((0, _E.NOT_COORDINATOR),),
    Situation.LOG_REFUSES: ((0, _E.COORDINATOR_NOT_AVAILABLE),),
    Situation.NOT_COMPLETE: ((0, _E.CONCURRENT_TRANSACTIONS),),
    Situation.OTHER_ID: ((0, _E.INVALID_PRODUCER_ID_MAPPING),),
    Situation.FENCED: ((2, _E.PRODUCER_FENCED), (0, _E.INVALID_PRODUCER_EPOCH)),
    Situation.TIMED_OUT: ((4, _E.TRANSACTION_ABORTABLE), (0, _E.INVALID_PRODUCER_ID_MAPPING)),
    Situation.NOTHING_TO_COMMIT: ((4, _E.TRANSACTION_ABORTABLE), (0, _E.INVALID_TXN_STATE)),
    Situation.WRONG_STATE: ((0, _E.INVALID_TXN_STATE),),
}
CODES: Mapping[int, Mapping[Situation, Codes]] = {
    PRODUCE: _PRODUCE,
    ADD_PARTITIONS: _COORDINATOR,
    ADD_OFFSETS: _COORDINATOR,
    END_TXN: _COORDINATOR,
    TXN_OFFSET_COMMIT: {
        **_COORDINATOR,
        Situation.NOT_COMPLETE: ((5, _E.CONCURRENT_TRANSACTIONS), (0, _E.COORDINATOR_LOAD_IN_PROGRESS)),
        Situation.FENCED: ((0, _E.INVALID_PRODUCER_EPOCH),),
        Situation.NOT_IN_TRANSACTION: ((4, _E.TRANSACTION_ABORTABLE), (0, _E.INVALID_TXN_STATE)),
    },
    INIT_PRODUCER_ID: {
        **_COORDINATOR,
        Situation.FENCED: ((4, _E.PRODUCER_FENCED), (0, _E.INVALID_PRODUCER_EPOCH)),
    },
}


def refusal_of(error: BaseException, api: int, version: int) -> tuple[ErrorCode, str]:
    """The code and the message for what is ANSWERABLE; other exceptions are raised again."""
    code, message = error_of(error)
    if isinstance(error, TransactionRefused):
        for first, chosen in CODES[api].get(error.situation, ()):
            if version >= first:
                return chosen, message
    return code, message


class TransactionalAppender:
    """Appends the batches of a Produce request that names a transactional id."""

    __slots__ = ("_access", "_transactional_id", "_version")

    def __init__(self, access: Access, transactional_id: str, *, version: int) -> None:
        self._access = access
        self._transactional_id = transactional_id
        self._version = version

    def append(self, partition: Partition, batch: Batch, *, keys_checked: bool = False) -> Appended:
        """Sequence a transactional batch whose partition takes part in its transaction; BrokerError."""
        transaction = self._access.transaction(self._transactional_id, Operation.WRITE)
        spoken = client_version(self._version, bumping_from=_PRODUCE_BUMPING_FROM)
        try:
            return transaction.append(partition, batch, client_version=spoken, keys_checked=keys_checked)
        except TransactionRefused as error:
            code, message = refusal_of(error, PRODUCE, self._version)
            raise BrokerError(message, code=code) from error


def client_version(version: int, *, bumping_from: int) -> int:
    """The transaction.version that a request speaks; `bumping_from` is the first one of KIP-890 part 2."""
    return EPOCH_PER_TRANSACTION if version >= bumping_from else 0
