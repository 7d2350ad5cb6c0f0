"""What an engine measures of itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.model import PartitionId
from tailrace.runtime import Histogram


class CommitQueue(NamedTuple):
    """What was appended and is not durable yet, the round under way among it."""

    entries: int = 0
    bytes: int = 0


def nothing_refused() -> None:
    """What an engine says that takes appends."""


@dataclass(slots=True)
class StorageCounters:
    """Durations of commit rounds, each of which is many appends. An engine in memory has none."""

    append: Histogram = field(default_factory=Histogram)  # from when a round is taken to when it is durable
    flush: Histogram = field(default_factory=Histogram)  # of that, the journal's write with its sync
    commit_queue: Callable[[], CommitQueue] = CommitQueue  # as it is now
    refusal: Callable[[], Exception | None] = nothing_refused  # why appends to every log are refused now
    round_s: float = 0.0  # about what a round takes now, with its syncs
    damaged: set[PartitionId] = field(default_factory=set)  # quarantined: they take no appends
