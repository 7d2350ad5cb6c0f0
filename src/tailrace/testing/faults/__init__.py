"""Faults on real files: processes that are killed, syncs that fail, disks that fill up or lose their power.

`workload`  batches of every kind, and settings small enough that every path is walked within a second
`writer`    a process that writes until it is ended: `python -m tailrace.testing.faults.writer DIR`
`process`   that process as its parent sees it: started, listened to, killed
`ledger`    what a writer said was acknowledged, and what a directory must therefore hold
`disk`      a disk whose n-th sync fails, or that kills its process in its n-th call
`mount`     file systems of a test's own: small, thin, or cut off while they are written

`tailrace.testing.simulation` finds more, faster. This package shows that the simulation did not lie.
"""

from tailrace.testing.faults.disk import FaultyDisk
from tailrace.testing.faults.ledger import Held, Ledger, State, digest_of, read_state
from tailrace.testing.faults.process import WriterProcess
from tailrace.testing.faults.workload import LOG_CONFIG, BatchSource, small_directory

__all__ = [
    "LOG_CONFIG",
    "BatchSource",
    "FaultyDisk",
    "Held",
    "Ledger",
    "State",
    "WriterProcess",
    "digest_of",
    "read_state",
    "small_directory",
]
