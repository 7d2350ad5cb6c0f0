"""The node's budget for request bytes: bytes that were read, or are being read, and are not answered yet.

    |        shared: half        | kafka: a sixth | native: a sixth | http: a sixth |
                                   of which half only for small requests

A listener takes bytes from the part that is kept for it, then from the shared half. A listener that takes
all of the shared half leaves the other two what is kept for them, so no listener can starve another.

A connection takes the size of a frame before it buffers the frame, and gives it back when the answer is
known. While the bytes are missing, the connection waits and its socket is not read. The rules of waiting:

- Claims of one listener are granted in the order of asking, and listeners take turns at the shared half.
  While a claim waits for shared bytes, no other request takes shared bytes, so that many small frames cannot
  starve a large one.
- A claim that is larger than the part kept for its listener needs shared bytes. While it waits for them,
  claims of the same listener that fit into the kept part may pass it: other listeners cannot hold them up.
- A claim larger than everything that its listener may use waits until it is alone: no other claim of its
  listener is granted, and no shared byte is taken.
- Small requests do not wait for large ones: half of what is kept for a listener is for small requests only.
  Without it, a few clients that announce large frames and send them slowly would hold up every heartbeat.

A request that waits for other clients (a long poll, a join) does not count once it is read: otherwise
consumers that wait for records would hold up the producers that bring them.

A caller that waits holds nothing (`Holding` follows this rule too), so claims cannot deadlock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from tailrace.net.unread import UnreadBytes

LISTENERS: Final = ("kafka", "native", "http")
REQUEST_BYTES_MAX: Final = 192 << 20
"""Of a node. One listener may use 128 MiB of it: its sixth and the shared half."""
SMALL_REQUEST_BYTES: Final = 64 << 10
"""A request up to this size may use the bytes that are for small requests only."""

_NEVER: Final = -1
_GIVEN_TWICE: Final = "more was given back than was taken"


class Claim:
    """A place in the queue of a budget."""

    __slots__ = ("bytes", "granted", "number", "taken")

    def __init__(self, bytes_wanted: int, granted: Callable[[], None], number: int) -> None:
        self.bytes = bytes_wanted
        self.granted: Callable[[], None] | None = granted
        self.number = number  # in the order of asking
        self.taken = False


class SharedBytes:
    """The bytes that several budgets may take, and the budgets that wait for them, in turn."""

    __slots__ = ("bytes_max", "turns", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0  # exceeds bytes_max while one frame larger than a whole budget is read
        self.turns: deque[RequestBudget] = deque()

    def grant(self) -> None:
        """Grant claims, one of each waiting budget in turn, until the first in turn does not fit."""
        turns = self.turns
        while turns:
            first = turns[0]
            is_granted = first.grant_next()
            if turns and turns[0] is first:  # else it waits no more
                if not is_granted:
                    return
                turns.rotate(-1)


class RequestBudget:
    """The bytes of one listener; plain arithmetic, because it is asked for every request.

    Without `shared` it stands alone: `kept_bytes` is all there is.
    """

    __slots__ = (
        "_easy_bytes",
        "_kept_bytes",
        "_large",
        "_number",
        "_reserve_bytes",
        "_reserved",
        "_shared",
        "_small_bytes",
        "_taken",
        "_waiting",
        "exhausted",
        "unread",
    )

    def __init__(
        self,
        kept_bytes: int,
        *,
        reserve_bytes: int = 0,
        small_bytes: int = 0,
        shared: SharedBytes | None = None,
        unread: UnreadBytes | None = None,
    ) -> None:
        self.unread = unread or UnreadBytes()  # what clients have not read, of all listeners of the node
        self._kept_bytes = kept_bytes
        self._easy_bytes = kept_bytes  # _NEVER while a claim waits or the reserve is in use
        self._reserve_bytes = reserve_bytes  # on top of it, for requests of up to small_bytes
        self._small_bytes = small_bytes
        self._shared = shared or SharedBytes(0)
        self._taken = 0  # what is above _kept_bytes is taken from the shared bytes
        self._reserved = 0  # taken from the reserve
        self._waiting: deque[Claim] = deque()  # that fit into the kept bytes
        self._large: deque[Claim] = deque()  # that do not
        self._number = 0
        self.exhausted = False  # a claim waits: connections read no more than they must

    def __repr__(self) -> str:
        waiting = len(self._waiting) + len(self._large)
        return f"<RequestBudget {self.used} of {self.bytes_max} bytes, {waiting} waiting>"

    @property
    def used(self) -> int:
        """The bytes that are taken; over `bytes_max` while a frame larger than that is read."""
        return self._taken + self._reserved

    @property
    def bytes_max(self) -> int:
        """The most that can be taken here, with all of the shared bytes."""
        return self._kept_bytes + self._reserve_bytes + self._shared.bytes_max

    def take_nowait(self, size: int) -> bool:
        """Take bytes if they are there and no claim waits for them; small requests may use the reserve."""
        taken = self._taken + size
        if taken <= self._easy_bytes:
            self._taken = taken
            return True
        return self.take_more_nowait(size, held=0)

    def take_more_nowait(self, size: int, *, held: int) -> bool:
        """The same for a request that holds some bytes already: it is small if both together are."""
        taken = self._taken + size
        if self.exhausted:
            is_taken = taken <= self._kept_bytes and self._may_pass()
        else:
            is_taken = taken <= self._kept_bytes or self._take_shared(taken)
        if is_taken:
            self._taken = taken
            return True
        if size + held <= self._small_bytes and self._reserved + size <= self._reserve_bytes:
            self._reserved += size
            self._easy_bytes = _NEVER
            return True
        return False

    async def take(self, size: int) -> None:
        """Take bytes, waiting for them if need be."""
        if self.take_nowait(size):
            return
        granted = asyncio.Event()
        claim = self.wait(size, granted.set)
        try:
            await granted.wait()
        except BaseException:
            self.withdraw(claim)
            raise

    def wait(self, size: int, granted: Callable[[], None]) -> Claim:
        """Queue for bytes; `granted` is called, once they are taken, from within the `give` of another."""
        self._number += 1
        claim = Claim(size, granted, self._number)
        (self._waiting if size <= self._kept_bytes else self._large).append(claim)
        if not self.exhausted:
            self.exhausted = True
            self._easy_bytes = _NEVER
            self._shared.turns.append(self)
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
        taken = self._taken
        if taken <= self._easy_bytes:
            assert size <= taken, _GIVEN_TWICE
            self._taken = taken - size
        else:
            self._give_and_grant(size)

    def resize(self, kept_bytes: int) -> None:
        """Keep so many bytes from now on; claims that fit now are granted."""
        taken, shared = self._taken, self._shared
        shared.used += max(taken - kept_bytes, 0) - max(taken - self._kept_bytes, 0)
        self._kept_bytes = kept_bytes
        self._note_ease()
        self._grant()

    def grant_next(self) -> bool:
        """Grant the next claim that fits; whether there was one. For `SharedBytes`, whose turns it keeps."""
        claim = self._next_claim()
        if claim is not None:
            self._taken += claim.bytes
            claim.taken = True
        if self.exhausted and _first(self._waiting) is None and _first(self._large) is None:
            self.exhausted = False
            self._shared.turns.remove(self)
            self._note_ease()
        if claim is None:
            return False
        assert claim.granted is not None
        claim.granted()
        return True

    # ---- inside

    def _give_and_grant(self, size: int) -> None:
        if self._reserved:
            refilled = min(size, self._reserved)
            self._reserved -= refilled
            size -= refilled
            self._note_ease()
        taken, kept = self._taken, self._kept_bytes
        left = self._taken = taken - size
        assert left >= 0, _GIVEN_TWICE
        if taken > kept:
            self._shared.used -= taken - (left if left > kept else kept)
        if self._shared.turns:
            self._grant()

    def _note_ease(self) -> None:
        self._easy_bytes = _NEVER if self.exhausted or self._reserved else self._kept_bytes

    def _grant(self) -> None:
        """Grant what fits here, then what fits elsewhere now."""
        while self.grant_next():
            pass
        self._shared.grant()

    def _next_claim(self) -> Claim | None:
        """Take the next claim that fits off its queue, and its shared bytes with it."""
        claim, large = _first(self._waiting), _first(self._large)
        if large is not None and (claim is None or large.number < claim.number):
            if self._take_shared(self._taken + large.bytes):
                return self._large.popleft()
            if claim is None or large.bytes > self._shared.bytes_max:
                return None
            return self._waiting.popleft() if self._taken + claim.bytes <= self._kept_bytes else None
        if claim is None:
            return None
        taken = self._taken + claim.bytes
        return self._waiting.popleft() if taken <= self._kept_bytes or self._take_shared(taken) else None

    def _may_pass(self) -> bool:
        """Whether only a claim waits that leaves the kept bytes to others: it does without them."""
        large = _first(self._large)
        return _first(self._waiting) is None and large is not None and large.bytes <= self._shared.bytes_max

    def _take_shared(self, taken: int) -> bool:
        """Take from the shared bytes what is missing for `taken` in all."""
        shared = self._shared
        if shared.turns and shared.turns[0] is not self:
            return False
        before, kept = self._taken, self._kept_bytes
        used = shared.used + taken - (before if before > kept else kept)
        if used > shared.bytes_max and (before or shared.used):
            return False
        shared.used = used
        return True


def _first(claims: deque[Claim]) -> Claim | None:
    """The first claim that was not withdrawn; those before it are dropped."""
    while claims and claims[0].granted is None:
        claims.popleft()
    return claims[0] if claims else None


class Holding:
    """The bytes of one request whose size becomes known piece by piece.

    It never waits while it holds: where more bytes are missing, it gives back what it holds and claims the
    sum. Requests that hold a part and wait for the rest could wait for each other for ever.
    """

    __slots__ = ("_budget", "bytes")

    def __init__(self, budget: RequestBudget) -> None:
        self._budget = budget
        self.bytes = 0

    async def resize(self, size: int) -> None:
        """Hold exactly so many bytes, waiting for more if need be."""
        held = self.bytes
        if size <= held:
            self.bytes = size
            if size < held:
                self._budget.give(held - size)
        elif self._budget.take_more_nowait(size - held, held=held):
            self.bytes = size
        else:
            self.release()
            await self._budget.take(size)
            self.bytes = size

    def release(self) -> None:
        """Hold nothing; twice is harmless."""
        held, self.bytes = self.bytes, 0
        if held:
            self._budget.give(held)


class NodeBudget:
    """The request bytes of a node, and the share of each listener."""

    __slots__ = ("shares", "unread")

    def __init__(self, bytes_max: int = REQUEST_BYTES_MAX) -> None:
        sixth = bytes_max // 6
        reserve = sixth // 2
        shared = SharedBytes(bytes_max - sixth * len(LISTENERS))
        self.unread = UnreadBytes()
        self.shares: Mapping[str, RequestBudget] = {
            name: RequestBudget(
                sixth - reserve,
                reserve_bytes=reserve,
                small_bytes=SMALL_REQUEST_BYTES,
                shared=shared,
                unread=self.unread,
            )
            for name in LISTENERS
        }

    def __repr__(self) -> str:
        return f"<NodeBudget {self.shares}>"

    def share(self, listener: str) -> RequestBudget:
        """What a listener draws on."""
        return self.shares[listener]
