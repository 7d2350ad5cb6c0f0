"""What a worker of an archive does: it reads ranges of offsets and writes them as Parquet files, staged.

Nothing it writes counts until the driver commits it to the lake's table, so an attempt that dies, or comes
second, leaves no more than a staged file that is cleared away. Memory is bounded by a fetch in hand and one
on its way, whatever the backlog.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.model import TailraceError
from tailrace.spark.lake import ROW_SCHEMA, BadRange, StagedFile, write_files
from tailrace.spark.link import link_to
from tailrace.spark.offset_range import OffsetRange
from tailrace.spark.reading import read_range


@dataclass(frozen=True, slots=True, kw_only=True)
class ArchiveWork:
    """What every task of a batch shares; travels to the workers pickled."""

    bootstrap: str
    root: str
    staging: str
    file_bytes_max: int
    compression: str
    read_committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskWritten:
    """What one task left in the staging folder; travels back as JSON."""

    files: list[StagedFile]
    bad: list[BadRange]
    rows: int


class ShortRead(TailraceError):
    """A partition ended before the range that was planned."""


def write_ranges(work: ArchiveWork, ranges: Sequence[OffsetRange]) -> TaskWritten:
    """Write some ranges, one after the other."""
    link = link_to(work.bootstrap)
    files: list[StagedFile] = []
    bad: list[BadRange] = []
    rows = 0
    for wanted in ranges:
        pieces = read_range(
            link, wanted, headers=True, schema=ROW_SCHEMA, read_committed=work.read_committed, keeps_bad=True
        )
        written = write_files(
            pieces,
            root=work.root,
            staging=work.staging,
            topic=wanted.topic,
            partition=wanted.partition,
            file_bytes_max=work.file_bytes_max,
            compression=work.compression,
        )
        if written.next_offset < wanted.end:
            raise ShortRead(f"{wanted} could be read up to offset {written.next_offset} only")
        files += written.files
        bad += written.bad
        rows += written.rows
    return TaskWritten(files=files, bad=bad, rows=rows)
