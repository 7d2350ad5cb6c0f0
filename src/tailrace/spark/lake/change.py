"""What changes a table, and what a table is at one moment.

A `Change` is all or nothing. Its advances say from where to where the table goes in each partition: they are
why a lake needs no checkpoint beside it. A run begins where the table ends, and one whose beginning is not
the table's end any more was overtaken: that is a `Conflict`, and nothing of it counts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.model import TailraceError, TopicPartition
from tailrace.spark.lake.data_file import DataFile, StagedFile


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRange:
    """Offsets whose records are not in the table, and why."""

    topic: str
    partition: int
    first_offset: int
    last_offset: int
    reason: str
    saved: str | None = None
    """The file in quarantine that has the bytes, relative to the lake; None where there are none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Advance:
    """The table goes from `start` to `end` (exclusive) in this partition."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def tp(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One commit. `operation` is a word for people, such as "archive" or "compact"."""

    operation: str
    add: Sequence[StagedFile] = ()
    remove: Sequence[DataFile] = ()
    advances: Sequence[Advance] = ()
    bad: Sequence[BadRange] = ()
    topics: Mapping[str, str] = field(default_factory=dict)
    """Ids of topics by name, as far as the one who archives them knows: each is kept for good."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A table as of one commit. Its files can be read until `expire` has passed them."""

    version: int
    files: Sequence[DataFile]
    ends: Mapping[TopicPartition, int]
    """Where each partition goes on: every record before it is in the files or in a bad range."""
    bad: Sequence[BadRange]
    topics: Mapping[str, str] = field(default_factory=dict)
    """Which topics the records are of: a name may be given to another topic later, an id never is."""


class Conflict(TailraceError):
    """Another writer moved the table on: plan again from a new snapshot."""
