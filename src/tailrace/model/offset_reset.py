"""Where a consumer group goes on after a reset: the rule that the command line and HTTP share. Pure.

A goal says what is wanted of every partition; what is known of a partition makes an offset of it:

    earliest, latest   the start, the end of the log
    current            what is committed
    offset             this one
    time               the first record at or after it; the end where every record is older
    shift              so many records on from what is committed, or back

Outside the log there is nothing to read: an offset that lies there is moved to the nearer end, and the move
says so. What has no committed offset can be neither kept nor shifted, which is an error that names it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Literal

from tailrace.model import TailraceError, TopicPartition

Place = Literal["earliest", "latest", "current"]


class CannotReset(TailraceError):
    """The goal does not say where a partition shall go on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """Where a group shall go on; exactly one of these is set."""

    place: Place | None = None
    offset: int | None = None
    time_ms: int | None = None
    shift: int | None = None

    def __post_init__(self) -> None:
        given = [each.name for each in fields(self) if getattr(self, each.name) is not None]
        if len(given) != 1:
            raise CannotReset(f"say one place to go on at, and not {len(given)}")


@dataclass(frozen=True, slots=True, kw_only=True)
class Standing:
    """What is known of a partition before the reset."""

    committed: int | None  # None: the group never committed one
    start: int
    end: int
    at_time: int | None = None  # the first offset at the time of the goal; None: every record is older


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What a reset does to one partition."""

    target: TopicPartition
    before: int | None
    after: int
    start: int
    end: int
    is_clamped: bool  # what was wanted lies outside the log

    @property
    def lag(self) -> int:
        return self.end - self.after


def plan_reset(goal: Goal, standings: Mapping[TopicPartition, Standing]) -> list[Move]:
    """The moves that bring every partition to the goal, by partition."""
    wanted = {target: _wanted(goal, target, standing) for target, standing in standings.items()}
    return plan_moves(wanted, standings)


def plan_moves(
    wanted: Mapping[TopicPartition, int], standings: Mapping[TopicPartition, Standing]
) -> list[Move]:
    """The moves to offsets that somebody chose, each inside its log."""
    return [_move(target, wanted[target], standings[target]) for target in sorted(wanted)]


def count_lag(*, committed: int, start: int, end: int) -> int:
    """Records that are still to be read; what retention has taken cannot be read any more."""
    return max(end - max(committed, start), 0)


def _wanted(goal: Goal, target: TopicPartition, standing: Standing) -> int:
    """The offset that is wanted, inside the log or not."""
    if goal.place == "earliest":
        return standing.start
    if goal.place == "latest":
        return standing.end
    if goal.offset is not None:
        return goal.offset
    if goal.time_ms is not None:
        return standing.end if standing.at_time is None else standing.at_time
    if standing.committed is None:
        verb = "kept" if goal.shift is None else "shifted"
        raise CannotReset(
            f"{target} has no committed offset that could be {verb}. Name a place, an offset or a time"
        )
    return standing.committed + (goal.shift or 0)


def _move(target: TopicPartition, wanted: int, standing: Standing) -> Move:
    after = min(max(wanted, standing.start), standing.end)
    return Move(
        target=target,
        before=standing.committed,
        after=after,
        start=standing.start,
        end=standing.end,
        is_clamped=after != wanted,
    )
