"""The writer of cursors, over partitions that say what changed and a state writer that the test plays."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest
from tests.unit.broker.internal.memory_log import MemoryLog

from tailrace.broker.internal import Done, ErrorMap, Source, StateWriter
from tailrace.broker.subscriptions.cursor_writer import CursorWriter
from tailrace.broker.subscriptions.subscribed_partition import SubscribedPartition
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import NewRecord
from tailrace.testing import FakeClock


class Changing:
    """A partition that only says what changed."""

    def __init__(self, name: bytes) -> None:
        self.name = name
        self.changed = False

    def write_changes(self, time_ms: int) -> NewRecord | None:
        if not self.changed:
            return None
        self.changed = False
        return time_ms, self.name, b"delta", ()

    def write_snapshot(self, time_ms: int) -> NewRecord:
        self.changed = False
        return time_ms, self.name, b"snapshot", ()


def _both(first: Done, second: Done) -> Done:
    def done(code: ErrorCode) -> None:
        first(code)
        second(code)

    return done


class Stage:
    """A writer and the writes that it began."""

    def __init__(self) -> None:
        self.one, self.other = Changing(b"one"), Changing(b"other")
        self.written: list[list[tuple[object, object]]] = []
        self.done: list[Done] = []
        self.durable = 0  # how many of them are over
        self.refusal = ErrorCode.NONE
        self._planned = False
        partitions = cast("Sequence[SubscribedPartition]", [self.one, self.other])
        self.writer = CursorWriter(partitions, write_soon=self._write_soon, clock=FakeClock())

    def _write_soon(self, source: Source) -> None:
        if not self._planned:
            self._planned = True
            asyncio.get_running_loop().call_soon(self._take, source)

    def _take(self, source: Source) -> None:
        self._planned = False
        taken = source.take()
        if taken is None:
            return
        records, done = taken
        if self.refusal:
            done(self.refusal)
        elif records:
            self.written.append([(key, value) for _, key, value, _ in records])
            self.done.append(done)
        elif len(self.done) > self.durable:  # as a state writer does: with what is in flight
            self.done[-1] = _both(self.done[-1], done)
        else:
            done(ErrorCode.NONE)

    def settle(self, code: ErrorCode = ErrorCode.NONE) -> None:
        """The oldest write that is in flight is durable, or has failed."""
        self.durable += 1
        self.done[self.durable - 1](code)

    def ack(self) -> asyncio.Future[None]:
        """Something changed, and somebody waits for it."""
        self.one.changed = True
        return self.writer.wait()


def play(scenario: Callable[[Stage], Awaitable[None]]) -> None:
    async def main() -> None:
        await scenario(Stage())

    asyncio.run(asyncio.wait_for(main(), 60))


async def turn() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def code_of(waiter: asyncio.Future[None]) -> ErrorCode:
    error = waiter.exception()
    assert isinstance(error, BrokerError)
    return error.code


def test_what_changes_in_one_turn_is_one_write() -> None:
    async def scenario(stage: Stage) -> None:
        first, second = stage.ack(), stage.ack()
        assert stage.written == []
        await turn()
        assert stage.written == [[(b"one", b"delta")]]
        assert not first.done()
        stage.settle()
        assert first.done() and second.done()

    play(scenario)


def test_a_write_does_not_wait_for_the_one_before_it() -> None:
    async def scenario(stage: Stage) -> None:
        first = stage.ack()
        await turn()
        later = [stage.ack() for _ in range(5)]
        await turn()
        assert len(stage.written) == 2
        stage.settle()
        assert first.done() and not any(each.done() for each in later)
        stage.settle()
        assert all(each.done() for each in later)

    play(scenario)


def test_who_changes_nothing_waits_for_the_write_under_way() -> None:
    async def scenario(stage: Stage) -> None:
        idle = stage.writer.wait()
        await turn()
        assert idle.done() and stage.written == []
        stage.ack()
        await turn()
        again = stage.writer.wait()  # the same acknowledgement, sent twice
        await turn()
        assert not again.done()
        stage.settle()
        await turn()
        assert again.done() and len(stage.written) == 1

    play(scenario)


def test_after_a_write_that_failed_the_next_one_tells_everything() -> None:
    async def scenario(stage: Stage) -> None:
        first = stage.ack()
        await turn()
        stage.settle(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert code_of(first) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await turn()
        assert len(stage.written) == 1  # nobody waits
        second = stage.writer.wait()
        await turn()
        assert stage.written[1] == [(b"one", b"snapshot"), (b"other", b"snapshot")]
        stage.settle()
        assert second.exception() is None
        stage.ack()
        await turn()
        assert stage.written[2] == [(b"one", b"delta")]

    play(scenario)


def test_who_waits_for_a_write_that_fails_is_told_so() -> None:
    async def scenario(stage: Stage) -> None:
        first = stage.ack()
        await turn()
        again = stage.writer.wait()  # the same acknowledgement, sent twice
        await turn()
        stage.settle(ErrorCode.NOT_COORDINATOR)
        assert code_of(first) == code_of(again) == ErrorCode.NOT_COORDINATOR
        third = stage.writer.wait()
        await turn()
        assert stage.written[1] == [(b"one", b"snapshot"), (b"other", b"snapshot")]
        stage.settle()
        assert third.exception() is None

    play(scenario)


def test_a_write_that_is_refused_is_an_error_for_who_waits() -> None:
    async def scenario(stage: Stage) -> None:
        stage.refusal = ErrorCode.COORDINATOR_NOT_AVAILABLE
        refused = stage.ack()
        await turn()
        assert code_of(refused) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        stage.refusal = ErrorCode.NONE
        again = stage.writer.wait()
        await turn()
        assert stage.written == [[(b"one", b"snapshot"), (b"other", b"snapshot")]]
        stage.settle()
        assert again.exception() is None

    play(scenario)


def test_snapshots_may_be_asked_for() -> None:
    async def scenario(stage: Stage) -> None:
        stage.writer.need_snapshots()
        await turn()
        assert stage.written == []
        stage.writer.flush_soon()
        await turn()
        assert stage.written == [[(b"one", b"snapshot"), (b"other", b"snapshot")]]

    play(scenario)


def test_who_gave_up_is_not_told() -> None:
    async def scenario(stage: Stage) -> None:
        given_up, patient = stage.ack(), stage.ack()
        await turn()
        given_up.cancel()
        stage.settle()
        assert patient.done()

    play(scenario)


def test_nothing_is_written_after_the_end() -> None:
    async def scenario(stage: Stage) -> None:
        under_way = stage.ack()
        await turn()
        waiting = stage.ack()
        stage.writer.end()
        assert code_of(waiting) == ErrorCode.RESOURCE_NOT_FOUND
        late = stage.ack()
        assert code_of(late) == ErrorCode.RESOURCE_NOT_FOUND
        stage.settle()
        assert under_way.exception() is None
        stage.writer.flush_soon()
        await turn()
        assert len(stage.written) == 1

    play(scenario)


def test_a_write_that_was_planned_does_not_come_after_the_end() -> None:
    async def scenario(stage: Stage) -> None:
        waiting = stage.ack()
        stage.writer.end()
        await turn()
        assert stage.written == []
        with pytest.raises(BrokerError, match="was deleted"):
            await waiting

    play(scenario)


def test_what_changes_is_written_also_if_nobody_waits_for_it() -> None:
    async def scenario(stage: Stage) -> None:
        first = stage.ack()
        await turn()
        stage.other.changed = True
        stage.writer.flush_soon()
        await turn()
        assert stage.written[1:] == [[(b"other", b"delta")]]
        stage.settle()
        stage.settle()
        await turn()
        assert first.done() and len(stage.written) == 2

    play(scenario)


def test_acknowledgements_of_turns_that_follow_each_other_are_one_write() -> None:
    async def scenario(stage: Stage) -> None:
        log, failures = MemoryLog(), list[BaseException]()
        state = StateWriter(
            log,
            0,
            topic="__state",
            errors=ErrorMap(codes={}, otherwise=ErrorCode.NONE, stopped=ErrorCode.NONE),
            on_failure=failures.append,
            append_bytes_max=1000,
            queued_bytes_max=1000,
        )
        partitions = cast("Sequence[SubscribedPartition]", [stage.one])
        stage.writer = CursorWriter(partitions, write_soon=state.write_soon, clock=FakeClock())
        for _ in range(4):
            stage.ack()
            await asyncio.sleep(0)
        await state.wait_idle()
        assert (log.appends, failures) == (1, [])

    play(scenario)
