"""Which files of a lake are rewritten together, and which days go. Pure.

Files are rewritten within one topic, day and partition, neighbours only, so that a file still holds one
stretch of offsets:

    p0-[0-9] 2M   p0-[10-19] 3M   p0-[20-99] 250M   p0-[100-104] 1M   p0-[105-140] 4M
    `------- one file --------'        stays        `----------- one file -----------'

A file that has most of the wanted size stays as it is: writing it again would cost much and change little.
"""

from __future__ import annotations

import datetime
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby

from tailrace.spark.lake import DataFile

LARGE_PART = 0.75
"""From this part of the wanted size on, a file is large enough."""
REWRITE_FILES_MAX = 1_000
"""Files that one task reads: each costs an open file while it is merged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Rewrite:
    """Some files that become one."""

    files: Sequence[DataFile]

    @property
    def rows(self) -> int:
        return sum(file.rows for file in self.files)

    @property
    def bytes(self) -> int:
        return sum(file.bytes for file in self.files)


def plan_rewrites(files: Iterable[DataFile], *, file_bytes: int) -> list[Rewrite]:
    """What is worth rewriting, at least two files each, the groups with the most files first."""
    ordered = sorted(files, key=lambda file: (*_place(file), file.first_offset, file.last_offset))
    runs = (run for _place, group in groupby(ordered, key=_place) for run in _runs(group, file_bytes))
    worth = [Rewrite(files=tuple(run)) for run in runs if len(run) > 1]
    return sorted(worth, key=lambda each: len(each.files), reverse=True)


def _runs(group: Iterable[DataFile], file_bytes: int) -> Iterator[list[DataFile]]:
    """Neighbours that fit into one file."""
    run: list[DataFile] = []
    size = 0
    for file in group:
        is_large = file.bytes >= LARGE_PART * file_bytes
        if run and (is_large or size + file.bytes > file_bytes or len(run) == REWRITE_FILES_MAX):
            yield run
            run, size = [], 0
        if not is_large:
            run.append(file)
            size += file.bytes
    if run:
        yield run


def plan_dropped(files: Iterable[DataFile], *, retain_days: int, today: datetime.date) -> list[DataFile]:
    """The files of days that are over for more than `retain_days` days.

    Records without a time lie before 1970. How old they are is not known, so they stay.
    """
    kept = (today - datetime.timedelta(days=retain_days)).isoformat()
    return [file for file in files if file.day < kept and file.max_timestamp_us >= 0]


def pick_topics(files: Iterable[DataFile], topics: Sequence[str]) -> list[DataFile]:
    """The files of some topics, or of all if none is named."""
    return [file for file in files if not topics or file.topic in topics]


def _place(file: DataFile) -> tuple[str, str, int]:
    return file.topic, file.day, file.partition
