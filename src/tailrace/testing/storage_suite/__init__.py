"""The conformance suite of the storage port: what every engine must do, whoever wrote it.

An engine proves itself by a subclass in a test file of its own; pytest finds the cases by inheritance:

    class TestMyStorage(DurableStorageSuite):
        config = LogConfig(segment_bytes=4096)

        async def open_engine(self, path: Path, clock: FakeClock) -> StorageEngine:
            return await MyStorage.open(path, clock=clock)

`StorageSuite` is for engines whose data ends with the process, `DurableStorageSuite` adds reopening. Each
case runs a scenario in a loop of its own, in an empty directory, under a deadline. The suite holds an engine
to the docstrings of `tailrace.storage.api` and to no more: how much over the minimum a read returns, when
retention gives way and what a gap costs are the engine's own choice.

`stage`    what a case works with: the engine, its clock, and the hooks that a subclass may override
`history`  a log beside the list of batches that it must hold
"""

from tailrace.testing.storage_suite.appending import AppendCases
from tailrace.testing.storage_suite.cutting import CutCases
from tailrace.testing.storage_suite.lifecycle import LifecycleCases
from tailrace.testing.storage_suite.lookup import LookupCases
from tailrace.testing.storage_suite.reading import ReadCases
from tailrace.testing.storage_suite.reopening import ReopenCases
from tailrace.testing.storage_suite.retention import RetentionCases
from tailrace.testing.storage_suite.stage import Stage
from tailrace.testing.storage_suite.transactions import TransactionCases, TransactionReopenCases
from tailrace.testing.storage_suite.waiting import WaitCases

__all__ = ["DurableStorageSuite", "Stage", "StorageSuite"]


class StorageSuite(
    AppendCases,
    WaitCases,
    ReadCases,
    LookupCases,
    CutCases,
    TransactionCases,
    RetentionCases,
    LifecycleCases,
):
    """Every case that any engine must pass."""


class DurableStorageSuite(StorageSuite, ReopenCases, TransactionReopenCases):
    """And those of an engine that keeps what it acknowledged."""

    declares_durable = True
