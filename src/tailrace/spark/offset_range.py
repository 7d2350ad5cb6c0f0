"""A stretch of one partition: the unit in which records are asked for, planned and read.

Ranges travel from the driver to the workers inside pickled plans, so they are plain values.
"""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """The offsets of a partition from `start` up to, not including, `end`."""

    topic: str
    partition: int
    start: int
    end: int

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(f"{self} is no range: offsets begin at 0 and the end is not before the start")

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} [{self.start}, {self.end})"

    @property
    def count(self) -> int:
        """How many offsets; the records may be fewer, where the log was compacted or has markers."""
        return self.end - self.start

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)
