"""The writer of internal state: one batch a turn, order, bounds, and what errors become."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from tests.unit.broker.internal.memory_log import MemoryLog

from tailrace.broker.internal import Done, ErrorMap, StateWriter
from tailrace.model import BrokerError, ErrorCode, StorageError
from tailrace.records import NewRecord, read_batch

ERRORS = ErrorMap(
    codes={
        ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
        ErrorCode.MESSAGE_TOO_LARGE: ErrorCode.INVALID_COMMIT_OFFSET_SIZE,
    },
    otherwise=ErrorCode.COORDINATOR_NOT_AVAILABLE,
    stopped=ErrorCode.BROKER_NOT_AVAILABLE,
)


class Rig:
    """A writer, its log, and the outcomes in the order in which they came."""

    def __init__(self, *, append_bytes_max: int = 100_000, queued_bytes_max: int = 1_000_000) -> None:
        self.log = MemoryLog()
        self.failures: list[BaseException] = []
        self.writer = StateWriter(
            self.log,
            0,
            topic="__state",
            errors=ERRORS,
            on_failure=self.failures.append,
            append_bytes_max=append_bytes_max,
            queued_bytes_max=queued_bytes_max,
        )
        self.outcomes: list[tuple[str, ErrorCode]] = []

    def put(self, name: str, *, records: int = 1, value: bytes = b"v") -> None:
        items: list[NewRecord] = [(0, f"{name}{index}".encode(), value, ()) for index in range(records)]
        self.writer.put(items, lambda error: self.outcomes.append((name, error)))

    def appended(self) -> list[list[bytes | None]]:
        return [[record.key for record in read_batch(raw).records()] for raw in self.log.batches.get(0, [])]


def play(scenario: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        await asyncio.wait_for(scenario(), timeout=120)

    asyncio.run(bounded())


async def quiet_turns() -> None:
    """Let the loop turn as often as a lone change waits: once to look, once to sequence."""
    await asyncio.sleep(0)
    await asyncio.sleep(0)


def test_what_comes_together_shares_a_batch_that_waits_for_no_other() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.log.hold_appends()
        rig.put("a")
        await quiet_turns()
        for name in "bcd":
            rig.put(name)
        await quiet_turns()
        assert rig.appended() == [[b"a0"], [b"b0", b"c0", b"d0"]]  # although nothing is durable yet
        assert rig.outcomes == []
        rig.log.release_appends()
        await rig.writer.wait_idle()
        assert rig.outcomes == [(name, ErrorCode.NONE) for name in "abcd"]

    play(scenario)


def test_changes_that_keep_coming_share_a_batch_for_six_turns_at_most() -> None:
    async def scenario() -> None:
        rig = Rig()
        for name in "abcdefghijklmn":
            rig.put(name)
            await asyncio.sleep(0)
        await rig.writer.wait_idle()
        assert [len(keys) for keys in rig.appended()] == [7, 7]

    play(scenario)


class Counting:
    """A source that says how often it was asked."""

    def __init__(self, rig: Rig) -> None:
        self._rig = rig
        self.asked = 0

    def take(self) -> tuple[list[NewRecord], Done] | None:
        self.asked += 1
        name = f"s{self.asked}"
        return [(0, name.encode(), b"v", ())], lambda error: self._rig.outcomes.append((name, error))


def test_a_source_is_asked_once_a_turn_and_shares_the_batch() -> None:
    async def scenario() -> None:
        rig = Rig()
        source = Counting(rig)
        for _ in range(3):
            rig.writer.write_soon(source)
        rig.put("a")
        await rig.writer.wait_idle()
        assert (source.asked, rig.appended()) == (1, [[b"s1", b"a0"]])
        assert rig.outcomes == [("s1", ErrorCode.NONE), ("a", ErrorCode.NONE)]

    play(scenario)


def test_a_source_is_asked_when_there_is_room() -> None:
    async def scenario() -> None:
        rig = Rig(queued_bytes_max=1000)
        source = Counting(rig)
        rig.log.hold_appends()
        rig.put("a", value=bytes(2000))
        await rig.log.appending.wait()
        rig.writer.write_soon(source)
        await quiet_turns()
        assert source.asked == 0
        rig.log.release_appends()
        await rig.writer.wait_idle()
        assert source.asked == 1
        assert [name for name, _ in rig.outcomes] == ["a", "s1"]

    play(scenario)


def test_an_append_takes_only_so_much() -> None:
    async def scenario() -> None:
        rig = Rig(append_bytes_max=1000)
        for name in "abcde":
            rig.put(name, value=bytes(400))
        await rig.writer.wait_idle()
        assert [len(keys) for keys in rig.appended()] == [2, 2, 1]

    play(scenario)


def test_a_large_change_is_cut_and_done_when_all_of_it_is_durable() -> None:
    async def scenario() -> None:
        rig = Rig(append_bytes_max=1000)
        rig.put("a", records=5, value=bytes(400))
        rig.log.hold_appends()
        await rig.log.appending.wait()
        assert rig.outcomes == []
        rig.log.release_appends()
        await rig.writer.wait_idle()
        assert [key for keys in rig.appended() for key in keys] == [
            f"a{index}".encode() for index in range(5)
        ]
        assert len(rig.appended()) == 3
        assert rig.outcomes == [("a", ErrorCode.NONE)]

    play(scenario)


def test_a_large_change_fails_if_any_piece_of_it_does() -> None:
    async def scenario() -> None:
        rig = Rig(append_bytes_max=1000)
        rig.log.next_append_error = BrokerError("full", code=ErrorCode.KAFKA_STORAGE_ERROR)
        rig.put("a", records=5, value=bytes(400))
        await rig.writer.wait_idle()
        assert rig.log.appends == 2
        assert rig.outcomes == [("a", ErrorCode.COORDINATOR_NOT_AVAILABLE)]

    play(scenario)


def test_a_record_over_the_bound_goes_alone() -> None:
    async def scenario() -> None:
        rig = Rig(append_bytes_max=1000)
        rig.put("a", value=bytes(5000))
        rig.put("b")
        await rig.writer.wait_idle()
        assert rig.appended() == [[b"a0"], [b"b0"]]

    play(scenario)


def test_nothing_to_append_is_done_after_what_came_before() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.put("a")
        rig.put("nothing", records=0)
        await rig.writer.wait_idle()
        assert [name for name, _ in rig.outcomes] == ["a", "nothing"]
        assert rig.log.appends == 1

    play(scenario)


def test_too_much_waiting_is_refused() -> None:
    async def scenario() -> None:
        rig = Rig(queued_bytes_max=1000)
        rig.log.hold_appends()
        rig.put("a")
        await rig.log.appending.wait()
        rig.put("b", value=bytes(700))
        with pytest.raises(BrokerError) as refused:
            rig.put("c", value=bytes(700))
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.log.release_appends()
        await rig.writer.wait_idle()
        rig.put("c", value=bytes(700))  # there is room again
        await rig.writer.wait_idle()
        assert [name for name, _ in rig.outcomes] == ["a", "b", "c"]

    play(scenario)


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (BrokerError("x", code=ErrorCode.NOT_LEADER_OR_FOLLOWER), ErrorCode.NOT_COORDINATOR),
        (BrokerError("x", code=ErrorCode.MESSAGE_TOO_LARGE), ErrorCode.INVALID_COMMIT_OFFSET_SIZE),
        (BrokerError("x", code=ErrorCode.KAFKA_STORAGE_ERROR), ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (StorageError("fsync", "/d", "broken"), ErrorCode.COORDINATOR_NOT_AVAILABLE),
    ],
)
def test_what_an_error_of_the_log_becomes(error: Exception, answer: ErrorCode) -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.log.append_error = error
        rig.put("a")
        await rig.writer.wait_idle()
        assert rig.outcomes == [("a", answer)]
        rig.log.append_error = None
        rig.put("b")
        await rig.writer.wait_idle()
        assert rig.outcomes[-1] == ("b", ErrorCode.NONE)
        assert rig.failures == []

    play(scenario)


def test_a_batch_that_never_becomes_durable_is_an_error_for_its_changes() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.log.hold_appends()
        rig.put("a")
        await quiet_turns()
        rig.put("b")
        await quiet_turns()
        rig.log.fail_appends(StorageError("fsync", "/d", "broken"))
        await rig.writer.wait_idle()
        assert rig.outcomes == [("a", ERRORS.otherwise), ("b", ERRORS.otherwise)]

    play(scenario)


def test_a_bug_in_the_log_is_reported_and_every_change_is_answered() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.log.append_error = ZeroDivisionError()
        rig.put("a")
        await rig.writer.wait_idle()
        assert [type(error) for error in rig.failures] == [ZeroDivisionError]
        assert rig.outcomes == [("a", ErrorCode.UNKNOWN_SERVER_ERROR)]

    play(scenario)


def test_a_bug_of_the_owner_is_reported_and_the_others_are_answered() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.writer.put([(0, b"k", b"v", ())], lambda _: 1 / 0)  # type: ignore[arg-type]
        rig.put("a")
        await rig.writer.wait_idle()
        assert [type(error) for error in rig.failures] == [ZeroDivisionError]
        assert rig.outcomes == [("a", ErrorCode.NONE)]

    play(scenario)


def test_a_writer_that_is_closed_answers_every_change_once() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.log.hold_appends()
        rig.put("a")
        await rig.log.appending.wait()
        rig.put("b")
        rig.writer.close()
        assert rig.outcomes == [("a", ERRORS.stopped), ("b", ERRORS.stopped)]
        rig.log.release_appends()
        await rig.writer.wait_idle()
        assert len(rig.outcomes) == 2

    play(scenario)


def transactional(rig: Rig, name: str, *, value: bytes = b"v") -> int:
    return rig.writer.sequence_transactional(
        [(0, name.encode(), value, ())],
        lambda error: rig.outcomes.append((name, error)),
        producer_id=7,
        producer_epoch=1,
    )


def test_a_batch_of_a_transaction_is_sequenced_at_once_behind_what_is_gathered() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.put("a")
        assert transactional(rig, "tx") == 2
        rig.put("b")
        assert rig.appended() == [[b"a0"], [b"tx"]]
        await rig.writer.wait_idle()
        assert rig.appended() == [[b"a0"], [b"tx"], [b"b0"]]
        assert rig.outcomes == [(name, ErrorCode.NONE) for name in ("a", "tx", "b")]

    play(scenario)


def test_a_batch_of_a_transaction_is_refused_and_not_queued_where_too_much_waits() -> None:
    async def scenario() -> None:
        rig = Rig(queued_bytes_max=300)
        rig.log.hold_appends()
        rig.put("a", value=bytes(200))
        await quiet_turns()
        with pytest.raises(BrokerError) as refused:
            transactional(rig, "tx", value=bytes(200))
        assert refused.value.code is ErrorCode.COORDINATOR_NOT_AVAILABLE
        rig.log.release_appends()
        await rig.writer.wait_idle()
        assert transactional(rig, "tx", value=bytes(200)) == 2
        await rig.writer.wait_idle()
        assert rig.outcomes == [("a", ErrorCode.NONE), ("tx", ErrorCode.NONE)]

    play(scenario)


def test_an_error_of_the_log_is_raised_to_the_one_that_sequences() -> None:
    async def scenario() -> None:
        rig = Rig()
        rig.log.next_append_error = BrokerError("gone", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)
        with pytest.raises(BrokerError) as refused:
            transactional(rig, "tx")
        assert refused.value.code is ErrorCode.NOT_COORDINATOR
        assert rig.outcomes == [] and rig.appended() == []

    play(scenario)


def test_a_change_hears_where_it_is_in_the_log_before_it_is_durable() -> None:
    async def scenario() -> None:
        rig = Rig(append_bytes_max=150)
        places: list[int] = []
        rig.log.hold_appends()
        rig.put("a")
        rig.writer.put([(0, b"k", bytes(60), ())] * 3, lambda _: None, places.append)
        await quiet_turns()
        assert places[-1] == rig.log.end_offset(0) == 4
        assert rig.outcomes == []
        rig.log.release_appends()

    play(scenario)
