"""The machine of a transactional id beside a reference that changes in place, event by event.

The reference is the protocol as its model has it: one object, no plans, no table. Events come from producers
of every identity that was ever given out, in any order, and epochs are close to their end.
"""

from __future__ import annotations

import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.broker.transactions.machine import (
    Plan,
    check_added,
    complete,
    plan_add,
    plan_end,
    plan_init,
    plan_timeout,
)
from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.state import Identity, StoredTransaction, TransactionState
from tailrace.model import TopicPartition

PLACES = [TopicPartition("t", index) for index in range(3)]
EPOCH_LAST = 32766
FIRST_EPOCH = EPOCH_LAST - 3

Outcome = Identity | Situation | None


class Reference:
    """One transactional id."""

    def __init__(self) -> None:
        self.identity = Identity(1, FIRST_EPOCH)
        self.following: Identity | None = None  # in Prepare, where it is another producer id
        self.state = "Empty"
        self.places: set[TopicPartition] = set()
        self.ended: tuple[Identity, bool] | None = None
        self.before: Identity | None = None
        self.ids = itertools.count(2)

    @property
    def present(self) -> Identity:
        return self.following or self.identity

    def init(self, expected: Identity | None, *, is_marked: bool) -> Outcome:
        if self.state.startswith("Prepare"):
            return Situation.NOT_COMPLETE
        if expected is not None and expected != self.identity:
            if expected == self.before and self.state != "Ongoing":
                return self.present
            return self.stranger(expected)
        claimed = self.identity
        if self.state == "Ongoing":
            self.prepare(commit=False, bumps=True)
            if not is_marked:
                return Situation.NOT_COMPLETE
            self.mark()
        producer_id, epoch = self.identity
        last = epoch == EPOCH_LAST
        self.identity = Identity(next(self.ids), 0) if last else Identity(producer_id, epoch + 1)
        self.before = claimed if expected == claimed else None
        self.state, self.ended = "Empty", None
        return self.identity

    def add(self, identity: Identity, places: set[TopicPartition]) -> Outcome:
        if identity != self.identity:
            return self.stranger(identity)
        if self.state.startswith("Prepare"):
            return Situation.NOT_COMPLETE
        if self.state != "Ongoing":
            self.state, self.places, self.ended, self.before = "Ongoing", set(), None, None
        self.places |= places
        return None

    def verify(self, identity: Identity, place: TopicPartition) -> Outcome:
        if identity != self.identity:
            return self.stranger(identity)
        if self.state.startswith("Prepare"):
            return Situation.NOT_COMPLETE
        is_in = self.state == "Ongoing" and place in self.places
        return None if is_in else Situation.NOT_IN_TRANSACTION

    def end(self, identity: Identity, *, commit: bool, bumps: bool, is_marked: bool) -> Outcome:
        if self.state != "Ongoing" and self.ended is not None and self.ended[0] == identity:
            if self.ended[1] == commit:
                return self.present
            if commit and self.has_timed_out(identity):
                return Situation.TIMED_OUT
            late = commit and self.state.startswith("Complete")
            return Situation.NOTHING_TO_COMMIT if late else Situation.WRONG_STATE
        if identity != self.identity:
            return self.stranger(identity)
        if self.state.startswith("Prepare"):
            return Situation.NOT_COMPLETE
        if self.state != "Ongoing":
            if commit:
                return Situation.NOTHING_TO_COMMIT
            if not bumps:
                return Situation.WRONG_STATE
        self.prepare(commit=commit, bumps=bumps)
        if is_marked:
            self.mark()
        return self.present

    def time_out(self, *, is_marked: bool) -> None:
        if self.state == "Ongoing":
            before = self.identity
            self.prepare(commit=False, bumps=True)
            self.before = before
            if is_marked:
                self.mark()

    def prepare(self, *, commit: bool, bumps: bool) -> None:
        self.ended, self.before = (self.identity, commit), None
        if bumps:
            if self.identity.epoch == EPOCH_LAST:
                self.following = Identity(next(self.ids), 0)
            self.identity = Identity(self.identity.producer_id, self.identity.epoch + 1)
        self.state = "PrepareCommit" if commit else "PrepareAbort"

    def mark(self) -> None:
        if self.state.startswith("Prepare"):
            self.state = self.state.replace("Prepare", "Complete")
            self.identity, self.following, self.places = self.present, None, set()

    def has_timed_out(self, identity: Identity) -> bool:
        return self.before == identity and self.state in ("PrepareAbort", "CompleteAbort")

    def stranger(self, identity: Identity) -> Situation:
        if self.has_timed_out(identity):
            return Situation.TIMED_OUT
        same = identity.producer_id == self.identity.producer_id
        return Situation.FENCED if same else Situation.OTHER_ID


class Machine:
    """The same over the pure machine: it stores what a plan says, up to where the markers fail."""

    def __init__(self) -> None:
        self.stored = StoredTransaction(
            producer_id=1,
            epoch=FIRST_EPOCH,
            state=TransactionState.EMPTY,
            timeout_ms=1,
            updated_ms=0,
        )
        self.ids = itertools.count(2)

    def new_id(self) -> int:
        return next(self.ids)

    def perform(self, plan: Plan, *, is_marked: bool) -> bool:
        for step in plan.steps:
            self.stored = step
            if step.state.is_prepared and not is_marked:
                return False
        return True

    def init(self, expected: Identity | None, *, is_marked: bool) -> Outcome:
        known = self.stored
        ids = list(itertools.islice(self.ids, 2))  # a plan that is not performed to its end wastes an id
        taken = iter(ids)
        try:
            plan = plan_init(known, expected, timeout_ms=1, now_ms=0, new_id=lambda: next(taken))
        finally:
            self.ids = itertools.count(next(taken, ids[-1] + 1))
        if not self.perform(plan, is_marked=is_marked):
            used = 1 if self.stored.next_producer_id >= 0 else 0
            self.ids = itertools.count(ids[0] + used)
            return Situation.NOT_COMPLETE
        return plan.identity

    def add(self, identity: Identity, places: set[TopicPartition]) -> Outcome:
        following = plan_add(self.stored, identity, places, client_version=0, now_ms=0)
        self.stored = following or self.stored
        return None

    def verify(self, identity: Identity, place: TopicPartition) -> Outcome:
        check_added(self.stored, identity, place)
        return None

    def end(self, identity: Identity, *, commit: bool, bumps: bool, is_marked: bool) -> Outcome:
        plan = plan_end(
            self.stored,
            identity,
            commit=commit,
            client_version=2 if bumps else 0,
            now_ms=0,
            new_id=self.new_id,
        )
        self.perform(plan, is_marked=is_marked)
        return plan.identity

    def time_out(self, *, is_marked: bool) -> None:
        plan = plan_timeout(self.stored, now_ms=0, new_id=self.new_id)
        if plan is not None:
            self.perform(plan, is_marked=is_marked)

    def mark(self) -> None:
        if self.stored.state.is_prepared:
            self.stored = complete(self.stored, now_ms=0)


EVENTS = st.sampled_from(["init", "claim", "add", "verify", "end", "end", "time_out", "mark"])
STEPS = st.lists(
    st.tuples(EVENTS, st.integers(0, 6), st.booleans(), st.booleans(), st.sampled_from([True, True, False])),
    max_size=60,
)


@given(STEPS)
@settings(max_examples=200)
def test_the_machine_and_the_reference_agree(
    steps: list[tuple[str, int, bool, bool, bool]],
) -> None:
    reference, machine = Reference(), Machine()
    seen = [reference.identity]  # the newest last: a small number means a recent one
    for event, number, commit, bumps, is_marked in steps:
        identity = seen[-1 - number % len(seen)]
        place = PLACES[number % len(PLACES)]
        outcomes = []
        for one in (reference, machine):
            try:
                outcomes.append(_do(one, event, identity, place, commit, bumps, is_marked))
            except TransactionRefused as refused:
                outcomes.append(refused.situation)
        assert outcomes[0] == outcomes[1], (event, identity)
        stored = machine.stored
        assert stored.state.label == reference.state
        assert (stored.producer_id, stored.epoch) == reference.identity
        assert stored.identity == reference.present and stored.before == reference.before
        if reference.state == "Ongoing":
            assert stored.partitions == reference.places
        if reference.present not in seen:
            seen.append(reference.present)


def _do(
    one: Reference | Machine,
    event: str,
    identity: Identity,
    place: TopicPartition,
    commit: bool,
    bumps: bool,
    is_marked: bool,
) -> Outcome:
    if event == "init":
        return one.init(None, is_marked=is_marked)
    if event == "claim":
        return one.init(identity, is_marked=is_marked)
    if event == "add":
        return one.add(identity, {place})
    if event == "verify":
        return one.verify(identity, place)
    if event == "end":
        return one.end(identity, commit=commit, bumps=bumps, is_marked=is_marked)
    if event == "time_out":
        one.time_out(is_marked=is_marked)
    else:
        one.mark()
    return None
