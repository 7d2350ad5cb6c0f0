"""The node's budget for request bytes: bytes that were read, or are being read, and are not answered yet.

    |        shared: half        | kafka: a sixth | native: a sixth | http: a sixth |
                                   of which half only for small requests

A listener takes bytes from the part that is kept for it, then from the shared half. A listener that takes
all of the shared half leaves the other two what is kept for them, so no listener can starve another.

What arrives is counted as it arrives, not as it is announced: a large request takes bytes in steps that grow
with what it has sent, before it buffers them, and gives all of them back when the answer is known. While
bytes are missing, the connection waits and its socket is not read. The rules of waiting:

- Claims of one listener are granted in the order of asking, and listeners take turns at the shared half.
  While a claim waits for shared bytes, no other request takes shared bytes, so that many small frames cannot
  starve a large one.
- A claim that is larger than the part kept for its listener needs shared bytes. While it waits for them,
  claims of the same listener that fit into the kept part may pass it: other listeners cannot hold them up.
- A claim larger than everything that its listener may use waits until it is alone: no other claim of its
  listener is granted, and no shared byte is taken.
- Small requests do not wait for large ones: half of what is kept for a listener is for small requests only.
  Without it, a few clients with large frames would hold up every heartbeat.
- A request that has begun grows before others begin, and it keeps what it holds while it waits. So that such
  requests cannot wait for each other for ever, one request of the node has the pass: it grows although there
  are no bytes, until it is complete. The next pass goes to the request that has waited longest.
- While anything waits, a request that arrives more slowly than RATE_BYTES_PER_S is refused, and one address
  whose arriving requests hold more than half of the node's bytes loses the slowest of them.

So used bytes exceed the bound by one request at most, and a client that sends slowly is served as long as
nobody else needs the memory.

A request that waits for other clients (a long poll, a join) does not count once it is read: otherwise
consumers that wait for records would hold up the producers that bring them.

A caller that waits to begin holds nothing, so those claims cannot deadlock.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Mapping
from itertools import count
from typing import Final, Protocol

from tailrace.net.unread import UnreadBytes

LISTENERS: Final = ("kafka", "native", "http")
REQUEST_BYTES_MAX: Final = 192 << 20
"""Of a node. One listener may use 128 MiB of it: its sixth and the shared half."""
SMALL_REQUEST_BYTES: Final = 64 << 10
"""A request up to this size may use the bytes that are for small requests only."""

RATE_BYTES_PER_S: Final = 64 << 10
"""What a request must arrive with, on average and after GRACE_S, while others wait for its bytes."""
GRACE_S: Final = 2.0
_PRESS_S: Final = 0.5  # how often slow requests are looked for while something waits

_NEVER: Final = -1
_GIVEN_TWICE: Final = "more was given back than was taken"


class Arrival(Protocol):
    """A request that arrives piece by piece."""

    @property
    def address(self) -> str:
        """Where it comes from; "" if that is not known."""

    @property
    def held_bytes(self) -> int:
        """What it has taken of the budget."""

    def lacks_bytes(self, now: float) -> float:
        """How many bytes it is behind RATE_BYTES_PER_S; 0 or less if it is not slow, or waits for us."""

    def refuse_slow(self) -> None:
        """It is given up: others wait for its bytes."""


def lacking(*, received: int, elapsed_s: float) -> float:
    """How many bytes an arrival is behind the rate that it needs while others wait."""
    return 0.0 if elapsed_s < GRACE_S else elapsed_s * RATE_BYTES_PER_S - received


class Claim:
    """A place in the queue of a budget."""

    __slots__ = ("arrival", "bytes", "granted", "number", "taken")

    def __init__(
        self, bytes_wanted: int, granted: Callable[[], None], number: int, arrival: Arrival | None = None
    ) -> None:
        self.arrival = arrival  # of a request that has begun
        self.bytes = bytes_wanted
        self.granted: Callable[[], None] | None = granted
        self.number = number  # in the order of asking
        self.taken = False


class SharedBytes:
    """The bytes that several budgets may take, the budgets that wait for them, in turn, and what arrives."""

    __slots__ = ("_timer", "arriving", "bytes_max", "numbers", "passed", "turns", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0  # exceeds bytes_max by one request at most
        self.turns: deque[RequestBudget] = deque()
        self.numbers = count(1)  # of claims, in the order of asking
        self.arriving: dict[Arrival, RequestBudget] = {}  # requests of which a part is here, the oldest first
        self.passed: Arrival | None = None  # the one that has the pass
        self._timer: asyncio.TimerHandle | None = None

    def finished(self, arrival: Arrival) -> None:
        """A request is complete, or gone; the pass goes on."""
        self.arriving.pop(arrival, None)
        if self.passed is arrival:
            self.passed = None
            waiting = [budget for budget in self.turns if budget.oldest_growth is not None]
            if waiting:
                self.passed = min(waiting, key=_oldest_growth).grant_growth()

    def press(self) -> None:
        """Something waits: look for those that hold bytes and do not send, until nothing waits any more."""
        if self._timer is None and self.arriving:
            self._timer = asyncio.get_running_loop().call_later(_PRESS_S, self._refuse_slow)

    def _refuse_slow(self) -> None:
        self._timer = None
        if not self.turns:
            return
        now = asyncio.get_running_loop().time()
        lacks = {arrival: arrival.lacks_bytes(now) for arrival in self.arriving}
        for arrival in [each for each, lack in lacks.items() if lack > 0]:
            arrival.refuse_slow()
        self._bound_addresses(lacks)
        self.press()

    def _bound_addresses(self, lacks: Mapping[Arrival, float]) -> None:
        held: dict[str, int] = {}
        for arrival in self.arriving:
            held[arrival.address] = held.get(arrival.address, 0) + arrival.held_bytes
        if len(held) < 2:  # nobody else would have the bytes
            return
        for address, size in held.items():
            if size > self.bytes_max and address:
                own = [each for each in self.arriving if each.address == address]
                max(own, key=lambda each: lacks.get(each, 0.0)).refuse_slow()

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
        "_growing",
        "_kept_bytes",
        "_large",
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
        self._growing: deque[Claim] = deque()  # of requests that have begun
        self.exhausted = False  # a claim waits: connections read no more than they must

    def __repr__(self) -> str:
        waiting = len(self._waiting) + len(self._large) + len(self._growing)
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
        if not self.take_nowait(size):
            await self.wait_granted(size)

    async def wait_granted(self, size: int) -> None:
        """Take bytes that were refused just now, when they are there."""
        granted = asyncio.Event()
        claim = self.wait(size, granted.set)
        try:
            await granted.wait()
        except BaseException:
            self.withdraw(claim)
            raise

    def wait(self, size: int, granted: Callable[[], None]) -> Claim:
        """Queue for bytes; `granted` is called, once they are taken, from within the `give` of another."""
        queue = self._waiting if size <= self._kept_bytes else self._large
        return self._queue(queue, size, granted)

    # ---- requests that arrive piece by piece

    def begin(self, arrival: Arrival) -> None:
        """A part of a request is here. `finish` follows in the end, whatever becomes of it."""
        self._shared.arriving[arrival] = self
        if self._shared.turns:
            self._shared.press()

    def finish(self, arrival: Arrival) -> None:
        """The request is complete, or gone; what it took is given back apart from this. Twice is harmless."""
        if arrival in self._shared.arriving:
            self._shared.finished(arrival)

    def grow_nowait(self, arrival: Arrival, size: int) -> bool:
        """Take more bytes for a request that has begun, if they are there or it has the pass."""
        taken, shared = self._taken + size, self._shared
        if not self.exhausted and (taken <= self._kept_bytes or self._take_shared(taken)):
            self._taken = taken
            return True
        if shared.passed is None and arrival in shared.arriving:
            shared.passed = arrival
        if shared.passed is not arrival:
            return False
        self._overdraw(size)
        return True

    def wait_growth(self, arrival: Arrival, size: int, granted: Callable[[], None]) -> Claim:
        """Queue for more bytes; `grow_nowait` has refused them, so another request has the pass."""
        return self._queue(self._growing, size, granted, arrival)

    @property
    def oldest_growth(self) -> Claim | None:
        return _first(self._growing)

    def grant_growth(self) -> Arrival | None:
        """Grant the first claim of a request that has begun, whatever is there; returns that request."""
        claim = self._growing.popleft()
        self._overdraw(claim.bytes)
        claim.taken = True
        self._stop_waiting_if_done()
        assert claim.granted is not None
        claim.granted()
        return claim.arrival

    def _overdraw(self, size: int) -> None:
        before, kept = self._taken, self._kept_bytes
        taken = self._taken = before + size
        self._shared.used += max(taken - kept, 0) - max(before - kept, 0)
        self._easy_bytes = _NEVER if taken > kept else self._easy_bytes

    def _queue(
        self, queue: deque[Claim], size: int, granted: Callable[[], None], arrival: Arrival | None = None
    ) -> Claim:
        claim = Claim(size, granted, next(self._shared.numbers), arrival)
        queue.append(claim)
        if not self.exhausted:
            self.exhausted = True
            self._easy_bytes = _NEVER
            self._shared.turns.append(self)
        self._shared.press()
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
        self._stop_waiting_if_done()
        if claim is None:
            return False
        assert claim.granted is not None
        claim.granted()
        return True

    # ---- inside

    def _stop_waiting_if_done(self) -> None:
        queues = (self._waiting, self._large, self._growing)
        if self.exhausted and all(_first(queue) is None for queue in queues):
            self.exhausted = False
            self._shared.turns.remove(self)
            self._note_ease()

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
        growing = _first(self._growing)
        if growing is not None:
            taken = self._taken + growing.bytes
            fits = taken <= self._kept_bytes or self._take_shared(taken)
            return self._growing.popleft() if fits else None
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
        if _first(self._waiting) is not None or _first(self._growing) is not None:
            return False
        large = _first(self._large)
        return large is not None and large.bytes <= self._shared.bytes_max

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


def _oldest_growth(budget: RequestBudget) -> int:
    claim = budget.oldest_growth
    assert claim is not None
    return claim.number


def _first(claims: deque[Claim]) -> Claim | None:
    """The first claim that was not withdrawn; those before it are dropped."""
    while claims and claims[0].granted is None:
        claims.popleft()
    return claims[0] if claims else None


class Holding:
    """The bytes of one request whose size becomes known piece by piece.

    It keeps what it holds while it waits for more (see the rules above). One that arrives from a client has a
    deadline that `refuse_slow` brings forward: whoever reads gets its TimeoutError.
    """

    __slots__ = ("_began", "_budget", "_waits", "address", "bytes", "deadline", "expected", "is_refused")

    def __init__(self, budget: RequestBudget, address: str = "") -> None:
        self._budget = budget
        self._began = 0.0
        self._waits = False  # for more bytes, which is not the client's time
        self.address = address
        self.bytes = 0
        self.expected = 0  # how large it will be, as far as that is known: a large one is no small request
        self.deadline: asyncio.Timeout | None = None  # of the wait for the client's next piece
        self.is_refused = False  # it arrived slowly while others waited

    @property
    def held_bytes(self) -> int:
        return self.bytes

    async def resize(self, size: int) -> None:
        """Hold exactly so many bytes, waiting for more if need be."""
        held = self.bytes
        if size <= held:
            self.bytes = size
            if not size:
                self._budget.finish(self)
            if size < held:
                self._budget.give(held - size)
        elif not held:
            if not self._budget.take_more_nowait(size, held=max(self.expected - size, 0)):
                await self._budget.wait_granted(size)
            self.bytes = size
            self.restart()
            self._budget.begin(self)
        elif self._budget.take_more_nowait(size - held, held=held) or self._budget.grow_nowait(
            self, size - held
        ):
            self.bytes = size
        else:
            await self._wait_growth(size - held)
            self.bytes = size

    def restart(self) -> None:
        """What it holds belongs to something that has just begun."""
        self._began = asyncio.get_running_loop().time()

    def complete(self) -> None:
        """All of it is here, and stays held."""
        self._budget.finish(self)

    def release(self) -> None:
        """Hold nothing; twice is harmless."""
        self._budget.finish(self)
        held, self.bytes = self.bytes, 0
        if held:
            self._budget.give(held)

    def lacks_bytes(self, now: float) -> float:
        if self.deadline is None or self._waits:
            return 0.0
        return lacking(received=self.bytes, elapsed_s=now - self._began)

    def refuse_slow(self) -> None:
        if self.deadline is not None and not self.deadline.expired():
            self.is_refused = True
            self.deadline.reschedule(asyncio.get_running_loop().time())

    async def _wait_growth(self, size: int) -> None:
        now = asyncio.get_running_loop().time
        granted = asyncio.Event()
        claim = self._budget.wait_growth(self, size, granted.set)
        self._waits, since = True, now()
        try:
            await granted.wait()
        except BaseException:
            self._budget.withdraw(claim)
            raise
        finally:
            self._waits = False
            self._began += now() - since


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
