"""What becomes of each message of one partition, for one subscription. Pure: times come in, decisions go out.

    state        event               leads to
    available    deliver             in flight
                 pass_over           done
    in flight    ack                 done
                 nack, expire        waiting, or dead once it was delivered max_deliveries times
                 release             ready, or dead likewise
                 give_back           ready
                 pend                pending
    pending      commit              done
                 abort               ready, or dead if it was
    waiting      take_due            ready
                 ack, lost           done
    ready        deliver             in flight
                 ack, lost           done
    dead         buried, lost        done
                 burial_failed       dead: `expire` reports it again when its time has come

`TRANSITIONS` says the same to a program. A seek leads from everywhere to available or done. Rules:
- Done is what the cursor says. Tracked is what is in flight, waiting, ready or dead. The rest is available
  and costs nothing: memory grows with what is tracked, never with the backlog.
- A message is with one member at most, and its lock runs out at one time.
- Whoever processed a message may acknowledge it, also when its lock has run out meanwhile; only who holds the
  lock may refuse, extend or give it back. A dead message is not saved: its dead letter is on its way already.
- What an earlier life of the broker may have delivered is available again, and nobody knows who had it. An
  acknowledgement of it that was on its way when that life ended counts all the same.
- A pending message is acknowledged by a transaction that is not decided. It has no lock, no member and no
  timer, and only the end of its transaction changes it, or a seek. After a start a dead message is pending
  while the transaction that has its dead letter is not decided.
- An event that names another epoch changes nothing.
- While a subscription has no members, what is ready is parked: kept as ranges, which cost less than a place
  for each message. A parked message is ready all the same; `unpark` comes before any message is delivered,
  looked up as new or lost.
- A count is kept of deliveries that failed, and it is what survives a restart: a delivery that was under way
  when the broker died is nobody's failure. So messages that go well leave no trace but the cursor's.
"""

from __future__ import annotations

import enum
from bisect import bisect_left
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from tailrace.broker.subscriptions.cursor import Cursor
from tailrace.broker.subscriptions.definition import SubscriptionConfig
from tailrace.broker.subscriptions.timers import Timers
from tailrace.model.ranges import Ranges

OffsetRanges = Iterable[tuple[int, int]]


class State(enum.StrEnum):
    """Where a message stands."""

    AVAILABLE = "available"
    IN_FLIGHT = "in flight"
    """With a member, whose lock on it has not run out."""
    WAITING = "waiting"
    """Its delivery failed; it has to wait before the next one."""
    READY = "ready"
    """To be delivered again as soon as its content is here and somebody has room."""
    DEAD = "dead"
    """It failed too often; its dead letter is being written."""
    PENDING = "pending"
    """A transaction acknowledges it, and has not ended."""
    DONE = "done"


TRANSITIONS: Final[Mapping[State, Mapping[str, frozenset[State]]]] = {
    State.AVAILABLE: {
        "deliver": frozenset({State.IN_FLIGHT}),
        "pass_over": frozenset({State.DONE}),
    },
    State.IN_FLIGHT: {
        "ack": frozenset({State.DONE}),
        "nack": frozenset({State.WAITING, State.DEAD}),
        "expire": frozenset({State.WAITING, State.DEAD}),
        "release": frozenset({State.READY, State.DEAD}),
        "give_back": frozenset({State.READY}),
        "pend": frozenset({State.PENDING}),
    },
    State.PENDING: {
        "commit": frozenset({State.DONE}),
        "abort": frozenset({State.READY, State.DEAD}),
    },
    State.WAITING: {
        "take_due": frozenset({State.READY}),
        "ack": frozenset({State.DONE}),
        "lost": frozenset({State.DONE}),
    },
    State.READY: {
        "deliver": frozenset({State.IN_FLIGHT}),
        "ack": frozenset({State.DONE}),
        "lost": frozenset({State.DONE}),
    },
    State.DEAD: {
        "buried": frozenset({State.DONE}),
        "lost": frozenset({State.DONE}),
        "burial_failed": frozenset({State.DEAD}),
    },
    State.DONE: {},
}
"""Which event leads from where to where; a seek, which forgets everything, apart."""

# Where a tracked message is: the number of the member who has it, which is 0 or more, or one of these.
_WAITING: Final = -1
_READY: Final = -2
_DEAD: Final = -3
_PENDING: Final = -4
_STATES: Final = {
    _WAITING: State.WAITING,
    _READY: State.READY,
    _DEAD: State.DEAD,
    _PENDING: State.PENDING,
}

_DOUBLINGS_MAX: Final = 62  # beyond it any back-off is above any bound
_new_tuple = tuple.__new__


class Verdict(enum.Enum):
    """What a failed delivery leads to."""

    RETRY = "retry"
    DEAD = "dead"
    """The caller writes its dead letter, and says `buried` or `burial_failed`."""


class Settled(NamedTuple):
    """A message that is done with, or forgotten by a seek."""

    offset: int
    member: int | None  # who had it, None if nobody


class Expired(NamedTuple):
    """A lock that ran out, or, with no member, a dead letter that is to be tried again."""

    offset: int
    member: int | None
    verdict: Verdict


class Released(NamedTuple):
    """What a member who left gives back, or a transaction that was aborted."""

    ready: list[int]
    dead: list[int]


class Changes(NamedTuple):
    """What the durable cursor does not know yet."""

    position: int
    ranges: tuple[tuple[int, int], ...]  # newly done beyond the position
    failures: Mapping[int, int]  # offset -> failed deliveries; 0: it does not matter any more
    whole: bool  # a seek came between: this is everything there is, and not an addition


@dataclass(frozen=True, slots=True, kw_only=True)
class Rules:
    """The settings that a machine goes by."""

    ack_timeout_ms: int
    max_deliveries: int  # 0: never dead
    backoff_ms: int
    backoff_ms_max: int

    @classmethod
    def of(cls, config: SubscriptionConfig) -> Rules:
        return cls(
            ack_timeout_ms=config.ack_timeout_ms,
            max_deliveries=config.max_deliveries,
            backoff_ms=config.backoff_ms,
            backoff_ms_max=config.backoff_ms_max,
        )

    def delay_ms(self, failures: int) -> int:
        """How long a message waits that failed so often."""
        return min(self.backoff_ms << min(failures - 1, _DOUBLINGS_MAX), self.backoff_ms_max)

    def is_dead(self, failures: int) -> bool:
        return 0 < self.max_deliveries <= failures


class PartitionMachine:
    """The messages of one partition on their way to the members of one subscription."""

    __slots__ = (
        "_backoffs",
        "_burials",
        "_changed",
        "_earlier_end",
        "_earlier_left",
        "_held",
        "_locks",
        "_newly",
        "_parked",
        "_taken_position",
        "_where",
        "_whole",
        "cursor",
        "epoch",
        "failures",
        "rules",
    )

    def __init__(
        self, cursor: Cursor, *, rules: Rules, epoch: int = 0, failures: Mapping[int, int] | None = None
    ) -> None:
        self.cursor = cursor
        self.rules = rules
        self.epoch = epoch  # grows with every seek
        self.failures: dict[int, int] = {}  # offset -> failed deliveries, of what is not done
        self._where: dict[int, int] = {}  # tracked offset -> member, or one of the states above
        self._held: dict[int, set[int]] = {}  # member -> what is in flight with him, until he is released
        self._locks = Timers()  # of what is in flight, all of it
        self._backoffs = Timers()  # of what is waiting, all of it
        self._burials = Timers()  # of dead ones whose letter could not be written
        self._parked = Ranges()  # ready, and not in _where while no member can get them
        self._taken_position = cursor.position
        self._newly = Ranges()  # done since changes were taken, beyond the position
        self._changed: dict[int, int] = {}  # failures that changed since
        self._whole = False
        self._earlier_end = 0  # below it lies what an earlier life may have delivered
        self._earlier_left = 0  # of which so many acknowledgements may still come
        self._restore(failures or {})

    def __repr__(self) -> str:
        return f"<PartitionMachine {self.cursor}, {self.in_flight} in flight, {self.unacked} unacked>"

    def expect_earlier(self, *, end: int, count_max: int) -> None:
        """An earlier life may have had so many messages below `end` under way when it ended."""
        self._earlier_end = end
        self._earlier_left = count_max

    # ---- what it knows

    @property
    def unacked(self) -> int:
        """Messages that were delivered and are not done: in flight, waiting, ready, dead or pending."""
        return len(self._where) + self._parked.count

    @property
    def in_flight(self) -> int:
        return len(self._locks)

    @property
    def waiting(self) -> int:
        return len(self._backoffs)

    def is_known(self, offset: int) -> bool:
        """Whether it is done or tracked; what is neither is offered as new."""
        cursor = self.cursor
        if offset in self._where or offset < cursor.position:
            return True
        return cursor.beyond.count > 0 and offset in cursor.beyond

    def can_deliver(self, offset: int) -> bool:
        """Whether it may go to a member now: not if it was settled while it waited for one."""
        where, cursor = self._where.get(offset), self.cursor
        if where is None:
            return offset >= cursor.position and not (cursor.beyond.count and offset in cursor.beyond)
        return where == _READY

    def is_dead(self, offset: int) -> bool:
        """Whether its dead letter is still to be written."""
        return self._where.get(offset) == _DEAD

    def held_by(self, member: int, ranges: OffsetRanges) -> list[int]:
        """The offsets of these ranges that are in flight with a member, ascending."""
        held = self._held.get(member, ())
        wanted = Ranges(ranges)
        return sorted(offset for offset in held if offset in wanted)

    def state_of(self, offset: int) -> State:
        where = self._where.get(offset)
        if where is None and offset in self._parked:
            return State.READY
        if where is None:
            return State.DONE if self.cursor.is_done(offset) else State.AVAILABLE
        return _STATES.get(where, State.IN_FLIGHT)

    def next_time_ms(self) -> int | None:
        """When the next lock, back-off or wait for a burial ends."""
        next_ms = self._locks.next_ms()
        for timers in (self._backoffs, self._burials):
            time_ms = timers.next_ms()
            if time_ms is not None and (next_ms is None or time_ms < next_ms):
                next_ms = time_ms
        return next_ms

    # ---- deliveries and how they end

    def deliver(self, offset: int, *, member: int, now_ms: int) -> int:
        """Give a message to a member: the how-manieth time that is; 0 if it is not available or ready."""
        if not self.can_deliver(offset):
            return 0
        assert member >= 0
        self._where[offset] = member
        try:
            self._held[member].add(offset)
        except KeyError:
            self._held[member] = {offset}
        self._locks.set(offset, now_ms + self.rules.ack_timeout_ms)
        return self.failures.get(offset, 0) + 1 if self.failures else 1

    def ack(self, ranges: OffsetRanges, *, epoch: int) -> list[Settled]:
        """These were processed; the ones that makes a difference for.

        What is not tracked is not touched, unless an earlier life may have delivered it. So a range may be
        wider than what was delivered: it costs no more than what is tracked, or was then.
        """
        settled: list[Settled] = []
        if epoch != self.epoch:
            return settled
        ranges = tuple(ranges)
        start = end = -1  # the run of offsets that is done and not yet marked so
        tracked, held, lock_times = self._where, self._held, self._locks.times
        for offset in self._tracked_in(ranges):
            where = tracked.get(offset, _DEAD)  # one that is named twice is gone the second time
            if where <= _DEAD:  # dead or pending
                continue
            if where >= 0 and not self.failures:  # the common case, as `_forget` does it
                del tracked[offset], lock_times[offset]
                held[where].remove(offset)
                settled.append(_new_tuple(Settled, (offset, where)))
            else:
                self._forget(offset, where)
                settled.append(Settled(offset, where if where >= 0 else None))
            if offset != end:
                self._finish(start, end)
                start = offset
            end = offset + 1
        self._finish(start, end)
        if self._earlier_end > self.cursor.position:
            settled.extend(self._ack_earlier(ranges))
        return settled

    def nack(
        self, offset: int, *, member: int, epoch: int, now_ms: int, delay_ms: int | None = None
    ) -> Verdict | None:
        """A member refuses a message; None if it is not his to refuse. His delay wins over the back-off."""
        if epoch != self.epoch or self._where.get(offset) != member:
            return None
        return self._fail(offset, member, now_ms=now_ms, delay_ms=delay_ms)

    def give_back(self, offset: int, *, member: int, epoch: int) -> bool:
        """A member never began with a message: it is ready, and nobody has failed. False if it is not his."""
        if epoch != self.epoch or self._where.get(offset) != member:
            return False
        self._locks.cancel(offset)
        self._held[member].remove(offset)
        self._where[offset] = _READY
        return True

    def extend(self, offset: int, *, member: int, epoch: int, until_ms: int) -> bool:
        """A member holds a message until then at least; False if it is not his to hold."""
        if epoch != self.epoch or self._where.get(offset) != member:
            return False
        if until_ms > self._locks.time_of(offset):
            self._locks.set(offset, until_ms)
        return True

    def release(self, member: int, *, failed: bool = True) -> Released:
        """A member left: what he had is ready at once.

        Where he was lost (`failed`) the delivery counts all the same, and after the last one the message is
        dead: one that ends its workers must end too. Who says good-bye has not failed.
        """
        released = Released([], [])
        for offset in sorted(self._held.pop(member, ())):
            self._locks.cancel(offset)
            if failed and self._count_failure(offset):
                self._where[offset] = _DEAD
                released.dead.append(offset)
            else:
                self._where[offset] = _READY
                released.ready.append(offset)
        return released

    def expire(self, now_ms: int) -> list[Expired]:
        """Locks that ran out, and dead letters to be tried again."""
        expired: list[Expired] = []
        for offset in self._locks.due(now_ms):
            member = self._where[offset]
            expired.append(Expired(offset, member, self._fail(offset, member, now_ms=now_ms)))
        expired.extend([Expired(offset, None, Verdict.DEAD) for offset in self._burials.due(now_ms)])
        return expired

    def take_due(self, now_ms: int) -> list[int]:
        """Messages that have waited long enough: they are ready from now on."""
        due = self._backoffs.due(now_ms)
        for offset in due:
            self._where[offset] = _READY
        return due

    # ---- transactions

    def locked(self, ranges: OffsetRanges, *, members: Collection[int], epoch: int) -> list[int] | None:
        """The offsets of these ranges, ascending; None unless each is in flight with one of the members.

        Tries no more offsets than the members hold, however wide the ranges are.
        """
        if epoch != self.epoch:
            return None
        budget = sum(len(self._held.get(member, ())) for member in members)
        offsets: set[int] = set()
        for start, end in ranges:
            if end - start > budget:
                return None
            offsets.update(range(start, end))
        if any(self._where.get(offset, _READY) not in members for offset in offsets):
            return None
        return sorted(offsets)

    def pend(self, offsets: Iterable[int]) -> list[Settled]:
        """A transaction acknowledges these, which are in flight; whose they were."""
        pended: list[Settled] = []
        for offset in offsets:
            member = self._where[offset]
            assert member >= 0, "only who holds the lock may acknowledge in a transaction"
            self._locks.cancel(offset)
            self._held[member].remove(offset)
            self._where[offset] = _PENDING
            pended.append(Settled(offset, member))
        return pended

    def restore_pending(self, offsets: Iterable[int]) -> None:
        """A transaction that an earlier life left open acknowledges these."""
        for offset in offsets:
            if not self.cursor.is_done(offset):
                self._burials.cancel(offset)
                self._where[offset] = _PENDING

    def commit(self, offsets: Iterable[int], *, epoch: int) -> list[Settled]:
        """The transaction that acknowledges these has committed; the ones that are done with that."""
        committed: list[Settled] = []
        if epoch != self.epoch:
            return committed
        for offset in offsets:
            if self._where.get(offset) == _PENDING:
                self._forget(offset, _PENDING)
                self._finish(offset, offset + 1)
                committed.append(Settled(offset, None))
        return committed

    def abort(self, offsets: Iterable[int], *, epoch: int) -> Released:
        """The transaction that acknowledges these was aborted, and no delivery has failed; what they are now.

        The caller has the dead ones buried.
        """
        released = Released([], [])
        if epoch != self.epoch:
            return released
        for offset in offsets:
            if self._where.get(offset) != _PENDING:
                continue
            if self.rules.is_dead(self.failures.get(offset, 0)):
                self._where[offset] = _DEAD
                released.dead.append(offset)
            else:
                self._where[offset] = _READY
                released.ready.append(offset)
        return released

    def count_dead(self, offsets: Iterable[int]) -> int:
        """How many of these have failed for the last time."""
        if not self.failures:
            return 0
        return sum(self.rules.is_dead(self.failures.get(offset, 0)) for offset in offsets)

    # ---- without members

    def park(self) -> list[int]:
        """No member is left: keep what is ready as ranges until `unpark`. Returns the offsets, ascending."""
        ready = sorted(offset for offset, where in self._where.items() if where == _READY)
        for offset in ready:
            del self._where[offset]
            self._parked.add(offset, offset + 1)
        return ready

    def unpark(self) -> list[int]:
        """A member came: track what was parked again. Returns everything that is ready, ascending."""
        self._track_parked()
        return sorted(offset for offset, where in self._where.items() if where == _READY)

    # ---- other ways to be done

    def buried(self, offset: int) -> bool:
        """Its dead letter is durable; False if that does not matter any more (after a seek)."""
        if self._where.get(offset) != _DEAD:
            return False
        self._forget(offset, _DEAD)
        self._finish(offset, offset + 1)
        return True

    def burial_failed(self, offset: int, *, retry_at_ms: int) -> None:
        """Its dead letter could not be written; `expire` reports it again at that time."""
        if self._where.get(offset) == _DEAD:
            self._burials.set(offset, retry_at_ms)

    def lost(self, offset: int) -> bool:
        """Nobody will get it again: its content is gone, or it is too old. False if somebody has it now.

        False too while a transaction that acknowledges it is open.
        """
        where = self._where.get(offset, 0)
        if where >= 0 or where == _PENDING:
            return False
        self._forget(offset, where)
        self._finish(offset, offset + 1)
        return True

    def pass_over(self, start: int, end: int) -> int:
        """Done without delivery: gaps, expired, skipped; how many were new. What is tracked stays."""
        newly, at = 0, start
        for offset in sorted(self._tracked_in([(start, end)])):
            newly += self._pass_over(at, offset)
            at = offset + 1
        return newly + self._pass_over(at, end)

    def seek(self, offset: int) -> list[Settled]:
        """Begin again at `offset` in a new epoch; everything that was tracked."""
        self._track_parked()
        forgotten = [
            Settled(known, where if where >= 0 else None) for known, where in sorted(self._where.items())
        ]
        self.epoch += 1
        self.cursor.move_to(offset)
        self._where.clear()
        self._held.clear()
        self.failures.clear()
        self._changed.clear()
        self._newly.clear()
        self._locks, self._backoffs, self._burials = Timers(), Timers(), Timers()
        self._earlier_end = 0
        self._whole = True
        return forgotten

    # ---- what is to be made durable

    def take_changes(self) -> Changes | None:
        """What changed since this was asked last; None if nothing did."""
        position = self.cursor.position
        if position == self._taken_position and not self._newly and not self._changed and not self._whole:
            return None
        ranges = tuple(self._newly) if self._newly else ()
        changes = Changes(position, ranges, self._changed, self._whole)
        self._taken_position = position
        self._newly.clear()
        self._changed = {}
        self._whole = False
        return changes

    # ---- inside

    def _restore(self, failures: Mapping[int, int]) -> None:
        """Take up counts of an earlier life. What was dead then is reported as soon as anybody asks."""
        for offset, count in failures.items():
            if count > 0 and not self.cursor.is_done(offset):
                self.failures[offset] = count
                if self.rules.is_dead(count):
                    self._where[offset] = _DEAD
                    self._burials.set(offset, 0)

    def _track_parked(self) -> None:
        for start, end in self._parked:
            for offset in range(start, end):
                self._where[offset] = _READY
        self._parked.clear()

    def _tracked_in(self, ranges: OffsetRanges) -> Iterator[int]:
        """The tracked offsets of these ranges. Tries as many as are tracked, then sorts those, once.

        What is parked is tracked again: a client that lost its connection may acknowledge what it had.
        """
        if self._parked:
            self._track_parked()
        where = self._where
        budget = len(where)
        in_order: list[int] | None = None
        for start, end in ranges:
            if in_order is None and end - start <= budget:
                budget -= max(end - start, 0)
                yield from filter(where.__contains__, range(start, end))
                continue
            if in_order is None:
                in_order = sorted(where)
            yield from in_order[bisect_left(in_order, start) : bisect_left(in_order, end)]

    def _ack_earlier(self, ranges: OffsetRanges) -> Iterator[Settled]:
        """Mark as done what is available and may have been delivered before."""
        cursor = self.cursor
        for start, end in ranges:
            offset, end = max(start, cursor.position), min(end, self._earlier_end)
            while self._earlier_left > 0 and (offset := cursor.beyond.first_gap(offset)) < end:
                if offset not in self._where:  # else it is dead or pending
                    self._earlier_left -= 1
                    if self.failures.pop(offset, 0):
                        self._changed[offset] = 0
                    self._finish(offset, offset + 1)
                    yield Settled(offset, None)
                offset = max(offset + 1, cursor.position)

    def _fail(self, offset: int, member: int, *, now_ms: int, delay_ms: int | None = None) -> Verdict:
        self._locks.cancel(offset)
        self._held[member].remove(offset)
        if self._count_failure(offset):
            self._where[offset] = _DEAD
            return Verdict.DEAD
        if delay_ms is None:
            delay_ms = self.rules.delay_ms(self.failures[offset])
        self._where[offset] = _WAITING
        self._backoffs.set(offset, now_ms + delay_ms)
        return Verdict.RETRY

    def _count_failure(self, offset: int) -> bool:
        """One more delivery has failed; whether it was the last."""
        count = self.failures.get(offset, 0) + 1
        self.failures[offset] = self._changed[offset] = count
        return self.rules.is_dead(count)

    def _forget(self, offset: int, where: int) -> None:
        """Track it no longer."""
        del self._where[offset]
        if self.failures and self.failures.pop(offset, 0):
            self._changed[offset] = 0
        if where >= 0:
            self._locks.cancel(offset)
            self._held[where].remove(offset)
        elif where == _WAITING:
            self._backoffs.cancel(offset)
        elif where == _DEAD:
            self._burials.cancel(offset)

    def _finish(self, start: int, end: int) -> int:
        """Mark a run as done that is not tracked any more; how many were not done."""
        if start >= end:
            return 0
        cursor, newly = self.cursor, self._newly
        count = cursor.done(start, end)
        if count and end > cursor.position:
            newly.add(start, end)
        elif newly:
            newly.drop_below(cursor.position)
        return count

    def _pass_over(self, start: int, end: int) -> int:
        if self.failures:
            for offset in [offset for offset in self.failures if start <= offset < end]:
                del self.failures[offset]
                self._changed[offset] = 0
        return self._finish(start, end)
