"""Subscriptions and their cursors as the topic `__tailrace_cursors` keeps them.

A cursor is one subscription's progress in one partition: everything below `position` is done, and so are the
offsets within `ranges`, half-open (start, end), ascending, apart from each other and from the position.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple
from uuid import UUID

CURSORS_TOPIC = "__tailrace_cursors"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSubscription:
    """What somebody asked for when he made a subscription."""

    name: str
    topic: str
    topic_id: UUID  # a topic of the same name that is made later is another one
    settings: Mapping[str, str]  # as text, those that were given
    created_ms: int


class CursorKey(NamedTuple):
    """Whose progress, and where. The topic is the subscription's own, or its dead-letter topic."""

    subscription: str
    topic_id: UUID
    partition: int


class AcksKey(NamedTuple):
    """The acknowledgements of one transaction in one partition; no other transaction has this key."""

    cursor: CursorKey
    producer_id: int
    producer_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredAcks:
    """What a transaction acknowledges in one partition."""

    epoch: int  # of the cursor: after a seek the acknowledgements are void
    ranges: tuple[tuple[int, int], ...]

    @property
    def offsets(self) -> list[int]:
        return [offset for start, end in self.ranges for offset in range(start, end)]


@dataclass(frozen=True, slots=True, kw_only=True)
class CursorSnapshot:
    """All of a cursor, as it was after its write number `version`."""

    version: int
    epoch: int  # grows with every seek
    position: int
    ranges: tuple[tuple[int, int], ...] = ()
    failures: Mapping[int, int] = field(default_factory=dict)  # offset -> how often its delivery has failed
    limit: int | None = None  # deliver only below this offset: how far dead letters have been redriven


@dataclass(slots=True, kw_only=True)
class CursorDelta:
    """What one write changes. One per acknowledgement, so it is not frozen, which would double its cost."""

    position: int
    ranges: Sequence[tuple[int, int]]  # newly done; what is below the position need not be among them
    failures: Mapping[int, int]  # those that have changed; 0 takes one back
