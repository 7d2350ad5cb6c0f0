"""What a start makes of the delayed topic: messages, tombstones, intents, and records that make no sense."""

from __future__ import annotations

import logging
import random
from uuid import UUID

import pytest
from tests.unit.broker.delayed.conftest import Play, Stage

from tailrace.broker.delayed import DELAYED_TOPIC, loading
from tailrace.broker.delayed.loading import Loaded
from tailrace.broker.delayed.stored import (
    Intent,
    StoredMessage,
    intent_key,
    message_key,
    write_intent,
    write_message,
)
from tailrace.broker.publishing import NewMessage
from tailrace.model import BrokerError, ErrorCode, LogDamaged, PartitionId
from tailrace.records import NewRecord, Record

TARGET = PartitionId(UUID(int=7), 0)


def message(offset: int, due_ms: int) -> Record:
    stored = StoredMessage(due_ms, TARGET, NewMessage(b"k", b"v", ()))
    return as_read(write_message(offset, stored, time_ms=5), offset)


def as_read(record: NewRecord, offset: int) -> Record:
    time_ms, key, value, headers = record
    assert isinstance(key, bytes)
    return Record(offset, time_ms, key, None if value is None else bytes(value), tuple(headers))  # type: ignore[arg-type]


def load(*records: Record) -> Loaded:
    loaded = Loaded()
    for record in records:
        loaded.apply(record)
    return loaded


def test_messages_without_a_tombstone_wait() -> None:
    loaded = load(
        message(0, 50),
        message(1, 40),
        message(4, 60),
        Record(5, 5, message_key(1), None),
        Record(6, 5, message_key(3), None),  # compaction took its message
        Record(7, 5, message_key(1), None),  # twice is harmless
    )
    assert list(loaded) == [(50, 0), (60, 4)]
    assert len(loaded) == 2
    assert loaded.malformed == 0


def test_an_intent_stands_until_its_tombstone() -> None:
    other = PartitionId(UUID(int=8), 1)
    intents = [as_read(write_intent(target, Intent(9, [0]), time_ms=5), 1) for target in (TARGET, other)]
    loaded = load(*intents, Record(2, 5, intent_key(other), None))
    assert list(loaded.intents) == [TARGET]
    assert loaded.intents[TARGET].end_offset == 9


@pytest.mark.parametrize(
    "record",
    [
        Record(3, 5, None, b"v"),
        Record(3, 5, b"M", b"v"),
        message(9, 50)._replace(offset=3),  # not where it says
        message(3, 50)._replace(headers=()),
        Record(3, 5, intent_key(TARGET), b"\1"),
    ],
)
def test_what_makes_no_sense_is_passed_over(record: Record, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        loaded = load(message(0, 50), record, record, message(4, 60))
    assert list(loaded) == [(50, 0), (60, 4)]
    assert loaded.malformed == 2
    assert len(caplog.records) == 1  # not a line for each


def test_a_kind_of_record_to_come_is_left_alone() -> None:
    assert load(Record(0, 5, b"Z", b"v")).malformed == 0


def test_those_that_are_gone_do_not_pile_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loading, "_PURGE_AT_MIN", 10)
    loaded, alive, chance = Loaded(), dict[int, int](), random.Random(6)
    for offset in range(2000):
        if alive and chance.random() < 0.5:
            gone = chance.choice(list(alive))
            assert loaded.take(gone) == alive.pop(gone)
        loaded.apply(message(offset, offset * 7))
        alive[offset] = offset * 7
        assert len(loaded) == len(alive)
    assert list(loaded) == [(due_ms, offset) for offset, due_ms in alive.items()]
    assert len(loaded._offsets) <= 2 * len(alive) + 10
    assert loaded.take(5000) is None


def test_what_waits_survives_restarts(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        first = [await stage.put(b"%d" % n, delay_ms=1000 + n) for n in range(5)]
        await stage.restart()
        assert stage.delayed.pending == 5
        second = await stage.put(b"more", delay_ms=500)
        await stage.restart()
        assert stage.delayed.pending == 6
        await stage.advance(2000)
        assert await stage.ids() == [second, *first]

    play(scenario)


def test_what_became_due_while_nobody_ran_is_delivered_at_the_start(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(b"v", delay_ms=1000)
        await stage.stop()
        stage.clock.advance(5000)
        await stage.start()
        await stage.move()
        assert await stage.values() == [b"v"]

    play(scenario)


def test_a_message_put_while_the_topic_is_read_is_there_once(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.topic()
        old = await stage.put(b"old", delay_ms=10)
        await stage.delayed.close()
        again = stage.new_delayed()
        again.start()
        due_ms = stage.clock.now_ms() + 20
        new = await again.put("t", 0, NewMessage(b"k", b"new", ()), due_ms)
        await again.wait_loaded()
        assert again.pending == 2
        await stage.advance(20)
        assert await stage.ids() == [old, new]

    play(scenario)


def test_a_topic_that_cannot_be_read_delays_nothing_and_says_so(
    play: Play, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def damaged(*_: object, **__: object) -> Loaded:
        raise LogDamaged("acknowledged data is damaged")

    async def scenario(stage: Stage) -> None:
        await stage.topic()
        await stage.put(b"v", delay_ms=10)
        monkeypatch.setattr("tailrace.broker.delayed.delayed.load_delayed", damaged)
        await stage.restart()
        assert stage.delayed.describe()["status"] == "failed"
        assert DELAYED_TOPIC in caplog.text and "damaged" in caplog.text
        with pytest.raises(BrokerError) as caught:
            await stage.put(b"v", delay_ms=10)
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR

    play(scenario)


@pytest.mark.parametrize("play", ["files"], indirect=True)
def test_compaction_leaves_what_waits(play: Play, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.broker.delayed.moving._TRIM_BYTES_MIN", 1 << 40)
    configs = {"cleanup.policy": "compact", "segment.bytes": "2000"}
    monkeypatch.setattr("tailrace.broker.delayed.log.DELAYED_CONFIGS", configs)

    async def scenario(stage: Stage) -> None:
        await stage.topic()
        kept = await stage.put(b"kept", delay_ms=86_400_000 * 10)
        for n in range(100):
            await stage.put(b"%d" % n, delay_ms=1)
        await stage.advance(1)
        await stage.restart()
        before = stage.partition(DELAYED_TOPIC).size_bytes
        stage.clock.advance(3_600_000)
        await stage.storage.maintain()
        assert stage.partition(DELAYED_TOPIC).size_bytes < before
        await stage.restart()
        assert stage.delayed.pending == 1
        await stage.advance(86_400_000 * 10)
        assert (await stage.ids())[-1] == kept
        assert len(await stage.ids()) == 101

    play(scenario)


def test_a_start_without_the_topic_has_nothing_to_read(play: Play) -> None:
    async def scenario(stage: Stage) -> None:
        await stage.restart()
        assert stage.topics.get(DELAYED_TOPIC) is None
        assert stage.delayed.describe()["status"] == "ready"

    play(scenario)
