"""What an engine measures of itself."""

from __future__ import annotations

from dataclasses import dataclass, field

from tailrace.runtime import Histogram


@dataclass(slots=True)
class StorageCounters:
    """Durations of commit rounds, each of which is many appends. An engine in memory has none."""

    append: Histogram = field(default_factory=Histogram)  # from when a round is taken to when it is durable
    flush: Histogram = field(default_factory=Histogram)  # of that, the journal's write with its sync
