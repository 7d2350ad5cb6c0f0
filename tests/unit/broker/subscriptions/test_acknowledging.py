"""Acknowledgements of transactions: pending, committed, aborted, over seeks, deletions and restarts."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.broker.subscriptions import Start, Subscription
from tailrace.broker.subscriptions.cursor_writer import CursorWriter
from tailrace.broker.subscriptions.loading import load_cursors
from tailrace.broker.subscriptions.machine import State
from tailrace.broker.subscriptions.stored import CURSORS_TOPIC
from tailrace.broker.transactions import Identity
from tailrace.broker.transactions.acknowledging import Acknowledgement, commit
from tailrace.model import BrokerError, ErrorCode, Offset, TopicPartition
from tailrace.records import build_batch, read_batch

from .rig import TOPIC, Inbox, Rig, killed_copy, play, play_lives

OUT = "shipments"
FULL = BrokerError("the disk is full", code=ErrorCode.KAFKA_STORAGE_ERROR)


async def begin(rig: Rig, name: str = "worker") -> Identity:
    """A producer of this transactional id."""
    await rig.broker.transactions.wait_loaded()
    return await rig.broker.transactions.init(name, timeout_ms=60_000)


def write(rig: Rig, identity: Identity, value: bytes = b"v", *, name: str = "worker") -> None:
    """One record into the output topic, in the transaction of the producer."""
    data = build_batch(
        [(0, None, value, ())],
        producer_id=identity.producer_id,
        producer_epoch=identity.epoch,
        base_sequence=0,
        transactional=True,
    )
    place = rig.partition(topic=OUT)
    rig.broker.transactions.verifier.append(name, place, read_batch(data), client_version=2)


def acks(inbox: Inbox, *offsets: int, epoch: int = 0, partition: int = 0) -> Acknowledgement:
    member = inbox.joined()
    ranges = [(offset, offset + 1) for offset in offsets]
    return Acknowledgement(member._subscription, [member], "", partition, epoch, ranges)


async def end(rig: Rig, identity: Identity, *given: Acknowledgement, name: str = "worker") -> Identity:
    return await commit(rig.broker.transactions, rig.broker.subscriptions, name, identity, given)


def pend(rig: Rig, identity: Identity, given: Acknowledgement, *, name: str = "worker") -> None:
    """What a commit does before it is decided."""
    subscriptions = rig.broker.subscriptions
    home = subscriptions.home_of(given.subscription.config.name)
    rig.broker.transactions.add_nowait(name, identity, [home], client_version=2)
    locked = given.subscription.find_locked(*given[1:])
    assert locked is not None
    subscriptions.pend([locked], producer_id=identity.producer_id, producer_epoch=identity.epoch)


def states(subscription: Subscription, count: int) -> list[State]:
    machine = subscription.partitions[0].machine
    return [machine.state_of(offset) for offset in range(count)]


async def delivered(rig: Rig, count: int, **settings: str) -> tuple[Subscription, Inbox]:
    """A subscription whose messages are all with one member."""
    await rig.topic()
    await rig.topic(OUT)
    work = await rig.subscribe(**settings)
    ann = rig.join(work)
    await rig.publish(*[b"%d" % number for number in range(count)])
    await rig.wait_until(lambda: ann.has(count))
    return work, ann


async def cursor_record(rig: Rig) -> None:
    """Return when what changed in the cursors is durable."""
    for subscription in rig.broker.subscriptions:
        assert subscription.writer is not None
        await subscription.writer.wait()


async def stored_acks(rig: Rig) -> tuple[int, int]:
    """How many records of acknowledgements the log has: of open transactions or without a subscription, and
    of those that committed."""
    topic = rig.broker.topics.get(CURSORS_TOPIC)
    assert topic is not None
    log = rig.broker.subscriptions._log
    loaded = [await load_cursors(log, index) for index in range(len(topic.partitions))]
    committed = [keys for each in loaded for keys in each.committed.values()]
    return sum(len(each.undecided) + len(each.orphan_acks) for each in loaded), sum(map(len, committed))


# ---- one life


def test_a_commit_makes_its_messages_done_and_shows_what_was_written() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await delivered(rig, 3)
        identity = await begin(rig)
        write(rig, identity)
        await end(rig, identity, acks(ann, 0, 2))
        assert states(work, 3) == [State.DONE, State.IN_FLIGHT, State.DONE]
        assert work.counters.acknowledged == 2
        assert rig.partition(topic=OUT).last_stable_offset == 2
        assert ann.joined().held == 1
        await rig.publish(b"next")
        await rig.wait_until(lambda: ann.has(4))

    play(scenario)


def test_what_is_pending_is_with_nobody_and_not_delivered() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await delivered(rig, 2, ack_timeout_ms="50")
        pend(rig, await begin(rig), acks(ann, 0))
        assert states(work, 2) == [State.PENDING, State.IN_FLIGHT]
        assert ann.joined().held == 1
        assert await ann.ack(0) == 0 and ann.nack(0) == 0 and ann.extend(0, extend_ms=9) == 0
        bob = rig.join(work, "bob")
        ann.joined().leave()
        await rig.advance(10_000)
        assert bob.offsets == [1]
        assert states(work, 1) == [State.PENDING]

    play(scenario)


def test_an_abort_gives_the_messages_back_without_a_failure() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await delivered(rig, 2)
        ann.take()
        identity = await begin(rig)
        write(rig, identity)
        pend(rig, identity, acks(ann, 0, 1))
        await rig.broker.transactions.end("worker", identity, commit=False, client_version=2)
        await rig.wait_until(lambda: ann.has(2))
        assert ann.take() == [(0, 1), (1, 1)]
        assert work.partitions[0].machine.failures == {}

    play(scenario)


def test_an_abort_without_members_leaves_the_messages_for_the_next_one() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await delivered(rig, 2)
        identity = await begin(rig)
        pend(rig, identity, acks(ann, 0, 1))
        ann.joined().leave(failed=False)
        await rig.broker.transactions.end("worker", identity, commit=False, client_version=2)
        bob = rig.join(work, "bob")
        await rig.wait_until(lambda: bob.has(2))
        assert bob.take() == [(0, 1), (1, 1)]

    play(scenario)


def test_the_next_message_of_a_key_waits_for_the_end_of_the_transaction() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.topic()
        work = await rig.subscribe(mode="key_shared")
        ann = rig.join(work)
        await rig.publish_keys((b"k", b"0"), (b"k", b"1"))
        await rig.wait_until(lambda: ann.has(1))
        identity = await begin(rig)
        pend(rig, identity, acks(ann, 0))
        await rig.turns()
        assert ann.offsets == [0]
        await rig.broker.transactions.end("worker", identity, commit=True, client_version=2)
        await rig.wait_until(lambda: ann.has(2))
        assert ann.offsets == [0, 1]

    play(scenario)


def test_a_message_that_another_session_has_costs_the_whole_transaction() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await delivered(rig, 2, ack_timeout_ms="50")
        identity = await begin(rig)
        write(rig, identity)
        bob = rig.join(work, "bob")
        await rig.advance(50)
        await rig.advance(1_000)  # the back-off
        await rig.wait_until(lambda: len(ann.got) + len(bob.got) == 4)
        newest = {each.record.offset: box for box in (ann, bob) for each in box.got if each.count == 2}
        loser = ann if newest[0] is bob else bob
        with pytest.raises(BrokerError, match=r"in subscription work \(orders-0, offsets 0 to 0") as error:
            await end(rig, identity, acks(loser, 0))
        assert error.value.code == ErrorCode.TRANSACTION_ABORTABLE
        assert rig.broker.transactions.describe("worker").state.label == "CompleteAbort"
        assert rig.partition(topic=OUT).last_stable_offset == 2
        assert rig.partition(topic=OUT).aborted(Offset(0), Offset(2))

    play(scenario)


@pytest.mark.parametrize("given", ["gone", "not delivered", "another epoch", "at most once", "done"])
def test_what_is_not_locked_is_not_acknowledged(given: str) -> None:
    async def scenario(rig: Rig) -> None:
        settings = {"delivery": "at_most_once"} if given == "at most once" else {}
        work, ann = await delivered(rig, 2, **settings)
        if given == "done":
            await ann.ack(0)
        if given == "gone":
            ann.joined().leave()
        wanted = acks(ann, 5) if given == "not delivered" else acks(ann, 0, epoch=given == "another epoch")
        identity = await begin(rig)
        write(rig, identity)
        with pytest.raises(BrokerError) as error:
            await end(rig, identity, acks(ann, 1), wanted)
        assert error.value.code == ErrorCode.TRANSACTION_ABORTABLE
        assert State.PENDING not in states(work, 2)

    play(scenario)


def test_a_wide_range_costs_no_more_than_what_is_delivered() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await delivered(rig, 2)
        wide = acks(ann, 0)._replace(ranges=[(0, 1 << 60)])
        assert work.find_locked(*wide[1:]) is None

    play(scenario)


def test_a_commit_that_is_said_again_gets_the_same_answer() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await delivered(rig, 1)
        identity = await begin(rig)
        write(rig, identity)
        following = await end(rig, identity, acks(ann, 0))
        assert await end(rig, identity, acks(ann, 0)) == following
        assert work.counters.acknowledged == 1

    play(scenario)


def test_a_zombie_does_not_end_the_transaction_of_its_successor() -> None:
    async def scenario(rig: Rig) -> None:
        _, ann = await delivered(rig, 1)
        zombie = await begin(rig)
        write(rig, await begin(rig))
        with pytest.raises(BrokerError) as error:
            await end(rig, zombie, acks(ann, 7))
        assert error.value.code == ErrorCode.PRODUCER_FENCED
        assert rig.broker.transactions.describe("worker").state.label == "Ongoing"

    play(scenario)


def test_a_seek_makes_the_acknowledgement_void() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await delivered(rig, 3)
        identity = await begin(rig)
        pend(rig, identity, acks(ann, 0, 1, 2))
        await work.seek(Start.parse("earliest"))
        await rig.broker.transactions.end("worker", identity, commit=True, client_version=2)
        await rig.wait_until(lambda: ann.has(6))
        assert work.partitions[0].machine.cursor.position == 0
        assert await ann.ack(0, 1, 2, epoch=1) == 3
        await cursor_record(rig)
        assert await stored_acks(rig) == (0, 0)

    play(scenario)


def test_the_record_of_a_commit_is_there_until_the_cursor_holds_the_same() -> None:
    async def scenario(rig: Rig) -> None:
        _, ann = await delivered(rig, 2)
        identity = await begin(rig)
        pend(rig, identity, acks(ann, 0))
        assert await stored_acks(rig) == (1, 0)
        await rig.broker.transactions.end("worker", identity, commit=True, client_version=2)
        await cursor_record(rig)
        assert await stored_acks(rig) == (0, 1)
        await ann.ack(1)
        assert await stored_acks(rig) == (0, 0)

    play(scenario)


def test_a_log_that_refuses_the_acknowledgement_costs_the_transaction() -> None:
    async def scenario(rig: Rig) -> None:
        work, ann = await delivered(rig, 2)
        identity = await begin(rig)
        write(rig, identity)
        for log in rig.cursor_logs():
            log.refusal = FULL
        with pytest.raises(BrokerError):
            await end(rig, identity, acks(ann, 0))
        assert states(work, 2) == [State.IN_FLIGHT] * 2
        for log in rig.cursor_logs():
            log.refusal = None
        await rig.wait_until(
            lambda: rig.broker.transactions.describe("worker").state.label == "CompleteAbort"
        )

    play(scenario)


# ---- several lives


def test_what_is_pending_stays_so_over_a_restart_until_its_transaction_is_aborted(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        _, ann = await delivered(rig, 3)
        await ann.ack(0)
        identity = await begin(rig)
        pend(rig, identity, acks(ann, 1))
        place = rig.partition(topic=CURSORS_TOPIC, index=rig.broker.subscriptions.home_of("work").partition)
        await place.wait_acknowledged(place.end_offset)

    async def second(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        await rig.broker.transactions.wait_loaded()
        assert states(work, 3) == [State.DONE, State.PENDING, State.AVAILABLE]
        ann = rig.join(work)
        await rig.wait_until(lambda: ann.has(1))
        await rig.turns()
        assert ann.take() == [(2, 1)]
        await rig.broker.transactions.abort("worker")
        await rig.wait_until(lambda: ann.has(1))
        assert ann.take() == [(1, 1)]
        assert await stored_acks(rig) == (0, 0)

    play_lives(tmp_path, first, second)


def test_an_order_by_key_waits_for_what_a_restart_left_undecided(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic()
        ann = rig.join(await rig.subscribe(mode="key_shared"))
        await rig.publish_keys((b"k", b"0"), (b"k", b"1"))
        await rig.wait_until(lambda: ann.has(1))
        pend(rig, await begin(rig), acks(ann, 0))

    async def second(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        await rig.broker.transactions.wait_loaded()
        ann = rig.join(work)
        await rig.turns()
        assert ann.offsets == []
        await rig.broker.transactions.abort("worker")
        await rig.wait_until(lambda: ann.has(1))
        assert ann.offsets == [0]

    play_lives(tmp_path, first, second)


def test_a_commit_counts_though_no_record_of_the_cursor_followed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def first(rig: Rig) -> None:
        _, ann = await delivered(rig, 3)
        await ann.ack(0)
        identity = await begin(rig)
        with monkeypatch.context() as patch:
            patch.setattr(CursorWriter, "flush_soon", lambda writer: None)
            await end(rig, identity, acks(ann, 2))
            assert await stored_acks(rig) == (0, 1)
            killed_copy(rig, tmp_path / "killed")

    async def second(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        assert states(work, 3) == [State.DONE, State.AVAILABLE, State.DONE]
        await cursor_record(rig)
        ann = rig.join(work)
        await rig.wait_until(lambda: ann.has(1))
        await ann.ack(1)
        assert await stored_acks(rig) == (0, 0)

    async def third(rig: Rig) -> None:
        assert rig.broker.subscriptions.known("work").partitions[0].machine.cursor.position == 3

    play_lives(tmp_path / "first", first)
    play_lives(tmp_path / "killed", second, third)


def test_a_commit_of_an_earlier_life_is_moved_to_its_own_cursor_before_it_is_cleared_away(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic(partitions=2)
        ann = rig.join(await rig.subscribe())
        await rig.publish(b"a")
        await rig.publish(b"b", b"c", partition=1)
        await rig.wait_until(lambda: ann.has(3))
        with monkeypatch.context() as patch:
            patch.setattr(CursorWriter, "flush_soon", lambda writer: None)
            await end(rig, await begin(rig), acks(ann, 0))
            killed_copy(rig, tmp_path / "killed")

    async def second(rig: Rig) -> None:
        ann = rig.join(rig.broker.subscriptions.known("work"))
        await rig.wait_until(lambda: ann.has(2))
        await ann.ack(0, partition=1)
        await ann.ack(1, partition=1)
        assert await stored_acks(rig) == (0, 0)

    async def third(rig: Rig) -> None:
        work = rig.broker.subscriptions.known("work")
        assert [each.machine.cursor.position for each in work.partitions] == [1, 2]

    play_lives(tmp_path / "first", first)
    play_lives(tmp_path / "killed", second, third)


def test_a_subscription_that_is_made_again_has_nothing_of_the_old_acknowledgements(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        work, ann = await delivered(rig, 2)
        identity = await begin(rig)
        pend(rig, identity, acks(ann, 0))
        await rig.broker.subscriptions.delete("work")
        await rig.broker.transactions.end("worker", identity, commit=True, client_version=2)
        again = await rig.subscribe()
        assert again is not work
        assert states(again, 2) == [State.AVAILABLE] * 2

    async def second(rig: Rig) -> None:
        assert states(rig.broker.subscriptions.known("work"), 2) == [State.AVAILABLE] * 2
        assert await stored_acks(rig) == (0, 0)

    play_lives(tmp_path, first, second)


def test_acknowledgements_in_a_topic_that_is_gone_are_cleared_away(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        _, ann = await delivered(rig, 2)
        pend(rig, await begin(rig), acks(ann, 0))
        await rig.broker.subscriptions.close()  # it does not hear that the topic goes
        await rig.broker.topics.delete(TOPIC)

    async def second(rig: Rig) -> None:
        assert rig.broker.subscriptions.get("work") is None

    async def third(rig: Rig) -> None:
        assert await stored_acks(rig) == (0, 0)

    play_lives(tmp_path, first, second, third)


def test_messages_of_several_partitions_and_subscriptions_are_acknowledged_together(tmp_path: Path) -> None:
    async def first(rig: Rig) -> None:
        await rig.topic(partitions=2)
        names = [f"s{number}" for number in range(6)]
        boxes = [rig.join(await rig.subscribe(name)) for name in names]
        homes = {rig.broker.subscriptions.home_of(name) for name in names}
        assert len(homes) > 1 and all(isinstance(home, TopicPartition) for home in homes)
        await rig.publish(b"a", b"b")
        await rig.publish(b"c", partition=1)
        await rig.wait_until(lambda: all(box.has(3) for box in boxes))
        given = [
            acks(box, *offsets, partition=index)
            for box in boxes
            for index, offsets in enumerate([(0,), (0,)])
        ]
        await end(rig, await begin(rig), *given, acks(boxes[0], 1))

    async def second(rig: Rig) -> None:
        positions = [
            [each.machine.cursor.position for each in subscription.partitions]
            for subscription in rig.broker.subscriptions
        ]
        assert positions == [[2, 1], *[[1, 1]] * 5]

    play_lives(tmp_path, first, second)
