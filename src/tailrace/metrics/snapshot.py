"""What one scrape shows: which topics, groups and subscriptions, and what they are like in sum.

Taken in pieces: with ten thousand partitions the loop is given to others a few dozen times.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from tailrace.broker import Broker, Partition, Topic
from tailrace.broker.subscriptions import Subscription
from tailrace.metrics.choice import Candidate, Choice
from tailrace.metrics.lag import Position, each_group
from tailrace.metrics.runs import RUNS_PLACE, Runs, missing_offsets
from tailrace.model import BrokerError, StorageError
from tailrace.model.session import INTERNAL

_BREATH_PARTITIONS = 500
PARTITION_FAMILIES = 7
"""So many families have a series for every partition (kafka_topic_partition_*),"""
PARTITION_FAMILIES_ASKED = PARTITION_FAMILIES + 3
"""and so many where somebody asks for partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """How many series a scrape may have, by what they are about."""

    topics: int = 1_000  # topics with figures of their own
    readers: int = 1_000  # groups, and subscriptions, with figures of their own
    lake_partitions: int = 1_000  # partitions of which lakes miss something
    group_topics: int = 10_000  # of those groups together: one alone may have committed every topic
    partition_series: int = 10_000  # of topics, and as many of groups
    partition_series_asked: int = 200_000  # where somebody asks for them


@dataclass(slots=True)
class TopicState:
    """A topic in sum."""

    topic: Topic
    log_bytes: int = 0


@dataclass(slots=True)
class GroupState:
    """A group in sum."""

    name: str
    positions: list[Position]
    topics: int
    committed: int

    @property
    def pair(self) -> tuple[str, list[Position]]:
        return self.name, self.positions


@dataclass(slots=True)
class Snapshot:
    """A node at one moment, or nearly one."""

    by_partition: bool  # whether somebody asked for every partition
    topics: list[TopicState] = field(default_factory=list)  # that have figures of their own
    partitions: list[Partition] = field(default_factory=list)  # of the topics whose partitions are shown
    groups: list[tuple[str, list[Position]]] = field(default_factory=list)
    group_partitions: list[tuple[str, list[Position]]] = field(default_factory=list)
    subscriptions: list[Subscription] = field(default_factory=list)
    lakes_missing: dict[tuple[str, str, str], int] = field(default_factory=dict)  # lake, topic, partition
    topics_total: int = 0
    partitions_total: int = 0
    under_replicated: int = 0
    offline: int = 0
    log_bytes: int = 0
    truncated: dict[str, int] = field(default_factory=dict)  # what is left out, by what it is


class Choices:
    """What is shown, from one scrape to the next."""

    def __init__(self, bounds: Bounds | None = None) -> None:
        self.bounds = bounds or Bounds()
        self.topics = Choice()
        self.partitions = Choice()
        self.groups = Choice()
        self.group_topics = Choice()
        self.group_partitions = Choice()
        self.subscriptions = Choice()
        self.runs = Runs()


async def take_snapshot(broker: Broker, choices: Choices, *, by_partition: bool) -> Snapshot:
    snapshot = Snapshot(by_partition=by_partition)
    states = await _look_at_topics(broker, snapshot)
    bounds = choices.bounds
    # One that asks for everything once must not decide what everybody else is shown.
    partitions = Choice() if by_partition else choices.partitions
    group_partitions = Choice() if by_partition else choices.group_partitions
    series_max = bounds.partition_series_asked if by_partition else bounds.partition_series
    families = PARTITION_FAMILIES_ASKED if by_partition else PARTITION_FAMILIES
    candidates = {name: Candidate(cost=1, activity=_activity(state.topic)) for name, state in states.items()}
    shown = choices.topics.choose(candidates, series_max=bounds.topics)
    snapshot.topics = [state for name, state in states.items() if name in shown]
    snapshot.truncated["topics"] = len(states) - len(shown)
    candidates = {
        name: Candidate(cost=families * len(state.topic.partitions), activity=_activity(state.topic))
        for name, state in states.items()
    }
    shown = partitions.choose(candidates, series_max=series_max)
    snapshot.partitions = [
        each for name, state in states.items() if name in shown for each in state.topic.partitions
    ]
    snapshot.truncated["topic_partitions"] = sum(
        len(state.topic.partitions) for name, state in states.items() if name not in shown
    )
    groups = [_sum_up(*pair) async for pair in each_group(broker)]
    _choose_groups(snapshot, groups, choices)
    _choose_group_partitions(snapshot, groups, group_partitions, series_max)
    _choose_subscriptions(snapshot, list(broker.subscriptions), choices)
    await _look_at_runs(broker, snapshot, choices)
    return snapshot


async def _look_at_runs(broker: Broker, snapshot: Snapshot, choices: Choices) -> None:
    if all(topic.name != RUNS_PLACE.topic for topic in broker.topics):
        return  # no pipeline has run
    try:
        runs = await choices.runs.read(broker.gate.access(INTERNAL))
    except (BrokerError, StorageError):
        return  # the other figures are worth having without these
    found = missing_offsets(runs)
    shown = dict(sorted(found.items())[: choices.bounds.lake_partitions])
    snapshot.lakes_missing = shown
    snapshot.truncated["lake_partitions"] = len(found) - len(shown)


async def _look_at_topics(broker: Broker, snapshot: Snapshot) -> dict[str, TopicState]:
    """One pass over everything; the states of the topics that are not the broker's own."""
    states: dict[str, TopicState] = {}
    seen = 0
    for topic in broker.topics:
        log_bytes = 0
        for partition in topic.partitions:
            if partition.is_held_here:
                log_bytes += partition.size_bytes
            else:
                snapshot.offline += partition.is_led_here
            snapshot.under_replicated += is_under_replicated(partition)
        snapshot.log_bytes += log_bytes
        snapshot.topics_total += 1
        snapshot.partitions_total += len(topic.partitions)
        if not topic.internal:
            states[topic.name] = TopicState(topic, log_bytes)
        seen += len(topic.partitions)
        if seen >= _BREATH_PARTITIONS:
            seen = 0
            await asyncio.sleep(0)
    return states


def _choose_groups(snapshot: Snapshot, groups: Sequence[GroupState], choices: Choices) -> None:
    """Those that are few enough, and of them those whose topics are."""
    bounds = choices.bounds
    candidates = {each.name: Candidate(cost=1, activity=each.committed) for each in groups}
    shown = choices.groups.choose(candidates, series_max=bounds.readers)
    candidates = {
        each.name: Candidate(cost=each.topics, activity=each.committed)
        for each in groups
        if each.name in shown
    }
    shown = choices.group_topics.choose(candidates, series_max=bounds.group_topics)
    snapshot.groups = [each.pair for each in groups if each.name in shown]
    snapshot.truncated["groups"] = len(groups) - len(shown)


def _choose_group_partitions(
    snapshot: Snapshot, groups: Sequence[GroupState], choice: Choice, series_max: int
) -> None:
    candidates = {
        each.name: Candidate(cost=2 * len(each.positions), activity=each.committed) for each in groups
    }
    shown = choice.choose(candidates, series_max=series_max)
    snapshot.group_partitions = [each.pair for each in groups if each.name in shown]
    snapshot.truncated["group_partitions"] = sum(
        len(each.positions) for each in groups if each.name not in shown
    )


def _choose_subscriptions(snapshot: Snapshot, subscriptions: list[Subscription], choices: Choices) -> None:
    candidates = {
        each.config.name: Candidate(cost=1, activity=each.counters.delivered) for each in subscriptions
    }
    shown = choices.subscriptions.choose(candidates, series_max=choices.bounds.readers)
    snapshot.subscriptions = [each for each in subscriptions if each.config.name in shown]
    snapshot.truncated["subscriptions"] = len(subscriptions) - len(shown)


def is_under_replicated(partition: Partition) -> bool:
    return len(partition.isr) < len(partition.replicas)


def _activity(topic: Topic) -> int:
    return topic.counters.records_in + topic.counters.records_out


def _sum_up(name: str, positions: list[Position]) -> GroupState:
    topics, committed = set(), 0
    for each in positions:
        topics.add(each.topic)
        committed += each.committed
    return GroupState(name, positions, len(topics), committed)
