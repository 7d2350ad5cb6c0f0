"""Names, errors, what every other package says to people, and pure rules. Imports nothing of Tailrace.

`names`         ids, epochs, offsets              `errors`    the four families, and Kafka's codes
`text`          text that is shown to people      `ranges`    a set of offsets
`offset_reset`  where a group goes on after a reset  `address`  a TCP address or a Unix socket
`duration`      lengths of time as people write them  `archive_group`  the groups of archives
"""

from tailrace.model.errors import (
    BrokerError,
    ConfigError,
    ErrorCode,
    InvalidRecords,
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
from tailrace.model.text import day_of, escape

__all__ = [
    "NO_PRODUCER",
    "BrokerError",
    "BrokerId",
    "ConfigError",
    "Epoch",
    "ErrorCode",
    "InvalidRecords",
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
    "day_of",
    "escape",
]
