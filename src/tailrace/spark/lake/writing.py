"""Pieces of a partition to Parquet files, one row of files for each day.

    pieces -> split by day -> rows held back, by day -> row groups -> files

Rows are held back until all days together have GROUP_BYTES_MAX of them; then the day that has most gets a row
group. So a topic in order makes large row groups, one whose times jump about makes few files, and memory
stays bounded either way. At most FILES_OPEN_MAX files are open; the one that was written longest ago is
finished first. A file that has grown to its limit is finished too, and the day goes on in another.

Runs in Spark's Python workers. Everything is durable when `write_files` returns, and invisible until a commit
names it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa

from tailrace.model import ConfigError
from tailrace.spark.codec import Piece
from tailrace.spark.lake.change import BadRange
from tailrace.spark.lake.data_file import StagedFile
from tailrace.spark.lake.durable import sync_folder
from tailrace.spark.lake.layout import DAY_US, check_topic, day_text
from tailrace.spark.lake.marker import read_format
from tailrace.spark.lake.quarantine import save_bad
from tailrace.spark.lake.row_file import RowFile
from tailrace.spark.lake.row_numbers import as_column, timestamps_us
from tailrace.spark.lake.schema import FILE_SCHEMA, file_schema
from tailrace.spark.lake.staging import staged_name

FILE_BYTES_MAX = 256 * 1024 * 1024
GROUP_BYTES_MAX = 64 * 1024 * 1024
FILES_OPEN_MAX = 8
COMPRESSIONS = ("zstd", "snappy", "lz4", "gzip", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class Written:
    """What became of the pieces of a range."""

    files: list[StagedFile]
    bad: list[BadRange]
    next_offset: int
    """Of the last piece; -1 if there was none."""
    rows: int


def write_files(
    pieces: Iterable[Piece],
    *,
    root: str,
    staging: str,
    topic: str,
    partition: int,
    file_bytes_max: int = FILE_BYTES_MAX,
    compression: str = "zstd",
) -> Written:
    """Write the rows of one partition, in the order of their offsets, into a run's staging folder."""
    check_topic(topic)
    if compression not in COMPRESSIONS:
        raise ConfigError(f"compression {compression!r} is not one of {', '.join(COMPRESSIONS)}")
    writer = _DayWriter(
        Path(root),
        staging=staging,
        topic=topic,
        partition=partition,
        file_bytes_max=file_bytes_max,
        compression=compression,
    )
    bad: list[BadRange] = []
    next_offset = -1
    try:
        for piece in pieces:
            writer.add(piece.rows)
            next_offset = piece.next_offset
            bad += [
                save_bad(Path(root), span, topic=topic, partition=partition, next_offset=next_offset)
                for span in piece.bad
            ]
        files = writer.finish()
    except BaseException:
        writer.discard()
        raise
    return Written(
        files=files, bad=bad, next_offset=next_offset, rows=sum(staged.file.rows for staged in files)
    )


class _Held:
    """Rows of a day that wait to become a row group."""

    __slots__ = ("batches", "bytes")

    def __init__(self) -> None:
        self.batches: list[pa.RecordBatch] = []
        self.bytes = 0


class _DayWriter:
    """Splits rows by day, and keeps the open files."""

    def __init__(
        self,
        root: Path,
        *,
        staging: str,
        topic: str,
        partition: int,
        file_bytes_max: int,
        compression: str,
    ) -> None:
        self._root = root
        self._schema = file_schema(read_format(root))
        self._staging = staging
        self._topic = topic
        self._partition = partition
        self._file_bytes_max = file_bytes_max
        self._group_bytes_max = min(GROUP_BYTES_MAX, file_bytes_max)
        self._compression = compression
        self._held: dict[str, _Held] = {}
        self._held_bytes = 0
        self._open: dict[str, RowFile] = {}  # by day; the one written longest ago comes first
        self._done: list[StagedFile] = []

    def add(self, rows: pa.RecordBatch) -> None:
        """Take rows that come after all those before."""
        if not rows.num_rows:
            return
        batch = _file_rows(rows, self._partition)
        for day, part in _split_days(batch):
            held = self._held.setdefault(day, _Held())
            held.batches.append(part)
            held.bytes += part.nbytes
            self._held_bytes += part.nbytes
        while self._held_bytes >= self._group_bytes_max:
            self._write(max(self._held, key=lambda day: self._held[day].bytes))

    def finish(self) -> list[StagedFile]:
        """Everything that was taken, in files that are whole and synced."""
        for day in sorted(self._held):
            self._write(day)
        for day in list(self._open):
            self._close(day)
        if self._done:
            sync_folder(self._root / self._staging)
        return sorted(self._done, key=lambda staged: (staged.file.first_offset, staged.file.day))

    def discard(self) -> None:
        for file in self._open.values():
            file.discard()
        for staged in self._done:
            (self._root / staged.staged).unlink(missing_ok=True)

    def _write(self, day: str) -> None:
        held = self._held.pop(day)
        self._held_bytes -= held.bytes
        file = self._open.pop(day, None) or self._make(day)
        self._open[day] = file
        file.write(pa.Table.from_batches(held.batches))
        if file.bytes >= self._file_bytes_max:
            self._close(day)

    def _make(self, day: str) -> RowFile:
        if len(self._open) >= FILES_OPEN_MAX:
            self._close(next(iter(self._open)))
        return RowFile(
            self._root,
            self._schema,
            staged=staged_name(self._staging),
            topic=self._topic,
            partition=self._partition,
            day=day,
            compression=self._compression,
        )

    def _close(self, day: str) -> None:
        self._done.append(self._open.pop(day).finish())


def _file_rows(rows: pa.RecordBatch, partition: int) -> pa.RecordBatch:
    """The columns of a file; a piece may have more, in another order."""
    columns = []
    for field in FILE_SCHEMA:
        if field.name == "partition":
            same = np.full(rows.num_rows, partition, dtype=np.int32)
            columns.append(as_column(same, field.type))
        else:
            column = rows.column(field.name)
            columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=FILE_SCHEMA)


def _split_days(rows: pa.RecordBatch) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each day, still in order. Nearly always there is one day, and nothing is copied."""
    times = timestamps_us(rows.column("timestamp"))
    first, last = day_text(int(times.min()) // DAY_US), day_text(int(times.max()) // DAY_US)
    if first == last:
        yield first, rows
        return
    days = times // DAY_US
    parts: dict[str, list[int]] = {}
    for day in np.unique(days).tolist():
        parts.setdefault(day_text(day), []).append(day)
    for text, numbers in parts.items():  # several numbers only where years are out of range
        # Copied, not cut out: what is held back must not keep the rest of the piece alive.
        yield text, rows.take(as_column(np.flatnonzero(np.isin(days, numbers)), pa.int64()))
