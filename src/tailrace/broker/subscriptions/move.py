"""Moving the cursors of a subscription: what that means for the messages of each partition.

    before < after      what was not done with between them is passed over
    after < before      what is done with from `after` on comes again

What is done with beyond the cursor is forgotten with it, so some of it may come again also when the cursor
goes ahead. Planned first and done afterwards, so that a preview shows what a seek does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """What becomes of one partition; offsets are counted, as they are for the lag."""

    subscribed: SubscribedPartition
    before: int
    after: int
    end: int
    again: int  # done with, and delivered again
    passed_over: int  # not done with, and not delivered any more


@dataclass(frozen=True, slots=True, kw_only=True)
class SeekPlan:
    """Where the partitions go that somebody wants to move: one of them, or all."""

    partition: int | None  # None: all
    moves: Sequence[Move]  # of one partition at least

    @property
    def epoch(self) -> int:
        """The newest that they are in, now."""
        return max(each.subscribed.machine.epoch for each in self.moves)


def plan_move(subscribed: SubscribedPartition, target: int) -> Move:
    """What going to `target` does, as things are now. What retention took away does not count."""
    cursor, start = subscribed.machine.cursor, subscribed.start
    passed = max(target - start, 0)
    done = cursor.done_from(start) - cursor.done_from(target) if passed else 0
    return Move(
        subscribed=subscribed,
        before=cursor.position,
        after=target,
        end=subscribed.end,
        again=cursor.done_from(target),
        passed_over=passed - done,
    )
