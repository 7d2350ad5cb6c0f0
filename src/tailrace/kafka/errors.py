"""What a client is told when something went wrong: the border between our exceptions and Kafka's codes.

`BrokerError` carries its code. `StorageError` is our own trouble, which a client should try elsewhere or
later. Everything else is a bug and has no code: it ends the connection that met it.
"""

from __future__ import annotations

from tailrace.model import BrokerError, ErrorCode, LogBusy, StorageError

_MESSAGE_CHARS_MAX = 1000

ANSWERABLE = (BrokerError, StorageError)
"""What a handler may turn into an answer; anything else it lets pass."""


def error_name(code: int) -> str:
    """What people call an error code."""
    try:
        return ErrorCode(code).name
    except ValueError:
        return str(code)


def error_of(error: BaseException) -> tuple[ErrorCode, str]:
    """The code and the message for what is ANSWERABLE; other exceptions are raised again.

    A name from a request may be long, and its repr longer still: the message is cut, so that it fits into an
    answer and no request is echoed many times over.
    """
    message = str(error)
    if len(message) > _MESSAGE_CHARS_MAX:
        message = message[:_MESSAGE_CHARS_MAX] + "..."
    if isinstance(error, BrokerError) and not isinstance(error, LogBusy):
        return error.code, message
    if isinstance(error, ANSWERABLE):
        # Clients know nothing of LogBusy's quota; a retriable code that says "not written" helps them.
        return ErrorCode.KAFKA_STORAGE_ERROR, message
    raise error
