"""Four families of errors, one fate each.

`ProtocolError`  the peer broke the rules: its connection is closed.
`BrokerError`    an answer with a Kafka error code; everything else goes on.
`StorageError`   our own trouble: the log directory is fenced, a server exits non-zero.
`ConfigError`    refuse to start; the message names the key and the fix.

A message to a person states the cause and the way out.
"""

from __future__ import annotations

import enum
from typing import ClassVar

from tailrace.model.names import Offset, PartitionId


class ErrorCode(enum.IntEnum):
    """Kafka's error codes, as far as anything here answers with them."""

    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    MESSAGE_TOO_LARGE = 10
    TOPIC_ALREADY_EXISTS = 36
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45
    INVALID_PRODUCER_EPOCH = 47
    KAFKA_STORAGE_ERROR = 56
    INVALID_RECORD = 87
    THROTTLING_QUOTA_EXCEEDED = 89


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
