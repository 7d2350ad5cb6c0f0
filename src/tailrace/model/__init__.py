"""Names and errors that every other package speaks. Imports nothing of Tailrace."""

from tailrace.model.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    LogBusy,
    LogDamaged,
    LogTruncated,
    NoSpace,
    OffsetOutOfRange,
    ProtocolError,
    StorageError,
    TailraceError,
)
from tailrace.model.names import NO_PRODUCER, Epoch, Offset, PartitionId

__all__ = [
    "NO_PRODUCER",
    "BrokerError",
    "ConfigError",
    "Epoch",
    "ErrorCode",
    "LogBusy",
    "LogDamaged",
    "LogTruncated",
    "NoSpace",
    "Offset",
    "OffsetOutOfRange",
    "PartitionId",
    "ProtocolError",
    "StorageError",
    "TailraceError",
]
