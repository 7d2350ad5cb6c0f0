"""What a node is doing, in figures for people: rates between two looks at plain counters.

Hot code only adds to integers; everything that takes thought happens once a second at most, and only while
somebody looks. Lag and percentiles are those of `tailrace.metrics`: a screen and a dashboard say the same.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.metrics.lag import count_lag
from tailrace.metrics.percentile import percentile as percentile

if TYPE_CHECKING:
    from tailrace.broker import Broker

HISTORY = 7  # looks that the sparkline shows
_BARS = "▁▂▃▄▅▆▇█"


@dataclass(frozen=True, slots=True, kw_only=True)
class Totals:
    """The counters at one moment."""

    at_s: float
    records_in: int
    bytes_in: int
    records_out: int
    bytes_out: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stats:
    """Rates per second since the look before, and the state now."""

    records_in: float
    bytes_in: float
    records_out: float
    bytes_out: float
    lag: int
    produce_p99_ms: float | None  # None while nothing was produced


class Observer:
    """Looks at one broker from time to time."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._before: Totals | None = None
        self.history: deque[float] = deque(maxlen=HISTORY)

    def look(self, now_s: float) -> Stats | None:
        """The figures since the last look; None the first time, when there is nothing to compare with."""
        counters = self._broker.counters
        totals = counters.totals()
        now = Totals(
            at_s=now_s,
            records_in=totals.records_in,
            bytes_in=totals.bytes_in,
            records_out=totals.records_out,
            bytes_out=totals.bytes_out,
        )
        before, self._before = self._before, now
        if before is None or now_s <= before.at_s:
            return None
        seconds = now_s - before.at_s
        stats = Stats(
            records_in=(now.records_in - before.records_in) / seconds,
            bytes_in=(now.bytes_in - before.bytes_in) / seconds,
            records_out=(now.records_out - before.records_out) / seconds,
            bytes_out=(now.bytes_out - before.bytes_out) / seconds,
            lag=count_lag(self._broker),
            produce_p99_ms=percentile(counters.produce_ms, 0.99),
        )
        self.history.append(stats.records_in)
        return stats


def sparkline(values: Sequence[float]) -> str:
    """Bars, the highest value the highest bar."""
    top = max(values, default=0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * (len(_BARS) - 1)))] for value in values)
