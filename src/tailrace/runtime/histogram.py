"""How long things took, as counts in fixed buckets: cheap to add to, and never larger than this.

    bucket   0          1          2                  17
             <= 100 us  <= 250 us  <= 500 us  ...     more than 30 s

One observation is a search among 17 numbers and two additions. Whoever shows it makes the buckets cumulative.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from typing import Final

BOUNDS_S: Final = (
    *(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05),
    *(0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0),
)
"""Upper bounds of the buckets, each inclusive; what is over the last has a bucket of its own."""


class Histogram:
    """Durations in seconds; numbers grow only."""

    __slots__ = ("counts", "sum_s")

    def __init__(self) -> None:
        self.counts = [0] * (len(BOUNDS_S) + 1)
        self.sum_s = 0.0

    def __repr__(self) -> str:
        return f"<Histogram of {self.count}, {self.sum_s:.3f} s together>"

    @property
    def count(self) -> int:
        return sum(self.counts)

    def observe(self, seconds: float, count: int = 1) -> None:
        """Something took so long; or so many things did."""
        self.counts[bisect_left(BOUNDS_S, seconds)] += count
        self.sum_s += seconds * count

    def cumulative(self) -> Iterator[tuple[str, int]]:
        """How many were no longer than each bound, as Prometheus counts."""
        total = 0
        for bound, count in zip((*BOUNDS_S, float("inf")), self.counts, strict=True):
            total += count
            yield ("+Inf" if bound == float("inf") else repr(bound)), total


def quantile_s(counts: Sequence[int], part: float) -> float | None:
    """About what `part` of the observations did not exceed; None of nothing.

    Within a bucket they are taken to lie evenly; what is over the last bound is taken to lie on it.
    """
    wanted = sum(counts) * part
    if not wanted:
        return None
    lower, reached = 0.0, 0
    for bound, count in zip(BOUNDS_S, counts, strict=False):
        if count and reached + count >= wanted:
            return lower + (bound - lower) * (wanted - reached) / count
        lower, reached = bound, reached + count
    return BOUNDS_S[-1]
