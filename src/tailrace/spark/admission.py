"""How much a batch takes, and how it is cut into tasks. Pure: the same offsets always give the same plan.

A limit is shared among partitions in proportion to what waits in each, as Spark's own Kafka source does it:
the share is rounded down, but a partition with anything to read gets at least one offset, so that a small one
is never starved by a large one. A batch may therefore exceed its limit by less than one offset per partition.

    plan_admission   where a batch ends
    plan_ranges      which task reads what
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Iterable, Mapping, Sequence

from tailrace.model import TopicPartition
from tailrace.spark.offset_range import OffsetRange


def plan_admission(
    start: Mapping[TopicPartition, int],
    latest: Mapping[TopicPartition, int],
    *,
    offsets_max: int | None,
    bytes_max: int | None = None,
    record_bytes: Mapping[TopicPartition, float] | None = None,
) -> dict[TopicPartition, int]:
    """Where a batch ends that begins at `start`; partitions missing there have nothing to read yet.

    `bytes_max` counts a record of a partition as `record_bytes` of it; a partition without an estimate counts
    as one byte per record, so that the limit still bounds something. A partition that is no longer among the
    latest stays where it was.
    """
    backlog = {tp: max(0, end - start[tp]) for tp, end in latest.items() if tp in start}
    taken = share_limit(backlog, limit=offsets_max)
    if bytes_max is not None:
        sizes = record_bytes or {}
        weighed = {tp: count * max(sizes.get(tp, 1.0), 1.0) for tp, count in taken.items()}
        total = sum(weighed.values())
        if total > bytes_max:
            part = bytes_max / total
            taken = {tp: min(count, max(1, int(count * part))) if count else 0 for tp, count in taken.items()}
    return {tp: offset + taken.get(tp, 0) for tp, offset in start.items()}


def share_limit(backlog: Mapping[TopicPartition, int], *, limit: int | None) -> dict[TopicPartition, int]:
    """How many of each partition's waiting offsets are taken."""
    total = sum(backlog.values())
    if limit is None or total <= limit:
        return dict(backlog)
    return {tp: min(count, max(1, limit * count // total)) if count else 0 for tp, count in backlog.items()}


def plan_ranges(ranges: Sequence[OffsetRange], *, parts: int, splits: bool = True) -> list[list[OffsetRange]]:
    """The ranges as about `parts` tasks of about equal size; empty ranges are left out.

    With `splits` a range larger than its share is cut, and a task has at least one offset, so there are no
    empty tasks. The ranges of a task are in order of topic, partition and offset.
    """
    wanted = [each for each in ranges if each.count]
    if not wanted or parts < 1:
        return [wanted] if wanted else []
    total = sum(each.count for each in wanted)
    pieces = wanted
    if splits:
        pieces = [piece for each in wanted for piece in split_range(each, round(each.count * parts / total))]
    return _pack(pieces, min(parts, len(pieces)))


def split_range(wanted: OffsetRange, parts: int) -> list[OffsetRange]:
    """A range cut into equal parts, one at least, none of them empty."""
    parts = max(1, min(parts, wanted.count))
    cuts = [wanted.start + wanted.count * i // parts for i in range(parts + 1)]
    return [
        OffsetRange(topic=wanted.topic, partition=wanted.partition, start=start, end=end)
        for start, end in itertools.pairwise(cuts)
    ]


def _pack(pieces: Iterable[OffsetRange], parts: int) -> list[list[OffsetRange]]:
    """The largest piece first, each into the task that has the least so far."""
    tasks: list[list[OffsetRange]] = [[] for _ in range(parts)]
    loads = [(0, index) for index in range(parts)]
    for piece in sorted(pieces, key=lambda each: (-each.count, each.topic, each.partition, each.start)):
        load, index = loads[0]
        tasks[index].append(piece)
        heapq.heapreplace(loads, (load + piece.count, index))
    for task in tasks:
        task.sort(key=lambda each: (each.topic, each.partition, each.start))
    return sorted(tasks, key=lambda task: (task[0].topic, task[0].partition, task[0].start))
