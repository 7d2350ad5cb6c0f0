"""The writer of cursors, over partitions that say what changed and a log that the test answers for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

import pytest

from tailrace.broker.internal import Done
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


class Stage:
    """A writer and the writes that it began."""

    def __init__(self) -> None:
        self.one, self.other = Changing(b"one"), Changing(b"other")
        self.written: list[list[tuple[object, object]]] = []
        self.done: list[Done] = []
        self.refusal: BrokerError | None = None
        partitions = cast("Sequence[SubscribedPartition]", [self.one, self.other])
        self.writer = CursorWriter(partitions, put=self._put, clock=FakeClock())

    def _put(self, records: Sequence[NewRecord], done: Done) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.written.append([(key, value) for _, key, value, _ in records])
        self.done.append(done)

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
        stage.done[0](ErrorCode.NONE)
        assert first.done() and second.done()

    play(scenario)


def test_what_changes_during_a_write_shares_the_next_one() -> None:
    async def scenario(stage: Stage) -> None:
        first = stage.ack()
        await turn()
        later = [stage.ack() for _ in range(5)]
        await turn()
        assert len(stage.written) == 1
        stage.done[0](ErrorCode.NONE)
        await turn()
        assert first.done() and len(stage.written) == 2 and not any(each.done() for each in later)
        stage.done[1](ErrorCode.NONE)
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
        stage.done[0](ErrorCode.NONE)
        await turn()
        assert again.done() and len(stage.written) == 1

    play(scenario)


def test_after_a_write_that_failed_the_next_one_tells_everything() -> None:
    async def scenario(stage: Stage) -> None:
        first = stage.ack()
        await turn()
        stage.done[0](ErrorCode.COORDINATOR_NOT_AVAILABLE)
        assert code_of(first) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        await turn()
        assert len(stage.written) == 1  # nobody waits
        second = stage.writer.wait()
        await turn()
        assert stage.written[1] == [(b"one", b"snapshot"), (b"other", b"snapshot")]
        stage.done[1](ErrorCode.NONE)
        assert second.exception() is None
        stage.ack()
        await turn()
        assert stage.written[2] == [(b"one", b"delta")]

    play(scenario)


def test_who_waits_while_a_write_fails_is_told_by_the_next() -> None:
    async def scenario(stage: Stage) -> None:
        stage.ack().add_done_callback(lambda each: each.exception())
        await turn()
        waiting = stage.writer.wait()
        stage.done[0](ErrorCode.NOT_COORDINATOR)
        await turn()
        assert not waiting.done() and len(stage.written[1]) == 2
        stage.done[1](ErrorCode.NONE)
        assert waiting.exception() is None

    play(scenario)


def test_a_write_that_is_refused_is_an_error_for_who_waits() -> None:
    async def scenario(stage: Stage) -> None:
        stage.refusal = BrokerError("too much waits", code=ErrorCode.COORDINATOR_NOT_AVAILABLE)
        refused = stage.ack()
        await turn()
        assert code_of(refused) == ErrorCode.COORDINATOR_NOT_AVAILABLE
        stage.refusal = None
        again = stage.writer.wait()
        await turn()
        assert stage.written == [[(b"one", b"snapshot"), (b"other", b"snapshot")]]
        stage.done[0](ErrorCode.NONE)
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
        stage.done[0](ErrorCode.NONE)
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
        stage.done[0](ErrorCode.NONE)
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


def test_what_changes_during_a_write_is_written_also_if_nobody_waits_for_it() -> None:
    async def scenario(stage: Stage) -> None:
        first = stage.ack()
        await turn()
        stage.other.changed = True
        stage.writer.flush_soon()
        await turn()
        assert len(stage.written) == 1
        stage.done[0](ErrorCode.NONE)
        await turn()
        assert first.done() and stage.written[1:] == [[(b"other", b"delta")]]
        stage.done[1](ErrorCode.NONE)
        await turn()
        assert len(stage.written) == 2

    play(scenario)
