"""Exactly once: a move is stopped after each of its steps, and at random, and the node starts again."""

from __future__ import annotations

import asyncio
import logging
import random
from collections import Counter
from collections.abc import Callable, Sequence

import pytest
from tests.unit.broker.delayed.conftest import Killed, Play, Stage

from tailrace.broker import Partition
from tailrace.broker.delayed import DELAYED_TOPIC
from tailrace.broker.delayed import moving as moving_module
from tailrace.broker.publishing import NewMessage, Published
from tailrace.model import LogBusy, NoSpace, Offset, StorageError
from tailrace.records import NewRecord


async def without_task(stage: Stage) -> None:
    stage.has_task = False
    await stage.restart()


def kill_when(stage: Stage, *, append: Sequence[str] = (), publish: Sequence[str] = ()) -> None:
    """Let the process end in the n-th append to the delayed topic, or publish, as the n-th word says.

    go: not at all. before: nothing is stored. after: all of it is. half: of a publish, the first half is.
    """
    appends, publishes = iter(append), iter(publish)
    real_append, real_publish = stage.delayed._log.append, stage.publisher.publish

    async def append_(records: Sequence[NewRecord]) -> None:
        what = next(appends, "go")
        if what == "before":
            raise Killed
        await real_append(records)
        if what == "after":
            raise Killed

    def publish_(partition: Partition, messages: Sequence[NewMessage]) -> Published:
        what = next(publishes, "go")
        if what == "before":
            raise Killed
        done = real_publish(partition, messages[: len(messages) // 2] if what == "half" else messages)
        if what in ("after", "half"):
            raise Killed
        return done

    stage.delayed._log.append = append_  # type: ignore[method-assign]
    stage.delayed._mover._publisher = _Publisher(stage, publish_)  # type: ignore[assignment]


class _Publisher:
    """The stage's publisher with another `publish`."""

    def __init__(self, stage: Stage, publish: Callable[..., Published]) -> None:
        self.choose = stage.publisher.choose
        self.publish = publish


@pytest.mark.parametrize(
    ("append", "publish", "arrived"),
    [
        (["before"], [], 0),
        (["after"], [], 0),
        ([], ["before"], 0),
        ([], ["half"], 2),
        ([], ["after"], 4),
        (["go", "before"], [], 4),
        (["go", "after"], [], 4),
    ],
    ids=[
        "before the intent",
        "behind the intent",
        "before the move",
        "in the middle of the move",
        "behind the move",
        "before the tombstones",
        "behind the tombstones",
    ],
)
def test_a_crash_at_any_step_loses_none_and_doubles_none(
    play: Play, append: list[str], publish: list[str], arrived: int
) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic()
        ids = [await stage.put(b"%d" % n, delay_ms=10 + n) for n in range(4)]
        later = await stage.put(b"later", delay_ms=1000)
        kill_when(stage, append=append, publish=publish)
        with pytest.raises(Killed):
            await stage.advance(100)
        assert len(await stage.ids()) == arrived
        await stage.restart()
        await stage.move()
        assert await stage.ids() == ids
        assert stage.delayed.pending == 1
        await stage.restart()  # nothing of it is found again
        await stage.advance(1000)
        assert await stage.ids() == [*ids, later]
        await stage.restart()
        assert stage.delayed.pending == 0

    play(scenario)


def test_others_messages_behind_an_intent_are_not_taken_for_moved(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic()
        id_ = await stage.put(b"mine", delay_ms=10)
        kill_when(stage, publish=["before"])
        with pytest.raises(Killed):
            await stage.advance(10)
        partition = stage.partition()
        foreign = [("_delayed_id", b"another-0-0"), ("_delayed_id", None), ("other", id_.encode())]
        sent = stage.publisher.publish(partition, [NewMessage(b"k", b"foreign", foreign)])
        await partition.wait_acknowledged(sent.end_offset)
        await stage.restart()
        await stage.move()
        assert await stage.values() == [b"foreign", b"mine"]

    play(scenario)


def test_crashes_one_after_the_other_at_the_same_step(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic("t", partitions=2)
        ids = [await stage.put(b"%d" % n, delay_ms=5, partition=n % 2) for n in range(6)]
        for publish in (["after", "go"], ["go", "after"], ["half"], ["after"]):
            kill_when(stage, publish=publish)
            try:
                await stage.advance(5)
            except Killed:
                await stage.restart()
        await stage.move()
        assert sorted(await stage.ids("t", 0) + await stage.ids("t", 1)) == sorted(ids)

    play(scenario)


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("play", ["memory"], indirect=True)
def test_crashes_at_random(play: Play, seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    chance = random.Random(seed)
    monkeypatch.setattr(moving_module, "ROUND_MESSAGES", 7)

    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic("a", partitions=2)
        await stage.topic("b")
        ids: list[str] = []
        crashes = 0
        for _ in range(60):
            for _ in range(chance.randrange(12)):
                name = chance.choice("ab")
                ids.append(await stage.put(b"v", delay_ms=chance.randrange(1, 3_000_000), topic=name))
            if chance.random() < 0.7:
                kill_when(
                    stage,
                    append=chance.choices(["go", "before", "after"], weights=[6, 1, 1], k=20),
                    publish=chance.choices(["go", "before", "half", "after"], weights=[6, 1, 1, 1], k=20),
                )
            try:
                await stage.advance(chance.randrange(200_000))
            except Killed:
                crashes += 1
                await stage.restart()
        await stage.restart()
        await stage.advance(3_000_000)
        arrived = [*await stage.ids("a", 0), *await stage.ids("a", 1), *await stage.ids("b")]
        assert Counter(arrived) == Counter(ids)
        assert crashes > 3
        assert stage.delayed.pending == 0

    play(scenario)


# ---- targets that cannot be asked


def test_a_target_that_is_not_served_holds_its_own_messages_only(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic("bad")
        await stage.topic("good")
        for n in range(3):
            await stage.put(b"b%d" % n, delay_ms=5 + n, topic="bad")
            await stage.put(b"g%d" % n, delay_ms=5 + n, topic="good")
        log = stage.partition("bad").log
        assert log is not None
        stage.partition("bad").close()
        with caplog.at_level(logging.WARNING):
            await stage.advance(5)
            await stage.advance(5)
        assert await stage.values("good") == [b"g0", b"g1", b"g2"]
        assert (stage.delayed.pending, stage.delayed.describe()["held"]) == (3, 3)
        assert len([text for text in caplog.messages if "held" in text]) == 1
        stage.partition("bad").open(log)
        await stage.advance(100)  # it is not asked all the time
        assert await stage.values("bad") == []
        await stage.advance(1000)
        assert await stage.values("bad") == [b"b0", b"b1", b"b2"]
        assert stage.delayed.pending == 0

    play(scenario)


@pytest.mark.parametrize("stored", [0, 1, 2], ids=["none", "some", "all"])
def test_a_log_that_refuses_in_the_middle_gets_the_rest_later(play: Play, stored: int) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic()
        ids = [await stage.put(b"%d" % n, delay_ms=5) for n in range(2)]
        real = stage.publisher.publish
        calls = 0

        def publish(partition: Partition, messages: Sequence[NewMessage]) -> Published:
            nonlocal calls
            calls += 1
            if calls > 1:
                return real(partition, messages)
            if stored:
                real(partition, messages[:stored])
            raise LogBusy("too much waits")

        stage.delayed._mover._publisher = _Publisher(stage, publish)  # type: ignore[assignment]
        await stage.advance(5)
        assert stage.delayed.describe()["held"] == 2
        await stage.advance(1000)
        assert await stage.ids() == ids
        assert stage.delayed.pending == 0
        await stage.restart()
        assert stage.delayed.pending == 0

    play(scenario)


def test_a_topic_deleted_in_the_middle_of_a_move_is_nobodys_trouble(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic("t")
        await stage.topic("other")
        await stage.put(b"gone", delay_ms=5)
        await stage.put(b"kept", delay_ms=5, topic="other")
        real = stage.delayed._log.append

        async def append(records: Sequence[NewRecord]) -> None:
            await real(records)
            if stage.topics.get("t") is not None:
                await stage.topics.delete("t")

        stage.delayed._log.append = append  # type: ignore[method-assign]
        await stage.advance(5)
        await stage.advance(1000)
        assert await stage.values("other") == [b"kept"]
        assert stage.delayed.describe()["dropped"] == 1
        assert stage.delayed.pending == 0

    play(scenario)


def test_trouble_of_the_storage_is_not_held_but_told(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic()
        await stage.put(b"v", delay_ms=5)

        def publish(partition: Partition, messages: Sequence[NewMessage]) -> Published:
            raise StorageError("sync", "journal", "the disk is gone")

        stage.delayed._mover._publisher = _Publisher(stage, publish)  # type: ignore[assignment]
        with pytest.raises(StorageError):
            await stage.advance(5)

    play(scenario)


def test_no_room_for_the_intent_moves_nothing_and_is_tried_again(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic()
        ids = [await stage.put(b"%d" % n, delay_ms=5) for n in range(3)]
        real = stage.delayed._log.append

        async def append(records: Sequence[NewRecord]) -> None:
            raise NoSpace("the disk is full")

        stage.delayed._log.append = append  # type: ignore[method-assign]
        with pytest.raises(NoSpace):
            await stage.advance(5)
        assert (await stage.ids(), stage.delayed.pending) == ([], 3)
        stage.delayed._log.append = real  # type: ignore[method-assign]
        await stage.move()
        assert await stage.ids() == ids

    play(scenario)


def test_the_task_goes_on_after_the_disk_was_full(play: Play, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(b"v", delay_ms=1)
        real, tried = stage.delayed._log.append, asyncio.Event()

        async def append(records: Sequence[NewRecord]) -> None:
            if not tried.is_set():
                tried.set()
                raise NoSpace("the disk is full")
            await real(records)

        stage.delayed._log.append = append  # type: ignore[method-assign]
        stage.clock.advance(1)
        stage.delayed.tick()
        await tried.wait()
        delivered = stage.partition().wait_acknowledged(Offset(1))
        await asyncio.sleep(0)
        stage.delayed.tick()
        await delivered
        assert "the disk is full" in caplog.text

    play(scenario)


# ---- what the delayed topic holds


def test_a_message_that_cannot_be_read_is_told_and_keeps_nobody(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic()
        await stage.put(b"lost", delay_ms=5)
        await stage.put(b"kept", delay_ms=5)
        await stage.partition(DELAYED_TOPIC).delete_records(1)
        await stage.advance(5)
        assert await stage.values() == [b"kept"]
        assert stage.delayed.describe()["lost"] == 1
        assert "lost: offset=0" in caplog.text

    play(scenario)


def test_what_was_moved_is_let_go(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving_module, "_TRIM_BYTES_MIN", 1)
    monkeypatch.setattr(moving_module, "_TRIM_MESSAGES", 1)

    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic()
        place = stage.partition
        for n in range(5):
            await stage.put(b"%d" % n, delay_ms=5 + n)
        kept = await stage.put(b"kept", delay_ms=1000)
        while place(DELAYED_TOPIC).size_bytes == 0:  # noqa: ASYNC110 - files are written when they are
            await asyncio.sleep(0.01)
        await stage.advance(9)
        assert place(DELAYED_TOPIC).start_offset == 5  # up to the one that waits
        await stage.restart()
        assert stage.delayed.pending == 1
        await stage.advance(1000)
        assert (await stage.ids())[-1] == kept
        assert place(DELAYED_TOPIC).start_offset == place(DELAYED_TOPIC).high_watermark
        await stage.restart()
        assert stage.delayed.pending == 0
        await stage.put(b"again", delay_ms=5)
        await stage.advance(5)
        assert len(await stage.ids()) == 7

    play(scenario)


def test_nothing_is_let_go_while_messages_are_held(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(moving_module, "_TRIM_BYTES_MIN", 1)
    monkeypatch.setattr(moving_module, "_TRIM_MESSAGES", 1)

    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic("bad")
        await stage.topic("good")
        await stage.put(b"held", delay_ms=5, topic="bad")
        await stage.put(b"moved", delay_ms=5, topic="good")
        place = stage.partition
        while place(DELAYED_TOPIC).size_bytes == 0:  # noqa: ASYNC110 - files are written when they are
            await asyncio.sleep(0.01)
        log = place("bad").log
        assert log is not None
        place("bad").close()
        await stage.advance(5)
        assert await stage.values("good") == [b"moved"]
        assert stage.delayed.describe()["held"] == 1
        assert place(DELAYED_TOPIC).start_offset == 0
        place("bad").open(log)
        await stage.advance(2000)
        assert await stage.values("bad") == [b"held"]
        assert stage.delayed.describe()["lost"] == 0

    play(scenario)


def test_the_next_look_is_when_the_first_thing_is_to_do(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic("bad")
        await stage.topic("good")
        mover = stage.delayed._mover
        assert mover.wait_ms() is None
        await stage.put(b"held", delay_ms=5, topic="bad")
        stage.partition("bad").close()
        await stage.advance(5)
        retry_ms = mover.wait_ms()
        assert mover.held == 1 and retry_ms is not None and retry_ms > 100
        await stage.put(b"much later", delay_ms=10 * 3_600_000, topic="good")
        assert mover.wait_ms() == retry_ms
        await stage.put(b"sooner", delay_ms=20, topic="good")
        sooner_ms = mover.wait_ms()
        assert sooner_ms is not None and sooner_ms <= 20

    play(scenario)


def test_a_message_is_forgotten_only_when_it_is_durable_in_its_topic(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a power cut between the two would lose it."""

    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic()
        await stage.put(b"once", delay_ms=5)
        target, wait = stage.partition(), Partition.wait_acknowledged
        asked, may_be_durable = asyncio.Event(), asyncio.Event()

        async def held_back(partition: Partition, end: Offset) -> None:
            if partition is target:
                asked.set()
                await may_be_durable.wait()
            await wait(partition, end)

        monkeypatch.setattr(Partition, "wait_acknowledged", held_back)
        moving = asyncio.create_task(stage.advance(5))
        asking = asyncio.create_task(asked.wait())
        await asyncio.wait({moving, asking}, return_when=asyncio.FIRST_COMPLETED)
        asking.cancel()
        assert asked.is_set(), "it waits until the message is durable"
        delayed = stage.delayed._log.known()
        end = delayed.end_offset
        for _ in range(20):
            await asyncio.sleep(0)
        assert delayed.end_offset == end == 2, "the message and the intent, and no tombstone"
        assert not stage.delayed._mover._owed
        may_be_durable.set()
        await moving
        assert delayed.end_offset == 4, "the tombstones of both"

    play(scenario)


def test_tombstones_that_could_not_be_stored_are_stored_with_the_next_round(play: Play) -> None:
    """Else a start would find the message, and deliver it once more after retention has removed the first."""

    async def scenario(stage: Stage) -> None:
        await without_task(stage)
        await stage.topic()
        await stage.put(b"once", delay_ms=5)
        real, refused = stage.delayed._log.append, []

        async def append(records: Sequence[NewRecord]) -> None:
            if any(value is None for _, _, value, _ in records):
                refused.append(len(records))
                raise NoSpace("the disk is full")
            await real(records)

        stage.delayed._log.append = append  # type: ignore[method-assign]
        with pytest.raises(NoSpace):
            await stage.advance(5)
        assert refused == [2] and await stage.values() == [b"once"]
        stage.delayed._log.append = real  # type: ignore[method-assign]
        await stage.move()
        assert stage.delayed._log.known().end_offset == 4, "message, intent, and a tombstone of each"

    play(scenario)
