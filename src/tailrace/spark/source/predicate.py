"""Filters that Spark pushes down, turned into fewer partitions and shorter ranges. Pure.

    topic, partition   =, IN, and for partition <, <=, >, >=     done here altogether
    offset             =, <, <=, >, >=                           done here altogether
                       IN                                        from the least to the greatest; Spark checks
    timestamp          =, >, >=                                  from the first so late on; Spark checks

Timestamps need not grow along the log, so a later record may be older: an upper bound cuts nothing off, and a
lower one only what lies before the first record that satisfies it, unless it is before 1970: times like that
are words to a broker. None of these columns is ever null.

Filters are told apart by the names of their classes, which pyspark 4.0 does not have yet.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from tailrace.model import TopicPartition
from tailrace.spark.offset_range import OffsetRange

_INT64_MAX = (1 << 63) - 1
_COLUMNS = ("topic", "partition", "offset", "timestamp")
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """What rows must satisfy, as far as it is known here; the upper ends are exclusive."""

    topics: frozenset[str] | None = None
    partitions: frozenset[int] | None = None
    partition_min: int = 0
    partition_end: int = _INT64_MAX
    offset_min: int = 0
    offset_end: int = _INT64_MAX
    time_ms_min: int | None = None

    def admits(self, tp: TopicPartition) -> bool:
        """Whether a partition can have rows that count."""
        return (
            (self.topics is None or tp.topic in self.topics)
            and (self.partitions is None or tp.partition in self.partitions)
            and self.partition_min <= tp.partition < self.partition_end
        )


def plan_bounds(filters: Iterable[Any]) -> tuple[Bounds, list[Any]]:
    """What the filters say, and those of them that Spark has to apply again."""
    bounds, left = Bounds(), []
    for each in filters:
        narrowed, is_done = _narrow(bounds, each)
        bounds = narrowed
        if not is_done:
            left.append(each)
    return bounds, left


def plan_narrowed(
    ranges: Iterable[OffsetRange], bounds: Bounds, *, first_in_time: Mapping[TopicPartition, int]
) -> list[OffsetRange]:
    """The parts of ranges within bounds; `first_in_time` has the first offset as late as time_ms_min."""
    narrowed = []
    for each in ranges:
        start = max(each.start, bounds.offset_min, first_in_time.get(each.topic_partition, 0))
        end = min(each.end, bounds.offset_end)
        if bounds.admits(each.topic_partition) and start < end:
            narrowed.append(replace(each, start=start, end=end))
    return narrowed


def _narrow(bounds: Bounds, given: Any) -> tuple[Bounds, bool]:
    """The bounds with one more filter, and whether nothing of it is left to do."""
    kind, path = type(given).__name__, tuple(getattr(given, "attribute", ()))
    if len(path) != 1 or path[0] not in _COLUMNS:
        return bounds, False
    if kind == "IsNotNull":
        return bounds, True
    value = getattr(given, "value", None)
    column = path[0]
    if column == "topic":
        return _narrow_topic(bounds, kind, value)
    if column == "timestamp":
        return _narrow_time(bounds, kind, value), False
    if kind == "In":
        return _narrow_among(bounds, column, value)
    if type(value) is not int:
        return bounds, False
    span = _span(kind, value)
    return (bounds, False) if span is None else (_cut(bounds, column, *span), True)


def _narrow_topic(bounds: Bounds, kind: str, value: Any) -> tuple[Bounds, bool]:
    names = value if kind == "In" else [value] if kind in ("EqualTo", "EqualNullSafe") else None
    if names is None or not all(isinstance(each, str) for each in names):
        return bounds, False
    found = frozenset(names)
    return replace(bounds, topics=found if bounds.topics is None else bounds.topics & found), True


def _narrow_time(bounds: Bounds, kind: str, value: Any) -> Bounds:
    if kind not in ("EqualTo", "EqualNullSafe", "GreaterThan", "GreaterThanOrEqual"):
        return bounds
    if not isinstance(value, datetime) or value.tzinfo is None:
        return bounds
    since = value - _EPOCH
    # In whole milliseconds, rounded down: floats would not hold microseconds for ever.
    time_ms = (since.days * 86_400 + since.seconds) * 1000 + since.microseconds // 1000
    if time_ms < 0:  # which a broker cannot be asked for, and records may be as old: one without a time is
        return bounds
    return replace(bounds, time_ms_min=max(time_ms, bounds.time_ms_min or 0))


def _narrow_among(bounds: Bounds, column: str, values: Any) -> tuple[Bounds, bool]:
    if not values or not all(type(each) is int for each in values):
        return bounds, False
    if column == "offset":
        return _cut(bounds, column, min(values), max(values) + 1), False
    found = frozenset(values)
    return replace(bounds, partitions=found if bounds.partitions is None else bounds.partitions & found), True


def _span(kind: str, value: int) -> tuple[int, int] | None:
    """From where to where, the end exclusive, a comparison holds."""
    return {
        "EqualTo": (value, value + 1),
        "EqualNullSafe": (value, value + 1),
        "GreaterThan": (value + 1, _INT64_MAX),
        "GreaterThanOrEqual": (value, _INT64_MAX),
        "LessThan": (0, value),
        "LessThanOrEqual": (0, value + 1),
    }.get(kind)


def _cut(bounds: Bounds, column: str, low: int, end: int) -> Bounds:
    if column == "offset":
        return replace(bounds, offset_min=max(bounds.offset_min, low), offset_end=min(bounds.offset_end, end))
    return replace(
        bounds, partition_min=max(bounds.partition_min, low), partition_end=min(bounds.partition_end, end)
    )
