"""A subscription's machine and dispatch against sets and lists: members, failures, seeks, crashes at random.

`Truth` says in the plainest terms what must be so. The test plays the part of the broker between the machine
and the dispatch, as simply as that can be done, and compares after every step. A crash throws the machine
away and makes another from the changes that were taken, as the broker does from its journal. When the last
member leaves, the dispatch forgets its messages and the machine parks what is ready; the next member to come
has that read again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import ClassVar

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

from tailrace.broker.subscriptions.cursor import Cursor
from tailrace.broker.subscriptions.definition import SubscriptionConfig
from tailrace.broker.subscriptions.dispatch import Dispatch, make_dispatch
from tailrace.broker.subscriptions.machine import (
    TRANSITIONS,
    PartitionMachine,
    Rules,
    Settled,
    State,
    Verdict,
)

ACK_TIMEOUT_MS = 50
BACKOFF_MS = 10
BACKOFF_MS_MAX = 25
MESSAGES_MAX = 24
KEYS = [None, b"a", b"b", b"c"]
OFFSETS = st.integers(0, MESSAGES_MAX)
RARELY = st.integers(0, 3)  # for what undoes much: it happens at 0
RANGES = st.lists(st.tuples(OFFSETS, OFFSETS), min_size=1, max_size=3) | st.just([(0, 1 << 60)])


@dataclass(eq=False)
class Message:
    """A message as the dispatch sees it."""

    offset: int
    key: bytes | None
    priority: int


@dataclass(eq=False)
class Member:
    """A member that holds up to `credit` messages."""

    id: int
    credit: int
    held: int = 0

    def has_room(self) -> bool:
        return self.held < self.credit


@dataclass
class Truth:
    """What must be so: every offset is in one of these, or available."""

    done: set[int] = field(default_factory=set)
    holder: dict[int, int] = field(default_factory=dict)  # offset -> member
    lock_ms: dict[int, int] = field(default_factory=dict)
    due_ms: dict[int, int] = field(default_factory=dict)  # waiting
    ready: set[int] = field(default_factory=set)
    dead: set[int] = field(default_factory=set)
    pending: set[int] = field(default_factory=set)
    bury_ms: dict[int, int] = field(default_factory=dict)  # dead ones that are to be reported again
    failed: dict[int, int] = field(default_factory=dict)

    def state_of(self, offset: int) -> State:
        found = [
            state
            for state, holders in (
                (State.DONE, self.done),
                (State.IN_FLIGHT, self.holder),
                (State.WAITING, self.due_ms),
                (State.READY, self.ready),
                (State.DEAD, self.dead),
                (State.PENDING, self.pending),
            )
            if offset in holders
        ]
        assert len(found) <= 1
        return found[0] if found else State.AVAILABLE

    def forget(self, offset: int) -> None:
        for held in (self.holder, self.lock_ms, self.due_ms, self.bury_ms):
            held.pop(offset, None)
        self.ready.discard(offset)
        self.dead.discard(offset)
        self.pending.discard(offset)

    def finish(self, offset: int) -> None:
        self.forget(offset)
        self.failed.pop(offset, None)
        self.done.add(offset)

    def fail(self, offset: int, *, max_deliveries: int) -> bool:
        """One more failure; whether it is dead now."""
        self.forget(offset)
        self.failed[offset] = self.failed.get(offset, 0) + 1
        if self.failed[offset] == max_deliveries:
            self.dead.add(offset)
            return True
        return False

    def durable(self) -> Truth:
        """What is left of it after a crash."""
        return Truth(done=set(self.done), failed=dict(self.failed))


@dataclass(eq=False)
class Transaction:
    """What a transaction acknowledges; its record is kept until the cursor holds the same."""

    offsets: list[int]
    epoch: int
    committed: bool = False


@dataclass
class Journal:
    """What the changes add up to."""

    position: int = 0
    ranges: list[tuple[int, int]] = field(default_factory=list)
    failures: dict[int, int] = field(default_factory=dict)
    epoch: int = 0


class SubscriptionMachine(RuleBasedStateMachine):
    """One partition, one subscription, and whatever may happen to them."""

    kind: ClassVar[dict[str, str]] = {}

    @initialize(
        max_deliveries=st.sampled_from([0, 1, 2, 4]),
        keys=st.lists(st.sampled_from(KEYS), min_size=3, max_size=9),
    )
    def begin(self, max_deliveries: int, keys: list[bytes | None]) -> None:
        texts = {
            "ack_timeout_ms": str(ACK_TIMEOUT_MS),
            "max_deliveries": str(max_deliveries),
            "backoff_ms": str(BACKOFF_MS),
            "backoff_ms_max": str(BACKOFF_MS_MAX),
        }
        self.config = SubscriptionConfig.read("workers", "orders", self.kind | texts)
        self.keyed = self.kind.get("mode") == "key_shared"
        self.first_only = self.kind.get("mode") == "failover"
        self.max_deliveries = max_deliveries
        self.log: list[Message | None] = []  # None: no record at that offset
        self.now_ms = 1_000
        self.next_member_id = 0
        self.keeps_content = True
        self.journal, self.durable, self.truth = Journal(), Truth(), Truth()
        self.transactions: list[Transaction] = []
        self.stored: list[Transaction] = []  # their records and markers as a crash would leave them
        self._boot()
        self.join(2)
        self.join(3)
        self.work(keys, most=len(keys))

    def _boot(self) -> None:
        """A broker that has just read its journal."""
        journal = self.journal
        self.machine = PartitionMachine(
            Cursor(journal.position, journal.ranges),
            rules=Rules.of(self.config),
            epoch=journal.epoch,
            failures=journal.failures,
        )
        self.dispatch: Dispatch[Member, Message] = make_dispatch(self.config)
        self.members: dict[int, Member] = {}
        self.queued: list[Message] = []
        self.given: set[int] = set()  # the dispatch gave them out, or got them again, and they are not done
        self.to_read: list[int] = []  # ready, and their content is not here
        self.reads_first = False  # nothing new is fed before all of `to_read` is read
        self.fed = journal.position

    # ---- the broker's part

    @contextmanager
    def _step(self, event: str) -> Iterator[None]:
        """Whatever changes state in here does so as the table of transitions allows."""
        offsets = range(MESSAGES_MAX + 1)
        before = [self.machine.state_of(offset) for offset in offsets]
        yield
        for offset in offsets:
            after = self.machine.state_of(offset)
            if after is not before[offset]:
                assert after in TRANSITIONS[before[offset]].get(event, ())

    def _put(self, offset: int, *, again: bool) -> None:
        message = self.log[offset]
        assert message is not None
        self.queued.append(message)
        self.dispatch.put(message, again=again)
        if again:
            self.given.add(offset)

    def _deliver_again(self, offset: int) -> None:
        if self.keeps_content:
            self._put(offset, again=True)
        else:
            self.to_read.append(offset)

    def _rest(self) -> None:
        """The last member has left: no message is kept, and what is ready is parked."""
        assert sorted(each.offset for each in self.dispatch.forget()) == sorted(
            each.offset for each in self.queued
        )
        new = [each.offset for each in self.queued if self.truth.state_of(each.offset) is not State.READY]
        self.fed = min([self.fed, *new])
        self.queued.clear()
        self.to_read.clear()
        with self._step("park"):
            parked = self.machine.park()
        assert parked == sorted(self.truth.ready)
        for offset in parked:
            self._settle_key(offset)

    def _take_up(self) -> None:
        """The first member comes: what is ready is read again, before anything new."""
        with self._step("unpark"):
            ready = self.machine.unpark()
        assert ready == sorted(self.truth.ready)
        for offset in ready:
            self._deliver_again(offset)
        self.reads_first = self.keyed

    def _free(self, member_id: int | None) -> None:
        if member_id is not None:
            member = self.members[member_id]
            member.held -= 1
            self.dispatch.ready(member)

    def _settled(self, offset: int, member_id: int | None) -> None:
        """A message is done: its member has room, and the next of its key may go."""
        message = self.log[offset]
        assert message is not None
        if self.keyed and message.key is not None and message in self.queued:
            self.queued.remove(message)
        self._settle_key(offset)
        self._free(member_id)

    def _settle_key(self, offset: int) -> None:
        """The next of its key may go, unless this is a message that the dispatch never gave out.

        It gave out nothing that was dead before a crash. Then the message that is out is another of that key.
        """
        message = self.log[offset]
        assert message is not None
        if offset in self.given:
            self.given.remove(offset)
            self.dispatch.settle(message.key)

    def _under_way(self, key: bytes) -> bool:
        """Whether a message of this key is with a member, or on its way back."""
        out = [each for each in self.log if each is not None and each.offset in self.given]
        return any(each.key == key and each not in self.queued for each in out)

    # ---- messages

    @rule(keys=st.lists(st.sampled_from(KEYS), max_size=3), most=st.integers(1, 8))
    def work(self, keys: list[bytes | None], most: int) -> None:
        """What goes on all the time: messages come, and go to members."""
        for key in keys:
            self.publish(key, priority=len(self.log) % 10, count=1)
        if not self.members:
            self.join(3)
        self.read_again(0, most)
        self.feed(most)
        self.assign(most)

    @rule(key=st.sampled_from(KEYS), priority=st.integers(0, 9), count=st.integers(1, 4))
    def publish(self, key: bytes | None, priority: int, count: int) -> None:
        for _ in range(min(count, MESSAGES_MAX - len(self.log))):
            self.log.append(Message(len(self.log), key, priority))

    @rule()
    def publish_nothing(self) -> None:
        """An offset without a record, as transactions and compaction leave them."""
        if len(self.log) < MESSAGES_MAX:
            self.log.append(None)

    @rule(count=st.integers(1, 6))
    def feed(self, count: int) -> None:
        if not self._may_feed():
            return
        end = min(self.fed + count, len(self.log))
        for offset in range(self.fed, end):
            if self.log[offset] is None:
                with self._step("pass_over"):
                    known = self.machine.is_known(offset)
                    assert self.machine.pass_over(offset, offset + 1) == (not known)
                self.truth.finish(offset)
            elif not self.machine.is_known(offset):
                self._put(offset, again=False)
        self.fed = max(self.fed, end)

    def _may_feed(self) -> bool:
        self.reads_first = self.reads_first and bool(self.to_read or self.truth.pending)
        return bool(self.members) and not self.reads_first

    @rule(keeps=st.booleans())
    def keep_content(self, keeps: bool) -> None:
        """There is memory for the messages that members hold, or there is not."""
        self.keeps_content = keeps

    @precondition(lambda self: self.to_read)
    @rule(which=st.integers(0, 99), count=st.integers(1, 6))
    def read_again(self, which: int, count: int) -> None:
        """In any order: one that cannot be read is tried again later."""
        for _ in range(min(count, len(self.to_read))):
            offset = self.to_read.pop(which % len(self.to_read))
            if self.truth.state_of(offset) is State.READY:
                self._put(offset, again=True)

    @rule(most=st.integers(1, 6))
    def assign(self, most: int) -> None:
        for _ in range(most):
            found = self.dispatch.next()
            if found is None:
                self._check_nobody_could_take_any()
                return
            member, message = found
            self.queued.remove(message)
            assert self.members[member.id] is member and member.has_room()
            if not self.machine.can_deliver(message.offset):
                assert message.offset in self.truth.done and not (self.keyed and message.key is not None)
                continue
            self._deliver(member, message)

    def _deliver(self, member: Member, message: Message) -> None:
        offset, truth = message.offset, self.truth
        assert truth.state_of(offset) in (State.AVAILABLE, State.READY)
        if self.first_only:
            assert member is next(iter(self.members.values()))
        if self.keyed and message.key is not None:
            earlier = [each for each in self.log[:offset] if each is not None and each.key == message.key]
            assert all(truth.state_of(each.offset) in (State.DONE, State.DEAD) for each in earlier)
        with self._step("deliver"):
            count = self.machine.deliver(offset, member=member.id, now_ms=self.now_ms)
        assert count == truth.failed.get(offset, 0) + 1
        truth.forget(offset)
        truth.holder[offset] = member.id
        truth.lock_ms[offset] = self.now_ms + ACK_TIMEOUT_MS
        self.given.add(offset)
        member.held += 1

    def _check_nobody_could_take_any(self) -> None:
        takers = list(self.members.values())[: 1 if self.first_only else None]
        if not self.keyed:
            assert not self.queued or not any(member.has_room() for member in takers)
        elif takers and all(member.has_room() for member in takers):
            assert all(each.key is not None and self._under_way(each.key) for each in self.queued)

    # ---- members

    @rule(credit=st.integers(0, 5))
    def join(self, credit: int) -> None:
        if len(self.members) < 5:
            member = Member(self.next_member_id, credit)
            self.next_member_id += 1
            if not self.members:
                self._take_up()
            self.members[member.id] = member
            self.dispatch.add(member)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, 4), credit=st.integers(0, 5))
    def set_credit(self, which: int, credit: int) -> None:
        member = self._member(which)
        member.credit = credit
        self.dispatch.ready(member)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, 4), failed=st.booleans())
    def leave(self, which: int, failed: bool) -> None:
        member = self._member(which)
        del self.members[member.id]
        self.dispatch.remove(member)
        with self._step("release"):
            released = self.machine.release(member.id, failed=failed)
        held = sorted(offset for offset, holder in self.truth.holder.items() if holder == member.id)
        if failed:
            dead = [at for at in held if self.truth.fail(at, max_deliveries=self.max_deliveries)]
        else:
            dead = []
            for offset in held:
                self.truth.forget(offset)
        assert released == ([offset for offset in held if offset not in dead], dead)
        self.truth.ready.update(released.ready)
        if not self.members:
            self._rest()
            return
        for offset in released.ready:
            self._deliver_again(offset)

    @rule(failed=st.booleans())
    def leave_all(self, failed: bool) -> None:
        while self.members:
            self.leave(0, failed)

    @rule(
        failed=st.booleans(),
        late=st.just([]) | RANGES,
        passed_ms=st.sampled_from([0, BACKOFF_MS, BACKOFF_MS_MAX]),
        credit=st.integers(0, 2),
        most=st.integers(0, 6),
    )
    def change_shifts(
        self, failed: bool, late: list[tuple[int, int]], passed_ms: int, credit: int, most: int
    ) -> None:
        """All members leave, some acknowledge late, and another comes that may not take all it could have."""
        self.leave_all(failed)
        self.time_passes(passed_ms)
        if late:
            self.ack(late, old=False)
        self.join(credit)
        self.read_again(0, most)
        self.assign(most)

    @precondition(lambda self: self.truth.holder)
    @rule(which=st.integers(0, 99), old=st.booleans() | st.just(False))
    def give_back(self, which: int, old: bool) -> None:
        offset, member_id = sorted(self.truth.holder.items())[which % len(self.truth.holder)]
        with self._step("give_back"):
            assert not self.machine.give_back(offset, member=member_id + 1, epoch=self.machine.epoch)
            given = self.machine.give_back(offset, member=member_id, epoch=self.machine.epoch - old)
        assert given is not old
        if given:
            self.truth.forget(offset)
            self.truth.ready.add(offset)
            self._free(member_id)
            self._deliver_again(offset)

    def _member(self, which: int) -> Member:
        members = list(self.members.values())
        return members[which % len(members)]

    # ---- what members say

    @rule(ranges=RANGES, old=st.booleans() | st.just(False))
    def ack(self, ranges: list[tuple[int, int]], old: bool) -> None:
        with self._step("ack"):
            settled = self.machine.ack(ranges, epoch=self.machine.epoch - old)
        truth = self.truth
        expected = {
            Settled(offset, truth.holder.get(offset))
            for offset in [*truth.holder, *truth.due_ms, *truth.ready]
            if not old and any(start <= offset < end for start, end in ranges)
        }
        assert set(settled) == expected and len(settled) == len(expected)
        for offset, member_id in settled:
            truth.finish(offset)
            self._settled(offset, member_id)

    @rule(how=st.sampled_from(["refuse", "stay silent", "leave"]), again=st.booleans())
    def fail_all(self, how: str, again: bool) -> None:
        """Nobody deals with anything, and what is not dead comes back."""
        for which in range(len(self.members)):
            if how == "refuse":
                self.nack(which, [(0, 1 << 60)], old=False, delay_ms=None)
            elif how == "leave":
                self.leave(0, failed=True)
        self.time_passes(ACK_TIMEOUT_MS if how == "stay silent" else 0)
        self.time_passes(BACKOFF_MS_MAX)
        if again:
            self.work([], most=MESSAGES_MAX)

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, 4), ranges=RANGES, old=st.booleans() | st.just(False))
    def ack_own(self, which: int, ranges: list[tuple[int, int]], old: bool) -> None:
        """What a well-behaved member says: of its own messages only."""
        held = self.machine.held_by(self._member(which).id, ranges)
        self.ack([(offset, offset + 1) for offset in held], old)

    @precondition(lambda self: self.members)
    @rule(
        which=st.integers(0, 4),
        ranges=RANGES,
        old=st.booleans() | st.just(False),
        delay_ms=st.none() | st.integers(0, 30),
    )
    def nack(self, which: int, ranges: list[tuple[int, int]], old: bool, delay_ms: int | None) -> None:
        member, truth = self._member(which), self.truth
        named = {offset for start, end in ranges for offset in range(start, min(end, MESSAGES_MAX + 1))}
        held = self.machine.held_by(member.id, ranges)
        assert held == [at for at in sorted(named) if truth.holder.get(at) == member.id]
        for offset in sorted(named):
            with self._step("nack"):
                verdict = self.machine.nack(
                    offset,
                    member=member.id,
                    epoch=self.machine.epoch - old,
                    now_ms=self.now_ms,
                    delay_ms=delay_ms,
                )
            if old or offset not in held:
                assert verdict is None
            else:
                self._failed(offset, verdict, delay_ms=delay_ms)
                self._free(member.id)

    # ---- transactions

    @precondition(lambda self: self.truth.holder)
    @rule(which=st.integers(0, 4), ranges=RANGES, old=RARELY)
    def pend(self, which: int, ranges: list[tuple[int, int]], old: int) -> None:
        """A transaction acknowledges messages of a member, all of them or none."""
        member, truth = self._member(which), self.truth
        epoch = self.machine.epoch - (not old)
        named = {offset for start, end in ranges for offset in range(start, min(end, MESSAGES_MAX + 2))}
        locked = self.machine.locked(ranges, members=[member.id], epoch=epoch)
        if not old or any(truth.holder.get(offset) != member.id for offset in named):
            assert locked is None
            return
        assert locked == sorted(named)
        self._pend(locked)

    @precondition(lambda self: self.truth.holder)
    @rule(which=st.integers(0, 4))
    def pend_own(self, which: int) -> None:
        member = self._member(which)
        held = self.machine.held_by(member.id, [(0, 1 << 60)])
        ranges = [(offset, offset + 1) for offset in held]
        assert self.machine.locked(ranges, members=[member.id], epoch=self.machine.epoch) == held
        self._pend(held)

    def _pend(self, offsets: list[int]) -> None:
        self.sync()  # its record is behind those of the cursor that were due
        with self._step("pend"):
            pended = self.machine.pend(offsets)
        assert pended == [Settled(offset, self.truth.holder[offset]) for offset in offsets]
        for offset, member_id in pended:
            self.truth.forget(offset)
            self.truth.pending.add(offset)
            self._free(member_id)
        self.transactions.append(Transaction(offsets, self.machine.epoch))

    @precondition(lambda self: any(not each.committed for each in self.transactions))
    @rule(which=st.integers(0, 99), commit=st.booleans())
    def end_transaction(self, which: int, commit: bool) -> None:
        waiting = [each for each in self.transactions if not each.committed]
        ended, truth = waiting[which % len(waiting)], self.truth
        expected = ended.offsets if ended.epoch == self.machine.epoch else []
        assert set(expected) <= truth.pending
        if commit:
            ended.committed = True
            with self._step("commit"):
                settled = self.machine.commit(ended.offsets, epoch=ended.epoch)
            assert settled == [Settled(offset, None) for offset in expected]
            for offset in expected:
                truth.finish(offset)
                self._settled(offset, None)
            return
        self.transactions.remove(ended)
        with self._step("abort"):
            ready, dead = self.machine.abort(ended.offsets, epoch=ended.epoch)
        assert (ready, dead) == (expected, [])
        for offset in ready:
            truth.forget(offset)
            truth.ready.add(offset)
            if self.members:
                self._deliver_again(offset)

    @rule()
    def sync_transactions(self) -> None:
        """Their records and markers are durable, whatever of the cursor is."""
        self.stored = [Transaction(each.offsets, each.epoch, each.committed) for each in self.transactions]

    def _failed(self, offset: int, verdict: Verdict | None, *, delay_ms: int | None = None) -> None:
        if self.truth.fail(offset, max_deliveries=self.max_deliveries):
            assert verdict is Verdict.DEAD
            return
        assert verdict is Verdict.RETRY
        if delay_ms is None:
            delay_ms = min(BACKOFF_MS * 2 ** (self.truth.failed[offset] - 1), BACKOFF_MS_MAX)
        self.truth.due_ms[offset] = self.now_ms + delay_ms

    @precondition(lambda self: self.members)
    @rule(which=st.integers(0, 4), offset=OFFSETS, extend_ms=st.integers(0, 200), old=st.booleans())
    def extend(self, which: int, offset: int, extend_ms: int, old: bool) -> None:
        member, until_ms = self._member(which), self.now_ms + extend_ms
        with self._step("extend"):
            extended = self.machine.extend(
                offset, member=member.id, epoch=self.machine.epoch - old, until_ms=until_ms
            )
        assert extended == (not old and self.truth.holder.get(offset) == member.id)
        if extended:
            self.truth.lock_ms[offset] = max(until_ms, self.truth.lock_ms[offset])

    # ---- time

    @rule(passed_ms=st.integers(0, 60))
    def time_passes(self, passed_ms: int) -> None:
        self.now_ms += passed_ms
        self._see_to_times()

    @rule(short_ms=st.integers(0, 1))
    def time_comes(self, short_ms: int) -> None:
        """Go to the very moment when something ends, or just before it."""
        self.now_ms = max(self.now_ms, (self.machine.next_time_ms() or 0) - short_ms)
        self._see_to_times()

    def _see_to_times(self) -> None:
        truth = self.truth
        locks = {at for at, time_ms in truth.lock_ms.items() if time_ms <= self.now_ms}
        burials = {at for at, time_ms in truth.bury_ms.items() if time_ms <= self.now_ms}
        with self._step("expire"):
            expired = self.machine.expire(self.now_ms)
        assert {each.offset for each in expired} == locks | burials
        assert len(expired) == len(locks | burials)
        for offset, member_id, verdict in expired:
            assert member_id == truth.holder.get(offset)
            if member_id is None:
                assert verdict is Verdict.DEAD
                del truth.bury_ms[offset]
            else:
                self._failed(offset, verdict)
                self._free(member_id)
        with self._step("take_due"):
            due = self.machine.take_due(self.now_ms)
        assert sorted(due) == sorted(at for at, time_ms in truth.due_ms.items() if time_ms <= self.now_ms)
        for offset in due:
            truth.forget(offset)
            truth.ready.add(offset)
            if self.members:
                self._deliver_again(offset)

    # ---- the dead, the lost and the skipped

    @rule(wait_ms=st.integers(0, 40))
    def fail_to_bury_all(self, wait_ms: int) -> None:
        for offset in list(self.truth.dead):
            self.fail_to_bury(offset, wait_ms)

    @rule(offset=OFFSETS)
    def bury(self, offset: int) -> None:
        with self._step("buried"):
            buried = self.machine.buried(offset)
        assert buried == (offset in self.truth.dead)
        if buried:
            self.truth.finish(offset)
            self._settled(offset, None)

    @rule(offset=OFFSETS, wait_ms=st.integers(0, 40))
    def fail_to_bury(self, offset: int, wait_ms: int) -> None:
        with self._step("burial_failed"):
            self.machine.burial_failed(offset, retry_at_ms=self.now_ms + wait_ms)
        if offset in self.truth.dead:
            self.truth.bury_ms[offset] = self.now_ms + wait_ms

    @rule(offset=OFFSETS)
    def lose(self, offset: int) -> None:
        state = self.truth.state_of(offset)
        if state is State.READY and not self.members:
            return  # nothing of it is read
        with self._step("lost"):
            lost = self.machine.lost(offset)
        assert lost == (state in (State.WAITING, State.READY, State.DEAD))
        if lost:
            self.truth.finish(offset)
            self._settled(offset, None)

    @rule(count=st.integers(1, 4) | st.just(1 << 40), chance=RARELY)
    def skip(self, count: int, chance: int) -> None:
        """What was not fed yet is gone: the log begins later now."""
        if chance or not self._may_feed():
            return
        end = min(self.fed + count, len(self.log))
        with self._step("pass_over"):
            self.machine.pass_over(self.fed, end)
        for offset in range(self.fed, end):
            if self.truth.state_of(offset) is State.AVAILABLE:
                self.truth.finish(offset)
        self.fed = max(self.fed, end)

    # ---- seeks and crashes

    @rule(offset=OFFSETS, chance=RARELY)
    def seek(self, offset: int, chance: int) -> None:
        if chance:
            return
        offset, truth = min(offset, len(self.log)), self.truth
        tracked = [*truth.holder, *truth.due_ms, *truth.ready, *truth.dead, *truth.pending]
        forgotten = self.machine.seek(offset)
        assert forgotten == [Settled(at, truth.holder.get(at)) for at in sorted(tracked)]
        self.truth = Truth(done=set(range(offset)))
        for each in forgotten:
            self._settled(each.offset, each.member)
        assert self.dispatch.discard(lambda message: True) == len(self.queued)
        self.queued.clear()
        self.to_read.clear()
        self.fed = offset

    @rule()
    def sync(self) -> None:
        """What changed becomes durable, and adds up to what there is."""
        changes, journal = self.machine.take_changes(), self.journal
        if changes is not None:
            if changes.whole:
                journal = self.journal = Journal(epoch=self.machine.epoch)
            journal.position = changes.position
            journal.ranges.extend(changes.ranges)
            journal.failures.update(changes.failures)
            journal.failures = {at: count for at, count in journal.failures.items() if count}
        assert self.machine.take_changes() is None
        assert Cursor(journal.position, journal.ranges) == self.machine.cursor
        assert journal.failures == self.machine.failures
        assert journal.epoch == self.machine.epoch
        self.durable = self.truth.durable()
        self.transactions = [each for each in self.transactions if not each.committed]
        self.sync_transactions()

    @rule(chance=RARELY)
    def crash(self, chance: int) -> None:
        if chance:
            return
        self.truth, journal = self.durable.durable(), self.journal
        self.transactions, self.stored = self.stored, []
        valid = [each for each in self.transactions if each.epoch == journal.epoch]
        for each in valid:
            if each.committed:  # as loading puts it together
                journal.ranges += [(offset, offset + 1) for offset in each.offsets]
                for offset in each.offsets:
                    journal.failures.pop(offset, None)
                    self.truth.finish(offset)
        self.sync_transactions()
        self.truth.dead = {
            offset for offset, count in self.truth.failed.items() if 0 < self.max_deliveries <= count
        }
        self.truth.bury_ms = dict.fromkeys(self.truth.dead, 0)
        self._boot()
        for each in valid:
            if not each.committed:
                self.machine.restore_pending(each.offsets)
                self.truth.pending.update(each.offsets)

    # ---- what holds at any time

    @invariant()
    def every_message_is_where_it_must_be(self) -> None:
        if hasattr(self, "machine"):
            machine, truth = self.machine, self.truth
            for offset in range(MESSAGES_MAX + 2):
                assert machine.state_of(offset) is truth.state_of(offset)
                if self.members:  # a feed asks, and only then is there one
                    assert machine.is_known(offset) == (truth.state_of(offset) is not State.AVAILABLE)

    @invariant()
    def the_cursor_stops_at_the_first_that_is_not_done(self) -> None:
        if hasattr(self, "machine"):
            cursor, done = self.machine.cursor, self.truth.done
            position = min(set(range(MESSAGES_MAX + 2)) - done)
            assert cursor.position == position
            assert {at for start, end in cursor.beyond for at in range(start, end)} == {
                at for at in done if at > position
            }

    @invariant()
    def counts_and_times_are_right(self) -> None:
        if hasattr(self, "machine"):
            machine, truth = self.machine, self.truth
            assert machine.failures == truth.failed
            assert (machine.in_flight, machine.waiting) == (len(truth.holder), len(truth.due_ms))
            tracked = (truth.holder, truth.due_ms, truth.ready, truth.dead, truth.pending)
            assert machine.unacked == sum(map(len, tracked))
            times = [*truth.lock_ms.values(), *truth.due_ms.values(), *truth.bury_ms.values()]
            assert machine.next_time_ms() == min(times, default=None)

    @invariant()
    def the_dispatch_holds_what_it_was_given(self) -> None:
        if hasattr(self, "machine"):
            assert len(self.dispatch) == len(self.queued)
            for member in self.members.values():
                assert member.held == sum(holder == member.id for holder in self.truth.holder.values())

    def teardown(self) -> None:
        """Once everybody acknowledges, every message comes to its end, and the cursor to that of the log."""
        if not hasattr(self, "machine"):
            return
        for member in list(self.members.values()):
            member.credit = MESSAGES_MAX
            self.dispatch.ready(member)
        self.join(MESSAGES_MAX)
        for number in range(len(self.transactions)):
            if not all(each.committed for each in self.transactions):
                self.end_transaction(number, commit=number % 2 == 0)
        for _ in range(3 * MESSAGES_MAX):
            self.read_again(0, MESSAGES_MAX)
            self.feed(MESSAGES_MAX)
            self.assign(2 * MESSAGES_MAX)
            self.ack([(0, 1 << 60)], old=False)
            for offset in list(self.truth.dead):
                self.bury(offset)
            if self.machine.cursor.position == len(self.log) and not self.queued:
                break
        assert self.machine.cursor == Cursor(len(self.log))
        assert (self.machine.unacked, len(self.dispatch), self.machine.failures) == (0, 0, {})
        self.sync()


class Prioritised(SubscriptionMachine):
    """Some messages are more urgent than others."""

    kind: ClassVar[dict[str, str]] = {"priority": "true"}


class Failover(SubscriptionMachine):
    """One member gets everything."""

    kind: ClassVar[dict[str, str]] = {"mode": "failover"}


class KeyShared(SubscriptionMachine):
    """Messages of one key keep their order."""

    kind: ClassVar[dict[str, str]] = {"mode": "key_shared"}


# The default run plays the same steps every time; the long one goes where nobody has been.
DEFAULT = settings(max_examples=40, stateful_step_count=50, database=None, derandomize=True)
HEAVY = settings(DEFAULT, max_examples=1_000, stateful_step_count=80, derandomize=False)
EVERY_KIND = pytest.mark.parametrize("kind", [SubscriptionMachine, Prioritised, Failover, KeyShared])


@EVERY_KIND
def test_no_message_is_lost_or_with_two(kind: type[SubscriptionMachine]) -> None:
    run_state_machine_as_test(kind, settings=DEFAULT)


def test_a_key_waits_for_the_message_that_is_out_when_one_from_before_a_crash_is_buried() -> None:
    model = KeyShared()
    model.begin(max_deliveries=1, keys=[b"a", b"a", b"a"])
    model.fail_all("refuse", again=False)
    model.sync()
    model.crash(chance=0)
    model.work([], most=3)
    model.bury(0)
    model.assign(3)
    assert list(model.truth.holder) == [1]
    model.teardown()


@pytest.mark.heavy
@EVERY_KIND
def test_no_message_is_lost_or_with_two_for_long(kind: type[SubscriptionMachine]) -> None:
    run_state_machine_as_test(kind, settings=HEAVY)
