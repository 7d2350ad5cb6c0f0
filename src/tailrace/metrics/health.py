"""The present figures of broker, listeners, sampler and machine, which `broker.health` judges.

What is measured over time (rates, growth, the loop) comes from the sampler. A figure that it has not sampled
yet is left out and not judged. A question to the operating system may wait for a disk, so a thread asks it.
"""

from __future__ import annotations

import asyncio
import os
import resource
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from tailrace.broker import Broker, BrokerConfig, Topic
from tailrace.broker.configs import BROKER_CONFIGS
from tailrace.broker.health import Figures
from tailrace.metrics.free_space import FreeSpace
from tailrace.metrics.observed import Observed
from tailrace.metrics.process import memory_bytes
from tailrace.metrics.sampler import Sampler
from tailrace.model import StorageError, TopicPartition

_BREATH_PARTITIONS = 1_000  # that are looked at before the loop may do something else
_SPARE_DESCRIPTORS = 256  # as the acceptors count: half of the files are the partitions'
_CGROUP_LIMIT = Path("/sys/fs/cgroup/memory.max")
_GROWTH_SPAN_MS = 15 * 60_000  # of the disk: long enough to see retention at work
_LAG_SPAN_MS = 5 * 60_000
_SPAN_MS_MIN = 60_000  # less says nothing about where it goes


@dataclass(frozen=True, slots=True, kw_only=True)
class Machine:
    """What the operating system says; None is what it does not."""

    disk_free_bytes: int | None
    memory_bytes: int
    memory_bytes_max: int | None
    descriptors: int | None
    descriptors_max: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trend:
    """Where something was a while ago, and where it is now."""

    before: float
    now: float
    span_s: float

    @property
    def per_s(self) -> float:
        return (self.now - self.before) / self.span_s


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionCounts:
    """How many topics and partitions there are, and how many partitions are not as they should be."""

    topics: int  # without internal topics
    partitions: int  # of those topics
    under_replicated: int  # of all topics, internal ones included
    offline: int
    quarantined: list[str]  # why topics are, a sentence each


async def collect_figures(observed: Observed, sampler: Sampler) -> Figures:
    """How the node is now."""
    broker = observed.broker
    machine = await asyncio.to_thread(read_machine, observed.free_space)
    counts = await count_partitions(broker.topics)
    failure, sample = broker.cluster.failure, sampler.newest
    refusal = broker.storage.counters.refusal()
    rates = None if sample is None else sample.rates
    series = sampler.node_series()
    growth = trend_of(series["disk_bytes"], interval_ms=sampler.interval_ms, span_ms=_GROWTH_SPAN_MS)
    lag = trend_of(series["lag"], interval_ms=sampler.interval_ms, span_ms=_LAG_SPAN_MS)
    return Figures(
        failure=None if failure is None else str(failure),
        is_storage_failure=isinstance(failure, StorageError),
        records_in_per_s=None if rates is None else rates.records_in_per_s,
        partitions_offline=counts.offline,
        partitions_under_replicated=counts.under_replicated,
        clock_ahead_ms=broker.clock.ahead_ms,
        quarantined=counts.quarantined,
        partitions_damaged=damaged_partitions(broker),
        disk_free_bytes=machine.disk_free_bytes,
        disk_free_bytes_min=_setting(broker.config, "disk.free.min"),
        write_refusal=None if refusal is None else str(refusal),
        storage_trouble=broker.storage.counters.trouble(),
        disk_growth_bytes_per_s=None if growth is None else growth.per_s,
        flush_p99_ms=None if rates is None else rates.flush_p99_ms,
        loop_lag_ms=None if sample is None else sample.loop_lag_ms,
        cpu_share=None if rates is None else rates.cpu_share,
        memory_bytes=machine.memory_bytes,
        memory_bytes_max=machine.memory_bytes_max,
        descriptors=machine.descriptors,
        descriptors_max=machine.descriptors_max,
        connections={name: counters.connections for name, counters in observed.listeners.items()},
        connections_max=_connections_max(broker.config, machine.descriptors_max),
        lag=None if sample is None else sample.lag,
        lag_before=None if lag is None else int(lag.before),
        lag_span_s=0.0 if lag is None else lag.span_s,
    )


def damaged_partitions(broker: Broker) -> list[TopicPartition]:
    """The partitions that take no appends because acknowledged records are damaged."""
    damaged = broker.storage.counters.damaged
    if not damaged:
        return []
    return [each.name for topic in broker.topics for each in topic.partitions if each.id in damaged]


def trend_of(column: Sequence[float | None], *, interval_ms: int, span_ms: int) -> Trend | None:
    """How a series moved within the span, or since it began; None where too little of it is known."""
    newest = column[-(span_ms // interval_ms + 1) :]
    known = [(place, value) for place, value in enumerate(newest) if value is not None]
    if not known:
        return None
    (first, before), (last, now) = known[0], known[-1]
    if (last - first) * interval_ms < _SPAN_MS_MIN:
        return None
    return Trend(before=before, now=now, span_s=(last - first) * interval_ms / 1000)


async def count_partitions(topics: Iterable[Topic]) -> PartitionCounts:
    """Count the partitions of these topics, and those that are not as they should be."""
    users = partitions = under_replicated = offline = seen = 0
    quarantined = []
    for topic in topics:
        if topic.quarantine:
            quarantined.append(topic.quarantine)
        if not topic.internal:
            users += 1
            partitions += len(topic.partitions)
        for each in topic.partitions:
            record = each.record
            under_replicated += len(record.isr) < len(record.replicas)
            offline += record.leader < 0 or (each.is_led_here and not each.is_held_here)
        seen += len(topic.partitions)
        if seen >= _BREATH_PARTITIONS:
            seen = 0
            await asyncio.sleep(0)
    return PartitionCounts(
        topics=users,
        partitions=partitions,
        under_replicated=under_replicated,
        offline=offline,
        quarantined=quarantined,
    )


def _connections_max(config: BrokerConfig, descriptors_max: int | None) -> int:
    most = _setting(config, "max.connections")
    if descriptors_max is None:
        return most
    return min(most, max(descriptors_max // 2 - _SPARE_DESCRIPTORS, 16))


def _setting(config: BrokerConfig, name: str) -> int:
    return int(config.values.get(name, BROKER_CONFIGS[name].default))


# ---- the machine


def read_machine(free_space: FreeSpace) -> Machine:
    """Ask the operating system; blocks."""
    soft, _hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    return Machine(
        disk_free_bytes=free_space.read_bytes(),
        memory_bytes=memory_bytes(),
        memory_bytes_max=_memory_bytes_max(),
        descriptors=_or_none(lambda: len(os.listdir("/dev/fd"))),
        descriptors_max=None if soft == resource.RLIM_INFINITY else soft,
    )


def _memory_bytes_max() -> int | None:
    """What the machine has, or less if this process may not have all of it."""
    limits = (
        _or_none(lambda: os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")),
        _or_none(lambda: int(_CGROUP_LIMIT.read_text())),  # "max" where there is none
    )
    return min((each for each in limits if each), default=None)


def _or_none(ask: Callable[[], int]) -> int | None:
    """What this system does not tell is not judged."""
    try:
        return ask()
    except (OSError, ValueError):
        return None
