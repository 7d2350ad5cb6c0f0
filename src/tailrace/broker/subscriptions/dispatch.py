"""Who gets which message, of those that are at hand. Pure: no time, no content, no I/O.

A dispatch holds messages that wait for a member and knows the members; `next` brings the two together.

    mode                 who                              which
    shared               members with room, in turn       redeliveries, then by arrival; or by priority
    failover, exclusive  the member that joined first     the same
    key_shared           the member of the key            of each key one at a time, in order
                         without a key: as shared         redeliveries, then by arrival

Rules:
- A member without room is set aside when it is met, and costs nothing until `ready` names it: a thousand slow
  members do not slow down the one that is quick. Whoever gives a member room must therefore call `ready`.
- A redelivery goes before messages that nobody had yet.
- With key_shared the next message of a key is not given out before `settle` ends the one that is out. A
  message that is put again must be the one that was out: it goes first, and the others of its key still wait.
- How many messages it holds is bounded by whoever puts them in.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from typing import Any, Final, Generic, Protocol, TypeVar

from tailrace.broker.subscriptions.definition import Mode, SubscriptionConfig

PRIORITY_MAX: Final = 9
OLDEST_EVERY: Final = 8
"""Of so many picks by priority one takes the oldest message instead."""
_SLOTS: Final = 4096  # of keys; well above the number of members, so that their shares are even


class Deliverable(Protocol):
    """What a dispatch looks at in a message."""

    @property
    def key(self) -> bytes | None: ...

    @property
    def priority(self) -> int:
        """0 to 9, the highest goes first."""


class Taker(Protocol):
    """What a dispatch looks at in a member."""

    @property
    def id(self) -> int: ...

    def has_room(self) -> bool:
        """Whether it takes a message now."""


MessageT = TypeVar("MessageT", bound=Deliverable)
MemberT = TypeVar("MemberT", bound=Taker)


class Dispatch(Protocol[MemberT, MessageT]):
    """Messages that wait for a member, and members that wait for messages."""

    def __len__(self) -> int:
        """Messages held."""

    def add(self, member: MemberT) -> None:
        """A member joined."""

    def remove(self, member: MemberT) -> None:
        """A member left; what it had is put again by the caller."""

    def ready(self, member: MemberT) -> None:
        """A member may have room again."""

    def put(self, message: MessageT, *, again: bool) -> None:
        """A message waits for a member; `again` if somebody had it before."""

    def next(self) -> tuple[MemberT, MessageT] | None:
        """A member and the message for it; None if there is no message, or no member with room for one."""

    def settle(self, key: bytes | None) -> None:
        """The message of this key that was given out, or put again, is done with."""

    def discard(self, predicate: Callable[[MessageT], bool]) -> int:
        """Forget the messages for which it is true, after a seek; how many there were."""

    def forget(self) -> list[MessageT]:
        """Forget all messages, to be put once more later, and return them.

        One that was put again counts as given out until then, so that its key keeps its order.
        """


class Ready(Protocol[MessageT]):
    """The order of messages that may go to anybody."""

    def __len__(self) -> int: ...

    def put(self, message: MessageT, *, again: bool) -> None: ...

    def pop(self) -> MessageT:
        """The next one; there must be one."""

    def discard(self, predicate: Callable[[MessageT], bool]) -> int: ...

    def forget(self) -> list[MessageT]: ...


def make_dispatch(config: SubscriptionConfig) -> Dispatch[Any, Any]:
    """The dispatch that a subscription's settings ask for."""
    if config.mode is Mode.KEY_SHARED:
        return KeySharedDispatch()
    messages: Ready[Any] = PriorityReady() if config.priority else FifoReady()
    return SharedDispatch(messages) if config.mode is Mode.SHARED else FailoverDispatch(messages)


class FifoReady(Generic[MessageT]):
    """Redeliveries first, then by arrival."""

    __slots__ = ("_again", "_new")

    def __init__(self) -> None:
        self._again: deque[MessageT] = deque()
        self._new: deque[MessageT] = deque()

    def __len__(self) -> int:
        return len(self._again) + len(self._new)

    def put(self, message: MessageT, *, again: bool) -> None:
        (self._again if again else self._new).append(message)

    def pop(self) -> MessageT:
        return self._again.popleft() if self._again else self._new.popleft()

    def discard(self, predicate: Callable[[MessageT], bool]) -> int:
        before = len(self)
        self._again = deque(message for message in self._again if not predicate(message))
        self._new = deque(message for message in self._new if not predicate(message))
        return before - len(self)

    def forget(self) -> list[MessageT]:
        forgotten = [*self._again, *self._new]
        self._again, self._new = deque(), deque()
        return forgotten


class PriorityReady(Generic[MessageT]):
    """The highest priority first; within one, redeliveries, then by arrival.

    Every eighth pick takes the message that has been here longest, whatever its priority. So nothing starves:
    a message that found n others here is picked within the next 8 * (n + 1) picks.
    """

    __slots__ = ("_arrivals", "_count", "_levels", "_picks")

    def __init__(self) -> None:
        # Two queues for each priority, those of redeliveries first; ordered as they are picked from.
        self._levels: list[deque[tuple[int, MessageT]]] = [deque() for _ in range(2 * (PRIORITY_MAX + 1))]
        self._arrivals = 0
        self._picks = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def put(self, message: MessageT, *, again: bool) -> None:
        level = PRIORITY_MAX - min(max(message.priority, 0), PRIORITY_MAX)
        self._levels[2 * level + (not again)].append((self._arrivals, message))
        self._arrivals += 1
        self._count += 1

    def pop(self) -> MessageT:
        filled = [level for level in self._levels if level]
        self._picks += 1
        self._count -= 1
        if self._picks % OLDEST_EVERY:
            return filled[0].popleft()[1]
        return min(filled, key=_arrival_of_first).popleft()[1]

    def discard(self, predicate: Callable[[MessageT], bool]) -> int:
        before = self._count
        self._levels = [deque(each for each in level if not predicate(each[1])) for level in self._levels]
        self._count = sum(map(len, self._levels))
        return before - self._count

    def forget(self) -> list[MessageT]:
        forgotten = [message for level in self._levels for _, message in level]
        self._levels = [deque() for _ in self._levels]
        self._count = 0
        return forgotten


def _arrival_of_first(level: deque[tuple[int, Any]]) -> int:
    return level[0][0]


class SharedDispatch(Generic[MemberT, MessageT]):
    """Members with room take turns."""

    __slots__ = ("_aside", "_messages", "_turns")

    def __init__(self, messages: Ready[MessageT]) -> None:
        self._messages = messages
        self._turns: OrderedDict[int, MemberT] = OrderedDict()  # whose turn is next comes first
        self._aside: set[int] = set()  # members that had no room when it was their turn

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, member: MemberT) -> None:
        self._turns[member.id] = member

    def remove(self, member: MemberT) -> None:
        self._turns.pop(member.id, None)
        self._aside.discard(member.id)

    def ready(self, member: MemberT) -> None:
        if member.id in self._aside:
            self._aside.remove(member.id)
            self._turns[member.id] = member

    def put(self, message: MessageT, *, again: bool) -> None:
        self._messages.put(message, again=again)

    def next(self) -> tuple[MemberT, MessageT] | None:
        if not self._messages:
            return None
        turns = self._turns
        while turns:
            member_id = next(iter(turns))
            member = turns[member_id]
            if member.has_room():
                if len(turns) > 1:
                    turns.move_to_end(member_id)
                return member, self._messages.pop()
            del turns[member_id]
            self._aside.add(member_id)
        return None

    def settle(self, key: bytes | None) -> None:
        """Nothing waits for it."""

    def discard(self, predicate: Callable[[MessageT], bool]) -> int:
        return self._messages.discard(predicate)

    def forget(self) -> list[MessageT]:
        return self._messages.forget()


class FailoverDispatch(Generic[MemberT, MessageT]):
    """The member that joined first takes everything; the others wait for it to leave."""

    __slots__ = ("_members", "_messages")

    def __init__(self, messages: Ready[MessageT]) -> None:
        self._messages = messages
        self._members: dict[int, MemberT] = {}  # in the order in which they joined

    def __len__(self) -> int:
        return len(self._messages)

    def add(self, member: MemberT) -> None:
        self._members[member.id] = member

    def remove(self, member: MemberT) -> None:
        self._members.pop(member.id, None)

    def ready(self, member: MemberT) -> None:
        """There is one to ask, and it is asked each time."""

    def put(self, message: MessageT, *, again: bool) -> None:
        self._messages.put(message, again=again)

    def next(self) -> tuple[MemberT, MessageT] | None:
        if not self._messages:
            return None
        for first in self._members.values():
            return (first, self._messages.pop()) if first.has_room() else None
        return None

    def settle(self, key: bytes | None) -> None:
        """Nothing waits for it."""

    def discard(self, predicate: Callable[[MessageT], bool]) -> int:
        return self._messages.discard(predicate)

    def forget(self) -> list[MessageT]:
        return self._messages.forget()


class _Line(Generic[MessageT]):
    """The messages of one key, in order."""

    __slots__ = ("again", "messages", "out", "slot")

    def __init__(self, slot: int) -> None:
        self.slot = slot
        self.messages: deque[MessageT] = deque()
        self.out = False  # one was given out and is not settled
        self.again = False  # the first of the messages was out before


class KeySharedDispatch(Generic[MemberT, MessageT]):
    """Messages of one key go to one member, one at a time; those without a key to anybody.

    Keys fall into slots, and each slot belongs to the member with the highest hash of (slot, member): one
    that joins or leaves moves only the slots that it wins or loses (rendezvous hashing). A line, which is the
    messages of one key, stands in the queue of its slot's member while its first message may go. Lines and
    messages without a key take turns.
    """

    __slots__ = ("_anybody", "_count", "_keyless_turn", "_lines", "_members", "_owners", "_queues", "_turns")

    def __init__(self) -> None:
        self._anybody: SharedDispatch[MemberT, MessageT] = SharedDispatch(FifoReady())
        self._members: dict[int, MemberT] = {}
        self._lines: dict[bytes, _Line[MessageT]] = {}  # of keys with a message here, or out
        self._queues: dict[
            int, OrderedDict[bytes, _Line[MessageT]]
        ] = {}  # member -> lines whose first may go
        self._turns: OrderedDict[int, None] = (
            OrderedDict()
        )  # members with such lines, and room as far as known
        self._owners: dict[int, int] = {}  # slot -> member, as far as somebody asked
        self._count = 0  # messages in lines
        self._keyless_turn = False

    def __len__(self) -> int:
        return self._count + len(self._anybody)

    def add(self, member: MemberT) -> None:
        self._anybody.add(member)
        self._members[member.id] = member
        self._queues[member.id] = OrderedDict()
        for slot, owner in self._owners.items():
            if _weight(slot, member.id) > _weight(slot, owner):
                self._owners[slot] = member.id
        self._line_up_again()

    def remove(self, member: MemberT) -> None:
        self._anybody.remove(member)
        if self._members.pop(member.id, None) is None:
            return
        del self._queues[member.id]
        self._owners = {slot: owner for slot, owner in self._owners.items() if owner != member.id}
        self._line_up_again()

    def ready(self, member: MemberT) -> None:
        self._anybody.ready(member)
        if self._queues.get(member.id) and member.id not in self._turns:
            self._turns[member.id] = None

    def put(self, message: MessageT, *, again: bool) -> None:
        key = message.key
        if key is None:
            self._anybody.put(message, again=again)
            return
        line = self._lines.get(key)
        if line is None:
            line = self._lines[key] = _Line(hash(key) % _SLOTS)
        self._count += 1
        if again:
            line.messages.appendleft(message)
            line.again, line.out = True, False
        else:
            line.messages.append(message)
        self._line_up(key, line)

    def next(self) -> tuple[MemberT, MessageT] | None:
        self._keyless_turn = not self._keyless_turn
        if self._keyless_turn:
            return self._anybody.next() or self._next_of_key()
        return self._next_of_key() or self._anybody.next()

    def settle(self, key: bytes | None) -> None:
        line = None if key is None else self._lines.get(key)
        if key is None or line is None:
            return
        if line.out:
            line.out = False
        elif line.again:  # it waits here to be given out again, which nobody needs now
            line.messages.popleft()
            line.again = False
            self._count -= 1
        self._line_up(key, line)

    def discard(self, predicate: Callable[[MessageT], bool]) -> int:
        dropped = self._anybody.discard(predicate)
        for line in self._lines.values():
            kept = deque(message for message in line.messages if not predicate(message))
            if len(kept) < len(line.messages):
                line.again = line.again and bool(kept) and kept[0] is line.messages[0]
                dropped += len(line.messages) - len(kept)
                self._count -= len(line.messages) - len(kept)
                line.messages = kept
        self._line_up_again()
        return dropped

    def forget(self) -> list[MessageT]:
        forgotten = self._anybody.forget()
        for line in self._lines.values():
            forgotten.extend(line.messages)
            line.messages.clear()
            line.out, line.again = line.out or line.again, False
        self._lines = {key: line for key, line in self._lines.items() if line.out}
        self._count = 0
        self._line_up_again()
        return forgotten

    # ---- inside

    def _next_of_key(self) -> tuple[MemberT, MessageT] | None:
        turns = self._turns
        while turns:
            member_id = next(iter(turns))
            member, queue = self._members[member_id], self._queues[member_id]
            if not member.has_room():
                del turns[member_id]  # `ready` brings it back
                continue
            _, line = queue.popitem(last=False)
            line.out, line.again = True, False
            self._count -= 1
            if queue:
                turns.move_to_end(member_id)
            else:
                del turns[member_id]
            return member, line.messages.popleft()
        return None

    def _line_up(self, key: bytes, line: _Line[MessageT]) -> None:
        """Put a line into its member's queue if its first message may go; forget it if it is over."""
        if line.out:
            return
        owner = self._owner(line.slot)
        if not line.messages:
            del self._lines[key]
            if owner is not None:
                self._unqueue(owner, key)
        elif owner is not None:
            queue = self._queues[owner]
            if key not in queue:
                queue[key] = line
                self._turns.setdefault(owner, None)

    def _unqueue(self, owner: int, key: bytes) -> None:
        queue = self._queues[owner]
        if queue.pop(key, None) is not None and not queue:
            self._turns.pop(owner, None)

    def _line_up_again(self) -> None:
        """After a change of members or a discard: every line finds its place anew."""
        self._turns.clear()
        for queue in self._queues.values():
            queue.clear()
        for key, line in list(self._lines.items()):
            self._line_up(key, line)

    def _owner(self, slot: int) -> int | None:
        owner = self._owners.get(slot)
        if owner is None and self._members:
            owner = max(self._members, key=lambda member_id: _weight(slot, member_id))
            self._owners[slot] = owner
        return owner


def _weight(slot: int, member_id: int) -> int:
    return hash(b"%d %d" % (slot, member_id))  # of bytes: that of a tuple of numbers is not even enough
