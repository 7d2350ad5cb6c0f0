"""Rates of every topic, sample by sample. A topic on which nothing happens costs a look, and no memory."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Final
from uuid import UUID

from tailrace.broker import Topic, TopicCounters
from tailrace.metrics.history import Figure, History

COLUMNS: Final = ("records_in_per_s", "bytes_in_per_s", "records_out_per_s", "bytes_out_per_s")
_BREATH_TOPICS = 200

_Numbers = tuple[int, int, int, int]


class _Traffic:
    """One topic that was written or read."""

    __slots__ = ("before", "history")

    def __init__(self, before: _Numbers, history: History) -> None:
        self.before = before
        self.history = history


class TopicRates:
    """The newest samples of at most `topics_max` topics; those past it wait until there is room."""

    def __init__(self, *, samples_max: int, topics_max: int) -> None:
        self._samples_max = samples_max
        self._topics_max = topics_max
        self._topics: dict[UUID, _Traffic] = {}
        self._turned_away: set[UUID] = set()  # that found no room in the sample before

    def __len__(self) -> int:
        return len(self._topics)

    async def sample(self, topics: Iterable[Topic], *, tick: int, seconds: float) -> None:
        """Note what happened since the last sample; the first only says from where to count."""
        alive = set()
        turned_away = set()
        for place, topic in enumerate(topics, start=1):
            alive.add(topic.id)
            if not self._note(topic, tick=tick, seconds=seconds):
                turned_away.add(topic.id)
            if place % _BREATH_TOPICS == 0:
                await asyncio.sleep(0)
        for gone in self._topics.keys() - alive:
            del self._topics[gone]
        self._turned_away = turned_away

    def column(self, topic: Topic, name: str, *, tick: int, count: int | None = None) -> list[Figure]:
        """A series of a topic, up to a tick; a topic that is not followed has none."""
        found = self._topics.get(topic.id)
        if found is None:
            if len(self._topics) >= self._topics_max:
                return []
            quiet = History(samples_max=self._samples_max, since=1)
            return quiet.column(0, tick=tick, count=count)
        return found.history.column(COLUMNS.index(name), tick=tick, count=count)

    def _note(self, topic: Topic, *, tick: int, seconds: float) -> bool:
        """False if there is something to note, and no room for it."""
        counters = topic.counters
        found = self._topics.get(topic.id)
        if found is None:
            if not (counters.records_in or counters.records_out):
                return True
            if len(self._topics) >= self._topics_max:
                return False
            # What came before the first sample came at no known time, and so did what came while there was
            # no room; else what came since is this sample's.
            is_old = tick == 0 or topic.id in self._turned_away
            before = _numbers(counters) if is_old else (0, 0, 0, 0)
            found = _Traffic(before, History(samples_max=self._samples_max, since=1))
            self._topics[topic.id] = found
        now = _numbers(counters)
        if now != found.before and seconds > 0:
            found.history.add(
                tick, [(new - old) / seconds for new, old in zip(now, found.before, strict=True)]
            )
            found.before = now
        return True


def _numbers(counters: TopicCounters) -> _Numbers:
    return counters.records_in, counters.bytes_in, counters.records_out, counters.bytes_out
