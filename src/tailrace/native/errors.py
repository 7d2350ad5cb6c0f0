"""What a client is told when something went wrong: the border between our exceptions and ERROR frames.

`BrokerError` carries its code. `StorageError` is our own trouble, which a client should try again later.
Everything else is a bug and has no code: it ends the connection that met it.
"""

from __future__ import annotations

from typing import Final

from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.wire.native import write_error

ANSWERABLE = (BrokerError, StorageError)
"""What a handler may raise to have it answered."""

RETRIABLE: Final = frozenset(
    {
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
    }
)
"""The same request may succeed a moment later."""


def write_refusal(sequence: int, error: Exception) -> bytes:
    """The ERROR for what is ANSWERABLE; other exceptions are raised again."""
    if isinstance(error, BrokerError):
        retriable = error.retriable or error.code in RETRIABLE
        return write_error(sequence, code=error.code, message=str(error), retriable=retriable)
    if isinstance(error, StorageError):
        return write_error(sequence, code=ErrorCode.KAFKA_STORAGE_ERROR, message=str(error), retriable=True)
    raise error


def timed_out(seconds: float) -> BrokerError:
    """The error for what was not done in time, and may be done yet."""
    return BrokerError(
        f"not done within {seconds:g} s; it may become so yet", code=ErrorCode.REQUEST_TIMED_OUT
    )
