"""The numbers by which a node is judged, at one moment. None is what nobody measured, and is not judged."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.model import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Figures:
    """One look at a node."""

    # The broker.
    failure: str | None = None  # what ended it
    is_storage_failure: bool = False
    records_in_per_s: float | None = None
    partitions_offline: int = 0  # nobody leads them, or their log is missing
    partitions_under_replicated: int = 0
    quarantined: Sequence[str] = ()  # why topics are quarantined, a sentence each
    partitions_damaged: Sequence[TopicPartition] = ()  # acknowledged records are unreadable: no appends

    clock_ahead_ms: int = 0  # of the machine's time of day, which is not believed; 0: it is

    # The disk; all None where the log is in memory.
    disk_free_bytes: int | None = None
    disk_free_bytes_min: int = 0  # with less, writes are refused
    write_refusal: str | None = None  # why every write is refused now, whatever is free
    storage_trouble: str = ""  # why appends wait, where another server keeps the log
    disk_growth_bytes_per_s: float | None = None  # of the log, after retention; negative: it shrinks
    flush_p99_ms: float | None = None

    # The process.
    loop_lag_ms: float | None = None  # how late the loop came to what was due, at worst, in the last seconds
    cpu_share: float | None = None  # 1: as much as one core has
    memory_bytes: int | None = None
    memory_bytes_max: int | None = None  # of the machine, or of the group of processes
    descriptors: int | None = None
    descriptors_max: int | None = None  # None: no limit
    connections: Mapping[str, int] = field(default_factory=dict)  # by listener
    connections_max: int | None = None  # of each listener

    # Consumers.
    lag: int | None = None
    lag_before: int | None = None  # `lag_span_s` ago
    lag_span_s: float = 0.0
