"""Names, errors and what every other package says to people. Imports nothing of Tailrace."""

from tailrace.model.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    LogBusy,
    LogDamaged,
    LogTruncated,
    NoSpace,
    OffsetOutOfRange,
    PartitionExists,
    ProtocolError,
    StorageError,
    TailraceError,
    UnknownPartition,
)
from tailrace.model.names import NO_PRODUCER, BrokerId, Epoch, Offset, PartitionId, TopicPartition
from tailrace.model.text import escape

__all__ = [
    "NO_PRODUCER",
    "BrokerError",
    "BrokerId",
    "ConfigError",
    "Epoch",
    "ErrorCode",
    "LogBusy",
    "LogDamaged",
    "LogTruncated",
    "NoSpace",
    "Offset",
    "OffsetOutOfRange",
    "PartitionExists",
    "PartitionId",
    "ProtocolError",
    "StorageError",
    "TailraceError",
    "TopicPartition",
    "UnknownPartition",
    "escape",
]
