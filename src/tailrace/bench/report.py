"""What a run of `tailrace bench log` found, and the goals it is held against.

The fields of the report are the keys of its JSON: scripts read them, so they stay. Ratios are speeds, ours
over the bare system calls; recovery is a time, so less is better.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TypedDict


class Twins(TypedDict):
    """One figure for either twin of the codec; None where there is no compiled one."""

    pure: int
    compiled: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogReport:
    """The figures of one run."""

    append_16k_ratio: float
    append_1m_ratio: float
    read_hot_ratio: float
    group_commit_ratio: float
    many_partitions_ratio: float
    recovery_s_per_gib: float
    encode_per_s: Twins
    decode_per_s: Twins
    machine: dict[str, object]
    details: dict[str, object]

    def as_row(self) -> dict[str, object]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a figure should reach."""

    key: str
    twin: str = ""  # of the figures that have two
    text: str
    limit: float
    at_most: bool = False

    def is_met(self, value: float) -> bool:
        return value <= self.limit if self.at_most else value >= self.limit

    def value_in(self, report: LogReport) -> float | None:
        """The figure; None if it could not be measured."""
        found = getattr(report, self.key)
        value = found[self.twin] if self.twin else found
        return None if value is None else float(value)


GOALS = (
    Goal(key="append_16k_ratio", text="append 16 KiB batches, against write", limit=0.6),
    Goal(key="append_1m_ratio", text="append 1 MiB batches, against write", limit=0.85),
    Goal(key="read_hot_ratio", text="read the page cache, against preadv + CRC", limit=0.8),
    Goal(key="group_commit_ratio", text="64 durable appenders, against a sync each", limit=12),
    Goal(key="many_partitions_ratio", text="100 partitions at once, against a sync each", limit=10),
    Goal(key="recovery_s_per_gib", text="recovery, seconds per GiB", limit=4, at_most=True),
    Goal(key="encode_per_s", twin="compiled", text="encode, records/s, compiled", limit=3_000_000),
    Goal(key="decode_per_s", twin="compiled", text="decode, records/s, compiled", limit=5_000_000),
    Goal(key="decode_per_s", twin="pure", text="decode, records/s, pure", limit=400_000),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    """A goal beside what was measured."""

    goal: Goal
    value: float | None
    met: bool | None  # None: not measured


def judge(report: LogReport) -> Iterator[Verdict]:
    """Every goal with its figure."""
    for goal in GOALS:
        value = goal.value_in(report)
        yield Verdict(goal=goal, value=value, met=None if value is None else goal.is_met(value))


def write_figure(value: float) -> str:
    """As a person reads it: large ones whole, small ones with two places."""
    return f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"
