"""The coordinator performs what the machine decides: the order in the journal, refusals, time, crashes."""

from __future__ import annotations

import asyncio

import pytest
from tests.unit.broker.transactions.scene import BUSY, OFFSETS, T0, T1, U0, Scene, play

from tailrace.broker.transactions import Identity, Situation, TransactionConfig, TransactionRefused
from tailrace.broker.transactions.machine import BUMPING_VERSION
from tailrace.model import BrokerError, ErrorCode, ProtocolError

_DAY_MS = 24 * 3600 * 1000


async def refused(work: object) -> Situation:
    with pytest.raises(TransactionRefused) as caught:
        await work  # type: ignore[misc]
    return caught.value.situation


def test_a_commit_is_prepared_marked_and_complete_in_this_order() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, U0)
        assert await scene.coordinator.end("x", identity, commit=True) == identity
        assert scene.written() == [
            "state Empty",
            "state Ongoing",
            "t-0 batch 100/0",
            "u-0 batch 100/0",
            "state PrepareCommit",
            "t-0 commit 100/0",
            "u-0 commit 100/0",
            "state CompleteCommit",
        ]

    play(scenario)


def test_a_client_of_version_2_gets_the_next_epoch_and_markers_carry_it() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0)
        following = await scene.coordinator.end("x", identity, commit=False, client_version=BUMPING_VERSION)
        assert following == (100, 1)
        assert scene.written()[-3:] == ["state PrepareAbort", "t-0 abort 100/1", "state CompleteAbort"]

    play(scenario)


def test_a_partition_without_records_of_the_transaction_gets_no_marker() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.coordinator.init("x", timeout_ms=1000)
        await scene.coordinator.add("x", identity, [T0, T1])
        scene.places[T1].write(identity)
        await scene.coordinator.end("x", identity, commit=True)
        assert [line for line in scene.written() if "commit" in line] == ["t-1 commit 100/0"]

    play(scenario)


def test_groups_hear_of_the_end_with_the_marker() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, OFFSETS)
        await scene.coordinator.end("x", identity, commit=True)
        assert scene.groups.ended == [(3, 100, True)]

    play(scenario)


def test_an_answer_waits_until_it_is_durable() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0)
        scene.log.held = []
        ending = asyncio.ensure_future(scene.coordinator.end("x", identity, commit=True))
        again = asyncio.ensure_future(scene.coordinator.end("x", identity, commit=True))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert scene.written()[-1] == "state CompleteCommit" and scene.state() == "CompleteCommit"
        assert not ending.done() and not again.done()
        for waiter in scene.log.held:
            waiter.set_result(None)
        assert await ending == await again == identity
        assert scene.written().count("state PrepareCommit") == 1

    play(scenario)


def test_an_answer_that_never_becomes_durable_is_given_up() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.coordinator.init("x", timeout_ms=1000)
        scene.log.held = []
        assert await refused(scene.coordinator.add("x", identity, [T0])) is Situation.LOG_REFUSES

    play(scenario, TransactionConfig(commit_timeout_ms=1))


def test_a_refused_record_changes_nothing() -> None:
    async def scenario(scene: Scene) -> None:
        scene.log.refusals = [BUSY]
        assert await refused(scene.coordinator.init("x", timeout_ms=1000)) is Situation.LOG_REFUSES
        with pytest.raises(BrokerError) as unknown:
            scene.coordinator.describe("x")
        assert unknown.value.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND
        identity = await scene.begin("x", T0)
        for work in (
            scene.coordinator.add("x", identity, [T1]),
            scene.coordinator.end("x", identity, commit=True),
            scene.coordinator.init("x", timeout_ms=1000),
        ):
            before = scene.written()
            scene.log.refusals = [BUSY]
            assert await refused(work) is Situation.LOG_REFUSES
            assert scene.written() == before and scene.state() == "Ongoing"
        scene.log.refusals = [BrokerError("moved", code=ErrorCode.NOT_LEADER_OR_FOLLOWER)]
        assert await refused(scene.coordinator.add("x", identity, [T1])) is Situation.NOT_COORDINATOR

    play(scenario)


def test_a_refused_marker_is_written_later_and_the_next_transaction_waits() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, T1)
        scene.places[T0].refusals = [BUSY]
        assert await scene.coordinator.end("x", identity, commit=True) == identity
        assert scene.state() == "PrepareCommit" and scene.written()[-1] == "t-1 commit 100/0"
        assert await refused(scene.coordinator.add("x", identity, [T0])) is Situation.NOT_COMPLETE
        assert await refused(scene.coordinator.init("x", timeout_ms=1000)) is Situation.NOT_COMPLETE
        assert await scene.coordinator.end("x", identity, commit=True) == identity
        scene.advance(scene.coordinator.config.retry_ms)
        assert scene.written()[-2:] == ["t-0 commit 100/0", "state CompleteCommit"]
        await scene.coordinator.add("x", identity, [T0])

    play(scenario)


def test_a_marker_that_stays_refused_is_tried_less_and_less_often_and_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, T1)
        fenced = BrokerError("epoch 9", code=ErrorCode.TRANSACTION_COORDINATOR_FENCED)
        attempts = 12
        scene.places[T0].refusals = [fenced] * attempts
        assert await scene.coordinator.end("x", identity, commit=True) == identity
        waited_ms = []
        for left in range(attempts - 1, 0, -1):
            waited_ms.append(0)
            while len(scene.places[T0].refusals) == left:
                waited_ms[-1] += 500
                scene.advance(500)
        assert waited_ms == [500, 1000, 2000, 4000] + [5000] * 7
        lines = [each for each in caplog.records if each.levelname != "DEBUG"]
        assert len(lines) == 1 and "Restart the broker" in lines[0].getMessage()
        assert scene.state() == "PrepareCommit"
        scene.advance(5000)
        assert scene.written()[-2:] == ["t-0 commit 100/0", "state CompleteCommit"]

        await scene.write("x", identity, T0)  # the pauses of the next transaction are short again
        scene.places[T0].refusals = [BUSY]
        await scene.coordinator.end("x", identity, commit=True)
        scene.advance(500)
        assert scene.state() == "CompleteCommit"

    play(scenario)


def test_a_marker_that_is_fenced_is_not_needed_where_nothing_is_open() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.coordinator.init("x", timeout_ms=1000)
        await scene.coordinator.add("x", identity, [T0])
        scene.places[T0].refusals = [BrokerError("9", code=ErrorCode.TRANSACTION_COORDINATOR_FENCED)]
        await scene.coordinator.end("x", identity, commit=True)
        assert scene.state() == "CompleteCommit"

    play(scenario)


def test_a_refused_complete_is_written_later() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0)
        scene.log.refusals = [None, BUSY]
        assert await scene.coordinator.end("x", identity, commit=False) == identity
        assert scene.state() == "PrepareAbort"
        scene.advance(scene.coordinator.config.retry_ms)
        assert scene.written()[-2:] == ["t-0 abort 100/0", "state CompleteAbort"]

    play(scenario)


def test_init_aborts_what_was_left_open_in_one_turn() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.begin("x", T0)
        assert await scene.coordinator.init("x", timeout_ms=1000) == (100, 2)
        assert scene.written()[-4:] == [
            "state PrepareAbort",
            "t-0 abort 100/1",
            "state CompleteAbort",
            "state Empty",
        ]

    play(scenario)


def test_init_is_refused_while_that_abort_cannot_be_written() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.begin("x", T0)
        scene.places[T0].refusals = [BUSY]
        assert await refused(scene.coordinator.init("x", timeout_ms=1000)) is Situation.NOT_COMPLETE
        scene.advance(scene.coordinator.config.retry_ms)
        assert await scene.coordinator.init("x", timeout_ms=1000) == (100, 2)

    play(scenario)


def test_a_topic_that_is_deleted_needs_no_marker() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, U0)
        del scene.places[T0]
        await scene.coordinator.end("x", identity, commit=True)
        assert scene.written()[-2:] == ["u-0 commit 100/0", "state CompleteCommit"]

    play(scenario)


# ---- time


def test_a_transaction_that_takes_too_long_is_aborted_and_fenced() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, timeout_ms=5000)
        scene.advance(4999)
        assert scene.state() == "Ongoing"
        scene.advance(1)
        assert scene.written()[-3:] == ["state PrepareAbort", "t-0 abort 100/1", "state CompleteAbort"]
        assert await refused(scene.coordinator.add("x", identity, [T0])) is Situation.TIMED_OUT
        assert await scene.coordinator.init("x", timeout_ms=5000, expected=identity) == (100, 1)

    play(scenario)


def test_a_timeout_that_cannot_be_stored_is_tried_again() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.begin("x", T0, timeout_ms=5000)
        scene.log.refusals = [BUSY]
        scene.advance(5000)
        assert scene.state() == "Ongoing"
        scene.advance(scene.coordinator.config.retry_ms)
        assert scene.state() == "CompleteAbort"

    play(scenario)


def test_the_time_runs_anew_for_every_transaction_and_after_a_start() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, timeout_ms=5000)
        scene.advance(4000)
        await scene.coordinator.end("x", identity, commit=True)
        await scene.write("x", identity, T0)
        scene.advance(4000)
        assert scene.state() == "Ongoing"
        await scene.crash()
        scene.advance(4999)
        assert scene.state() == "Ongoing"
        scene.advance(1)
        assert scene.state() == "CompleteAbort"

    play(scenario)


@pytest.mark.parametrize("timeout_ms", [0, -1, 900_001])
def test_a_timeout_out_of_bounds_is_refused(timeout_ms: int) -> None:
    async def scenario(scene: Scene) -> None:
        with pytest.raises(BrokerError) as bad:
            await scene.coordinator.init("x", timeout_ms=timeout_ms)
        assert bad.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    play(scenario)


@pytest.mark.parametrize("name", ["", "x" * 32_001])
def test_a_name_out_of_bounds_is_refused(name: str) -> None:
    async def scenario(scene: Scene) -> None:
        with pytest.raises(BrokerError) as bad:
            await scene.coordinator.init(name, timeout_ms=1000)
        assert bad.value.code is ErrorCode.INVALID_REQUEST

    play(scenario)


def test_the_number_of_ids_is_bounded() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.coordinator.init("x", timeout_ms=1000)
        with pytest.raises(BrokerError) as full:
            await scene.coordinator.init("y", timeout_ms=1000)
        assert full.value.code is ErrorCode.POLICY_VIOLATION
        await scene.coordinator.init("x", timeout_ms=1000)

    play(scenario, TransactionConfig(ids_max=1))


def test_an_id_that_is_not_used_expires_and_one_that_is_open_does_not() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("idle", T0)
        await scene.coordinator.end("idle", identity, commit=True)
        scene.advance(6 * _DAY_MS)
        await scene.begin("busy", T1, timeout_ms=900_000)
        scene.advance(_DAY_MS - 1)
        assert scene.state("idle") == "CompleteCommit"
        scene.advance(3_600_000)
        assert scene.newest() == {"idle": "tombstone", "busy": "CompleteAbort"}
        assert await refused(scene.coordinator.add("idle", identity, [T0])) is Situation.OTHER_ID
        await scene.crash()
        assert [each.transactional_id for each in scene.coordinator.list()] == ["busy"]

    play(scenario)


def test_an_administrator_aborts_what_is_open() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0)
        await scene.coordinator.abort("x")
        assert scene.written()[-2:] == ["t-0 abort 100/1", "state CompleteAbort"]
        assert await refused(scene.coordinator.add("x", identity, [T0])) is Situation.TIMED_OUT
        assert await refused(scene.coordinator.abort("x")) is Situation.WRONG_STATE
        assert await refused(scene.coordinator.abort("y")) is Situation.WRONG_STATE

    play(scenario)


# ---- epochs


def test_an_id_whose_epochs_are_exhausted_goes_on_with_another_producer_id() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.coordinator.init("x", timeout_ms=60_000)
        while identity.epoch < 32_766:
            identity = await scene.coordinator.init("x", timeout_ms=60_000)
        assert identity == (100, 32_766)
        await scene.write("x", identity, T0)
        following = await scene.coordinator.end("x", identity, commit=True, client_version=2)
        assert following == (101, 0) and "t-0 commit 100/32767" in scene.written()
        assert await scene.coordinator.end("x", identity, commit=True, client_version=2) == (101, 0)
        assert await refused(scene.coordinator.add("x", identity, [T0])) is Situation.OTHER_ID
        await scene.write("x", following, T0)
        await scene.crash()
        assert await scene.coordinator.end("x", following, commit=True, client_version=2) == (101, 1)

    play(scenario)


def test_a_roll_waits_until_a_producer_id_is_there() -> None:
    async def scenario(scene: Scene) -> None:
        scene.ids.dry = True
        assert await refused(scene.coordinator.init("x", timeout_ms=1000)) is Situation.LOG_REFUSES
        scene.ids.dry = False
        assert await scene.coordinator.init("x", timeout_ms=1000) == (100, 0)

    play(scenario)


# ---- crashes


@pytest.mark.parametrize("commit", [True, False])
@pytest.mark.parametrize("version", [0, 2])
def test_every_prefix_that_a_crash_leaves_is_brought_to_its_end(commit: bool, version: int) -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, OFFSETS)
        await scene.coordinator.end("x", identity, commit=commit, client_version=version)
        whole = list(scene.journal)
        prepared = [put.what.startswith("Prepare") for put in whole].index(True)
        for keep in range(len(whole) + 1):
            scene.journal[:] = whole
            scene.groups.ended.clear()
            await scene.crash(keep=keep)
            if keep <= prepared:  # not decided: it waits for the producer, or for its time
                assert scene.written() == [f"{put.place} {put.what}" for put in whole[:keep]]
                scene.advance(60_000)
                assert "commit" not in "".join(scene.written())
            else:
                assert scene.written() == [f"{put.place} {put.what}" for put in whole]
                again = await scene.coordinator.end("x", identity, commit=commit, client_version=version)
                assert again == (100, 1 if version == 2 else 0)
                if keep < len(whole):
                    assert scene.groups.ended == [(OFFSETS.partition, 100, commit)]
            assert not any(place.open for place in scene.places.values())
            assert set(scene.newest().values()) <= {"Empty", "CompleteCommit", "CompleteAbort"}

    play(scenario)


def test_nothing_is_answered_before_every_prepare_is_resumed() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, OFFSETS)
        await scene.coordinator.end("x", identity, commit=True)
        scene.groups.loaded.clear()
        await scene.crash(keep=5, wait=False)
        for _ in range(50):
            await asyncio.sleep(0)
        for work in (
            scene.coordinator.init("y", timeout_ms=1000),
            scene.coordinator.end("x", identity, commit=True),
            scene.coordinator.add("x", identity, [T0]),
        ):
            assert await refused(work) is Situation.LOADING
        with pytest.raises(TransactionRefused):
            scene.coordinator.list()
        assert scene.written()[-1] == "state PrepareCommit"
        scene.groups.loaded.set()
        await scene.coordinator.wait_loaded()
        assert scene.written()[-1] == "state CompleteCommit"

    play(scenario)


# ---- verification and the connection fence


def test_a_write_is_verified_or_adds_its_partition() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0)
        scene.coordinator.verifier.verify("x", identity, T0, client_version=0)
        with pytest.raises(TransactionRefused) as bad:
            scene.coordinator.verifier.verify("x", identity, T1, client_version=0)
        assert bad.value.situation is Situation.NOT_IN_TRANSACTION
        scene.coordinator.verifier.verify("x", identity, T1, client_version=2)
        scene.coordinator.verifier.verify("x", identity, T1, client_version=2)
        assert scene.coordinator.describe("x").partitions == (T0, T1)
        assert scene.written().count("state Ongoing") == 2

    play(scenario)


def test_an_older_connection_is_fenced_for_its_id_and_coordinator() -> None:
    async def scenario(scene: Scene) -> None:
        await scene.begin("x", T0)
        await scene.begin("y", T1)
        check = scene.coordinator.check_connection
        check("x", 7, is_group=False)
        check("x", 7, is_group=False)
        check("x", 9, is_group=False)
        with pytest.raises(ProtocolError):
            check("x", 7, is_group=False)
        check("x", 7, is_group=True)
        check("y", 7, is_group=False)
        check("unknown", 1, is_group=False)

    play(scenario)


def test_a_description_tells_what_is_open() -> None:
    async def scenario(scene: Scene) -> None:
        started_ms = scene.clock.steady_ms()
        identity = await scene.begin("x", T1, T0)
        scene.advance(250)
        found = scene.coordinator.describe("x")
        assert (found.producer_id, found.epoch) == identity and found.timeout_ms == 60_000
        assert found.partitions == (T0, T1) and (found.started_ms, found.open_ms) == (started_ms, 250)
        assert scene.coordinator.open_count == 1
        await scene.crash()
        assert scene.coordinator.open_count == 1
        await scene.coordinator.end("x", identity, commit=True)
        (found,) = scene.coordinator.list()
        assert found.partitions == () and (found.started_ms, found.open_ms) == (-1, -1)
        assert scene.coordinator.open_count == 0

    play(scenario)


def test_a_transaction_with_two_phase_commit_waits_for_its_end_however_long() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.coordinator.init("x", timeout_ms=1000, two_phase=True)
        await scene.write("x", identity, T0)
        scene.advance(30 * _DAY_MS)
        assert scene.state() == "Ongoing"
        await scene.crash()
        scene.advance(30 * _DAY_MS)
        assert scene.state() == "Ongoing"
        assert await refused(scene.coordinator.init("x", timeout_ms=1000)) is Situation.NOT_COMPLETE
        assert scene.state() == "Ongoing"
        await scene.coordinator.end("x", identity, commit=True)
        assert scene.state() == "CompleteCommit"

    play(scenario)


def test_no_ordinary_timeout_is_taken_for_two_phase_commit() -> None:
    async def scenario(scene: Scene) -> None:
        with pytest.raises(BrokerError) as too_long:
            await scene.coordinator.init("x", timeout_ms=2**31 - 1)
        assert too_long.value.code is ErrorCode.INVALID_TRANSACTION_TIMEOUT

    play(scenario, TransactionConfig(timeout_ms_max=2**31 - 1))


def test_an_administrator_aborts_a_transaction_with_two_phase_commit() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.coordinator.init("x", timeout_ms=1000, two_phase=True)
        await scene.write("x", identity, T0)
        await scene.coordinator.abort("x")
        assert scene.state() == "CompleteAbort"
        assert await refused(scene.coordinator.end("x", identity, commit=True)) is Situation.TIMED_OUT

    play(scenario)


def test_a_transaction_that_is_prepared_has_no_timeout_any_more() -> None:
    async def scenario(scene: Scene) -> None:
        identity = await scene.begin("x", T0, timeout_ms=1000)
        await scene.coordinator.prepare("x", identity)
        written = scene.written()
        await scene.coordinator.prepare("x", identity)
        assert scene.written() == written  # said again
        scene.advance(30 * _DAY_MS)
        assert scene.state() == "Ongoing"
        await scene.crash()
        scene.advance(30 * _DAY_MS)
        assert await refused(scene.coordinator.init("x", timeout_ms=1000)) is Situation.NOT_COMPLETE
        await scene.coordinator.end("x", identity, commit=True)
        assert scene.written()[-2:] == ["t-0 commit 100/0", "state CompleteCommit"]

    play(scenario)


def test_only_the_open_transaction_of_its_producer_is_prepared() -> None:
    async def scenario(scene: Scene) -> None:
        assert await refused(scene.coordinator.prepare("x", Identity(100, 0))) is Situation.OTHER_ID
        identity = await scene.coordinator.init("x", timeout_ms=1000)
        assert await refused(scene.coordinator.prepare("x", identity)) is Situation.WRONG_STATE
        await scene.write("x", identity, T0)
        stranger = Identity(identity.producer_id, identity.epoch + 1)
        assert await refused(scene.coordinator.prepare("x", stranger)) is Situation.FENCED
        await scene.coordinator.end("x", identity, commit=True)
        assert await refused(scene.coordinator.prepare("x", identity)) is Situation.WRONG_STATE

    play(scenario)
