"""A data file as Iceberg's manifests tell it, and back.

Built by hand rather than with pyiceberg's `add_files`: everything that a manifest wants to know is known, and
that would read the footer of every file again, for partition values from statistics that ours do not have.
"""

from __future__ import annotations

import datetime
import struct
from pathlib import Path
from typing import Any

from pyiceberg.manifest import DataFile as ListedFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record

from tailrace.model import StorageError
from tailrace.spark.lake.data_file import DataFile
from tailrace.spark.lake.layout import read_data_path

PARTITION_ID, OFFSET_ID, TIMESTAMP_ID = 3, 4, 5
"""The numbers of the columns that have bounds, see schema.py."""
_INT = struct.Struct("<i")
_LONG = struct.Struct("<q")
_EPOCH = datetime.date(1970, 1, 1)


def listed_file(root: Path, file: DataFile, *, spec_id: int) -> Any:
    """What a manifest says of a file."""
    day = (datetime.date.fromisoformat(file.day) - _EPOCH).days
    made = ListedFile.from_args(
        content=DataFileContent.DATA,
        file_path=f"file://{root / file.path}",
        file_format=FileFormat.PARQUET,
        partition=Record(file.topic, day),
        record_count=file.rows,
        file_size_in_bytes=file.bytes,
        column_sizes={},
        value_counts=dict.fromkeys((PARTITION_ID, OFFSET_ID, TIMESTAMP_ID), file.rows),
        null_value_counts=dict.fromkeys((PARTITION_ID, OFFSET_ID, TIMESTAMP_ID), 0),
        nan_value_counts={},
        lower_bounds=_bounds(file.partition, file.first_offset, file.min_timestamp_us),
        upper_bounds=_bounds(file.partition, file.last_offset, file.max_timestamp_us),
        key_metadata=None,
        split_offsets=None,
        equality_ids=None,
        sort_order_id=None,
    )
    made.spec_id = spec_id
    return made


def read_listed_file(root: Path, listed: Any) -> DataFile:
    """What we say of a file that a manifest lists."""
    location = str(listed.file_path)
    prefix = f"file://{root}/"
    name = read_data_path(location.removeprefix(prefix)) if location.startswith(prefix) else None
    if name is None:
        raise StorageError(
            "read",
            location,
            f"the Iceberg table has a file that is not Tailrace's, or the lake was moved to {root}",
            hint="Move the lake back: Iceberg names files by where they were",
        )
    return DataFile(
        path=location.removeprefix(prefix),
        topic=name.topic,
        partition=name.partition,
        day=name.day,
        first_offset=name.first_offset,
        last_offset=name.last_offset,
        rows=listed.record_count,
        bytes=listed.file_size_in_bytes,
        min_timestamp_us=_LONG.unpack(listed.lower_bounds[TIMESTAMP_ID])[0],
        max_timestamp_us=_LONG.unpack(listed.upper_bounds[TIMESTAMP_ID])[0],
    )


def _bounds(partition: int, offset: int, timestamp_us: int) -> dict[int, bytes]:
    return {
        PARTITION_ID: _INT.pack(partition),
        OFFSET_ID: _LONG.pack(offset),
        TIMESTAMP_ID: _LONG.pack(timestamp_us),
    }
