"""Four families of errors, one fate each.

`ProtocolError`  the peer broke the rules: its connection is closed.
`BrokerError`    an answer with a Kafka error code; everything else goes on.
`StorageError`   our own trouble: the log directory is fenced, a server exits non-zero.
`ConfigError`    refuse to start; the message names the key and the fix.

A message to a person states the cause and the way out.
"""

from __future__ import annotations

import enum
from collections.abc import Sequence
from typing import ClassVar

from tailrace.model.names import Offset, PartitionId


class ErrorCode(enum.IntEnum):
    """Kafka's error codes: what a request is answered with, and what a client may meet elsewhere."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    INVALID_FETCH_SIZE = 4
    LEADER_NOT_AVAILABLE = 5
    NOT_LEADER_OR_FOLLOWER = 6
    REQUEST_TIMED_OUT = 7
    BROKER_NOT_AVAILABLE = 8
    REPLICA_NOT_AVAILABLE = 9
    MESSAGE_TOO_LARGE = 10
    STALE_CONTROLLER_EPOCH = 11
    OFFSET_METADATA_TOO_LARGE = 12
    NETWORK_EXCEPTION = 13
    COORDINATOR_LOAD_IN_PROGRESS = 14
    COORDINATOR_NOT_AVAILABLE = 15
    NOT_COORDINATOR = 16
    INVALID_TOPIC_EXCEPTION = 17
    RECORD_LIST_TOO_LARGE = 18
    NOT_ENOUGH_REPLICAS = 19
    NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
    INVALID_REQUIRED_ACKS = 21
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    INVALID_COMMIT_OFFSET_SIZE = 28
    TOPIC_AUTHORIZATION_FAILED = 29
    GROUP_AUTHORIZATION_FAILED = 30
    CLUSTER_AUTHORIZATION_FAILED = 31
    INVALID_TIMESTAMP = 32
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    TOPIC_ALREADY_EXISTS = 36
    INVALID_PARTITIONS = 37
    INVALID_REPLICATION_FACTOR = 38
    INVALID_REPLICA_ASSIGNMENT = 39
    INVALID_CONFIG = 40
    NOT_CONTROLLER = 41
    INVALID_REQUEST = 42
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43
    POLICY_VIOLATION = 44
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    DUPLICATE_SEQUENCE_NUMBER = 46
    INVALID_PRODUCER_EPOCH = 47
    INVALID_TXN_STATE = 48
    INVALID_PRODUCER_ID_MAPPING = 49
    INVALID_TRANSACTION_TIMEOUT = 50
    CONCURRENT_TRANSACTIONS = 51
    TRANSACTION_COORDINATOR_FENCED = 52
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    SECURITY_DISABLED = 54
    OPERATION_NOT_ATTEMPTED = 55
    KAFKA_STORAGE_ERROR = 56
    LOG_DIR_NOT_FOUND = 57
    SASL_AUTHENTICATION_FAILED = 58
    UNKNOWN_PRODUCER_ID = 59
    REASSIGNMENT_IN_PROGRESS = 60
    DELEGATION_TOKEN_AUTH_DISABLED = 61
    DELEGATION_TOKEN_NOT_FOUND = 62
    DELEGATION_TOKEN_OWNER_MISMATCH = 63
    DELEGATION_TOKEN_REQUEST_NOT_ALLOWED = 64
    DELEGATION_TOKEN_AUTHORIZATION_FAILED = 65
    DELEGATION_TOKEN_EXPIRED = 66
    INVALID_PRINCIPAL_TYPE = 67
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    INVALID_FETCH_SESSION_EPOCH = 71
    LISTENER_NOT_FOUND = 72
    TOPIC_DELETION_DISABLED = 73
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    UNSUPPORTED_COMPRESSION_TYPE = 76
    STALE_BROKER_EPOCH = 77
    OFFSET_NOT_AVAILABLE = 78
    MEMBER_ID_REQUIRED = 79
    PREFERRED_LEADER_NOT_AVAILABLE = 80
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    ELIGIBLE_LEADERS_NOT_AVAILABLE = 83
    ELECTION_NOT_NEEDED = 84
    NO_REASSIGNMENT_IN_PROGRESS = 85
    GROUP_SUBSCRIBED_TO_TOPIC = 86
    INVALID_RECORD = 87
    UNSTABLE_OFFSET_COMMIT = 88
    THROTTLING_QUOTA_EXCEEDED = 89
    PRODUCER_FENCED = 90
    RESOURCE_NOT_FOUND = 91
    DUPLICATE_RESOURCE = 92
    UNACCEPTABLE_CREDENTIAL = 93
    INCONSISTENT_VOTER_SET = 94
    INVALID_UPDATE_VERSION = 95
    FEATURE_UPDATE_FAILED = 96
    PRINCIPAL_DESERIALIZATION_FAILURE = 97
    UNKNOWN_TOPIC_ID = 100
    INCONSISTENT_TOPIC_ID = 103
    TRANSACTIONAL_ID_NOT_FOUND = 105
    FETCH_SESSION_TOPIC_ID_ERROR = 106
    FENCED_MEMBER_EPOCH = 110
    MISMATCHED_ENDPOINT_TYPE = 114
    UNSUPPORTED_ENDPOINT_TYPE = 115
    TRANSACTION_ABORTABLE = 120


class TailraceError(Exception):
    """Everything that Tailrace raises on purpose."""


class ProtocolError(TailraceError):
    """The peer broke the rules of the protocol; its connection is closed."""


class ConfigError(TailraceError):
    """A setting is wrong; the message names it and the fix."""


class BrokerError(TailraceError):
    """An answer: the request failed with `code`, and nothing else is affected."""

    code: ErrorCode
    retriable: ClassVar[bool] = False

    def __init__(self, message: str, *, code: ErrorCode) -> None:
        super().__init__(message)
        self.code = code


class OffsetOutOfRange(BrokerError):
    """The offset was trimmed, evicted, or does not exist yet."""

    def __init__(self, offset: Offset, *, start: Offset, end: Offset) -> None:
        super().__init__(
            f"offset {offset} is not in the log, which holds {start} to {end}",
            code=ErrorCode.OFFSET_OUT_OF_RANGE,
        )
        self.start = start
        self.end = end


class PartitionExists(BrokerError):
    """There is a log of this partition already."""

    def __init__(self, partition_id: PartitionId) -> None:
        super().__init__(f"partition {partition_id} exists already", code=ErrorCode.TOPIC_ALREADY_EXISTS)


class UnknownPartition(BrokerError):
    """There is no log of this partition."""

    def __init__(self, partition_id: PartitionId) -> None:
        message = f"partition {partition_id} does not exist"
        super().__init__(message, code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


class InvalidRecords(BrokerError):
    """Some records of a batch break a rule, so that the whole batch is refused (KIP-467)."""

    def __init__(self, message: str, *, numbers: Sequence[int], reason: str) -> None:
        """`numbers` are the places of the records in their batch, from 0; `reason` holds for each of them."""
        super().__init__(message, code=ErrorCode.INVALID_RECORD)
        self.numbers = numbers
        self.reason = reason


class LogDamaged(BrokerError):
    """Bytes that were acknowledged cannot be read back as they were written. They are kept, never served."""

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.CORRUPT_MESSAGE)


class LogTruncated(BrokerError):
    """What was being read, or waited for, was cut off the log by a truncation."""

    retriable = True

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.NOT_LEADER_OR_FOLLOWER)


class NoSpace(BrokerError):
    """The disk is (nearly) full: appends are refused until there is room, reads go on."""

    retriable = True

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.KAFKA_STORAGE_ERROR)


class LogBusy(BrokerError):
    """More is waiting to be committed than may wait; try again once some of it is durable."""

    retriable = True

    def __init__(self, message: str) -> None:
        super().__init__(message, code=ErrorCode.THROTTLING_QUOTA_EXCEEDED)


class StorageError(TailraceError):
    """The log directory cannot be trusted further: what failed, where, and what a person can do."""

    def __init__(self, op: str, path: str, reason: str, *, hint: str = "") -> None:
        super().__init__(f"{op} {path}: {reason}" + (f". {hint}" if hint else ""))
        self.op = op
        self.path = path
        self.reason = reason
        self.hint = hint
