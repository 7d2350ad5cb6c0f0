"""The states of a group, by the names that clients know, and which leads to which."""

from __future__ import annotations

import enum
from collections.abc import Mapping


class GroupState(enum.StrEnum):
    """Where a group stands."""

    EMPTY = "Empty"
    """No members; offsets may be kept, and expire."""
    PREPARING = "PreparingRebalance"
    """Joins are collected until every member has joined again, or the rebalance timeout."""
    COMPLETING = "CompletingRebalance"
    """The joins are answered, a generation has begun; syncs wait for the leader's."""
    STABLE = "Stable"
    """Everybody can have its share."""
    DEAD = "Dead"
    """Gone; nothing leads out of it."""


TRANSITIONS: Mapping[GroupState, frozenset[GroupState]] = {
    GroupState.EMPTY: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.PREPARING: frozenset({GroupState.COMPLETING, GroupState.EMPTY, GroupState.DEAD}),
    GroupState.COMPLETING: frozenset({GroupState.STABLE, GroupState.PREPARING, GroupState.DEAD}),
    GroupState.STABLE: frozenset({GroupState.PREPARING, GroupState.DEAD}),
    GroupState.DEAD: frozenset(),
}
