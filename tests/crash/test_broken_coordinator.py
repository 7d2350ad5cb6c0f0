"""Builds with one rule of the coordinator broken: histories of a whole broker must catch every one of them.

As `test_broken_transactions`, which breaks what the storage and the partition know of transactions. Each case
takes one rule out of the real code and plays until the oracle objects.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from tailrace.broker.groups.committed import CommittedOffsets
from tailrace.broker.groups.directory import Directory as GroupDirectory
from tailrace.broker.groups.loading import Loaded
from tailrace.broker.partition import Appended, Partition
from tailrace.broker.transactions import machine, verification
from tailrace.broker.transactions.coordinator import TransactionCoordinator
from tailrace.broker.transactions.home import Entry
from tailrace.broker.transactions.machine import Event, Plan
from tailrace.broker.transactions.state import Identity, StoredTransaction, TransactionState
from tailrace.broker.transactions.verification import Verifier
from tailrace.records import Batch
from tailrace.storage.producers import Duplicate, ProducerStates
from tailrace.testing.transfers import EndShape, play, sweep_end

Break = Callable[[pytest.MonkeyPatch], None]


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


# ---- the order of what is stored


def markers_before_prepare(patch: pytest.MonkeyPatch) -> None:
    def perform(self: TransactionCoordinator, entry: Entry, plan: Plan) -> bool:
        for step in plan.steps:
            if step.state.is_prepared:
                before, entry.stored = entry.stored, step
                self._mark(entry)
                entry.stored = before
            self._store(entry, step)
        self._plan(entry)
        return True

    patch.setattr(TransactionCoordinator, "_perform", perform)


def complete_before_markers(patch: pytest.MonkeyPatch) -> None:
    def perform(self: TransactionCoordinator, entry: Entry, plan: Plan) -> bool:
        for step in plan.steps:
            self._store(entry, step)
        for step in plan.steps:
            if step.state.is_prepared:
                after, entry.stored = entry.stored, step
                self._mark(entry)
                entry.stored = after
        self._plan(entry)
        return True

    patch.setattr(TransactionCoordinator, "_perform", perform)


def batch_before_ongoing(patch: pytest.MonkeyPatch) -> None:
    real = Verifier.append

    def append(
        self: Verifier,
        name: str,
        partition: Partition,
        batch: Batch,
        *,
        client_version: int = 0,
        **more: bool,
    ) -> Appended:
        if client_version < machine.BUMPING_VERSION:
            return real(self, name, partition, batch, client_version=client_version, **more)
        appended = partition.append(batch, verified=True)
        identity = Identity(batch.producer_id, batch.producer_epoch)
        self.verify(name, identity, partition.name, client_version=client_version)
        return appended

    patch.setattr(Verifier, "append", append)


def answered_before_it_is_durable(patch: pytest.MonkeyPatch) -> None:
    async def wait_durable(self: TransactionCoordinator, entry: Entry) -> None:
        return

    patch.setattr(TransactionCoordinator, "wait_durable", wait_durable)


def prepared_is_not_resumed(patch: pytest.MonkeyPatch) -> None:
    real = TransactionCoordinator._attend

    def attend(self: TransactionCoordinator, entry: Entry, now_ms: int) -> None:
        if not entry.stored.state.is_prepared:
            real(self, entry, now_ms)

    patch.setattr(TransactionCoordinator, "_attend", attend)


# ---- epochs and fences


def init_does_not_abort(patch: pytest.MonkeyPatch) -> None:
    table = machine.TABLE[TransactionState.ONGOING]
    assert isinstance(table, dict)
    patch.setitem(table, Event.INIT, TransactionState.EMPTY)


def init_does_not_bump(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "_bump", lambda known, new_id: known)
    real = machine._prepare

    def prepare(known: StoredTransaction, *, commit: bool, bumps: bool, **more: object) -> StoredTransaction:
        by_init = bumps and known.client_version < machine.BUMPING_VERSION
        return real(known, commit=commit, bumps=bumps and not by_init, **more)  # type: ignore[arg-type]

    patch.setattr(machine, "_prepare", prepare)


def end_does_not_bump(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(machine, "BUMPING_VERSION", 99)


def timeout_does_not_bump(patch: pytest.MonkeyPatch) -> None:
    real = machine.plan_timeout

    def plan_timeout(known: StoredTransaction, **more: object) -> Plan | None:
        plan = real(known, **more)  # type: ignore[arg-type]
        if plan is None:
            return None
        steps = tuple(replace(each, epoch=known.epoch, before=None) for each in plan.steps)
        return Plan(steps=steps, identity=known.identity)

    patch.setattr("tailrace.broker.transactions.coordinator.plan_timeout", plan_timeout)


def writes_are_not_verified(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(verification, "check_added", lambda known, identity, partition: None)


def epochs_are_not_compared(patch: pytest.MonkeyPatch) -> None:
    def check_identity(known: StoredTransaction | None, identity: object) -> StoredTransaction:
        assert known is not None
        return known

    patch.setattr(machine, "check_identity", check_identity)


def connections_are_not_fenced(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(TransactionCoordinator, "check_connection", lambda *_, **__: None)


def a_repeated_end_is_not_recognized(patch: pytest.MonkeyPatch) -> None:
    real = machine.complete

    def complete(prepared: StoredTransaction, *, now_ms: int) -> StoredTransaction:
        return replace(real(prepared, now_ms=now_ms), ended=None)

    patch.setattr(machine, "complete", complete)
    patch.setattr("tailrace.broker.transactions.coordinator.complete", complete)


def a_repeated_batch_is_not_recognized(patch: pytest.MonkeyPatch) -> None:
    def check(self: ProducerStates, batch: Batch, *, any_sequence: bool = False) -> Duplicate | None:
        return None

    patch.setattr(ProducerStates, "check", check)


# ---- positions of groups


def positions_count_before_the_marker_is_durable(patch: pytest.MonkeyPatch) -> None:
    def transaction_ended(self: GroupDirectory, partition: int, producer_id: int, *, commit: bool) -> None:
        home = self._homes[partition]
        ending = home.transactions.end(producer_id, commit=commit, decided=self.forget_if_void)
        if ending is not None:
            ending.set_result(None)

    patch.setattr(GroupDirectory, "transaction_ended", transaction_ended)


def aborted_positions_count(patch: pytest.MonkeyPatch) -> None:
    real = CommittedOffsets.decide
    patch.setattr(CommittedOffsets, "decide", lambda self, key, *, commit: real(self, key, commit=True))


def markers_are_not_heeded_when_positions_are_loaded(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Loaded, "_end", lambda self, batch: None)


PLAYED: list[tuple[Break, int]] = [
    (markers_before_prepare, 300),
    (complete_before_markers, 300),
    (batch_before_ongoing, 300),
    (answered_before_it_is_durable, 300),
    (prepared_is_not_resumed, 300),
    (init_does_not_abort, 100),
    (init_does_not_bump, 100),
    (end_does_not_bump, 100),
    (timeout_does_not_bump, 300),
    (writes_are_not_verified, 100),
    (epochs_are_not_compared, 100),
    (connections_are_not_fenced, 300),
    (a_repeated_end_is_not_recognized, 0),
    (a_repeated_batch_is_not_recognized, 300),
    (positions_count_before_the_marker_is_durable, 300),
    (aborted_positions_count, 100),
    (markers_are_not_heeded_when_positions_are_loaded, 100),
]


def hunt(seeds: int) -> str | None:
    """What was wrong in the first history, or in the first crash of an EndTxn, in which anything was."""
    for seed in range(seeds):
        failed = play(seed)[1]
        if failed is not None:
            return f"seed {seed}: {failed.error.strip().splitlines()[-1]}"
    for version, commit in itertools.product((0, 2), (True, False)):
        failed = sweep_end(0, EndShape(client_version=version, commit=commit), after=False)[1]
        if failed is not None:
            return failed.error.strip().splitlines()[-1]
    return None


@pytest.mark.heavy
@pytest.mark.parametrize(("broken", "seeds"), PLAYED, ids=[broken.__name__ for broken, _ in PLAYED])
def test_the_histories_catch(broken: Break, seeds: int, monkeypatch: pytest.MonkeyPatch) -> None:
    broken(monkeypatch)
    caught = hunt(seeds)
    assert caught is not None, f"{seeds} seeds played in peace"
    print(caught)
    assert "Wrong: " in caught, caught
