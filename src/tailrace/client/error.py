"""What can go wrong between a client and its brokers, and what may be tried again.

An answer with an error code is a `BrokerError`, as everywhere. What no broker answered is one of the errors
here. RETRIABLE names the codes that may go away by themselves; some of them also say which knowledge of ours
is out of date: who leads a partition (STALE_METADATA) or who coordinates a group (STALE_COORDINATOR).
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.model import BrokerError, ErrorCode, TailraceError

STALE_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_CONTROLLER,
    }
)
STALE_COORDINATOR = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
RETRIABLE = (
    STALE_METADATA
    | STALE_COORDINATOR
    | {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNSTABLE_OFFSET_COMMIT,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.CONCURRENT_TRANSACTIONS,
    }
)

# The way out, where there is one that a person can take.
_HINTS: Mapping[ErrorCode, str] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: "Try: tailrace topic list",
    ErrorCode.GROUP_ID_NOT_FOUND: "Try: tailrace group list",
    ErrorCode.NON_EMPTY_GROUP: "Stop its members first, or wait until their sessions end",
    ErrorCode.MESSAGE_TOO_LARGE: "Raise the topic's max.message.bytes, or send smaller records",
    ErrorCode.TOPIC_ALREADY_EXISTS: "Try: tailrace topic alter, or another name",
    ErrorCode.INVALID_REPLICATION_FACTOR: "Ask for no more replicas than there are brokers",
    ErrorCode.INVALID_TOPIC_EXCEPTION: "A name is 1 to 249 of a-z, A-Z, 0-9, dot, dash and underscore",
    ErrorCode.INVALID_SESSION_TIMEOUT: "The broker takes 6 seconds to 30 minutes by default",
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "The broker is still reading its offsets; try again",
}


class ClientError(TailraceError):
    """The client could not do what was asked, and no broker's answer says why."""


class CannotConnect(ClientError):
    """No connection to a broker; the message names the address, the cause and the fix."""


class ConnectTimedOut(CannotConnect, TimeoutError):
    """An address took the connection, or not even that, and then said nothing."""


class DataMissing(ClientError):
    """Records that were to be kept are gone: they were deleted before they were copied."""


class ConnectionLost(ClientError):
    """The connection ended before the answer came. Whether the request was carried out is not known."""


class LoginNeeded(ConnectionLost):
    """The broker ended a connection without a login as soon as it asked for more than versions."""


class TimedOut(ClientError, TimeoutError):
    """No answer, or no good one, within the deadline."""


class ClientClosed(ClientError):
    """The client, producer or consumer was closed before, or while, this was done."""


class UnsupportedApi(ClientError):
    """The broker does not speak any version of an API that we speak."""


class BufferFull(ClientError):
    """More records wait to be sent than may wait."""


class UnknownTopic(BrokerError):
    """The cluster has just said that there is no such topic or partition: asking again changes nothing."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class TransactionFailed(ClientError):
    """The open transaction cannot commit any more: abort it, and do its work again in the next one."""


class OutcomeUnknown(ClientError):
    """Whether a transaction has committed is not known: its answer was lost, and the broker cannot tell."""


class ProducerFailed(ClientError):
    """This producer can have no more transactions, because another one with its id took over: close it."""


class NoOffset(ClientError):
    """A partition has no position, and auto.offset.reset is none."""


def error_code(code: int) -> ErrorCode:
    """The code by name; one that a newer broker made up counts as UNKNOWN_SERVER_ERROR."""
    try:
        return ErrorCode(code)
    except ValueError:
        return ErrorCode.UNKNOWN_SERVER_ERROR


def broker_error(code: int, what: str, message: str | None = None) -> BrokerError:
    """A broker's answer to `what` as an error that states the cause and the way out."""
    known = error_code(code)
    cause = known.name if known == code else f"error {code}"
    text = f"{what}: {message or cause.replace('_', ' ').lower()}"
    if message:
        text += f" ({cause})"
    hint = _HINTS.get(known)
    return BrokerError(f"{text}. {hint}" if hint else text, code=known)


def check(code: int, what: str, message: str | None = None) -> None:
    """Raise what a non-zero code means."""
    if code:
        raise broker_error(code, what, message)


def is_retriable(error: BaseException) -> bool:
    """Whether the same may succeed a moment later."""
    if isinstance(error, BrokerError):
        return error.code in RETRIABLE and not isinstance(error, UnknownTopic)
    return isinstance(error, ConnectionLost | CannotConnect | TimedOut)
