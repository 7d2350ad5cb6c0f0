"""The protocol of one transactional id, as pure decisions: what is stored, and what is to be stored next.

`TABLE` says what an event does in a state: the state that follows, or why it is refused. A decision is a
`Plan`: states to be stored one after the other. The coordinator writes the markers of a Prepare behind
its record and before the next one; everything is sequenced in one turn, in this order, so that every prefix
that a crash leaves is a legal state. Nothing here changes anything: a log that refuses costs the request and
no state.

Epochs. InitProducerId moves the epoch. So do a timeout and an abort by InitProducerId or an administrator,
and every EndTxn of a client that knows it (KIP-890 part 2); markers then carry the new epoch, and partitions
fence by themselves what comes late. Epochs up to EPOCH_MAX are given out. A bump beyond it names the next
producer id in Prepare, and Complete goes on with that id at epoch 0.

Repeats. An EndTxn of the identity that ended last is not acted on again: with the same result it is answered
with the present identity. An InitProducerId that names an identity (KIP-360) is for its holder: the present
one gets a new epoch; the one before the newest bump gets the present identity again, if that bump answered
the same request or was a timeout (KIP-588). This is no lock: two holders of one identity get the same one.

Two-phase commit (KIP-939). The outcome of such a transaction is decided elsewhere, so it has no timeout, and
an InitProducerId that would abort it is refused unless it names its identity. An administrator may abort it.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, replace
from typing import NoReturn

from tailrace.broker.transactions.refusal import Situation, TransactionRefused
from tailrace.broker.transactions.state import (
    EPOCH_MAX,
    NO_PRODUCER_ID,
    NO_TIMEOUT_MS,
    Ended,
    Identity,
    StoredTransaction,
    TransactionState,
)
from tailrace.model import TopicPartition

BUMPING_VERSION = 2
"""The client version from which on EndTxn moves the epoch (transaction.version of KIP-890)."""

NewId = Callable[[], int]
"""Gives a producer id that no producer had before, at once, or raises BrokerError."""


class Event(enum.Enum):
    """What happens to a transactional id."""

    INIT = "InitProducerId"
    ADD = "a partition takes part"
    COMMIT = "EndTxn commit"
    ABORT = "EndTxn abort"
    BUMPING_ABORT = "EndTxn abort of a client whose EndTxn moves the epoch"
    TIMEOUT = "timeout, or an administrator's abort"
    MARKED = "every marker is written"


_IDLE: Mapping[Event, TransactionState | Situation] = {
    Event.INIT: TransactionState.EMPTY,
    Event.ADD: TransactionState.ONGOING,
    Event.COMMIT: Situation.NOTHING_TO_COMMIT,
    Event.ABORT: Situation.WRONG_STATE,
    Event.BUMPING_ABORT: TransactionState.PREPARE_ABORT,  # of nothing: the bump fences what may be under way
}
_PREPARED: Mapping[Event, TransactionState | Situation] = {
    Event.INIT: Situation.NOT_COMPLETE,
    Event.ADD: Situation.NOT_COMPLETE,
    Event.COMMIT: Situation.NOT_COMPLETE,
    Event.ABORT: Situation.NOT_COMPLETE,
    Event.BUMPING_ABORT: Situation.NOT_COMPLETE,
}
TABLE: Mapping[TransactionState, Mapping[Event, TransactionState | Situation]] = {
    TransactionState.EMPTY: _IDLE,
    TransactionState.COMPLETE_COMMIT: _IDLE,
    TransactionState.COMPLETE_ABORT: _IDLE,
    TransactionState.ONGOING: {
        Event.INIT: TransactionState.PREPARE_ABORT,
        Event.ADD: TransactionState.ONGOING,
        Event.COMMIT: TransactionState.PREPARE_COMMIT,
        Event.ABORT: TransactionState.PREPARE_ABORT,
        Event.BUMPING_ABORT: TransactionState.PREPARE_ABORT,
        Event.TIMEOUT: TransactionState.PREPARE_ABORT,
    },
    TransactionState.PREPARE_COMMIT: {**_PREPARED, Event.MARKED: TransactionState.COMPLETE_COMMIT},
    TransactionState.PREPARE_ABORT: {**_PREPARED, Event.MARKED: TransactionState.COMPLETE_ABORT},
}
"""An event that a state does not have cannot happen there, or changes nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """States to be stored in this order, and what the producer is then told that it is."""

    steps: tuple[StoredTransaction, ...]  # none: the answer is that of an earlier request
    identity: Identity


def plan_init(
    known: StoredTransaction | None,
    expected: Identity | None,
    *,
    timeout_ms: int,
    now_ms: int,
    new_id: NewId,
) -> Plan:
    """A producer begins, or begins again; `expected` is the identity that it says it has (KIP-360).

    With NO_TIMEOUT_MS its transactions have two-phase commit.
    """
    if known is None:
        first = StoredTransaction(
            producer_id=new_id(),
            epoch=0,
            state=TransactionState.EMPTY,
            timeout_ms=timeout_ms,
            updated_ms=now_ms,
        )
        return Plan(steps=(first,), identity=first.identity)
    following = _follow(known, Event.INIT)
    if expected is not None and expected != known.identity:
        if expected == known.before and known.state is not TransactionState.ONGOING:
            return Plan(steps=(), identity=known.identity)
        _refuse_older(known, expected)
    steps: tuple[StoredTransaction, ...] = ()
    idle = known
    if following is TransactionState.PREPARE_ABORT:
        if known.is_two_phase and expected is None:
            raise TransactionRefused(
                "a transaction with two-phase commit is open, and only its own producer or an administrator "
                "ends it. Name its producer id and epoch, or use another transactional id",
                situation=Situation.NOT_COMPLETE,
            )
        prepared = _prepare(known, commit=False, bumps=True, now_ms=now_ms, new_id=new_id)
        idle = complete(prepared, now_ms=now_ms)
        steps = (prepared, idle)
    empty = replace(
        _bump(idle, new_id),
        state=TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        updated_ms=now_ms,
        started_ms=-1,
        before=known.identity if expected == known.identity else None,
        ended=None,
    )
    return Plan(steps=(*steps, empty), identity=empty.identity)


def plan_prepare(known: StoredTransaction | None, identity: Identity, *, now_ms: int) -> Plan:
    """The open transaction of a producer gets two-phase commit, and stays as it is otherwise."""
    known = check_identity(known, identity)
    if known.state is not TransactionState.ONGOING:
        raise TransactionRefused(
            f"no transaction is open that could be prepared: it is {known.state.label}",
            situation=Situation.WRONG_STATE,
        )
    if known.is_two_phase:
        return Plan(steps=(), identity=identity)
    prepared = replace(known, timeout_ms=NO_TIMEOUT_MS, updated_ms=now_ms)
    return Plan(steps=(prepared,), identity=identity)


def plan_add(
    known: StoredTransaction | None,
    identity: Identity,
    partitions: Collection[TopicPartition],
    *,
    client_version: int,
    now_ms: int,
) -> StoredTransaction | None:
    """Partitions take part from now on; None if all of them do already."""
    known = check_identity(known, identity)
    if _follow(known, Event.ADD) is known.state and known.partitions.issuperset(partitions):
        return None
    begins = known.state is not TransactionState.ONGOING
    return replace(
        known,
        state=TransactionState.ONGOING,
        partitions=frozenset(partitions) if begins else known.partitions.union(partitions),
        client_version=client_version,
        updated_ms=now_ms,
        started_ms=now_ms if begins else known.started_ms,
        before=None,
        ended=None,
    )


def check_added(known: StoredTransaction | None, identity: Identity, partition: TopicPartition) -> None:
    """Whether a write may go to this partition (KIP-890 part 1); NOT_IN_TRANSACTION if it may not."""
    known = check_identity(known, identity)
    _follow(known, Event.ADD)
    if known.state is not TransactionState.ONGOING or partition not in known.partitions:
        raise TransactionRefused(
            f"{partition} is not part of the transaction of producer {identity.producer_id}",
            situation=Situation.NOT_IN_TRANSACTION,
        )


def plan_end(
    known: StoredTransaction | None,
    identity: Identity,
    *,
    commit: bool,
    client_version: int,
    now_ms: int,
    new_id: NewId,
) -> Plan:
    """The producer ends its transaction, or says again that it does."""
    if known is not None and known.state is not TransactionState.ONGOING and known.ended is not None:
        if known.ended == (identity, commit):
            return Plan(steps=(), identity=known.identity)
        if known.ended.identity == identity:
            _refuse_other_end(known, commit=commit)
    known = check_identity(known, identity)
    bumps = client_version >= BUMPING_VERSION
    _follow(known, Event.COMMIT if commit else Event.BUMPING_ABORT if bumps else Event.ABORT)
    prepared = _prepare(known, commit=commit, bumps=bumps, now_ms=now_ms, new_id=new_id)
    done = complete(prepared, now_ms=now_ms)
    return Plan(steps=(prepared, done), identity=done.identity)


def plan_timeout(known: StoredTransaction, *, now_ms: int, new_id: NewId) -> Plan | None:
    """Abort what is open, because of its time or at an administrator's word; None if nothing is open.

    No producer is given the new epoch: the one whose transaction this was may come for it (KIP-588).
    """
    if TABLE[known.state].get(Event.TIMEOUT) is None:
        return None
    prepared = _prepare(known, commit=False, bumps=True, now_ms=now_ms, new_id=new_id)
    prepared = replace(prepared, before=Identity(known.producer_id, known.epoch))
    done = complete(prepared, now_ms=now_ms)
    return Plan(steps=(prepared, done), identity=done.identity)


def complete(prepared: StoredTransaction, *, now_ms: int) -> StoredTransaction:
    """What follows a Prepare when every marker is written."""
    following = TABLE[prepared.state][Event.MARKED]
    assert isinstance(following, TransactionState)
    rolls = prepared.next_producer_id != NO_PRODUCER_ID
    producer_id, epoch = prepared.identity
    return replace(
        prepared,
        producer_id=producer_id,
        epoch=epoch,
        state=following,
        partitions=frozenset(),
        updated_ms=now_ms,
        previous_producer_id=prepared.producer_id if rolls else prepared.previous_producer_id,
        next_producer_id=NO_PRODUCER_ID,
    )


def is_expired(known: StoredTransaction, *, now_ms: int, idle_ms: int) -> bool:
    """Whether the id was unused for so long that it is forgotten; never while a transaction is open."""
    return TABLE[known.state] is _IDLE and now_ms - known.updated_ms >= idle_ms


def check_identity(known: StoredTransaction | None, identity: Identity) -> StoredTransaction:
    """The stored state, if this is its producer; OTHER_ID, TIMED_OUT or FENCED if not."""
    if known is None:
        raise TransactionRefused(
            "the transactional id is not known: it expired, or was never initialized",
            situation=Situation.OTHER_ID,
        )
    if (known.producer_id, known.epoch) != identity:
        _refuse_older(known, identity)
    return known


# ---- inside


def _follow(known: StoredTransaction, event: Event) -> TransactionState:
    """The state that follows; raises what the table says instead."""
    following = TABLE[known.state][event]
    if isinstance(following, Situation):
        raise TransactionRefused(
            f"{event.value} does not fit the state {known.state.label} of the transaction",
            situation=following,
        )
    return following


def _prepare(
    known: StoredTransaction, *, commit: bool, bumps: bool, now_ms: int, new_id: NewId
) -> StoredTransaction:
    epoch = known.epoch + 1 if bumps else known.epoch
    return replace(
        known,
        state=TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT,
        epoch=epoch,
        next_producer_id=new_id() if epoch > EPOCH_MAX else NO_PRODUCER_ID,
        updated_ms=now_ms,
        before=None,
        ended=Ended(Identity(known.producer_id, known.epoch), commit),
    )


def _bump(known: StoredTransaction, new_id: NewId) -> StoredTransaction:
    if known.epoch < EPOCH_MAX:
        return replace(known, epoch=known.epoch + 1)
    return replace(known, producer_id=new_id(), epoch=0, previous_producer_id=known.producer_id)


def _is_timed_out(known: StoredTransaction, identity: Identity) -> bool:
    """Whether this producer's own transaction was aborted by its timeout, and the id not taken since."""
    aborted = (TransactionState.PREPARE_ABORT, TransactionState.COMPLETE_ABORT)
    return known.before == identity and known.state in aborted


def _refuse_older(known: StoredTransaction, identity: Identity) -> NoReturn:
    if _is_timed_out(known, identity):
        raise TransactionRefused(
            f"the transaction of producer {identity.producer_id} took longer than {known.timeout_ms} ms and "
            "was aborted. Begin a new one",
            situation=Situation.TIMED_OUT,
        )
    if known.producer_id != identity.producer_id:
        raise TransactionRefused(
            f"the transactional id belongs to producer {known.producer_id}, not {identity.producer_id}",
            situation=Situation.OTHER_ID,
        )
    raise TransactionRefused(
        f"producer {identity.producer_id} is at epoch {known.epoch}; epoch {identity.epoch} is fenced",
        situation=Situation.FENCED,
    )


def _refuse_other_end(known: StoredTransaction, *, commit: bool) -> NoReturn:
    """The transaction ended the other way."""
    assert known.ended is not None
    if commit and _is_timed_out(known, known.ended.identity):
        _refuse_older(known, known.ended.identity)
    is_late_commit = commit and not known.state.is_prepared
    raise TransactionRefused(
        f"the transaction was {'aborted' if commit else 'committed'} before",
        situation=Situation.NOTHING_TO_COMMIT if is_late_commit else Situation.WRONG_STATE,
    )
