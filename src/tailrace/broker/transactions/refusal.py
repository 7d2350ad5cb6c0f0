"""Why the coordinator refuses something, before it is known in which version of which API it was asked.

Clients act on error codes, and the right code for one situation differs from API to API and between versions.
So the coordinator names the situation, and a listener chooses the code. `code` is for all other callers.
"""

from __future__ import annotations

import enum

from tailrace.model import BrokerError, ErrorCode


class Situation(enum.Enum):
    """What stands in the way."""

    LOADING = "loading"
    NOT_COORDINATOR = "not coordinator"
    LOG_REFUSES = "log refuses"
    NOT_COMPLETE = "not complete"
    OTHER_ID = "other id"
    FENCED = "fenced"
    TIMED_OUT = "timed out"
    NOT_IN_TRANSACTION = "not in transaction"
    NOTHING_TO_COMMIT = "nothing to commit"
    WRONG_STATE = "wrong state"


_CODES = {
    Situation.LOADING: ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    Situation.NOT_COORDINATOR: ErrorCode.NOT_COORDINATOR,
    Situation.LOG_REFUSES: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    Situation.NOT_COMPLETE: ErrorCode.CONCURRENT_TRANSACTIONS,
    Situation.OTHER_ID: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    Situation.FENCED: ErrorCode.PRODUCER_FENCED,
    Situation.TIMED_OUT: ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    Situation.NOT_IN_TRANSACTION: ErrorCode.INVALID_TXN_STATE,
    Situation.NOTHING_TO_COMMIT: ErrorCode.INVALID_TXN_STATE,
    Situation.WRONG_STATE: ErrorCode.INVALID_TXN_STATE,
}


class TransactionRefused(BrokerError):
    """The coordinator says no, and why."""

    def __init__(self, message: str, *, situation: Situation) -> None:
        super().__init__(message, code=_CODES[situation])
        self.situation = situation
