"""Files of rows, and what a commit says of them.

A `DataFile` holds rows of one partition and one day, in the order of their offsets. Which offsets a table
holds is not told by its files (offsets may have no row: markers of transactions, compacted records) but by
the ends that its commits move, see change.py.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model import TailraceError, TopicPartition
from tailrace.spark.lake.layout import DataName, is_staged_path, read_data_path


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file of rows, by its path relative to the lake."""

    path: str
    topic: str
    partition: int
    day: str
    first_offset: int
    last_offset: int
    """Of the last row, which is in the file."""
    rows: int
    bytes: int
    min_timestamp_us: int
    max_timestamp_us: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedFile:
    """A file that is written and durable, and in no commit yet."""

    file: DataFile
    staged: str
    """Where it lies now, relative to the lake."""


class LakeFileError(TailraceError):
    """What is said of a file cannot be: names and numbers do not fit together."""


def check_data_file(file: DataFile) -> None:
    """Refuse a file whose path is not a data file's, or says other than its fields."""
    said = DataName(file.topic, file.day, file.partition, file.first_offset, file.last_offset)
    if read_data_path(file.path) != said:
        raise LakeFileError(f"{file.path!r} is not the path of {said}")
    rows_max = file.last_offset - file.first_offset + 1
    if not 0 < file.rows <= rows_max or file.bytes <= 0:
        raise LakeFileError(f"{file.path}: {file.rows} rows in {file.bytes} bytes cannot be")
    if file.min_timestamp_us > file.max_timestamp_us:
        raise LakeFileError(f"{file.path}: its earliest time is after its latest")


def check_staged_file(staged: StagedFile) -> None:
    """Refuse a staged file that lies outside the staging folders."""
    check_data_file(staged.file)
    if not is_staged_path(staged.staged):
        raise LakeFileError(f"{staged.staged!r} is not a file in a staging folder")
