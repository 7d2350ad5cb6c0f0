"""The log: where batches are kept, and the engines that keep them.

`api`       the port that the broker speaks: `PartitionLog`, `StorageEngine`
`counters`  what an engine measures of itself
`epochs`    which leader epoch wrote which offsets        (state derived from the log)
`producers` the newest batches of idempotent producers    (state derived from the log)
`segment/`  the default engine: files and one journal per data directory
`memory/`   a bounded ring per partition; nothing outlives the process
"""

from tailrace.storage.api import (
    COMMIT,
    NO_LIMIT,
    OS,
    Extent,
    Fsync,
    LogConfig,
    PartitionLog,
    Slice,
    StorageEngine,
    TimestampedOffset,
    Waiter,
)
from tailrace.storage.counters import StorageCounters
from tailrace.storage.epochs import LeaderEpochs
from tailrace.storage.producers import ProducerStates

__all__ = [
    "COMMIT",
    "NO_LIMIT",
    "OS",
    "Extent",
    "Fsync",
    "LeaderEpochs",
    "LogConfig",
    "PartitionLog",
    "ProducerStates",
    "Slice",
    "StorageCounters",
    "StorageEngine",
    "TimestampedOffset",
    "Waiter",
]
