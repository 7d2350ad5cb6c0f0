"""What a subscription says of itself, ready for JSON: to a command line, a console, a person.

Fields marked "older name" stand beside the new ones for one release (docs/api-reference.md, Names).
"""

from __future__ import annotations

from typing import Any

from tailrace.broker.partition import Partition
from tailrace.broker.subscriptions.dead_letter import is_letter_of, read_dead_letter
from tailrace.broker.subscriptions.retained import size_of
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.broker.subscriptions.subscription import Subscription
from tailrace.broker.visible_records import read
from tailrace.records import Record, pass_over
from tailrace.wire.json.record_json import record_row

_READ_BYTES = 256 * 1024
_LISTED_BYTES_MAX = 4 << 20


def summarize(subscription: Subscription) -> dict[str, Any]:
    """One line of a list."""
    own = [each for each in subscription.partitions if each.source.topic == subscription.config.topic]
    return {
        "name": subscription.config.name,
        "topic": subscription.config.topic,
        "mode": str(subscription.config.mode),
        "state": "paused" if subscription.paused else "active" if subscription.members else "idle",
        "member_count": len(subscription.members),
        "lag": sum(each.lag for each in own),
        "unacknowledged": subscription.unacked,
        "members": len(subscription.members),  # older name
    }


def describe(subscription: Subscription) -> dict[str, Any]:
    """Everything that a person may want to know."""
    counters, partitions = subscription.counters, subscription.partitions
    configs = subscription.config.settings()
    return {
        **summarize(subscription),
        "reason": subscription.paused,
        "configs": configs,
        "dead_letter_topic": subscription.config.dead_letter_topic,
        "created_ms": subscription.created_ms,
        "in_flight": sum(each.machine.in_flight for each in partitions),
        "retry_buffer_bytes": subscription.retained_bytes,
        "delivered": counters.delivered,
        "redelivered": counters.redelivered,
        "acknowledged": counters.acknowledged,
        "dead": subscription.dead,
        "expired": sum(each.expired for each in partitions),
        "skipped": sum(each.skipped for each in partitions),
        "unreadable": sum(each.unreadable for each in partitions),
        "members": [
            {"name": each.recipient.name, "held": each.held, "credit": each.credit}
            for each in subscription.members
        ],
        "partitions": [_show_partition(each) for each in partitions],
        "settings": configs,  # older name
    }


async def list_dead_letters(
    subscription: Subscription, partition: Partition, count: int
) -> list[dict[str, Any]]:
    """The oldest dead letters that were not redriven yet: at most `count`, and what fits into one answer."""
    shown: list[dict[str, Any]] = []
    bytes_left = _LISTED_BYTES_MAX

    def visit(record: Record) -> bool:
        nonlocal bytes_left
        if is_letter_of(record, subscription.config.name):
            shown.append(_show_letter(record))
            bytes_left -= size_of(record)
        return len(shown) >= count or bytes_left <= 0

    offset: int = max(partition.start_offset, subscription.redriven_to)
    while offset < partition.last_stable_offset and len(shown) < count and bytes_left > 0:
        portion = await read(partition, offset, bytes_max=_READ_BYTES)
        await portion.visit(visit, on_damage=pass_over)  # any client may write to a topic
        offset = portion.next_offset
    return shown


def _show_partition(each: SubscribedPartition) -> dict[str, Any]:
    machine = each.machine
    return {
        "topic": each.source.topic,
        "partition": each.source.partition,
        "position": machine.cursor.position,
        "acknowledged_beyond": machine.cursor.beyond.count,
        "end_offset": each.end,
        "lag": each.lag,
        "in_flight": machine.in_flight,
        "unacknowledged": machine.unacked,
        "epoch": machine.epoch,
        "error": "" if each.feed.error is None else str(each.feed.error),
        "end": each.end,  # older name
    }


def _show_letter(letter: Record) -> dict[str, Any]:
    """The record as every listener shows records, and what our headers say. Where it lies is known."""
    row = record_row("", 0, letter)
    del row["topic"], row["partition"]
    return {**row, **read_dead_letter(letter)}
