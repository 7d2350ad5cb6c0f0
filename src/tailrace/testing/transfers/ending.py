"""One EndTxn with a crash at every disk call of it and of what follows; and at every call of the recovery.

The same seed takes the same steps up to the crash. So a first run counts the disk calls, and then every one
of them is the last of a process: once by a kill, and once by a power cut.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from tailrace.testing.simulation import Crash
from tailrace.testing.transfers.history import Failed, History, Options, attempt
from tailrace.testing.transfers.node import PLACES, SimulatedNode
from tailrace.testing.transfers.oracle import Fate, Wrong
from tailrace.testing.transfers.producer import Producer

_AFTER_S = 0.2  # applying to segments, and a checkpoint
_RECOVERY_STRIDE = 7
"""Of the calls of a recovery every n-th is tried, beginning with another one each time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndShape:
    """A transaction that is about to be ended."""

    client_version: int
    commit: bool
    places: int = 3
    has_position: bool = True


def sweep_end(seed: int, shape: EndShape, *, after: bool = True) -> tuple[int, Failed | None]:
    """How many crashes were played, and what went wrong.

    With `after` the crashes go on behind the answer, while what is durable is applied and checkpointed.
    """
    played = 0
    rehearsal = _Ending(seed, shape)
    if (failed := attempt(rehearsal.history, rehearsal.rehearse)) is not None:
        return played, failed
    last_call = rehearsal.last_call if after else rehearsal.answer_call
    for call in range(rehearsal.first_call, last_call + 1):
        for cuts_power in (False, True):
            ending = _Ending(seed, shape)
            failed = attempt(ending.history, lambda e=ending, c=call, p=cuts_power: e.crash(c, cuts_power=p))
            played += 1
            if failed is not None:
                what = f"{shape} crash_at={call} {cuts_power=}: {failed.error}"
                return played, Failed(seed, what, failed.trace)
    return played, None


class _Ending:
    """One run."""

    def __init__(self, seed: int, shape: EndShape) -> None:
        self.history = history = History(seed, Options())
        self._shape = shape
        self._producer = producer = history.producers[0]
        history.producers = [producer]
        history.positions = {producer.name: producer.position}
        producer.client_version = shape.client_version
        producer.places = PLACES[-shape.places :]
        producer.timeout_ms = 60_000
        self.first_call = self.answer_call = self.last_call = 0

    def rehearse(self) -> None:
        """To the end without a crash."""
        self.history.begin()
        self.history.live(self._serve())
        self.history.finish()

    def crash(self, call: int, *, cuts_power: bool) -> None:
        """Crash in this call, perhaps in the recovery too; then the producer asks how it ended."""
        history, disk = self.history, self.history.disk
        history.begin()
        disk.crash_at = call
        history.live(self._serve())
        _die(history, cuts_power=cuts_power)
        if call % 2:
            disk.crash_at = disk.calls + 1 + (call // 2) % (_RECOVERY_STRIDE * 9)
            history.live(self._ask_again())
            _die(history, cuts_power=not cuts_power)
        disk.crash_at = 0
        history.live(self._ask_again())
        disk.kill()
        history.finish()

    async def _serve(self) -> None:
        node = await self._started()
        producer, disk, shape = self._producer, self.history.disk, self._shape
        access = node.access()
        await producer.init(node.access)
        self._plan(producer, commit=True)
        for step in producer.steps:
            await step(access)
        producer.steps = []
        self._plan(producer, commit=shape.commit)
        *steps, end = producer.steps
        for step in steps:
            await step(access)
        await node.storage.wait_applied()
        self.first_call = disk.calls + 1
        producer.steps = [end]
        await producer.work(node.access, transactions=1)
        self.answer_call = disk.calls
        await asyncio.sleep(_AFTER_S)
        await node.storage.checkpoint()
        self.last_call = disk.calls
        await node.check(self.history.oracle, self.history.positions)
        raise Crash("the work is done")

    async def _ask_again(self) -> None:
        node = await self._started()
        producer = self._producer
        await node.check(self.history.oracle, self.history.positions)
        if producer.steps:  # its EndTxn was not answered
            await producer.work(node.access, transactions=1)
            await node.check(self.history.oracle, self.history.positions)
        attempt = self.history.oracle.attempts[-1]
        if attempt.fate is not (Fate.COMMITTED if self._shape.commit else Fate.ABORTED):
            raise Wrong(f"the producer asked again, and its transaction is {attempt.fate}")
        raise Crash("everything is told")

    async def _started(self) -> SimulatedNode:
        node = self.history.node()
        await node.start()
        self._producer.disconnect()
        return node

    def _plan(self, producer: Producer, *, commit: bool) -> None:
        producer.plan_ending(commit=commit, has_position=self._shape.has_position)


def _die(history: History, *, cuts_power: bool) -> None:
    if cuts_power:
        history.disk.power_cut()
    else:
        history.disk.kill()
