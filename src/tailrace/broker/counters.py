"""What the broker has done since it started, as plain integers: counting must cost next to nothing.

A batch is counted once, with its topic. What all topics did together is added up when somebody asks, with
what topics did that are gone since: a total never goes back.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from uuid import UUID

from tailrace.runtime import Histogram

_LATENCIES_KEPT = 1024


@dataclass(slots=True)
class TopicCounters:
    """Numbers grow only. Records out are counted by offsets, since nobody decodes a batch to count it."""

    records_in: int = 0
    bytes_in: int = 0
    batches_in: int = 0
    records_out: int = 0
    bytes_out: int = 0

    def add(self, other: TopicCounters) -> None:
        self.records_in += other.records_in
        self.bytes_in += other.bytes_in
        self.batches_in += other.batches_in
        self.records_out += other.records_out
        self.bytes_out += other.bytes_out


class Counters:
    """What users sent and read, in all topics; the broker's own topics do not count."""

    __slots__ = ("_by_topic", "_gone", "fetch_age", "produce_ms")

    def __init__(self) -> None:
        self._by_topic: dict[UUID, TopicCounters] = {}
        self._gone = TopicCounters()
        self.produce_ms: deque[float] = deque(maxlen=_LATENCIES_KEPT)
        """How long the newest of those who published waited for durability, the newest last."""
        self.fetch_age = Histogram()
        """How old records were when a Fetch was answered with them: of each partition the first batch."""

    def __repr__(self) -> str:
        return f"<Counters of {len(self._by_topic)} topics, {self.records_in} records in>"

    def open(self, topic_id: UUID, counters: TopicCounters) -> None:
        """A topic is served from now on."""
        self.close(topic_id)
        self._by_topic[topic_id] = counters

    def close(self, topic_id: UUID) -> None:
        """A topic is gone; what it did stays in the totals."""
        counters = self._by_topic.pop(topic_id, None)
        if counters is not None:
            self._gone.add(counters)

    def totals(self) -> TopicCounters:
        """All topics together, as they are now."""
        total = TopicCounters()
        total.add(self._gone)
        for counters in self._by_topic.values():
            total.add(counters)
        return total

    @property
    def records_in(self) -> int:
        return self.totals().records_in

    @property
    def bytes_in(self) -> int:
        return self.totals().bytes_in

    @property
    def batches_in(self) -> int:
        return self.totals().batches_in

    @property
    def records_out(self) -> int:
        return self.totals().records_out

    @property
    def bytes_out(self) -> int:
        return self.totals().bytes_out
