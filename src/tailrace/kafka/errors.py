"""What a client is told when something went wrong: the border between our exceptions and Kafka's codes.

`BrokerError` carries its code. `StorageError` is our own trouble, which a client should try elsewhere or
later. Everything else is a bug and has no code: it ends the connection that met it.
"""

from __future__ import annotations

from tailrace.model import BrokerError, ErrorCode, LogBusy, StorageError

ANSWERABLE = (BrokerError, StorageError)
"""What a handler may turn into an answer; anything else it lets pass."""


def error_of(error: BaseException) -> tuple[ErrorCode, str]:
    """The code and the message for a BrokerError or a StorageError; other exceptions are raised again."""
    if isinstance(error, LogBusy):
        # Clients do not expect a quota here; a retriable code that says "nothing was written" is what helps.
        return ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    if isinstance(error, BrokerError):
        return error.code, str(error)
    if isinstance(error, StorageError):
        return ErrorCode.KAFKA_STORAGE_ERROR, str(error)
    raise error
