"""File names in a data directory.

CLOCK                                    the last time of day at which it was served
LOCK                                     held by the process that serves the directory
CHECKPOINT                               what the segment files hold for sure
CHECKPOINT.copy                          the same, for the day when the other one is unreadable
CHECKPOINT.damaged-<number>              unreadable, put aside when it was rebuilt
CHECKPOINT.survey                        where logs began, while a rebuild is under way
journal/<number>.journal                 rounds of entries, files reused
<topic id>-<partition>-<life>/           one life of one partition
    <base offset>.log                    batches, one after the other
    <base offset>.index  .timeindex      where they are; rebuildable
    <base offset>.aborted                aborted transactions whose markers it holds; rebuildable
    <end offset>.snapshot                state derived from the log up to there
    partition.json                       whose log it is, for a rebuild of lost metadata
    *.tmp                                unfinished; removed by recovery
deleted-<...>/                           being removed
stray-<...>/                             known to nobody; kept for a person to look at
torn-<...>                               the end of a segment, cut off when CHECKPOINT was rebuilt; kept too
cut-<...>/                               links to the files of one checkpoint, for a backup
RESTORING                                a restore has not ended: nothing here can be served
"""

from __future__ import annotations

import re
from uuid import UUID

from tailrace.model import PartitionId

CHECKPOINT = "CHECKPOINT"
CHECKPOINT_COPY = "CHECKPOINT.copy"
DAMAGED_CHECKPOINT = "CHECKPOINT.damaged-"
SURVEY = "CHECKPOINT.survey"
CLOCK = "CLOCK"
JOURNAL_DIRECTORY = "journal"
LABEL = "partition.json"
DELETED, STRAY, TORN, TEMPORARY = "deleted-", "stray-", "torn-", ".tmp"
CUT = "cut-"
RESTORING = "RESTORING"

SEGMENT_SUFFIXES = ("log", "index", "timeindex", "aborted")
"""The files of one segment, all but the first of which can be made again."""

_PARTITION = re.compile(r"([0-9a-f]{32})-(\d{1,10})-(\d{1,20})")
_NUMBERED = re.compile(r"(\d{20})\.(log|index|timeindex|aborted|snapshot)")
_JOURNAL = re.compile(r"(\d{4})\.journal")


def partition_directory(partition_id: PartitionId, life: int) -> str:
    return f"{partition_id}-{life}"


def read_partition_directory(name: str) -> tuple[PartitionId, int] | None:
    """Partition and life, if that is what `name` names."""
    found = _PARTITION.fullmatch(name)
    if not found:
        return None
    return PartitionId(UUID(hex=found[1]), int(found[2])), int(found[3])


def numbered(offset: int, suffix: str) -> str:
    """`<offset>.<suffix>`; twenty digits, so that names sort as offsets do."""
    return f"{offset:020d}.{suffix}"


def read_numbered(name: str, suffix: str) -> int | None:
    found = _NUMBERED.fullmatch(name)
    return int(found[1]) if found and found[2] == suffix else None


def journal_file(number: int) -> str:
    return f"{JOURNAL_DIRECTORY}/{number:04d}.journal"


def read_journal_file(name: str) -> int | None:
    """`name` within the journal directory."""
    found = _JOURNAL.fullmatch(name)
    return int(found[1]) if found else None
