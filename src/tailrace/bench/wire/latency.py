"""Percentiles of what was measured, by nearest rank: every figure is one that was really seen."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import asdict, dataclass

_NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Percentiles:
    """Milliseconds."""

    p50_ms: float
    p99_ms: float
    p999_ms: float
    max_ms: float

    def as_row(self) -> dict[str, float]:
        return asdict(self)


def nearest_rank(ordered: Sequence[int], fraction: float) -> int:
    """The smallest value that at least this fraction of all does not exceed; `ordered` ascends."""
    if not ordered:
        raise ValueError("nothing was measured")
    if not 0 < fraction <= 1:
        raise ValueError(f"{fraction} is not within 0 and 1")
    # Rounded first, because 0.999 * 1000 is a little more than 999 in binary.
    return ordered[max(math.ceil(round(fraction * len(ordered), 6)), 1) - 1]


def percentiles(values_ns: Sequence[int]) -> Percentiles | None:
    """Of nanoseconds in any order; None if there are none."""
    if not values_ns:
        return None
    ordered = sorted(values_ns)

    def at(fraction: float) -> float:
        return nearest_rank(ordered, fraction) / _NS_PER_MS

    return Percentiles(p50_ms=at(0.5), p99_ms=at(0.99), p999_ms=at(0.999), max_ms=ordered[-1] / _NS_PER_MS)
