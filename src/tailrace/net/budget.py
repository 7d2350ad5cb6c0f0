"""The node's budget for request bytes: what was read, or is being read, and is not answered yet.

A connection takes what a frame needs before it buffers it, and gives it back when the answer is known. While
the budget is exhausted nobody's socket is read further; who waits gets his turn in the order of asking, and
nobody overtakes, so that one with a large frame is not starved by many with small ones.

Small requests have a reserve on top, and need not wait for large ones: else a few clients that announce large
frames and send them slowly would keep the node from hearing a heartbeat.

A request that waits for other clients (a long poll, a join) does not count once it is read: else a crowd that
waits for records would keep those who bring them from being heard.

A frame larger than the whole budget waits until it is alone.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class Claim:
    """A place in the queue of those who wait for bytes."""

    __slots__ = ("bytes", "granted", "taken")

    def __init__(self, bytes_wanted: int, granted: Callable[[], None]) -> None:
        self.bytes = bytes_wanted
        self.granted: Callable[[], None] | None = granted
        self.taken = False


class RequestBudget:
    """Counts bytes; plain arithmetic, because it is asked for every request."""

    __slots__ = ("_reserve_end", "_small_bytes", "_waiting", "bytes_max", "used")

    def __init__(self, bytes_max: int, *, reserve_bytes: int = 0, small_bytes: int = 0) -> None:
        self.bytes_max = bytes_max
        self.used = 0  # may exceed bytes_max by the reserve, and by one frame that is larger than the budget
        self._reserve_end = bytes_max + reserve_bytes
        self._small_bytes = small_bytes  # what counts as small
        self._waiting: deque[Claim] = deque()

    def __repr__(self) -> str:
        return f"<RequestBudget {self.used} of {self.bytes_max} bytes, {len(self._waiting)} waiting>"

    @property
    def exhausted(self) -> bool:
        """Whether somebody waits; then nobody should read more than he must."""
        return bool(self._waiting)

    def take_nowait(self, size: int) -> bool:
        """Take bytes if they are there and, unless they are few, nobody waits for some."""
        used = self.used
        if size <= self._small_bytes:
            if used + size > self._reserve_end:
                return False
        elif self._waiting or (used and used + size > self.bytes_max):
            return False
        self.used = used + size
        return True

    def wait(self, size: int, granted: Callable[[], None]) -> Claim:
        """Queue for bytes; `granted` is called, once they are taken, from within somebody's `give`."""
        claim = Claim(size, granted)
        self._waiting.append(claim)
        return claim

    def withdraw(self, claim: Claim) -> None:
        """The claim is not wanted any more, whether or not it was granted meanwhile."""
        claim.granted = None
        if claim.taken:
            self.give(claim.bytes)
        else:
            self._grant()

    def give(self, size: int) -> None:
        """Bytes are free again."""
        self.used -= size
        assert self.used >= 0, "more was given back than was taken"
        if self._waiting:
            self._grant()

    def _grant(self) -> None:
        while self._waiting:
            claim = self._waiting[0]
            if claim.granted is None:
                self._waiting.popleft()
                continue
            if self.used and self.used + claim.bytes > self.bytes_max:
                return
            self._waiting.popleft()
            self.used += claim.bytes
            claim.taken = True
            claim.granted()
