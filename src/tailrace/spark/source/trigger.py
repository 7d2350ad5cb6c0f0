"""What the next batch of a stream takes. Pure: the readers ask the broker, this decides.

    view       what there is: partitions, their latest offsets, which topics they belong to
    starts     where the batch begins: where the last one ended, but for partitions that are new or lost
    end        where it ends, by the limits

A partition whose log is shorter than what was read, or whose topic is another one than before, has lost what
was not read. Without failOnDataLoss reading goes on at the start of what is there now.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from tailrace.model import TopicPartition
from tailrace.spark.admission import plan_admission
from tailrace.spark.source.offset import StreamOffset

MADE_ANEW = "the topic was deleted and created again"
"""Why nothing of it can be read on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """The cluster at one moment."""

    latest: Mapping[TopicPartition, int]
    ids: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Limits:
    """What a batch may take; None is no limit."""

    offsets_min: int | None = None
    offsets_max: int | None = None
    bytes_max: int | None = None


def plan_losses(begun: StreamOffset, view: LogView) -> dict[TopicPartition, str]:
    """Partitions that cannot be read on from where the stream stands, and why."""
    losses: dict[TopicPartition, str] = {}
    anew = made_anew(begun.ids, view.ids)
    for tp, offset in begun.positions.items():
        latest = view.latest.get(tp)
        if latest is None:
            losses[tp] = "the partition does not exist any more"
        elif tp.topic in anew:
            losses[tp] = MADE_ANEW
        elif latest < offset:
            losses[tp] = f"the log ends at {latest}, before {offset} (was the topic created again?)"
    return losses


def made_anew(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """Names that stand for other topics now, by the ids of both moments; one without an id is not told."""
    return {topic for topic, topic_id in now.items() if before.get(topic, topic_id) != topic_id}


def plan_restarts(begun: StreamOffset, view: LogView) -> list[TopicPartition]:
    """Partitions that are read from the start of their log: new ones, and those after a loss."""
    lost = plan_losses(begun, view)
    return sorted(tp for tp in view.latest if tp in lost or tp not in begun.positions)


def plan_starts(
    begun: StreamOffset, view: LogView, earliest: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    """Where the next batch begins; `earliest` has the partitions of `plan_restarts`.

    A partition that is gone keeps its place, in case it comes back.
    """
    return {**begun.positions, **{tp: min(offset, view.latest[tp]) for tp, offset in earliest.items()}}


def plan_end(
    starts: Mapping[TopicPartition, int],
    view: LogView,
    *,
    limits: Limits,
    is_due: bool,
    record_bytes: Mapping[TopicPartition, float] | None = None,
) -> dict[TopicPartition, int] | None:
    """Where the next batch ends; None if there is none yet: nothing new, or too little and not yet due."""
    waiting = sum(max(0, end - starts[tp]) for tp, end in view.latest.items())
    if not waiting:
        return None
    if limits.offsets_min is not None and waiting < limits.offsets_min and not is_due:
        return None
    return plan_admission(
        starts,
        view.latest,
        offsets_max=limits.offsets_max,
        bytes_max=limits.bytes_max,
        record_bytes=record_bytes,
    )
