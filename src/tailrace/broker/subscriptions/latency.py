"""How long messages take: from publication to delivery, and from delivery to acknowledgement.

Not every message is measured: of all that leave for a member in one piece the first, which is the oldest,
tells how long it was on its way; and of every subscription one message at a time is followed until it is
acknowledged. One that never is gives way to another after the time for which a member may hold a message.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.broker.subscriptions.delivery import Delivery, Source
from tailrace.broker.subscriptions.member import OffsetRanges
from tailrace.runtime import Clock, Histogram


class Latencies:
    """What the subscriptions of a node measured together."""

    __slots__ = ("acknowledgement", "delivery")

    def __init__(self) -> None:
        self.delivery = Histogram()  # of first deliveries; one that comes again says nothing of our speed
        self.acknowledgement = Histogram()


class Stopwatch:
    """Measures for one subscription."""

    __slots__ = ("_clock", "_latencies", "_offset", "_restart_ms", "_since", "_since_ms", "_source")

    def __init__(self, latencies: Latencies, clock: Clock, *, restart_ms: int) -> None:
        self._latencies = latencies
        self._clock = clock
        self._restart_ms = restart_ms
        self._source: Source | None = None  # of the message that is followed
        self._offset = 0
        self._since = 0.0
        self._since_ms = 0

    def sent(self, deliveries: Sequence[Delivery]) -> None:
        """These leave for a member, in one piece."""
        now_ms, first = self._clock.now_ms(), deliveries[0]
        if first.count == 1:
            self._latencies.delivery.observe(max(now_ms - first.record.timestamp, 0) / 1000)
        if self._source is None or now_ms - self._since_ms > self._restart_ms:
            last = deliveries[-1]
            self._source, self._offset = last.source, last.record.offset
            self._since, self._since_ms = self._clock.monotonic(), now_ms

    def settled(self, source: Source, ranges: OffsetRanges) -> None:
        """A member acknowledged these."""
        if self._source is not source:
            return
        for start, end in ranges:
            if start <= self._offset < end:
                self._latencies.acknowledgement.observe(self._clock.monotonic() - self._since)
                self._source = None
                return
