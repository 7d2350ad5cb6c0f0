"""What the rest stands on: the clock, the disk and its threads, pooled buffers, supervised tasks, histograms.

Everything outside a process that a rule may depend on comes through a port of this package (clock, disk,
randomness), so that a seeded simulation can stand in for it. No package above this one calls `os`, `time`
or `threading` for its work.
"""

from tailrace.runtime.buffers import BufferPool
from tailrace.runtime.clock import Clock, SystemClock
from tailrace.runtime.disk import Disk, File, RealDisk, SyncError
from tailrace.runtime.histogram import BOUNDS_S, Histogram, quantile_s
from tailrace.runtime.lock import DirectoryLock
from tailrace.runtime.tasks import Supervisor, for_each, wait_at_most

__all__ = [
    "BOUNDS_S",
    "BufferPool",
    "Clock",
    "DirectoryLock",
    "Disk",
    "File",
    "Histogram",
    "RealDisk",
    "Supervisor",
    "SyncError",
    "SystemClock",
    "for_each",
    "quantile_s",
    "wait_at_most",
]
