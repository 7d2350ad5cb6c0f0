"""Delayed messages from put to delivery, on a clock that the test moves, in memory and on files."""

from __future__ import annotations

import asyncio
import logging

import pytest
from tests.unit.broker.delayed.conftest import Play, Stage

from tailrace.broker.delayed import DELAYED_TOPIC
from tailrace.broker.delayed import delayed as delayed_module
from tailrace.broker.publishing import NewMessage
from tailrace.model import BrokerError, ErrorCode, Offset
from tailrace.runtime import wait_at_most


async def refused(
    stage: Stage, message: NewMessage, *, topic: str = "t", partition: int | None = None
) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        await stage.delayed.put(topic, partition, message, stage.clock.now_ms() + 5)
    assert stage.delayed.pending == 0
    return caught.value


def test_a_message_is_delivered_when_it_is_due_and_not_before(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        id_ = await stage.put(b"later", delay_ms=1000)
        assert stage.delayed.pending == 1
        await stage.advance(999)
        assert await stage.values() == []
        await stage.advance(1)
        (record,) = await stage.records()
        assert (record.key, record.value) == (b"k", b"later")
        assert record.headers == (("colour", b"red"), ("_delayed_id", id_.encode()))
        assert record.timestamp == stage.clock.now_ms()
        assert stage.delayed.pending == 0
        await stage.advance(100_000)
        assert len(await stage.values()) == 1

    play(scenario)


def test_its_own_task_delivers_in_time(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(b"soon", delay_ms=30)
        delivered = stage.partition().wait_acknowledged(Offset(1))
        stage.clock.advance(30)  # the task waits for as long by the machine's clock
        await delivered
        assert await stage.values() == [b"soon"]

    play(scenario)


def test_a_message_due_earlier_than_the_others_wakes_the_task(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(b"in a day", delay_ms=86_400_000)
        await stage.put(b"now", delay_ms=1)
        delivered = stage.partition().wait_acknowledged(Offset(1))
        stage.clock.advance(1)
        await delivered
        assert await stage.values() == [b"now"]

    play(scenario)


def test_the_order_is_that_of_the_due_times(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        for delay_ms in (700_000, 30, 20, 650_000, 20, 10):
            await stage.put(b"%d" % delay_ms, delay_ms=delay_ms)
        await stage.advance(25)
        assert await stage.values() == [b"10", b"20", b"20"]
        await stage.advance(1_000_000)
        assert await stage.values() == [b"10", b"20", b"20", b"30", b"650000", b"700000"]

    play(scenario)


def test_thousands_arrive_each_once(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("t", partitions=3)
        count = 3000
        ids = await asyncio.gather(
            *(stage.put(b"%d" % n, delay_ms=1 + n * 7919 % 1000, partition=n % 3) for n in range(count))
        )
        assert len(set(ids)) == stage.delayed.pending == count
        for _ in range(4):
            await stage.advance(250)
        arrived = [each for index in range(3) for each in await stage.ids("t", index)]
        assert sorted(arrived) == sorted(ids)
        assert stage.delayed.describe()["moved"] == count
        assert stage.delayed.pending == 0

    play(scenario)


def test_large_messages_are_moved_a_few_at_a_time_and_in_order(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        values = [b"%d" % n * 900_000 for n in range(10)]
        for n, value in enumerate(values):
            await stage.put(value, delay_ms=20 - n)
        await stage.advance(20)
        assert await stage.values() == values[::-1]

    play(scenario)


def test_a_key_chooses_the_partition_when_it_is_due(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        topic = await stage.topic("t", partitions=4)
        due_ms = stage.clock.now_ms() + 5
        for n in range(8):
            await stage.delayed.put("t", None, NewMessage(b"%d" % n, b"%d" % n, ()), due_ms)
        await stage.delayed.put("t", 2, NewMessage(None, None, ()), due_ms)
        await stage.advance(5)
        for index in range(4):
            expected = [b"%d" % n for n in range(8) if stage.publisher.choose(topic, b"%d" % n) == index]
            assert await stage.values("t", index) == expected + ([None] if index == 2 else [])

    play(scenario)


def test_one_that_waits_for_long_does_not_hold_up_the_others(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(b"in a year", delay_ms=366 * 86_400_000)
        await stage.put(b"soon", delay_ms=10)
        await stage.advance(10)
        assert await stage.values() == [b"soon"]

    play(scenario)


def test_a_clock_set_ahead_delivers_early_and_one_set_back_late(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(b"early", delay_ms=3_600_000)
        stage.clock.set_back(-3_600_000)
        await stage.move()
        assert await stage.values() == [b"early"]
        await stage.put(b"late", delay_ms=1000)
        stage.clock.set_back(1000)
        await stage.advance(1999)
        assert await stage.values() == [b"early"]
        await stage.advance(1)
        assert await stage.values() == [b"early", b"late"]

    play(scenario)


# ---- what is refused


@pytest.mark.parametrize(
    ("topic", "partition", "code"),
    [
        ("none", None, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", 1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("t", -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_a_target_that_cannot_be_is_refused(
    play: Play, topic: str, partition: int | None, code: ErrorCode
) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(b"first", delay_ms=1)
        await stage.advance(1)
        error = await refused(stage, NewMessage(b"k", b"v", ()), topic=topic, partition=partition)
        assert error.code == code

    play(scenario)


def test_what_the_topic_would_not_take_is_refused_at_once(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("t", max_message_bytes="300", cleanup_policy="compact")
        large = await refused(stage, NewMessage(b"k", bytes(300), ()))
        assert large.code == ErrorCode.MESSAGE_TOO_LARGE
        # It has room as it is, and none for the header that it arrives with.
        close = await refused(stage, NewMessage(b"k", bytes(200), ()))
        assert close.code == ErrorCode.MESSAGE_TOO_LARGE
        keyless = await refused(stage, NewMessage(None, b"v", ()))
        assert keyless.code == ErrorCode.INVALID_RECORD

    play(scenario)


def test_no_more_wait_than_may(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.messages_max = 3
        await stage.restart()
        await stage.topic()
        wanted = [stage.put(b"%d" % n, delay_ms=5) for n in range(5)]
        results = await asyncio.gather(*wanted, return_exceptions=True)
        errors = [result for result in results if isinstance(result, BrokerError)]
        assert [error.code for error in errors] == [ErrorCode.POLICY_VIOLATION] * 2
        assert stage.delayed.pending == 3
        await stage.advance(5)
        await stage.put(b"again", delay_ms=5)

    play(scenario)


@pytest.mark.parametrize("play", ["memory"], indirect=True)
def test_memory_is_bounded_where_all_is_in_memory(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        stage.bytes_max = 100_000
        await stage.restart()
        await stage.topic()
        await stage.put(bytes(100_000), delay_ms=5)
        with pytest.raises(BrokerError, match="bytes") as caught:
            await stage.put(b"more", delay_ms=5)
        assert caught.value.code == ErrorCode.POLICY_VIOLATION

    play(scenario)


# ---- sent again


def test_a_producer_that_puts_again_has_one_message(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        due_ms = stage.clock.now_ms() + 5

        async def put(sequence: int) -> str:
            message = NewMessage(b"k", b"%d" % sequence, ())
            return await stage.delayed.put("t", 0, message, due_ms, producer_id=7, sequence=sequence)

        ids = [await put(sequence) for sequence in range(8)]
        assert await put(7) == ids[7]
        assert await put(0) == ""  # kept, but too long ago to know where
        assert stage.delayed.pending == 8
        with pytest.raises(BrokerError) as caught:
            await put(9)
        assert caught.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        await stage.advance(5)
        assert await put(7) == ids[7]  # also when it was delivered
        await stage.advance(5)
        assert await stage.values() == [b"%d" % sequence for sequence in range(8)]

    play(scenario)


@pytest.mark.parametrize(("producer_id", "sequence"), [(-5, 0), (3, -1), (3, 1 << 31)])
def test_numbers_that_cannot_be_are_refused(play: Play, producer_id: int, sequence: int) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        with pytest.raises(BrokerError) as caught:
            await stage.delayed.put(
                "t", 0, NewMessage(b"k", b"v", ()), 5, producer_id=producer_id, sequence=sequence
            )
        assert caught.value.code == ErrorCode.INVALID_REQUEST

    play(scenario)


def test_a_message_counts_also_if_nobody_waits_for_it_any_more(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(b"first", delay_ms=5)
        putting = asyncio.create_task(stage.put(b"abandoned", delay_ms=5))
        await asyncio.sleep(0)  # it is appended, and on files not durable yet
        putting.cancel()
        await asyncio.wait({putting})
        place = stage.partition(DELAYED_TOPIC)
        await place.wait_acknowledged(place.end_offset)
        await stage.advance(5)
        assert await stage.values() == [b"first", b"abandoned"]

    play(scenario)


# ---- topics that go


def test_messages_of_a_deleted_topic_are_dropped_also_if_it_is_made_again(
    play: Play, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic("t")
        await stage.topic("other")
        await stage.put(b"lost", delay_ms=5)
        await stage.put(b"lost too", delay_ms=5)
        await stage.put(b"kept", delay_ms=5, topic="other")
        await stage.topics.delete("t")
        await stage.topic("t")
        with caplog.at_level(logging.WARNING):
            await stage.advance(5)
        assert await stage.values("t") == []
        assert await stage.values("other") == [b"kept"]
        described = stage.delayed.describe()
        assert (described["dropped"], described["pending"]) == (2, 0)
        assert [record for record in caplog.messages if "dropped: count=2" in record]

    play(scenario)


def test_a_message_that_the_topic_does_not_take_any_more_is_dropped(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(bytes(1000), delay_ms=5)
        await stage.put(b"small", delay_ms=5)
        await stage.topics.alter_configs("t", lambda _: {"max.message.bytes": "500"})
        await stage.advance(5)
        assert await stage.values() == [b"small"]
        assert stage.delayed.describe()["dropped"] == 1

    play(scenario)


def test_what_waits_can_be_described(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        assert stage.delayed.describe() == {
            "status": "ready",
            "pending": 0,
            "held": 0,
            "next_due_ms": None,
            "moved": 0,
            "dropped": 0,
            "lost": 0,
        }
        await stage.topic()
        await stage.put(b"v", delay_ms=1_234_567)
        assert stage.delayed.describe()["next_due_ms"] == stage.clock.now_ms() + 1_234_567
        assert "1 messages wait" in repr(stage.delayed)

    play(scenario)


def test_the_clock_is_looked_at_every_minute_however_long_the_first_message_waits(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of the machine may be set ahead meanwhile."""
    waited: list[float] = []
    wait = wait_at_most

    async def noted(event: asyncio.Event, timeout_s: float) -> bool:
        waited.append(timeout_s)
        return await wait(event, timeout_s)

    async def scenario(stage: Stage) -> None:
        monkeypatch.setattr(delayed_module, "wait_at_most", noted)
        await stage.topic()
        await stage.put(b"much later", delay_ms=10 * 3_600_000)
        while not waited:  # noqa: ASYNC110 - nothing tells that the part's task waits
            await asyncio.sleep(0)
        assert waited == [60]

    play(scenario)
