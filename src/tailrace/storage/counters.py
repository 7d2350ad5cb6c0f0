"""What an engine measures of itself."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from tailrace.model import PartitionId
from tailrace.runtime import Histogram


class CommitQueue(NamedTuple):
    """What was appended and is not durable yet, the round under way among it."""

    entries: int = 0
    bytes: int = 0


class EngineFigure(NamedTuple):
    """A number that only one engine has, as a metric of the node."""

    name: str  # without `_total` where it only grows
    doc: str
    value: float
    only_grows: bool = False


def no_figures() -> Iterable[EngineFigure]:
    """What an engine says whose numbers are all in `StorageCounters`."""
    return ()


def no_trouble() -> str:
    """What an engine says that needs no other server, or reaches it."""
    return ""


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
    figures: Callable[[], Iterable[EngineFigure]] = no_figures
    trouble: Callable[[], str] = no_trouble  # a sentence while appends wait for another server
    damaged: set[PartitionId] = field(default_factory=set)  # quarantined: they take no appends
