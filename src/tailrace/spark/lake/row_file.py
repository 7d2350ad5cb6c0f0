"""One Parquet file that is being written, and how.

zstd at level 1: on made-up text of 100 bytes, level 3 took a quarter more time for 5 % fewer bytes, level 6
three times as much for 12 %. Keys have a dictionary, which costs no time that could be measured and saves
some space where they repeat; values have none. Offsets and timestamps are deltas, which saves 3 bytes a row.
Statistics only where readers can skip by them: a minimum of values helps nobody, and would put records into
footers.
"""

from __future__ import annotations

import datetime
import os
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from tailrace.spark.codec.columns import repeated_text
from tailrace.spark.lake.data_file import DataFile, StagedFile
from tailrace.spark.lake.layout import DataName, data_path
from tailrace.spark.lake.row_numbers import as_column, timestamps_us
from tailrace.spark.lake.schema import FOLDER_FIELDS

GROUP_ROWS_MAX = 1 << 20
_ZSTD_LEVEL = 1
_PAGE_BYTES = 1 << 20
_SKIPPED_BY = ["partition", "offset", "timestamp"]
_ENCODINGS = {"offset": "DELTA_BINARY_PACKED", "timestamp": "DELTA_BINARY_PACKED"}
_DICTIONARIES = ["key", "partition", "timestampType", "headers.list.element.key", "topic", "dt"]


class RowFile:
    """A staged file that takes rows of one partition and one day, in the order of their offsets."""

    def __init__(
        self,
        root: Path,
        schema: pa.Schema,
        *,
        staged: str,
        topic: str,
        partition: int,
        day: str,
        compression: str,
    ) -> None:
        self.staged = staged
        self._topic = topic
        self._partition = partition
        self._day = day
        self._repeats_folders = "topic" in schema.names
        self._rows = 0
        self._first_offset = -1
        self._last_offset = -1
        self._min_timestamp_us = 1 << 63
        self._max_timestamp_us = -(1 << 63)
        self._path = root / staged
        self._file = open(self._path, "xb", buffering=0)  # noqa: SIM115 (closed by finish or discard)
        self._sink = pa.PythonFile(self._file, mode="w")
        self._writer = pq.ParquetWriter(
            self._sink,
            schema,
            compression=compression,
            compression_level=_ZSTD_LEVEL if compression == "zstd" else None,
            use_dictionary=_DICTIONARIES,
            column_encoding=_ENCODINGS,
            write_statistics=_SKIPPED_BY,
            data_page_size=_PAGE_BYTES,
            version="2.6",
            store_schema=False,
        )

    @property
    def bytes(self) -> int:
        """Written so far, without the footer."""
        return self._file.tell()

    def write(self, rows: pa.Table) -> None:
        """Write rows as one row group, or several if there are very many."""
        offsets = rows.column("offset")
        if self._first_offset < 0:
            self._first_offset = offsets[0].as_py()
        self._last_offset = offsets[-1].as_py()
        for chunk in rows.column("timestamp").chunks:
            times = timestamps_us(chunk)
            self._min_timestamp_us = min(self._min_timestamp_us, int(times.min()))
            self._max_timestamp_us = max(self._max_timestamp_us, int(times.max()))
        self._rows += rows.num_rows
        if self._repeats_folders:
            rows = self._with_folders(rows)
        self._writer.write_table(rows, row_group_size=GROUP_ROWS_MAX)

    def _with_folders(self, rows: pa.Table) -> pa.Table:
        day = (datetime.date.fromisoformat(self._day) - datetime.date(1970, 1, 1)).days
        days = np.full(rows.num_rows, day, dtype=np.int32)
        topic_field, day_field = FOLDER_FIELDS
        rows = rows.append_column(topic_field, repeated_text(self._topic, rows.num_rows))
        return rows.append_column(day_field, as_column(days, day_field.type))

    def finish(self) -> StagedFile:
        """Close it, durable but for its name in the folder."""
        self._writer.close()
        size = self._file.tell()
        os.fsync(self._file.fileno())
        self._sink.close()
        self._file.close()
        name = DataName(self._topic, self._day, self._partition, self._first_offset, self._last_offset)
        file = DataFile(
            path=data_path(name),
            topic=self._topic,
            partition=self._partition,
            day=self._day,
            first_offset=self._first_offset,
            last_offset=self._last_offset,
            rows=self._rows,
            bytes=size,
            min_timestamp_us=self._min_timestamp_us,
            max_timestamp_us=self._max_timestamp_us,
        )
        return StagedFile(file=file, staged=self.staged)

    def discard(self) -> None:
        """Let go of a file that nobody will want."""
        self._file.close()
        self._path.unlink(missing_ok=True)
