"""How far behind those are who read: groups by what they committed, subscriptions by their cursors.

A group's lag counts the partitions that it has committed, and in them what can still be read: not what
retention has taken. A partition that is gone, or led elsewhere, counts for nothing; so do groups that are
still being loaded.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model import BrokerError, TopicPartition
from tailrace.model.session import INTERNAL

if TYPE_CHECKING:
    from tailrace.broker import Broker
    from tailrace.broker.gate import Access
    from tailrace.broker.subscriptions import Subscription

_BREATH_POSITIONS = 500


class Position(NamedTuple):
    """Where a group stands in a partition."""

    topic: str
    partition: int
    committed: int
    lag: int


def count_lag(broker: Broker) -> int:
    """Records that some group has not committed, and messages that some subscription is not done with."""
    groups = sum(each.lag for name in group_names(broker) for each in positions_of(broker, name))
    return groups + sum(subscription_lag(each) for each in broker.subscriptions)


def group_names(broker: Broker) -> list[str]:
    """The groups that there are; none while they are being loaded."""
    try:
        return [listing.group_id for listing in broker.groups.list_groups()]
    except BrokerError:
        return []


def positions_of(broker: Broker, group: str) -> list[Position]:
    """Every partition that a group has committed; nothing of one that is loading, or gone since."""
    return list(_each_position(broker, group))


async def each_group(broker: Broker) -> AsyncIterator[tuple[str, list[Position]]]:
    """The groups one after the other; the loop is given to others between them, and within large ones."""
    seen = 0
    for name in group_names(broker):
        positions = []
        for position in _each_position(broker, name):
            positions.append(position)
            if len(positions) % _BREATH_POSITIONS == 0:
                await asyncio.sleep(0)
        yield name, positions
        seen += len(positions) % _BREATH_POSITIONS + 1
        if seen >= _BREATH_POSITIONS:
            seen = 0
            await asyncio.sleep(0)


def subscription_lag(subscription: Subscription) -> int:
    """Messages of its topic that a subscription is not done with; its dead letters do not count."""
    topic = subscription.config.topic
    return sum(each.lag for each in subscription.partitions if each.source.topic == topic)


def _each_position(broker: Broker, group: str) -> Iterator[Position]:
    try:
        committed = broker.groups.fetch_offsets(group, None)
    except BrokerError:
        return
    access = broker.gate.access(INTERNAL)
    for name, kept in committed.items():
        if kept.offset >= 0 and (extent := _extent(access, name)) is not None:
            start, end = extent
            lag = max(end - max(kept.offset, start), 0)
            yield Position(name.topic, name.partition, kept.offset, lag)


def _extent(access: Access, name: TopicPartition) -> tuple[int, int] | None:
    """What can be read of a partition, from where to where."""
    try:
        partition = access.readable(name)
        return partition.start_offset, partition.high_watermark
    except BrokerError:  # deleted, or led elsewhere
        return None
