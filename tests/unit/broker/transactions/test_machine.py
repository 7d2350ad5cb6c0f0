"""The machine of a transactional id: every cell of its table, every refusal, epochs and repeats."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest

from tailrace.broker.transactions.machine import (
    TABLE,
    Event,
    Plan,
    check_added,
    complete,
    is_expired,
    plan_add,
    plan_end,
    plan_init,
    plan_timeout,
)
from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.state import (
    EPOCH_MAX,
    NO_TIMEOUT_MS,
    Ended,
    Identity,
    StoredTransaction,
    TransactionState,
)
from tailrace.model import TopicPartition

S = TransactionState
A0, B1 = TopicPartition("a", 0), TopicPartition("b", 1)
ME = Identity(100, 5)
OLDER = Identity(100, 4)
IDLE = [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT]
PREPARED = [S.PREPARE_COMMIT, S.PREPARE_ABORT]


def stored(state: TransactionState, **fields: object) -> StoredTransaction:
    wanted: dict[str, object] = {
        "producer_id": ME.producer_id,
        "epoch": ME.epoch,
        "state": state,
        "timeout_ms": 60_000,
        "updated_ms": 1,
        "started_ms": 1,
        "partitions": frozenset([A0]) if state in (S.ONGOING, *PREPARED) else frozenset(),
    }
    return StoredTransaction(**(wanted | fields))  # type: ignore[arg-type]


class Ids:
    """Producer ids from 200 on."""

    def __init__(self) -> None:
        self._numbers = itertools.count(200)

    def __call__(self) -> int:
        return next(self._numbers)


def init(known: StoredTransaction | None, expected: Identity | None = None) -> Plan:
    return plan_init(known, expected, timeout_ms=30_000, now_ms=7, new_id=Ids())


def add(
    known: StoredTransaction | None, identity: Identity = ME, *tps: TopicPartition
) -> StoredTransaction | None:
    return plan_add(known, identity, tps or (A0,), client_version=0, now_ms=7)


def end(known: StoredTransaction | None, identity: Identity = ME, *, commit: bool, version: int = 0) -> Plan:
    return plan_end(known, identity, commit=commit, client_version=version, now_ms=7, new_id=Ids())


def timeout(known: StoredTransaction) -> Plan | None:
    return plan_timeout(known, now_ms=7, new_id=Ids())


def situation_of(refused: pytest.ExceptionInfo[TransactionRefused]) -> Situation:
    return refused.value.situation


def states(plan: Plan) -> list[TransactionState]:
    return [step.state for step in plan.steps]


def test_the_table_has_every_state_and_no_transition_but_these() -> None:
    reached = {
        (state.label, following.label)
        for state, row in TABLE.items()
        for following in row.values()
        if isinstance(following, S)
    }
    assert set(TABLE) == set(S)
    idle = ("Empty", "CompleteCommit", "CompleteAbort")
    assert reached == {
        *((each, to) for each in idle for to in ("Empty", "Ongoing", "PrepareAbort")),
        *(("Ongoing", to) for to in ("Ongoing", "PrepareCommit", "PrepareAbort")),
        ("PrepareCommit", "CompleteCommit"),
        ("PrepareAbort", "CompleteAbort"),
    }
    assert all(Event.TIMEOUT not in TABLE[state] for state in (*IDLE, *PREPARED))


# ---- InitProducerId


def test_a_new_id_begins_at_epoch_0() -> None:
    plan = init(None)
    assert plan.identity == (200, 0) and states(plan) == [S.EMPTY]
    assert plan.steps[0].timeout_ms == 30_000


@pytest.mark.parametrize("state", IDLE)
def test_init_of_an_idle_id_moves_the_epoch(state: TransactionState) -> None:
    plan = init(stored(state, ended=Ended(OLDER, commit=True), before=OLDER))
    assert plan.identity == (100, 6) and states(plan) == [S.EMPTY]
    assert plan.steps[0].ended is None and plan.steps[0].before is None and plan.steps[0].timeout_ms == 30_000


def test_init_aborts_what_is_open_with_an_epoch_of_its_own() -> None:
    plan = init(stored(S.ONGOING))
    assert states(plan) == [S.PREPARE_ABORT, S.COMPLETE_ABORT, S.EMPTY]
    assert [step.epoch for step in plan.steps] == [6, 6, 7]
    assert plan.steps[0].partitions == {A0} and not plan.steps[1].partitions
    assert plan.identity == (100, 7)


@pytest.mark.parametrize("state", PREPARED)
def test_init_waits_for_a_transaction_that_is_not_complete(state: TransactionState) -> None:
    for expected in (None, ME, OLDER):
        with pytest.raises(TransactionRefused) as refused:
            init(stored(state), expected)
        assert situation_of(refused) is Situation.NOT_COMPLETE


@pytest.mark.parametrize("state", [*IDLE, S.ONGOING])
def test_init_that_names_the_present_identity_gets_the_next_and_gets_it_again(
    state: TransactionState,
) -> None:
    plan = init(stored(state), ME)
    again = init(plan.steps[-1], ME)
    assert again == Plan(steps=(), identity=plan.identity)
    assert again.identity.epoch > ME.epoch


@pytest.mark.parametrize("state", [*IDLE, S.ONGOING])
def test_init_that_names_an_older_identity_is_fenced(state: TransactionState) -> None:
    with pytest.raises(TransactionRefused) as refused:
        init(stored(state), OLDER)
    assert situation_of(refused) is Situation.FENCED
    with pytest.raises(TransactionRefused) as refused:
        init(stored(state), Identity(99, 5))
    assert situation_of(refused) is Situation.OTHER_ID


def test_init_after_a_newer_producer_wrote_is_fenced() -> None:
    taken = init(stored(S.EMPTY), ME)
    writing = add(taken.steps[-1], taken.identity)
    with pytest.raises(TransactionRefused) as refused:
        init(writing, ME)
    assert situation_of(refused) is Situation.FENCED


def test_init_after_a_timeout_gives_the_holder_the_present_identity() -> None:
    plan = timeout(stored(S.ONGOING))
    assert plan is not None
    assert init(plan.steps[-1], ME) == Plan(steps=(), identity=Identity(100, 6))


# ---- adding partitions


@pytest.mark.parametrize("state", IDLE)
def test_the_first_partition_begins_a_transaction(state: TransactionState) -> None:
    begun = add(stored(state, ended=Ended(OLDER, commit=True), before=OLDER), ME, A0, B1)
    assert begun is not None and begun.state is S.ONGOING and begun.partitions == {A0, B1}
    assert begun.started_ms == 7 and begun.ended is None and begun.before is None and begun.epoch == ME.epoch


def test_partitions_are_added_once() -> None:
    more = add(stored(S.ONGOING), ME, B1)
    assert more is not None and more.partitions == {A0, B1} and more.started_ms == 1
    assert add(more, ME, A0) is None and add(more, ME, A0, B1) is None


@pytest.mark.parametrize("state", PREPARED)
def test_nothing_is_added_while_the_earlier_one_is_not_complete(state: TransactionState) -> None:
    with pytest.raises(TransactionRefused) as refused:
        add(stored(state))
    assert situation_of(refused) is Situation.NOT_COMPLETE


@pytest.mark.parametrize("state", S)
@pytest.mark.parametrize(
    ("identity", "situation"),
    [
        (OLDER, Situation.FENCED),
        (Identity(100, 6), Situation.FENCED),
        (Identity(99, 5), Situation.OTHER_ID),
    ],
)
def test_other_identities_are_refused(
    state: TransactionState, identity: Identity, situation: Situation
) -> None:
    known = stored(state)
    for attempt in (
        lambda: add(known, identity),
        lambda: check_added(known, identity, A0),
        lambda: end(known, identity, commit=True),
        lambda: end(known, identity, commit=False, version=2),
    ):
        with pytest.raises(TransactionRefused) as refused:
            attempt()
        assert situation_of(refused) is situation


def test_an_id_that_expired_is_another_id() -> None:
    for attempt in (lambda: add(None), lambda: check_added(None, ME, A0), lambda: end(None, commit=True)):
        with pytest.raises(TransactionRefused) as refused:
            attempt()
        assert situation_of(refused) is Situation.OTHER_ID


def test_a_write_is_verified() -> None:
    check_added(stored(S.ONGOING), ME, A0)
    for known in (stored(S.ONGOING), *map(stored, IDLE)):
        with pytest.raises(TransactionRefused) as refused:
            check_added(known, ME, B1)
        assert situation_of(refused) is Situation.NOT_IN_TRANSACTION
    for known in map(stored, PREPARED):
        with pytest.raises(TransactionRefused) as refused:
            check_added(known, ME, A0)
        assert situation_of(refused) is Situation.NOT_COMPLETE


# ---- EndTxn


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_an_open_transaction_ends(commit: bool, version: int) -> None:
    plan = end(stored(S.ONGOING), commit=commit, version=version)
    assert states(plan) == (
        [S.PREPARE_COMMIT, S.COMPLETE_COMMIT] if commit else [S.PREPARE_ABORT, S.COMPLETE_ABORT]
    )
    prepared, done = plan.steps
    assert prepared.partitions == {A0} and not done.partitions
    assert prepared.epoch == done.epoch == plan.identity.epoch == (6 if version == 2 else 5)
    assert done.ended == (ME, commit)


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_an_end_that_is_repeated_is_answered_again(commit: bool, version: int) -> None:
    plan = end(stored(S.ONGOING), commit=commit, version=version)
    for known in plan.steps:
        again = end(known, commit=commit, version=version)
        assert again == Plan(steps=(), identity=plan.identity)


@pytest.mark.parametrize("version", [0, 2])
def test_an_end_that_contradicts_the_last_one_is_refused(version: int) -> None:
    prepared, done = end(stored(S.ONGOING), commit=False, version=version).steps
    for known, situation in ((prepared, Situation.WRONG_STATE), (done, Situation.NOTHING_TO_COMMIT)):
        with pytest.raises(TransactionRefused) as refused:
            end(known, commit=True, version=version)
        assert situation_of(refused) is situation
    for known in end(stored(S.ONGOING), commit=True, version=version).steps:
        with pytest.raises(TransactionRefused) as refused:
            end(known, commit=False, version=version)
        assert situation_of(refused) is Situation.WRONG_STATE


@pytest.mark.parametrize("state", IDLE)
def test_an_end_of_nothing(state: TransactionState) -> None:
    for version in (0, 2):
        with pytest.raises(TransactionRefused) as refused:
            end(stored(state), commit=True, version=version)
        assert situation_of(refused) is Situation.NOTHING_TO_COMMIT
    with pytest.raises(TransactionRefused) as refused:
        end(stored(state), commit=False)
    assert situation_of(refused) is Situation.WRONG_STATE
    plan = end(stored(state), commit=False, version=2)
    assert states(plan) == [S.PREPARE_ABORT, S.COMPLETE_ABORT] and plan.identity == (100, 6)
    assert not plan.steps[0].partitions


def test_the_next_identity_cannot_end_what_is_not_complete() -> None:
    prepared, _ = end(stored(S.ONGOING), commit=True, version=2).steps
    for commit in (True, False):
        with pytest.raises(TransactionRefused) as refused:
            end(prepared, Identity(100, 6), commit=commit, version=2)
        assert situation_of(refused) is Situation.NOT_COMPLETE


def test_a_late_end_is_no_repeat_once_the_next_transaction_is_open() -> None:
    done = end(stored(S.ONGOING), commit=True, version=2).steps[-1]
    following = add(done, Identity(100, 6))
    with pytest.raises(TransactionRefused) as refused:
        end(following, ME, commit=True, version=2)
    assert situation_of(refused) is Situation.FENCED


# ---- timeouts


@pytest.mark.parametrize("state", [*IDLE, *PREPARED])
def test_only_an_open_transaction_times_out(state: TransactionState) -> None:
    assert timeout(stored(state)) is None


def test_a_timeout_fences_and_tells_its_own_producer() -> None:
    plan = timeout(stored(S.ONGOING))
    assert plan is not None and states(plan) == [S.PREPARE_ABORT, S.COMPLETE_ABORT]
    assert [step.epoch for step in plan.steps] == [6, 6]
    for known in plan.steps:
        for attempt in (
            lambda known=known: add(known),
            lambda known=known: check_added(known, ME, A0),
            lambda known=known: end(known, commit=True),
        ):
            with pytest.raises(TransactionRefused) as refused:
                attempt()
            assert situation_of(refused) is Situation.TIMED_OUT
        assert end(known, commit=False).identity == (100, 6)  # that is what it wants, and what happened
    with pytest.raises(TransactionRefused) as refused:
        add(plan.steps[-1], OLDER)
    assert situation_of(refused) is Situation.FENCED


def test_after_a_timeout_and_a_new_producer_the_old_one_is_fenced() -> None:
    plan = timeout(stored(S.ONGOING))
    assert plan is not None
    taken = init(plan.steps[-1]).steps[-1]
    with pytest.raises(TransactionRefused) as refused:
        add(taken)
    assert situation_of(refused) is Situation.FENCED


# ---- exhausted epochs


def test_the_last_epoch_is_given_out_and_then_the_id_rolls() -> None:
    last = init(stored(S.EMPTY, epoch=EPOCH_MAX - 1))
    assert last.identity == (100, EPOCH_MAX)
    rolled = init(last.steps[-1])
    assert rolled.identity == (200, 0) and rolled.steps[-1].previous_producer_id == 100


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_at_the_last_epoch_fences_with_the_greatest_and_rolls(commit: bool) -> None:
    holder = Identity(100, EPOCH_MAX)
    plan = end(stored(S.ONGOING, epoch=EPOCH_MAX), holder, commit=commit, version=2)
    prepared, done = plan.steps
    assert (prepared.producer_id, prepared.epoch, prepared.next_producer_id) == (100, 32767, 200)
    assert (done.producer_id, done.epoch, done.next_producer_id) == (200, 0, -1)
    assert done.previous_producer_id == 100 and plan.identity == (200, 0)
    for known in plan.steps:
        assert end(known, holder, commit=commit, version=2) == Plan(steps=(), identity=Identity(200, 0))


def test_a_timeout_at_the_last_epoch_rolls_and_its_producer_comes_back() -> None:
    plan = timeout(stored(S.ONGOING, epoch=EPOCH_MAX))
    assert plan is not None
    holder = Identity(100, EPOCH_MAX)
    with pytest.raises(TransactionRefused) as refused:
        add(plan.steps[-1], holder)
    assert situation_of(refused) is Situation.TIMED_OUT
    assert init(plan.steps[-1], holder).identity == (200, 0)


def test_an_abort_by_init_at_the_last_epoch_rolls_once() -> None:
    plan = init(stored(S.ONGOING, epoch=EPOCH_MAX))
    assert [(step.producer_id, step.epoch) for step in plan.steps] == [(100, 32767), (200, 0), (200, 1)]


def test_tv1_stays_at_the_last_epoch() -> None:
    plan = end(stored(S.ONGOING, epoch=EPOCH_MAX), Identity(100, EPOCH_MAX), commit=True)
    assert plan.identity == (100, EPOCH_MAX)


# ---- Complete and expiry


@pytest.mark.parametrize(
    ("state", "following"), [(S.PREPARE_COMMIT, S.COMPLETE_COMMIT), (S.PREPARE_ABORT, S.COMPLETE_ABORT)]
)
def test_a_prepare_that_is_marked_is_complete(state: TransactionState, following: TransactionState) -> None:
    done = complete(stored(state, ended=Ended(OLDER, commit=True)), now_ms=9)
    assert done.state is following and done.updated_ms == 9 and not done.partitions
    assert done.ended == (OLDER, True)


@pytest.mark.parametrize("state", S)
def test_only_an_idle_id_expires(state: TransactionState) -> None:
    known = replace(stored(state), updated_ms=100)
    assert is_expired(known, now_ms=1100, idle_ms=1000) == (state in IDLE)
    assert not is_expired(known, now_ms=1099, idle_ms=1000)


# ---- two-phase commit (KIP-939)


@pytest.mark.parametrize("expected", [OLDER, Identity(99, 0), None])
def test_an_open_transaction_with_two_phase_commit_is_not_aborted_by_an_init_that_does_not_name_it(
    expected: Identity | None,
) -> None:
    known = stored(S.ONGOING, timeout_ms=NO_TIMEOUT_MS)
    with pytest.raises(TransactionRefused) as refused:
        init(known, expected)
    # An identity that is not the present one is a zombie's, as without two-phase commit.
    wanted = {None: Situation.NOT_COMPLETE, OLDER: Situation.FENCED, Identity(99, 0): Situation.OTHER_ID}
    assert refused.value.situation is wanted[expected]


def test_an_init_that_names_it_aborts_it() -> None:
    plan = init(stored(S.ONGOING, timeout_ms=NO_TIMEOUT_MS), ME)
    assert [step.state for step in plan.steps] == [S.PREPARE_ABORT, S.COMPLETE_ABORT, S.EMPTY]
    assert plan.identity == (100, 7) and not plan.steps[-1].is_two_phase


@pytest.mark.parametrize("state", IDLE)
def test_an_init_needs_no_identity_where_nothing_is_open(state: S) -> None:
    assert init(stored(state, timeout_ms=NO_TIMEOUT_MS)).identity == (100, 6)


def test_an_administrator_may_abort_it_and_its_late_commit_is_told_so() -> None:
    plan = timeout(stored(S.ONGOING, timeout_ms=NO_TIMEOUT_MS))
    assert plan is not None
    with pytest.raises(TransactionRefused) as refused:
        end(plan.steps[-1], ME, commit=True)
    assert refused.value.situation is Situation.TIMED_OUT
