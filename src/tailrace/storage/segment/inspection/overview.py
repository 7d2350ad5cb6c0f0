"""What a data directory holds, by everything that can be read quickly.

Small files are read whole; of segments only the batch headers, from one to the next. So a wrong byte inside a
batch is not noticed here: that is what `verification` is for.
"""

from __future__ import annotations

import os
from collections.abc import Callable

from tailrace.model import PartitionId
from tailrace.storage.segment.inspection.expectation import (
    Expectation,
    ExpectedPartition,
    look_at_partition,
    read_expectation,
)
from tailrace.storage.segment.inspection.partition_overview import describe_partition
from tailrace.storage.segment.inspection.report import (
    CheckpointReport,
    Findings,
    Inspection,
    Owner,
    PartitionReport,
)
from tailrace.storage.segment.inspection.root import open_root, read_root
from tailrace.storage.segment.inspection.source import Source
from tailrace.storage.segment.names import read_partition_directory

Wanted = Callable[[PartitionId, int], bool]
"""Which partitions to look at, by id and life."""

_LOCK_BYTES_MAX = 64


def inspect_directory(path: str | os.PathLike[str], *, wanted: Wanted | None = None) -> Inspection:
    """Look at everything but the records; FileNotFoundError if there is no data directory."""
    source = open_root(path)
    expectation = read_expectation(source)
    findings = expectation.findings
    root = read_root(source, expectation, findings)
    partitions: list[PartitionReport] = []
    for name in root.partitions:
        known = read_partition_directory(name)
        if known is not None and (wanted is None or wanted(*known)):

            def look(expected: ExpectedPartition, collected: Findings, name: str = name) -> PartitionReport:
                return describe_partition(source, name, expected, collected)

            partitions.append(look_at_partition(source, expectation, name, look, findings))
    return Inspection(
        path=source.root,
        owner=_read_owner(source),
        checkpoint=_describe_checkpoint(expectation),
        journal=tuple(expectation.journal),
        partitions=tuple(partitions),
        leftovers=tuple(root.leftovers),
        notes=tuple(findings.notes),
        problems=tuple(findings.problems),
    )


def _describe_checkpoint(expectation: Expectation) -> CheckpointReport | None:
    checkpoint = expectation.checkpoint
    if checkpoint is None:
        return None
    return CheckpointReport(
        lsn=checkpoint.lsn,
        next_life=checkpoint.next_life,
        journal_files=checkpoint.journal_files,
        partitions=len(checkpoint.rows),
        bytes=expectation.checkpoint_bytes,
    )


def _read_owner(source: Source) -> Owner | None:
    """Reading the name in LOCK disturbs nobody; trying the lock itself could make a start fail."""
    try:
        text = (
            (source.read_whole("LOCK", bytes_max=_LOCK_BYTES_MAX) or b"").decode("ascii", "replace").strip()
        )
    except OSError:
        return None
    if not text.isdecimal() or not 0 < int(text) < 1 << 31:
        return None
    try:
        os.kill(int(text), 0)
    except ProcessLookupError:
        return Owner(pid=int(text), running=False)
    except PermissionError:
        pass  # it runs, and belongs to somebody else
    return Owner(pid=int(text), running=True)
