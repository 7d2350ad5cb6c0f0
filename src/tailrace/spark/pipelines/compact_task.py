"""What a worker of a compaction does: it writes the rows of several files as one, in offset order, staged.

The new file counts only once the driver has committed it in place of the old ones. A file whose rows are not
exactly as many as those it replaces is never handed over: compaction must not be able to lose a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pyarrow as pa

from tailrace.model import TailraceError
from tailrace.spark.codec import Piece
from tailrace.spark.lake import StagedFile, scan_files, write_files
from tailrace.spark.pipelines.compact_plan import Rewrite


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactWork:
    """What every task of a wave shares; travels to the workers pickled."""

    root: str
    staging: str
    compression: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewritten:
    """The files that take the place of a rewrite's; travels back as JSON."""

    files: list[StagedFile]


class RowsDiffer(TailraceError):
    """A rewrite has other rows than the files it was made of."""


def rewrite_files(work: CompactWork, rewrite: Rewrite) -> Rewritten:
    """Write the rows of some files as one file."""
    first = rewrite.files[0]
    written = write_files(
        _pieces(scan_files(work.root, rewrite.files)),
        root=work.root,
        staging=work.staging,
        topic=first.topic,
        partition=first.partition,
        file_bytes_max=2 * rewrite.bytes,  # one file, even if it packs a little worse than they did
        compression=work.compression,
    )
    if written.rows != rewrite.rows:
        raise RowsDiffer(
            f"{first.topic}-{first.partition} of {first.day}: {len(rewrite.files)} files should have"
            f" {rewrite.rows} rows and have {written.rows}. Nothing was changed"
        )
    return Rewritten(files=written.files)


def _pieces(batches: Iterator[pa.RecordBatch]) -> Iterator[Piece]:
    for batch in batches:
        if batch.num_rows:
            last = batch.column("offset")[batch.num_rows - 1].as_py()
            yield Piece(rows=batch, bad=[], next_offset=last + 1)
