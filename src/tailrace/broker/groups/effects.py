"""What a group asks of the world around it, once it has decided."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from tailrace.broker.groups.api import JoinResult, SyncResult
from tailrace.broker.groups.stored import StoredGroup
from tailrace.model import ErrorCode


class StoreReason(enum.Enum):
    """Why a group's state is to be kept, which decides what waits for it."""

    ASSIGNED = "assigned"  # the leader has synced: the syncs wait
    REPLACED = "replaced"  # a static member came back under a new id: its join waits
    EMPTY = "empty"  # the last member is gone: nothing waits


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinAnswer:
    """Answer the join that was given this token."""

    token: int
    result: JoinResult | ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncAnswer:
    """Answer the sync that was given this token."""

    token: int
    result: SyncResult | ErrorCode


@dataclass(frozen=True, slots=True, kw_only=True)
class Store:
    """Make this durable, then call `Group.stored` with this very object and how it went."""

    reason: StoreReason
    group: StoredGroup
    token: int | None = None  # of the join that waits, where the reason is REPLACED
    leader_before: str | None = None  # who led under its old id, where the reason is REPLACED


Effect = JoinAnswer | SyncAnswer | Store
