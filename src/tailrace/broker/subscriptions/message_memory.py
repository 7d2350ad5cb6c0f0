"""The memory that messages take in the subscriptions of a node, and its one bound.

A subscription reports what it keeps of its messages: those that members hold (`retained`), those that wait
for a member, and those that were read again. It reports the sum once in a turn, not for each message.

    below bytes_max    each subscription may keep up to SUBSCRIPTION_BYTES_MAX of each kind
    at bytes_max       messages of the least recently used subscriptions are forgotten; while that does not
                       suffice, a subscription keeps FLOOR_BYTES, so that every one goes on, only more slowly

What a subscription forgets is read from the log again when it is wanted. A subscription of a log in memory
keeps what its members hold, because the ring may have moved on; it forgets that only after its last member
has left. The bound may be exceeded by one turn of a subscription and by FLOOR_BYTES of each.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, Protocol

NODE_BYTES_MAX: Final = 128 << 20
SUBSCRIPTION_BYTES_MAX: Final = 8 << 20
FLOOR_BYTES: Final = 64 << 10
_TRIES_MAX: Final = 16
"""Subscriptions that are asked to forget in one turn: those that cannot are passed over."""


class Forgetful(Protocol):
    """A subscription, as this module sees one."""

    def forget_messages(self) -> None:
        """Drop all messages that can be read again, and report the new sum."""


class MessageMemory:
    """What all subscriptions of a node keep."""

    __slots__ = ("_kept", "bytes", "bytes_max")

    def __init__(self, bytes_max: int = NODE_BYTES_MAX) -> None:
        self.bytes_max = bytes_max
        self.bytes = 0
        self._kept: OrderedDict[Forgetful, int] = OrderedDict()  # what each keeps, least recently used first

    def __repr__(self) -> str:
        return f"<MessageMemory {self.bytes} of {self.bytes_max} bytes, {len(self._kept)} subscriptions>"

    def report(self, holder: Forgetful, size: int) -> None:
        """`holder` keeps `size` bytes of messages now, and was just used."""
        before = self._kept.pop(holder, 0)
        self.bytes += size - before
        if size:
            self._kept[holder] = size

    def allowance(self, holder: Forgetful) -> int:
        """How many bytes of each kind `holder` may keep now; others may have to forget theirs for it."""
        if self.bytes >= self.bytes_max:
            self._make_room(holder)
        return SUBSCRIPTION_BYTES_MAX if self.bytes < self.bytes_max else FLOOR_BYTES

    def _make_room(self, asking: Forgetful) -> None:
        for holder in list(self._kept)[:_TRIES_MAX]:
            if self.bytes < self.bytes_max:
                return
            if holder is not asking:
                holder.forget_messages()
                if holder in self._kept:  # it kept some: the next ones are asked first the next time
                    self._kept.move_to_end(holder)
