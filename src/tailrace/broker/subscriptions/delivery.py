"""What passes between a subscription and whoever it delivers to. No wire types: listeners translate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from tailrace.records import Record


class Source:
    """One partition that a subscription delivers from."""

    __slots__ = ("id_prefix", "partition", "topic")

    def __init__(self, topic: str, partition: int, *, id_prefix: str) -> None:
        self.topic = topic
        self.partition = partition
        self.id_prefix = id_prefix  # a message's id is this and its offset

    def __repr__(self) -> str:
        return f"<Source {self.topic}-{self.partition}>"


class Delivery:
    """One message on its way to one member, who holds it until he settles it or its lock runs out."""

    __slots__ = ("count", "epoch", "record", "source")

    def __init__(self, source: Source, record: Record, *, count: int, epoch: int) -> None:
        self.source = source
        self.record = record
        self.count = count  # 1 at the first time
        self.epoch = epoch  # an acknowledgement names it: one from before a seek changes nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice:
    """Something that a member should know beside his messages."""

    event: str  # skipped, paused, resumed, seek, deleted, revoked
    partition: int = -1  # -1: all of them
    count: int = 0
    reason: str = ""


class Recipient(Protocol):
    """A member's side of a subscription, kept by a listener. Called in the loop; must not wait."""

    @property
    def name(self) -> str:
        """Who it is, for people."""

    def is_open(self) -> bool:
        """Whether it takes messages now; one that does not calls `Member.resume` when it does again."""

    def deliver(self, deliveries: Sequence[Delivery]) -> None:
        """Send these. What cannot be sent comes back when the member leaves."""

    def notice(self, notice: Notice) -> None:
        """Pass this on."""
