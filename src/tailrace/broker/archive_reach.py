"""How far archives have come, told to the logs whose retention waits for them.

An archive commits the offsets that its lake has reached in a consumer group of its own (ADR 0018). Before
each round of retention the slowest archive that has a position in a partition counts. Where no archive has
one, nothing is archived: retention waits there as long as the settings let it.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.broker.groups import GroupCoordinator
from tailrace.broker.topics import Topics
from tailrace.model import Offset, TopicPartition
from tailrace.model.archive_group import is_archive_group
from tailrace.storage.api import PartitionLog

_NOTHING = Offset(0)


def tell_archive_reach(topics: Topics, groups: GroupCoordinator) -> None:
    """Set `archived_before` of every log here whose retention waits for archives."""
    waiting = list(_waiting_logs(topics))
    if not waiting:
        return
    # While groups are read at a start, a slow archive may be among those that are not known yet.
    reach = groups.slowest_positions(is_archive_group) if groups.is_loaded else {}
    for name, log in waiting:
        log.archived_before = Offset(reach.get(name, _NOTHING))


def _waiting_logs(topics: Topics) -> Iterable[tuple[TopicPartition, PartitionLog]]:
    for topic in topics:
        for partition in topic.partitions:
            log = partition.log
            if log is not None and log.config.archive_wait_ms > 0:
                yield partition.name, log
