"""Every byte of a data directory, checked against what was written.

CHECKPOINT and journal first (`expectation`), then each partition: segments with their indexes, snapshots, and
the batches that the journal says were written by reference. What lies past the checkpoint is judged
leniently, because the journal holds it. Bytes are read from the disk and not from the page cache, where the
system allows it.
"""

from __future__ import annotations

import os

from tailrace.storage.segment.inspection.expectation import (
    ExpectedPartition,
    look_at_partition,
    read_expectation,
)
from tailrace.storage.segment.inspection.partition_check import Counts, PartitionCheck, Wanted, everything
from tailrace.storage.segment.inspection.progress import Advance, Progress
from tailrace.storage.segment.inspection.report import Findings, Verification
from tailrace.storage.segment.inspection.root import open_root, read_root
from tailrace.storage.segment.inspection.source import Source
from tailrace.storage.segment.names import CHECKPOINT, CHECKPOINT_COPY, JOURNAL_DIRECTORY


def bytes_to_verify(path: str | os.PathLike[str]) -> int:
    """About how many bytes `verify_directory` will go through."""
    source = open_root(path)
    partitions = read_root(source, read_expectation(source), Findings()).partitions
    trees = (JOURNAL_DIRECTORY + "/", *(name + "/" for name in partitions))
    return _checkpoint_bytes(source) + sum(map(source.tree_bytes, trees))


def _checkpoint_bytes(source: Source) -> int:
    return source.size(CHECKPOINT) + source.size(CHECKPOINT_COPY)


def verify_directory(
    path: str | os.PathLike[str], *, wanted: Wanted = everything, advance: Advance | None = None
) -> Verification:
    """Check everything; FileNotFoundError if there is no data directory, and no other error.

    `wanted` leaves segments and snapshots out, by their paths. `advance` is told of bytes as they are gone
    through.
    """
    source = open_root(path, fresh=True)
    progress = Progress(advance or (lambda _: None))
    expectation = read_expectation(source)
    findings, counts = expectation.findings, Counts(bytes=_checkpoint_bytes(source))
    for file in expectation.journal:
        counts.bytes += file.bytes
        progress.add(file.bytes)
    partitions = read_root(source, expectation, findings).partitions
    if expectation.checkpoint is None and partitions:
        findings.note(
            CHECKPOINT, "without it, the newest segment of every partition and the strays cannot be judged"
        )
    for name in partitions:

        def look(expected: ExpectedPartition, collected: Findings, name: str = name) -> Counts:
            return PartitionCheck(
                source, name, expected, findings=collected, progress=progress, wanted=wanted
            ).run()

        done = progress.bytes
        counts.add(look_at_partition(source, expectation, name, look, findings))
        progress.add(max(source.tree_bytes(name + "/") - (progress.bytes - done), 0))
    progress.flush()
    return Verification(
        path=source.root,
        partitions=len(partitions),
        segments=counts.segments,
        batches=counts.batches,
        records=counts.records,
        bytes_checked=counts.bytes,
        notes=tuple(findings.notes),
        problems=tuple(findings.problems),
    )
