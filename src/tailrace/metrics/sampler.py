"""A sample of a node's figures every few seconds, for whoever looks later: rates, latencies, lag, use.

    every 5 s   counters -> rates -> one row        an hour of the node
                topics that moved                    five minutes of each, of 2,000 topics at most
                lag of groups and subscriptions      ten minutes of each, of 500 at most

All of it is in memory, bounded, and gone with the process: what must be kept belongs into Prometheus. A
sample is taken in pieces, so that nobody waits for it. It runs only where there is somebody to show it:
beside an HTTP listener.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass
from typing import Final

from tailrace.metrics.history import Figure, History
from tailrace.metrics.lag import each_group, subscription_lag
from tailrace.metrics.loop_lag import LoopLag
from tailrace.metrics.observed import Observed
from tailrace.metrics.reading import Rates, Reading, compare, read_counters
from tailrace.metrics.topic_rates import TopicRates
from tailrace.runtime import Supervisor

logger = logging.getLogger(__name__)

INTERVAL_MS: Final = 5_000
NODE_SAMPLES_MAX: Final = 720
TOPIC_SAMPLES_MAX: Final = 60
TOPICS_MAX: Final = 2_000
LAG_SAMPLES_MAX: Final = 120
READERS_MAX: Final = 500
COLUMNS: Final = (
    "records_in_per_s",
    "bytes_in_per_s",
    "records_out_per_s",
    "bytes_out_per_s",
    "produce_p99_ms",
    "lag",
    "disk_bytes",
    "memory_bytes",
    "cpu_share",
)
_BREATH_LOGS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A node at one moment, and since the sample before."""

    at_ms: int
    rates: Rates | None  # None of the first
    lag: int
    disk_bytes: int  # what the logs take, in files or in memory
    disk_free_bytes: int | None
    memory_bytes: int
    loop_lag_ms: float  # the worst since the sample before

    def row(self) -> tuple[Figure, ...]:
        """The figures of COLUMNS."""
        rates = self.rates
        assert rates is not None, "the first sample has no row"
        return (
            rates.records_in_per_s,
            rates.bytes_in_per_s,
            rates.records_out_per_s,
            rates.bytes_out_per_s,
            rates.produce_p99_ms,
            self.lag,
            self.disk_bytes,
            self.memory_bytes,
            rates.cpu_share,
        )


class Sampler:
    """Looks at one node from time to time, from `start` to `stop`."""

    def __init__(self, observed: Observed, *, interval_ms: int = INTERVAL_MS) -> None:
        self.interval_ms = interval_ms
        self.loop_lag = LoopLag(observed.broker.clock)
        self.newest: Sample | None = None
        self.tick = -1  # of the newest sample; the first is 0, and has no rates
        self.topics = TopicRates(samples_max=TOPIC_SAMPLES_MAX, topics_max=TOPICS_MAX)
        self._observed = observed
        self._before: Reading | None = None
        self._node = History(samples_max=NODE_SAMPLES_MAX, since=1, missing=None)
        self._groups: dict[str, History] = {}
        self._subscriptions: dict[str, History] = {}
        self._tasks = Supervisor(_log_failure)
        self._sampling = asyncio.Lock()
        self._running = False

    def __repr__(self) -> str:
        return f"<Sampler {'runs' if self._running else 'stopped'}, {self.tick + 1} samples>"

    def start(self) -> None:
        """Begin, in the running loop; twice is harmless."""
        if not self._running:
            self._running = True
            self.loop_lag.start()
            self._tasks.start("metrics-sampler", self._run())

    async def stop(self) -> None:
        """End; what was sampled stays. Twice is harmless."""
        self._running = False
        self.loop_lag.stop()
        await self._tasks.stop()

    async def sample(self) -> Sample:
        """Take a sample now."""
        async with self._sampling:
            return await self._sample()

    # ---- what was sampled

    def node_series(self) -> dict[str, list[Figure]]:
        return {name: self._node.column(index, tick=self.tick) for index, name in enumerate(COLUMNS)}

    def group_lag(self, group: str) -> list[Figure]:
        return self._lag_of(self._groups.get(group))

    def subscription_lag(self, subscription: str) -> list[Figure]:
        return self._lag_of(self._subscriptions.get(subscription))

    # ---- inside

    async def _run(self) -> None:
        loop = asyncio.get_running_loop()
        due = loop.time()
        while True:
            await self.sample()
            due = max(due + self.interval_ms / 1000, loop.time())
            await asyncio.sleep(due - loop.time())

    async def _sample(self) -> Sample:
        observed, tick = self._observed, self.tick + 1
        now = read_counters(observed)
        before, self._before = self._before, now
        rates = None if before is None else compare(before, now)
        seconds = 0.0 if before is None else now.at_s - before.at_s
        users = [topic for topic in observed.broker.topics if not topic.internal]
        await self.topics.sample(users, tick=tick, seconds=seconds)
        sample = Sample(
            at_ms=now.at_ms,
            rates=rates,
            lag=await self._note_lag(tick),
            disk_bytes=await self._log_bytes(),
            disk_free_bytes=await observed.free_space.refresh(),
            memory_bytes=now.memory_bytes,
            loop_lag_ms=self.loop_lag.take_worst_s() * 1000,
        )
        if rates is not None:
            self._node.add(tick, sample.row())
        self.newest, self.tick = sample, tick
        return sample

    async def _note_lag(self, tick: int) -> int:
        """The lag of every reader, and of all together."""
        total = 0
        seen: set[str] = set()
        async for group, positions in each_group(self._observed.broker):
            lag = sum(each.lag for each in positions)
            total += lag
            seen.add(group)
            _note(self._groups, group, tick, lag)
        _forget(self._groups, seen)
        seen = set()
        for subscription in self._observed.broker.subscriptions:
            lag = subscription_lag(subscription)
            total += lag
            seen.add(subscription.config.name)
            _note(self._subscriptions, subscription.config.name, tick, lag)
        _forget(self._subscriptions, seen)
        return total

    async def _log_bytes(self) -> int:
        total = 0
        for place, log in enumerate(self._observed.broker.storage.logs(), start=1):
            total += log.size_bytes
            if place % _BREATH_LOGS == 0:
                await asyncio.sleep(0)
        return total

    def _lag_of(self, history: History | None) -> list[Figure]:
        return [] if history is None else history.column(0, tick=self.tick)


def _note(histories: dict[str, History], name: str, tick: int, lag: int) -> None:
    history = histories.get(name)
    if history is None:
        if len(histories) >= READERS_MAX:
            return
        history = histories[name] = History(samples_max=LAG_SAMPLES_MAX, since=tick, missing=None)
    history.add(tick, (lag,))


def _forget(histories: dict[str, History], alive: set[str]) -> None:
    for gone in histories.keys() - alive:
        del histories[gone]


def _log_failure(error: BaseException) -> None:
    logger.error("figures are not sampled any more: %s", error, exc_info=error)
