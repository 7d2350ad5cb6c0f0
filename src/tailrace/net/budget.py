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
- A request that has begun keeps what it holds while it waits for more. So that such requests cannot wait for
  each other for ever, one request of the node has the pass: it grows although there are no bytes, until it is
  complete. The next pass goes to the request that has waited longest.
- Claims of an address whose arriving requests hold a quarter of what a listener may use come after those of
  all other addresses, for the pass too. The first step of a large request counts as a small one, unless its
  address has begun others that hold a quarter of what small requests have.
- While the pass is with a request of such an address, one request of another address has a second one: it
  grows without room up to QUICK_BYTES. Else a client that stops sending would hold up all others until it is
  found to be slow.
- While anything waits, a request that arrives more slowly than RATE_BYTES_PER_S is refused.

So used bytes exceed the bound by one request and QUICK_BYTES at most, and a client that sends slowly is
served as long as no other request needs the memory.

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

from tailrace.net.unread import ListenerUnread, UnreadBytes

LISTENERS: Final = ("kafka", "native", "http")
REQUEST_BYTES_MAX: Final = 192 << 20
"""Of a node. One listener may use 128 MiB of it: its sixth and the shared half."""
SMALL_REQUEST_BYTES: Final = 64 << 10
"""A request up to this size may use the bytes that are for small requests only."""

QUICK_BYTES: Final = 8 << 20
"""How large a request may get with the second pass."""
RATE_BYTES_PER_S: Final = 64 << 10
"""What a request must arrive with, in each span of GRACE_S, while others wait for its bytes."""
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

    def is_slow(self, now: float) -> bool:
        """Whether the client sends less than RATE_BYTES_PER_S; not while the request waits for us."""

    def refuse_slow(self) -> None:
        """It is given up: others wait for its bytes."""


class Pace:
    """How fast a request arrives, as far as it was looked at."""

    __slots__ = ("_received", "_since")

    def __init__(self, now: float = 0.0) -> None:
        self.restart(now)

    def restart(self, now: float) -> None:
        """It begins now, with nothing received."""
        self._since = now
        self._received = 0

    def waited(self, seconds: float) -> None:
        """It waited for us, which is not the client's time."""
        self._since += seconds

    def is_slow(self, received: int, now: float) -> bool:
        """Whether too little came since the last look that was GRACE_S ago."""
        elapsed_s = now - self._since
        if elapsed_s < GRACE_S:
            return False
        is_slow = received - self._received < elapsed_s * RATE_BYTES_PER_S
        self._since, self._received = now, received
        return is_slow


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

    __slots__ = ("_timer", "arriving", "bytes_max", "held", "numbers", "passed", "quick", "turns", "used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.used = 0  # exceeds bytes_max by one request and QUICK_BYTES at most
        self.turns: deque[RequestBudget] = deque()
        self.numbers = count(1)  # of claims, in the order of asking
        self.arriving: dict[Arrival, int] = {}  # requests of which a part is here, with what each holds
        self.held: dict[str, int] = {}  # the same by address
        self.passed: Arrival | None = None  # the one that has the pass
        self.quick: Arrival | None = None  # the one that has the second pass
        self._timer: asyncio.TimerHandle | None = None

    def finished(self, arrival: Arrival) -> None:
        """A request is complete, or gone; the pass goes on."""
        self.hold(arrival, -self.arriving[arrival])
        del self.arriving[arrival]
        if self.passed is arrival:
            self.passed = None
            waiting = [budget for budget in self.turns if budget.oldest_growth is not None]
            if waiting:
                first = min(waiting, key=_oldest_growth)
                self.passed = first.grant_growth(first.oldest_growth)
        if self.quick is arrival:
            self.quick = None
        self.give_quick_pass()

    def give_quick_pass(self) -> None:
        """Give the second pass, if it is free, to the request that has waited longest and may have it."""
        if self.quick is None and self.turns:
            waiting = [
                (claim.number, each) for each in self.turns if (claim := each.quick_growth) is not None
            ]
            if waiting:
                _, first = min(waiting, key=lambda pair: pair[0])
                self.quick = first.grant_growth(first.quick_growth)

    def hold(self, arrival: Arrival, size: int) -> None:
        """A request that arrives has taken so many more bytes; one that is complete does not count here."""
        if arrival not in self.arriving:
            return
        self.arriving[arrival] += size
        address = arrival.address
        left = self.held.get(address, 0) + size
        if left:
            self.held[address] = left
        else:
            self.held.pop(address, None)

    def press(self) -> None:
        """Something waits: look for those that hold bytes and do not send, until nothing waits any more."""
        if self._timer is None and self.arriving:
            self._timer = asyncio.get_running_loop().call_later(_PRESS_S, self._refuse_slow)

    def _refuse_slow(self) -> None:
        self._timer = None
        if not self.turns:
            return
        now = asyncio.get_running_loop().time()
        for arrival in [each for each in self.arriving if each.is_slow(now)]:
            arrival.refuse_slow()
        self.press()

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
        "_heavy",
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
        unread: ListenerUnread | None = None,
    ) -> None:
        self.unread = unread or ListenerUnread(UnreadBytes())  # what clients of the listener have not read
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
        self._heavy: deque[Claim] = deque()  # of addresses that hold much already
        self.exhausted = False  # a claim waits: connections read no more than they must

    def __repr__(self) -> str:
        waiting = sum(map(len, self._queues))
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

    async def wait_granted(self, size: int, *, address: str = "") -> None:
        """Take bytes that were refused just now, when they are there."""
        granted = asyncio.Event()
        claim = self.wait(size, granted.set, address=address)
        try:
            await granted.wait()
        except BaseException:
            self.withdraw(claim)
            raise

    @property
    def _queues(self) -> tuple[deque[Claim], ...]:
        return self._waiting, self._large, self._growing, self._heavy

    def wait(self, size: int, granted: Callable[[], None], *, address: str = "") -> Claim:
        """Queue for bytes; `granted` is called, once they are taken, from within the `give` of another."""
        if self.is_heavy(address):
            return self._queue(self._heavy, size, granted)
        queue = self._waiting if size <= self._kept_bytes else self._large
        return self._queue(queue, size, granted)

    # ---- requests that arrive piece by piece

    def begin(self, arrival: Arrival) -> None:
        """A part of a request is here. `finish` follows in the end, whatever becomes of it."""
        self._shared.arriving[arrival] = 0
        self._shared.hold(arrival, arrival.held_bytes)
        if self._shared.turns:
            self._shared.press()

    def finish(self, arrival: Arrival) -> None:
        """The request is complete, or gone; what it took is given back apart from this. Twice is harmless."""
        if arrival in self._shared.arriving:
            self._shared.finished(arrival)

    def hold_more(self, arrival: Arrival, size: int) -> None:
        """A request that has begun has taken more, or given some back, apart from `grow_nowait`."""
        self._shared.hold(arrival, size)

    def grow_nowait(self, arrival: Arrival, size: int) -> bool:
        """Take more bytes for a request that has begun, if they are there or it has the pass."""
        taken, shared = self._taken + size, self._shared
        if not self.exhausted and (taken <= self._kept_bytes or self._take_shared(taken)):
            self._taken = taken
            shared.hold(arrival, size)
            return True
        if shared.passed is None and arrival in shared.arriving:
            shared.passed = arrival
        if shared.passed is not arrival and not self._has_quick_pass(arrival, size):
            return False
        self._overdraw(size)
        shared.hold(arrival, size)
        return True

    def _has_quick_pass(self, arrival: Arrival, size: int) -> bool:
        """Whether a request has the second pass, or gets it, and may grow by `size` with it."""
        shared = self._shared
        if not self._is_quick(arrival, size):
            if shared.quick is arrival:
                shared.quick = None
                shared.give_quick_pass()
            return False
        if shared.quick is None and arrival in shared.arriving and not self.is_heavy(arrival.address):
            shared.quick = arrival
        return shared.quick is arrival

    def _is_quick(self, arrival: Arrival, size: int) -> bool:
        passed = self._shared.passed
        return (
            passed is not None and self.is_heavy(passed.address) and arrival.held_bytes + size <= QUICK_BYTES
        )

    def wait_growth(self, arrival: Arrival, size: int, granted: Callable[[], None]) -> Claim:
        """Queue for more bytes; `grow_nowait` has refused them, so another request has the pass."""
        queue = self._heavy if self.is_heavy(arrival.address) else self._growing
        return self._queue(queue, size, granted, arrival)

    @property
    def oldest_growth(self) -> Claim | None:
        """The claim of a request that has begun which gets the next pass."""
        claim = _first(self._growing)
        return claim or next((each for each in self._heavy if each.arrival and each.granted), None)

    @property
    def quick_growth(self) -> Claim | None:
        """The claim of a request that has begun which gets the second pass, if it is free."""
        claim = _first(self._growing)
        if claim is None or claim.arrival is None or not self._is_quick(claim.arrival, claim.bytes):
            return None
        return claim

    def is_heavy(self, address: str) -> bool:
        """Whether requests of this address hold so much that its claims come after others."""
        return self._shared.held.get(address, 0) * 4 > self.bytes_max

    def begin_nowait(self, address: str, size: int) -> bool:
        """Take the first bytes of a large request, if they are there."""
        is_modest = self._shared.held.get(address, 0) * 4 <= self._reserve_bytes
        return self.take_more_nowait(size, held=0 if is_modest else self._small_bytes)

    def grant_growth(self, claim: Claim | None) -> Arrival | None:
        """Grant a claim of a request that has begun, whatever is there; returns that request."""
        assert claim is not None
        (self._growing if self._growing and self._growing[0] is claim else self._heavy).remove(claim)
        self._overdraw(claim.bytes)
        self._note_taken(claim)
        self._stop_waiting_if_done()
        assert claim.granted is not None
        claim.granted()
        return claim.arrival

    def _overdraw(self, size: int) -> None:
        before, kept = self._taken, self._kept_bytes
        taken = self._taken = before + size
        self._shared.used += max(taken - kept, 0) - max(before - kept, 0)
        self._easy_bytes = _NEVER if taken > kept else self._easy_bytes

    def _note_taken(self, claim: Claim) -> None:
        claim.taken = True
        if claim.arrival is not None:
            self._shared.hold(claim.arrival, claim.bytes)

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
            self._note_taken(claim)
        self._stop_waiting_if_done()
        if claim is None:
            return False
        assert claim.granted is not None
        claim.granted()
        return True

    # ---- inside

    def _stop_waiting_if_done(self) -> None:
        if self.exhausted and all(_first(queue) is None for queue in self._queues):
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
        claim, large, growing = _first(self._waiting), _first(self._large), _first(self._growing)
        numbers = [each.number for each in (claim, large) if each is not None]
        if growing is not None and growing.number < min(numbers, default=growing.number + 1):
            return self._take_first(self._growing)
        if not numbers:
            return self._take_first(self._heavy)
        if large is not None and (claim is None or large.number < claim.number):
            if self._take_shared(self._taken + large.bytes):
                return self._large.popleft()
            if claim is None or large.bytes > self._shared.bytes_max:
                return None
            return self._waiting.popleft() if self._taken + claim.bytes <= self._kept_bytes else None
        return self._take_first(self._waiting)

    def _take_first(self, queue: deque[Claim]) -> Claim | None:
        """Take the first claim off a queue if it fits."""
        claim = _first(queue)
        if claim is None:
            return None
        taken = self._taken + claim.bytes
        return queue.popleft() if taken <= self._kept_bytes or self._take_shared(taken) else None

    def _may_pass(self) -> bool:
        """Whether only a claim waits that leaves the kept bytes to others: it does without them."""
        if any(_first(queue) is not None for queue in (self._waiting, self._growing, self._heavy)):
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


def _oldest_growth(budget: RequestBudget) -> tuple[bool, int]:
    claim = budget.oldest_growth
    assert claim is not None and claim.arrival is not None
    return budget.is_heavy(claim.arrival.address), claim.number


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

    __slots__ = ("_budget", "_pace", "_waits", "address", "bytes", "deadline", "expected", "is_refused")

    def __init__(self, budget: RequestBudget, address: str = "") -> None:
        self._budget = budget
        self._pace = Pace()
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
            elif size < held:
                self._budget.hold_more(self, size - held)
            if size < held:
                self._budget.give(held - size)
        elif not held:
            if not self._budget.take_more_nowait(size, held=max(self.expected - size, 0)):
                await self._budget.wait_granted(size, address=self.address)
            self.bytes = size
            self.restart()
            self._budget.begin(self)
        elif self._budget.take_more_nowait(size - held, held=held):
            self._budget.hold_more(self, size - held)
            self.bytes = size
        elif self._budget.grow_nowait(self, size - held):
            self.bytes = size
        else:
            await self._wait_growth(size - held)
            self.bytes = size

    def restart(self) -> None:
        """What it holds belongs to something that has just begun."""
        self._pace.restart(asyncio.get_running_loop().time())

    def complete(self) -> None:
        """All of it is here, and stays held."""
        self._budget.finish(self)

    def release(self) -> None:
        """Hold nothing; twice is harmless."""
        self._budget.finish(self)
        held, self.bytes = self.bytes, 0
        if held:
            self._budget.give(held)

    def is_slow(self, now: float) -> bool:
        return self.deadline is not None and not self._waits and self._pace.is_slow(self.bytes, now)

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
            self._pace.waited(now() - since)


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
                unread=ListenerUnread(self.unread),
            )
            for name in LISTENERS
        }

    def __repr__(self) -> str:
        return f"<NodeBudget {self.shares}>"

    def share(self, listener: str) -> RequestBudget:
        """What a listener draws on."""
        return self.shares[listener]
