"""Files of one partition back to rows, in the order of their offsets.

Files of one day follow each other, those of different days may overlap: a topic whose records are late has
offsets 0-99 in one day and 50-149 in another. So files are merged: each open one shows a batch, rows up to
the least of the batches' last offsets are taken from all, sorted, and given out. A file is opened only when
its first offset comes up.

A reader needs no lock. A file may be moved while it reads its snapshot, into sight by a commit or out of it
by a compaction, so it is looked for at its path, among the old ones, and where the log says it was staged.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.model import StorageError
from tailrace.spark.codec import KAFKA_SCHEMA
from tailrace.spark.codec.columns import repeated_text
from tailrace.spark.codec.schema import plan_schema
from tailrace.spark.lake.data_file import DataFile
from tailrace.spark.lake.layout import resolve_root
from tailrace.spark.lake.log import TableLog
from tailrace.spark.lake.placing import find_old
from tailrace.spark.lake.row_numbers import as_column, offsets_of, timestamps_us

BATCH_ROWS = 65_536
_READ_AHEAD_BYTES = 1 << 20
_LOOKS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class _Wanted:
    """Which rows: bounds are half-open, None leaves a side open."""

    since_us: int | None
    until_us: int | None
    since_offset: int | None
    until_offset: int | None

    def may_have(self, *, times: tuple[int, int], offsets: tuple[int, int]) -> bool:
        """Whether something with these first and last values, both inclusive, can hold a wanted row."""
        return _overlaps(times, self.since_us, self.until_us) and _overlaps(
            offsets, self.since_offset, self.until_offset
        )

    def filter(self, rows: pa.RecordBatch) -> pa.RecordBatch:
        keep = np.ones(rows.num_rows, dtype=bool)
        times, offsets = timestamps_us(rows.column("timestamp")), offsets_of(rows)
        if self.since_us is not None:
            keep &= times >= self.since_us
        if self.until_us is not None:
            keep &= times < self.until_us
        if self.since_offset is not None:
            keep &= offsets >= self.since_offset
        if self.until_offset is not None:
            keep &= offsets < self.until_offset
        return rows if keep.all() else rows.take(as_column(np.flatnonzero(keep), pa.int64()))


def scan_files(
    root: str | Path,
    files: Sequence[DataFile],
    *,
    columns: Sequence[str] | None = None,
    since_us: int | None = None,
    until_us: int | None = None,
    since_offset: int | None = None,
    until_offset: int | None = None,
    batch_rows: int = BATCH_ROWS,
) -> Iterator[pa.RecordBatch]:
    """The rows of files of ONE partition, by offset, with the columns of KAFKA_SCHEMA or those named.

    Bounds of time are microseconds since 1970, those of offsets are offsets; `until_*` is not included.
    """
    tps = {file.tp for file in files}
    if len(tps) > 1:
        raise ValueError(f"files of several partitions cannot be put in order: {sorted(tps)}")
    schema = KAFKA_SCHEMA if columns is None else pa.schema([_field(name) for name in columns])
    schema = plan_schema(schema, headers=True)
    wanted = _Wanted(
        since_us=since_us, until_us=until_us, since_offset=since_offset, until_offset=until_offset
    )
    chosen = [
        file
        for file in files
        if wanted.may_have(
            times=(file.min_timestamp_us, file.max_timestamp_us),
            offsets=(file.first_offset, file.last_offset),
        )
    ]
    merge = _Merge(resolve_root(root), chosen, wanted=wanted, columns=schema.names, batch_rows=batch_rows)
    for rows in merge:
        found = wanted.filter(rows)
        if found.num_rows:
            yield _shown(found, schema, topic=chosen[0].topic)


class _Merge:
    """All rows of the files, by offset."""

    def __init__(
        self,
        root: Path,
        files: Sequence[DataFile],
        *,
        wanted: _Wanted,
        columns: Sequence[str],
        batch_rows: int,
    ) -> None:
        self._root = root
        self._waiting = sorted(files, key=lambda file: file.first_offset, reverse=True)  # the next is last
        self._open: list[_Cursor] = []
        self._wanted = wanted
        self._columns = list(dict.fromkeys([*(c for c in columns if c != "topic"), "offset", "timestamp"]))
        self._batch_rows = batch_rows

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        try:
            while self._open or self._waiting:
                if not self._open:
                    self._open_next()
                    continue
                parts = self._take(self._bound())
                yield parts[0] if len(parts) == 1 else _sorted(parts)
        finally:
            for cursor in self._open:
                cursor.close()

    def _bound(self) -> int:
        """The offset up to which every open file shows its rows; files that begin before it are opened."""
        bound = min(cursor.last_offset for cursor in self._open)
        while self._waiting and self._waiting[-1].first_offset <= bound:
            if self._open_next():
                bound = min(bound, self._open[-1].last_offset)
        return bound

    def _open_next(self) -> bool:
        cursor = _Cursor(
            self._root,
            self._waiting.pop(),
            wanted=self._wanted,
            columns=self._columns,
            batch_rows=self._batch_rows,
        )
        if cursor.advance():
            self._open.append(cursor)
            return True
        cursor.close()
        return False

    def _take(self, bound: int) -> list[pa.RecordBatch]:
        parts = []
        for cursor in list(self._open):
            part = cursor.take(bound)
            if part.num_rows:
                parts.append(part)
            if cursor.is_empty and not cursor.advance():
                cursor.close()
                self._open.remove(cursor)
        return parts


class _Cursor:
    """A place in an open file."""

    __slots__ = ("_batches", "_file", "_offsets", "_path", "_rows", "last_offset")

    def __init__(
        self, root: Path, file: DataFile, *, wanted: _Wanted, columns: list[str], batch_rows: int
    ) -> None:
        self._path = file.path
        self._file = _open_file(root, file)
        groups = [
            group
            for group in range(self._file.metadata.num_row_groups)
            if _may_have(self._file.metadata.row_group(group), wanted)
        ]
        self._batches = self._file.iter_batches(batch_size=batch_rows, row_groups=groups, columns=columns)
        self._rows: pa.RecordBatch | None = None
        self._offsets = np.empty(0, dtype=np.int64)
        self.last_offset = -1

    @property
    def is_empty(self) -> bool:
        return not len(self._offsets)

    def advance(self) -> bool:
        """Show the next batch; False at the end."""
        for rows in self._batches:
            if rows.num_rows:
                self._show(rows)
                return True
        return False

    def take(self, bound: int) -> pa.RecordBatch:
        """The rows shown up to `bound`, which are then not shown any more."""
        assert self._rows is not None, "a cursor is advanced before rows are taken"
        count = int(np.searchsorted(self._offsets, bound, side="right"))
        taken, rest = self._rows.slice(0, count), self._rows.slice(count)
        self._rows, self._offsets = rest, self._offsets[count:]
        return taken

    def close(self) -> None:
        self._file.close()

    def _show(self, rows: pa.RecordBatch) -> None:
        self._rows, self._offsets = rows, offsets_of(rows)
        self.last_offset = int(self._offsets[-1])


def find_file(root: Path, file: DataFile) -> Path:
    """Where a file of a snapshot lies now, whoever moves it meanwhile."""
    for _ in range(_LOOKS_MAX):
        if (path := root / file.path).exists():
            return path
        if (old := find_old(root, file.path)) is not None:
            return old
        staged = _staged_path(root, file.path)
        if staged is not None and (path := root / staged).exists():
            return path
    raise StorageError(
        "read",
        str(root / file.path),
        "the file is not in the lake any more",
        hint="Plan again from a new snapshot: replaced files are deleted after their grace period",
    )


def _staged_path(root: Path, path: str) -> str | None:
    _, entries = TableLog(root).read_on(None)
    return next((add.staged for entry in entries for add in entry.add if add.file.path == path), None)


def _open_file(root: Path, file: DataFile) -> pq.ParquetFile:
    for _ in range(_LOOKS_MAX):
        try:
            # An open file stays readable wherever it is moved to.
            return pq.ParquetFile(
                os.fspath(find_file(root, file)), buffer_size=_READ_AHEAD_BYTES, pre_buffer=False
            )
        except FileNotFoundError:
            continue
        except pa.ArrowInvalid as error:
            raise StorageError("read", str(root / file.path), f"it is no Parquet file: {error}") from error
    raise StorageError("read", str(root / file.path), "it moves faster than it can be opened")


def _may_have(group: pq.RowGroupMetaData, wanted: _Wanted) -> bool:
    found: dict[str, tuple[int, int]] = {}
    for index in range(group.num_columns):
        column = group.column(index)
        if column.path_in_schema in ("offset", "timestamp") and column.is_stats_set:
            low, high = column.statistics.min_raw, column.statistics.max_raw
            found[column.path_in_schema] = int(low), int(high)
    if len(found) < 2:
        return True
    return wanted.may_have(times=found["timestamp"], offsets=found["offset"])


def _overlaps(span: tuple[int, int], since: int | None, until: int | None) -> bool:
    return (since is None or span[1] >= since) and (until is None or span[0] < until)


def _sorted(parts: list[pa.RecordBatch]) -> pa.RecordBatch:
    rows = pa.concat_batches(parts)
    return rows.take(as_column(np.argsort(offsets_of(rows), kind="stable"), pa.int64()))


def _shown(rows: pa.RecordBatch, schema: pa.Schema, *, topic: str) -> pa.RecordBatch:
    columns = []
    for field in schema:
        if field.name == "topic":
            column = repeated_text(topic, rows.num_rows)
        else:
            column = rows.column(field.name)
        columns.append(column if column.type.equals(field.type) else column.cast(field.type))
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _field(name: str) -> pa.Field:
    index = KAFKA_SCHEMA.get_field_index(name)
    return KAFKA_SCHEMA.field(index) if index >= 0 else pa.field(name, pa.null())
