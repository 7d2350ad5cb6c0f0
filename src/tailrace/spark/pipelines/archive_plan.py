"""What an archive's next batch reads, decided from what the lake has and what the topics have. Pure.

    the lake        0 ........ end                            one end per partition: the lake's own word
    the topic            start ........................ high
    a batch                    [from, to)                     shares `rows_max` among the partitions

- A run begins where the lake ends.
- Retention may have overtaken the lake: then [end, start) is gone. The batch advances over it and says so
  with a range of its own, so that a hole is never silent.
- A lake that is ahead of its topic, or has partitions that the topic does not, belongs to another topic of
  that name. Nothing good comes of mixing them, so that is an error.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from tailrace.model import TailraceError, TopicPartition
from tailrace.spark.admission import plan_admission, plan_ranges
from tailrace.spark.lake import Advance, BadRange
from tailrace.spark.lake.missing import GONE
from tailrace.spark.offset_range import OffsetRange

TASK_ROWS_MIN = 25_000
"""A task smaller than this costs more to start than it saves, and makes small files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reach:
    """How far a partition reaches at the moment."""

    start: int
    end: int
    """What may be read: the last stable offset where only committed records are wanted."""
    high: int
    """The high watermark, never below `end`."""
    topic_id: str = ""
    """Of the topic; empty where the broker has no ids (before Kafka 2.8)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchPlan:
    """What to read, and what the lake is told when it is there."""

    advances: Sequence[Advance] = ()
    ranges: Sequence[OffsetRange] = ()
    gaps: Sequence[BadRange] = ()
    backlog: int = 0
    """Offsets that wait, those of this batch among them."""

    @property
    def count(self) -> int:
        """Offsets that this batch reads."""
        return sum(each.count for each in self.ranges)


class OtherTopic(TailraceError):
    """The lake holds another topic of the same name."""


def plan_batch(
    ends: Mapping[TopicPartition, int],
    reach: Mapping[TopicPartition, Reach],
    *,
    goal: Mapping[TopicPartition, int] | None,
    rows_max: int,
) -> BatchPlan:
    """The next batch; without advances there is nothing to do. `goal` bounds it, partition by partition.

    The lake has every partition: a run commits where a new one begins before it plans. That these are the
    topics of which the lake has records was checked before (`check_same_topics`).
    """
    wanted = reach if goal is None else {tp: reach[tp] for tp in goal if tp in reach}
    lies = {tp: ends[tp] for tp in wanted}
    begin = {tp: max(at, wanted[tp].start) for tp, at in lies.items()}
    latest = {tp: each.end if goal is None else min(each.end, goal[tp]) for tp, each in wanted.items()}
    until = plan_admission(begin, latest, offsets_max=rows_max)
    moved = sorted(tp for tp in wanted if until[tp] > lies[tp])
    return BatchPlan(
        advances=[_advance(tp, start=lies[tp], end=until[tp]) for tp in moved],
        ranges=[_range(tp, start=begin[tp], end=until[tp]) for tp in moved if until[tp] > begin[tp]],
        gaps=[_gap(tp, start=lies[tp], end=begin[tp]) for tp in moved if begin[tp] > lies[tp]],
        backlog=sum(max(0, latest[tp] - begin[tp]) for tp in wanted),
    )


def plan_tasks(ranges: Sequence[OffsetRange], *, cores: int) -> list[list[OffsetRange]]:
    """The ranges of a batch as tasks: about two for each core, fewer where there is little to do."""
    rows = sum(each.count for each in ranges)
    return plan_ranges(ranges, parts=max(1, min(2 * cores, rows // TASK_ROWS_MIN)))


def topic_ids_of(reach: Mapping[TopicPartition, Reach]) -> dict[str, str]:
    """The ids of the topics, by name; without those whose broker has none."""
    return {tp.topic: each.topic_id for tp, each in reach.items() if each.topic_id}


def new_topic_ids(reach: Mapping[TopicPartition, Reach], *, topic_ids: Mapping[str, str]) -> dict[str, str]:
    """The ids that the lake does not have yet."""
    there = topic_ids_of(reach)
    return {topic: there[topic] for topic in sorted(there.keys() - topic_ids.keys())}


def check_same_topics(
    ends: Mapping[TopicPartition, int],
    reach: Mapping[TopicPartition, Reach],
    *,
    topic_ids: Mapping[str, str],
) -> None:
    """OtherTopic if a topic is not the one of which the lake has records."""
    for tp, each in reach.items():
        if each.topic_id and topic_ids.get(tp.topic, each.topic_id) != each.topic_id:
            raise OtherTopic(f"the lake has records of another topic that was named {tp.topic}. {_FIX}")
    topics = {tp.topic for tp in reach}
    for tp, end in sorted(ends.items()):
        if tp.topic not in topics or end == 0:
            continue  # of a topic that this run is not about, or a partition that the lake has nothing of
        if tp not in reach:
            raise OtherTopic(f"the lake has records of {tp}, and the topic has no such partition. {_FIX}")
        if end > reach[tp].high:
            raise OtherTopic(
                f"the lake's records of {tp} go up to offset {end}, and the topic ends at {reach[tp].high}."
                f" {_FIX}"
            )


def check_not_anew(began: Mapping[str, str], now: Mapping[str, str]) -> None:
    """OtherTopic if a name stands for another topic now than when the run began, by their ids.

    Records are asked for by the name of their topic, and where a run began holds for one topic only.
    """
    for topic, topic_id in sorted(now.items()):
        if began.get(topic, topic_id) != topic_id:
            raise OtherTopic(
                f"topic {topic} was deleted and created again during this run, and nothing of the new one is"
                " in the lake. Run it again: a lake that has nothing of the old one takes the new one"
            )


_FIX = (
    "It was deleted and created again, or this is another cluster: archive it into another lake (--to), or"
    " move this one away first"
)


def _advance(tp: TopicPartition, *, start: int, end: int) -> Advance:
    return Advance(topic=tp.topic, partition=tp.partition, start=start, end=end)


def _range(tp: TopicPartition, *, start: int, end: int) -> OffsetRange:
    return OffsetRange(topic=tp.topic, partition=tp.partition, start=start, end=end)


def _gap(tp: TopicPartition, *, start: int, end: int) -> BadRange:
    return BadRange(
        topic=tp.topic,
        partition=tp.partition,
        first_offset=start,
        last_offset=end - 1,
        reason=GONE,
        saved=None,
    )
