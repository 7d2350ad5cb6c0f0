"""What a client is told when something went wrong: the border between our exceptions and HTTP.

    {"error": {"code": "TOPIC_NOT_FOUND", "message": "topic 'x' does not exist", "details": {}}}

`Code` is the whole list, and each code has its status. A BrokerError's Kafka code is translated by a table;
StorageError is our own trouble, which a client may try again later. The details name a place that cannot be
read (`Unreadable`). Its status is 422 where a producer sent records that cannot be decoded, because no retry
would help, and 500 where the log is damaged. Everything else is a bug: INTERNAL, with a line in the log and
not a word of what happened in the answer.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping
from typing import Any, Final

from tailrace.broker.unreadable import Unreadable
from tailrace.model import BrokerError, ErrorCode, OffsetOutOfRange, StorageError, TailraceError
from tailrace.security import UnknownToken, UnknownUser
from tailrace.security.acl import UnknownAcl


class Code(enum.StrEnum):
    """What went wrong, for programs."""

    TOPIC_NOT_FOUND = "TOPIC_NOT_FOUND"
    TOPIC_ALREADY_EXISTS = "TOPIC_ALREADY_EXISTS"
    INVALID_PARTITIONS = "INVALID_PARTITIONS"
    INVALID_REPLICATION_FACTOR = "INVALID_REPLICATION_FACTOR"
    INSUFFICIENT_REPLICAS = "INSUFFICIENT_REPLICAS"
    GROUP_NOT_FOUND = "GROUP_NOT_FOUND"
    OFFSET_OUT_OF_RANGE = "OFFSET_OUT_OF_RANGE"
    INVALID_CONFIG = "INVALID_CONFIG"
    AUTHORIZATION_FAILED = "AUTHORIZATION_FAILED"
    AUTHENTICATION_FAILED = "AUTHENTICATION_FAILED"
    CLUSTER_UNHEALTHY = "CLUSTER_UNHEALTHY"
    BROKER_NOT_AVAILABLE = "BROKER_NOT_AVAILABLE"
    INVALID_REQUEST = "INVALID_REQUEST"
    SUBSCRIPTION_NOT_FOUND = "SUBSCRIPTION_NOT_FOUND"
    TRANSACTION_NOT_FOUND = "TRANSACTION_NOT_FOUND"
    USER_NOT_FOUND = "USER_NOT_FOUND"
    ACL_NOT_FOUND = "ACL_NOT_FOUND"
    TOKEN_NOT_FOUND = "TOKEN_NOT_FOUND"
    QUOTA_EXCEEDED = "QUOTA_EXCEEDED"
    MESSAGE_TOO_LARGE = "MESSAGE_TOO_LARGE"
    UNREADABLE_RECORDS = "UNREADABLE_RECORDS"
    INTERNAL = "INTERNAL"


STATUS: Final[Mapping[Code, int]] = {
    Code.TOPIC_NOT_FOUND: 404,
    Code.TOPIC_ALREADY_EXISTS: 409,
    Code.INVALID_PARTITIONS: 400,
    Code.INVALID_REPLICATION_FACTOR: 400,
    Code.INSUFFICIENT_REPLICAS: 503,
    Code.GROUP_NOT_FOUND: 404,
    Code.OFFSET_OUT_OF_RANGE: 416,
    Code.INVALID_CONFIG: 400,
    Code.AUTHORIZATION_FAILED: 403,
    Code.AUTHENTICATION_FAILED: 401,
    Code.CLUSTER_UNHEALTHY: 503,
    Code.BROKER_NOT_AVAILABLE: 503,
    Code.INVALID_REQUEST: 400,
    Code.SUBSCRIPTION_NOT_FOUND: 404,
    Code.TRANSACTION_NOT_FOUND: 404,
    Code.USER_NOT_FOUND: 404,
    Code.ACL_NOT_FOUND: 404,
    Code.TOKEN_NOT_FOUND: 404,
    Code.QUOTA_EXCEEDED: 429,
    Code.MESSAGE_TOO_LARGE: 413,
    Code.UNREADABLE_RECORDS: 422,
    Code.INTERNAL: 500,
}

_OF_KAFKA: Final[Mapping[ErrorCode, Code]] = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: Code.TOPIC_NOT_FOUND,
    ErrorCode.UNKNOWN_TOPIC_ID: Code.TOPIC_NOT_FOUND,
    ErrorCode.TOPIC_ALREADY_EXISTS: Code.TOPIC_ALREADY_EXISTS,
    ErrorCode.INVALID_PARTITIONS: Code.INVALID_PARTITIONS,
    ErrorCode.INVALID_REPLICATION_FACTOR: Code.INVALID_REPLICATION_FACTOR,
    ErrorCode.NOT_ENOUGH_REPLICAS: Code.INSUFFICIENT_REPLICAS,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: Code.INSUFFICIENT_REPLICAS,
    ErrorCode.GROUP_ID_NOT_FOUND: Code.GROUP_NOT_FOUND,
    ErrorCode.OFFSET_OUT_OF_RANGE: Code.OFFSET_OUT_OF_RANGE,
    ErrorCode.INVALID_CONFIG: Code.INVALID_CONFIG,
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: Code.AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED: Code.AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: Code.AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: Code.AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_NOT_FOUND: Code.TRANSACTION_NOT_FOUND,
    ErrorCode.CONCURRENT_TRANSACTIONS: Code.BROKER_NOT_AVAILABLE,  # the one before it is not complete yet
    ErrorCode.SASL_AUTHENTICATION_FAILED: Code.AUTHENTICATION_FAILED,
    ErrorCode.RESOURCE_NOT_FOUND: Code.SUBSCRIPTION_NOT_FOUND,
    ErrorCode.MESSAGE_TOO_LARGE: Code.MESSAGE_TOO_LARGE,
    ErrorCode.RECORD_LIST_TOO_LARGE: Code.MESSAGE_TOO_LARGE,
    ErrorCode.BROKER_NOT_AVAILABLE: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.FENCED_LEADER_EPOCH: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.KAFKA_STORAGE_ERROR: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.LEADER_NOT_AVAILABLE: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.OFFSET_NOT_AVAILABLE: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.REBALANCE_IN_PROGRESS: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.REPLICA_NOT_AVAILABLE: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.THROTTLING_QUOTA_EXCEEDED: Code.BROKER_NOT_AVAILABLE,
    ErrorCode.CORRUPT_MESSAGE: Code.INTERNAL,  # what we stored and cannot read back
    ErrorCode.UNKNOWN_SERVER_ERROR: Code.INTERNAL,
}

_CONFLICTS: Final = frozenset(
    {
        ErrorCode.DUPLICATE_RESOURCE,
        ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorCode.INVALID_TXN_STATE,
        ErrorCode.NON_EMPTY_GROUP,
        ErrorCode.POLICY_VIOLATION,
        ErrorCode.UNKNOWN_MEMBER_ID,  # offsets of a group that has members
    }
)
"""The request makes sense, and not now."""


class HttpError(TailraceError):
    """A request that cannot be done, and what its client is told."""

    def __init__(
        self,
        code: Code,
        message: str,
        *,
        status: int | None = None,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.status = STATUS[code] if status is None else status
        self.details = dict(details or {})
        self.headers = dict(headers or {})

    def body(self) -> dict[str, Any]:
        """What the client is sent."""
        return {"error": {"code": str(self.code), "message": str(self), "details": self.details}}


def invalid(message: str, **details: Any) -> HttpError:
    """The request is wrong; the message says what would be right."""
    return HttpError(Code.INVALID_REQUEST, message, details=details)


def answer_to(error: Exception) -> HttpError | None:
    """What a client is told of an exception; None of one that is a bug."""
    if isinstance(error, HttpError):
        return error
    if isinstance(error, OffsetOutOfRange):
        details = {"start_offset": error.start, "end_offset": error.end}
        return HttpError(Code.OFFSET_OUT_OF_RANGE, str(error), details=details)
    if isinstance(error, Unreadable):
        return _unreadable(error)
    if isinstance(error, UnknownUser):
        return HttpError(Code.USER_NOT_FOUND, str(error))
    if isinstance(error, UnknownAcl):
        return HttpError(Code.ACL_NOT_FOUND, str(error))
    if isinstance(error, UnknownToken):
        return HttpError(Code.TOKEN_NOT_FOUND, str(error))
    if isinstance(error, BrokerError):
        code = _OF_KAFKA.get(error.code, Code.INVALID_REQUEST)
        status = 409 if error.code in _CONFLICTS else None
        return _with_patience(HttpError(code, str(error), status=status))
    if isinstance(error, StorageError):
        return _with_patience(HttpError(Code.BROKER_NOT_AVAILABLE, str(error)))
    return None


def _unreadable(error: Unreadable) -> HttpError:
    details: dict[str, Any] = {"topic": error.topic, "partition": error.partition, "offset": error.offset}
    if error.next_offset is not None:
        details["next_offset"] = error.next_offset
    code = Code.UNREADABLE_RECORDS if error.is_undecodable else Code.INTERNAL
    return HttpError(code, str(error), details=details)


def _with_patience(error: HttpError) -> HttpError:
    if error.status == 503:
        error.headers["retry-after"] = "1"
    return error
