"""The driver's part of an exactly-once write: decide which transactions make up a batch, and end them.

    Init of the query's own transactional id     fences every other driver of the query
    read the decisions to their end              decided already: commit its winners again, and go on
    list what is open of the query               leftovers of attempts and drivers that are gone
    prepare every winner                         from here on it has no timeout (two-phase commit)
    decide                                       a record in the topic of decisions, in a transaction
    commit every winner, by its identity         repeated until it is confirmed
    abort the leftovers, by their identities

The protocol is an executable model in tests/property/exactly_once.py, which names each rule and what breaks
without it. Whatever is killed, the next driver of the query does the same again, and a batch is decided once.
A run of a DataFrame is not written again: the next run that commits finishes what its driver had decided.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence, Set
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, TypeVar

from tailrace.client.error import is_retriable
from tailrace.client.transaction_admin import end_transaction
from tailrace.model import TailraceError
from tailrace.spark.sink.decision import (
    KEPT_MS,
    Decision,
    DecisionLog,
    Winner,
    forget_runs,
    mark_done,
    write_decision,
)
from tailrace.spark.transacting import (
    Fate,
    Opened,
    abort_opened,
    commit_opened,
    connection_to_coordinator,
    has_two_phase_commit,
    init,
    list_opened,
    prepare_opened,
)

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient

_log = logging.getLogger(__name__)

SLOTS = 16
"""Transactional ids of a run are used again after this many batches."""
_DRIVER_TIMEOUT_MS = 15_000
"""Of the transaction that holds a decision: while it is open, it hides the decisions behind it."""
_AT_ONCE = 32
_END_S = 120.0
"""How long the end of a winner is tried for. After that the batch is tried again as a whole."""

T = TypeVar("T")
E = TypeVar("E")


class RowsLost(TailraceError):
    """Transactions that were decided cannot be committed any more."""


class AttemptLost(TailraceError):
    """A transaction of a task was gone before its batch was decided: nothing of the batch is visible."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """Whose rows: a query, or a run of a DataFrame, which is a query of one batch."""

    query: str
    run: str  # of the driver: a query gets another one whenever it is started
    batch: int
    is_run: bool

    @property
    def prefix(self) -> str:
        """What every transactional id of the query begins with."""
        return f"tr-{self.query}-"

    @property
    def run_prefix(self) -> str:
        return f"{self.prefix}{self.run}-"

    @property
    def batch_prefix(self) -> str:
        """What those of this run and batch begin with, until the slot is used again."""
        return f"{self.run_prefix}{self.batch % SLOTS}-"

    @property
    def driver_id(self) -> str:
        return f"{self.prefix}driver"


class Committer:
    """One commit, or the end of one run, in the loop of a link."""

    def __init__(
        self, client: KafkaClient, log: DecisionLog, origin: Origin, *, fails_on_loss: bool = True
    ) -> None:
        self._client, self._decisions, self._origin = client, log, origin
        self._fails_on_loss = fails_on_loss

    async def commit(self, winners: Sequence[Winner]) -> None:
        """Have the rows of a batch visible once; AttemptLost, RowsLost, or what keeps it from that."""
        driver = await self._begin()
        origin = self._origin
        decided = self._decisions.decisions.get(origin.query)
        if decided is not None and decided.covers(origin.batch):
            await self._redrive(decided)
            return
        opened = await self._opened(origin.prefix)
        decision = Decision(
            query=origin.query,
            batch=origin.batch,
            winners=winners,
            is_run=origin.is_run,
            two_phase=has_two_phase_commit(await connection_to_coordinator(self._client, origin.driver_id)),
        )
        await self._prepare(decision, set(opened))
        await write_decision(self._client, driver, decision)
        await end_transaction(
            self._client,
            driver.transactional_id,
            producer_id=driver.producer_id,
            epoch=driver.epoch,
            commit=True,
        )
        await self._finish(decision)
        await self._clean(opened, decision)

    async def give_up(self, opened: Iterable[Opened]) -> None:
        """End a run without a decision: what its tasks wrote is aborted. A batch that is decided stays so."""
        await self._begin()
        origin = self._origin
        decided = self._decisions.decisions.get(origin.query)
        if decided is not None and decided.covers(origin.batch):
            await self._redrive(decided)
            return
        await self._abort_all({*opened, *await self._opened(origin.run_prefix)})

    async def _begin(self) -> Opened:
        driver = await init(self._client, self._origin.driver_id, timeout_ms=_DRIVER_TIMEOUT_MS)
        await self._decisions.read_to_end(self._client)
        if self._origin.is_run:
            await self._finish_earlier_runs()
        return driver

    async def _finish_earlier_runs(self) -> None:
        """Commit what drivers decided that died before they had committed all of it."""
        now_ms = time.time_ns() // 1_000_000
        old = []
        for each in list(self._decisions.decisions.values()):
            if not each.is_run or each.query == self._origin.query:
                continue
            if not each.is_done:
                _log.warning("finishing a run whose driver is gone: run=%s", each.query)
                await self._finish(each)
            elif now_ms - each.decided_ms > KEPT_MS:
                old.append(each.query)
        await forget_runs(self._client, old)

    async def _redrive(self, decision: Decision) -> None:
        """A driver before this one has decided the batch, and may have died before it had committed all."""
        if decision.batch == self._origin.batch:
            await self._finish(decision)
        await self._clean(await self._opened(self._origin.run_prefix), decision)

    async def _prepare(self, decision: Decision, opened: Set[Opened]) -> None:
        """Have every winner wait for its end, however long this takes; AttemptLost if one is gone already."""

        async def prepare(winner: Winner) -> bool:
            if winner.opened not in opened:
                return False
            return not decision.two_phase or await prepare_opened(self._client, winner.opened)

        are_open = await _side_by_side(prepare, decision.winners)
        gone = [each for each, is_open in zip(decision.winners, are_open, strict=True) if not is_open]
        if gone:
            raise AttemptLost(
                f"{self._what}: {len(gone)} of {len(decision.winners)} tasks lost their transactions,"
                f" for example {gone[0].opened.transactional_id}: timed out, or aborted. Nothing of this"
                " batch is visible. Run it again, and raise kafka.transaction.timeout.ms if need be"
            )

    async def _finish(self, decision: Decision) -> None:
        """Commit every winner."""
        if decision.is_done:
            return

        async def commit(winner: Winner) -> Fate:
            return await _until_confirmed(
                lambda: commit_opened(self._client, winner.opened, two_phase=decision.two_phase)
            )

        fates = await _side_by_side(commit, decision.winners)
        lost = [winner for winner, fate in zip(decision.winners, fates, strict=True) if fate is Fate.LOST]
        if lost:
            self._tell_loss(decision, lost)
        if decision.is_run:
            await mark_done(self._client, decision)
            self._decisions.decisions[decision.query] = replace(decision, is_done=True)

    def _tell_loss(self, decision: Decision, lost: Sequence[Winner]) -> None:
        rows, all_rows = sum(each.rows for each in lost), sum(each.rows for each in decision.winners)
        text = (
            f"batch {decision.batch} of query {decision.query}: {len(lost)} of {len(decision.winners)}"
            f" transactions were decided and cannot be committed any more, because they timed out or were"
            f" aborted, for example {lost[0].opened.transactional_id}. {rows} of {all_rows} rows are lost."
        )
        if self._fails_on_loss:
            raise RowsLost(f"{text} To go on without them, set the option failOnDataLoss=false")
        _log.error("%s failOnDataLoss=false, so the query goes on", text)

    async def _clean(self, left: Iterable[Opened], decision: Decision) -> None:
        """Abort leftovers. What fails is left for the next batch, or for its timeout."""
        try:
            await self._abort_all(set(left) - {each.opened for each in decision.winners})
        except TailraceError as error:
            _log.warning("leftover transactions are not aborted yet: %s %s", self._what, error)

    async def _abort_all(self, opened: Iterable[Opened]) -> None:
        chosen = sorted(opened)
        aborted = await _side_by_side(lambda each: abort_opened(self._client, each), chosen)
        if chosen:
            _log.info("leftover transactions aborted: %s count=%d", self._what, sum(aborted))

    async def _opened(self, prefix: str) -> list[Opened]:
        """Open transactions of attempts. That of a driver has ended, or is not ours to end."""
        found = await list_opened(self._client, prefix)
        return [each for each in found if each.transactional_id != self._origin.driver_id]

    @property
    def _what(self) -> str:
        return f"query={self._origin.query} batch={self._origin.batch}"


async def _until_confirmed(work: Callable[[], Awaitable[T]]) -> T:
    """The result of `work`, which is repeated while its error may go away."""
    deadline = time.monotonic() + _END_S
    while True:
        try:
            return await work()
        except TailraceError as error:
            if not is_retriable(error) or time.monotonic() > deadline:
                raise


async def _side_by_side(work: Callable[[E], Awaitable[T]], items: Iterable[E]) -> list[T]:
    """The results in the order of the items, a limited number of which are worked on at a time."""
    slots = asyncio.Semaphore(_AT_ONCE)

    async def one(item: E) -> T:
        async with slots:
            return await work(item)

    return await asyncio.gather(*(one(each) for each in items))
