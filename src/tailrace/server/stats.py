"""What a node is doing, in figures for people: rates between two looks at plain counters.

Hot code only adds to integers; everything that takes thought (rates, lag, percentiles) happens here, once a
second at most, and only while somebody looks.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.model import BrokerError, TopicPartition

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
        now = Totals(
            at_s=now_s,
            records_in=counters.records_in,
            bytes_in=counters.bytes_in,
            records_out=counters.records_out,
            bytes_out=counters.bytes_out,
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


def count_lag(broker: Broker) -> int:
    """Records that some group has not committed yet, over all groups and the partitions they committed."""
    groups = broker.groups
    lag = 0
    try:
        listings = groups.list_groups()
    except BrokerError:  # some are still loading
        return 0
    for listing in listings:
        try:
            committed = groups.fetch_offsets(listing.group_id, None)
        except BrokerError:  # still loading, or gone since it was listed
            continue
        for name, position in committed.items():
            if position.offset >= 0:
                lag += max(0, _high_watermark(broker, name) - position.offset)
    return lag


def percentile(values: Iterable[float], part: float) -> float | None:
    """The value that `part` of all do not exceed; None of nothing."""
    ordered = sorted(values)
    if not ordered:
        return None
    return ordered[max(0, math.ceil(part * len(ordered)) - 1)]


def sparkline(values: Sequence[float]) -> str:
    """Bars, the highest value the highest bar."""
    top = max(values, default=0)
    if top <= 0:
        return _BARS[0] * len(values)
    return "".join(_BARS[min(len(_BARS) - 1, int(value / top * (len(_BARS) - 1)))] for value in values)


def short_number(value: float) -> str:
    """512, 1.0k, 2.3M: three digits at most."""
    for limit, divisor, unit in ((1e3, 1, ""), (1e6, 1e3, "k"), (1e9, 1e6, "M")):
        if value < limit * 0.9995:
            return f"{value / divisor:.{1 if unit and value < limit / 10 else 0}f}{unit}"
    return f"{value / 1e9:.1f}G"


def short_bytes(value: float) -> str:
    """61 KB, 1.2 MB; powers of 1000, as disks and networks are sold."""
    for limit, divisor, unit in ((1e6, 1e3, "KB"), (1e9, 1e6, "MB")):
        if value < limit * 0.9995:
            return f"{value / divisor:.{0 if value >= 10 * divisor or not value else 1}f} {unit}"
    return f"{value / 1e9:.1f} GB"


def _high_watermark(broker: Broker, name: TopicPartition) -> int:
    try:
        return broker.leader(name.topic, name.partition).high_watermark
    except BrokerError:  # deleted, or led elsewhere
        return 0
