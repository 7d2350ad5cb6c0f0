"""Publishing into partitions: batches, times, ids and sequences, in memory and over restarts on files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from uuid import UUID

import pytest

from tailrace.broker import BrokerConfig, Counters, NewTopic, Partition, Topics
from tailrace.broker.publishing import (
    NewMessage,
    Published,
    Publisher,
    check_message,
    id_prefix,
    published_topic,
)
from tailrace.cluster import SqliteStore, StoredMetadata
from tailrace.model import BrokerError, BrokerId, ErrorCode, Offset
from tailrace.records import Record, build_batch, iter_batches, read_batch
from tailrace.runtime import Clock
from tailrace.storage.segment import SegmentStorage
from tailrace.testing import FakeClock
from tailrace.wire.kafka.partitioner import partition_of_key

from .conftest import Play, Rig

LAST_SEQUENCE = (1 << 31) - 1
CREATE_TIME = {"message.timestamp.type": "CreateTime"}


def publisher_of(rig: Rig) -> Publisher:
    return Publisher(clock=rig.clock)


def messages(*values: bytes) -> list[NewMessage]:
    return [NewMessage(b"k", value, ()) for value in values]


def numbered(first: int, last: int) -> list[NewMessage]:
    """One message per sequence, both included."""
    return messages(*(b"%d" % number for number in range(first, last + 1)))


async def records_of(partition: Partition) -> list[Record]:
    await partition.wait_acknowledged(partition.end_offset)
    found: list[Record] = []
    offset = partition.start_offset
    while offset < partition.high_watermark:
        piece = await partition.read(offset, bytes_max=1 << 20)
        found += [record for batch in iter_batches(await piece.load()) for record in batch.records()]
        offset = piece.next_offset
    return found


async def values_of(partition: Partition) -> list[bytes | None]:
    return [record.value for record in await records_of(partition)]


def refused(call: Callable[[], object]) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        call()
    return caught.value


# ---- topics and partitions


def test_a_topic_that_is_missing_is_made_with_one_partition_and_arrival_times(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        made = await rig.topics.auto_create(published_topic("orders"))
        assert (len(made.partitions), made.settings.append_time) == (1, True)
        assert await rig.topics.auto_create(published_topic("orders")) is made

    play(scenario, values={"num.partitions": "7"})


def test_two_who_need_a_topic_at_once_get_the_same(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        create = rig.topics.auto_create
        first, second = await asyncio.gather(create(published_topic("t")), create(published_topic("t")))
        assert first is second

    play(scenario)


@pytest.mark.parametrize(
    ("name", "values", "code"),
    [
        ("t", {"auto.create.topics.enable": "false"}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("__mine", {}, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("a b", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("", {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
    ],
    ids=["not allowed", "reserved", "illegal", "empty"],
)
def test_topics_that_nobody_publishes_to(
    play: Play, name: str, values: dict[str, str], code: ErrorCode
) -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(BrokerError) as caught:
            await rig.topics.auto_create(published_topic(name))
        assert caught.value.code == code

    play(scenario, values=values)


def test_a_key_chooses_as_kafkas_producer_does_and_others_go_in_turn(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        topic = await rig.topics.create(NewTopic(name="t", partitions=5))
        for key in (b"", b"a", b"order-17"):
            assert publisher.choose(topic, key) == partition_of_key(key, partitions=5)
        assert {publisher.choose(topic, None) for _ in range(5)} == set(range(5))

    play(scenario)


def test_ids_are_made_of_topic_partition_and_offset() -> None:
    assert id_prefix(UUID("3f2a9c0d-1e2b-4000-8000-000000000000"), 4) == "3f2a9c0d1e2b-4-"


# ---- what is stored


def test_the_messages_of_a_call_are_one_batch_in_their_order(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        partition = (await rig.topics.auto_create(published_topic("t"))).partitions[0]
        sent = [
            NewMessage(b"k", b"v", [("colour", b"red"), ("none", None)]),
            NewMessage(None, b"", ()),
            NewMessage(b"", None, ()),
        ]
        published = publisher.publish(partition, sent)
        assert (published.base_offset, published.count, published.end_offset) == (0, 3, 3)
        assert [published.offset_of(index) for index in range(3)] == [0, 1, 2]
        assert publisher.publish(partition, messages(b"x")).base_offset == 3
        found = await records_of(partition)
        assert [(record.key, record.value, list(record.headers)) for record in found[:3]] == [
            (key, value, list(headers)) for key, value, headers in sent
        ]
        assert rig.counters.batches_in == 2

    play(scenario)


def test_no_message_is_nothing_to_publish(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        partition = (await rig.topics.auto_create(published_topic("t"))).partitions[0]
        publisher.publish(partition, numbered(0, 1), producer_id=1, sequence=0)
        assert refused(lambda: publisher.publish(partition, [])).code == ErrorCode.INVALID_REQUEST
        again = refused(lambda: publisher.publish(partition, [], producer_id=1, sequence=0))
        assert again.code == ErrorCode.INVALID_REQUEST

    play(scenario)


def test_messages_that_do_not_fit_into_one_batch_become_several(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        topic = await rig.topics.create(
            NewTopic(name="t", partitions=1, configs={"max.message.bytes": "500"})
        )
        partition = topic.partitions[0]
        values = [bytes([65 + n]) * 100 for n in range(20)]
        published = publisher.publish(partition, messages(*values), producer_id=3, sequence=0)
        assert await values_of(partition) == values
        assert (published.base_offset, published.end_offset) == (0, 20)
        assert rig.counters.batches_in > 1
        # Their sequences go on over the batches.
        assert publisher.publish(partition, messages(b"x"), producer_id=3, sequence=20).base_offset == 20

    play(scenario)


def test_a_message_exactly_at_the_limit_is_taken_among_others(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        largest = NewMessage(b"k", bytes(300), [("h", b"1")])
        limit = len(build_batch([(0, *largest)]))
        topic = await rig.topics.create(
            NewTopic(name="t", partitions=1, configs={"max.message.bytes": str(limit)})
        )
        check_message(largest, topic.settings)
        publisher.publish(topic.partitions[0], [*messages(b"a"), largest, *messages(b"b")])
        assert await values_of(topic.partitions[0]) == [b"a", bytes(300), b"b"]
        larger = largest._replace(value=bytes(301))
        for call in (
            lambda: publisher.publish(topic.partitions[0], [*messages(b"c"), larger]),
            lambda: check_message(larger, topic.settings),
        ):
            error = refused(call)
            assert error.code == ErrorCode.MESSAGE_TOO_LARGE
            assert "max.message.bytes" in str(error) and str(limit) in str(error)
        assert topic.partitions[0].high_watermark == 3  # none of the call is stored

    play(scenario)


def test_a_message_without_a_key_keeps_its_whole_call_out_of_a_compacted_topic(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        configs = {"cleanup.policy": "compact", "max.message.bytes": "300"}
        topic = await rig.topics.create(NewTopic(name="t", partitions=1, configs=configs))
        sent = [*messages(bytes(100), bytes(100), bytes(100)), NewMessage(None, b"v", ())]
        assert refused(lambda: publisher.publish(topic.partitions[0], sent)).code == ErrorCode.INVALID_RECORD
        assert topic.partitions[0].end_offset == 0

    play(scenario)


def test_a_partition_that_is_not_served_is_not_published_to(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        partition = (await rig.topics.auto_create(published_topic("t"))).partitions[0]
        partition.close()
        for producer_id in (-1, 4):
            error = refused(
                lambda who=producer_id: publisher.publish(  # type: ignore[misc]
                    partition, messages(b"v"), producer_id=who, sequence=0
                )
            )
            assert error.code == ErrorCode.KAFKA_STORAGE_ERROR

    play(scenario)


# ---- times


@pytest.mark.parametrize("configs", [{}, CREATE_TIME], ids=["arrival", "own times"])
def test_times_stand_still_while_the_clock_is_behind(play: Play, configs: dict[str, str]) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        topic = await rig.topics.create(
            NewTopic(name="t", partitions=2, configs={"message.timestamp.type": "LogAppendTime"} | configs)
        )
        partition, other = topic.partitions
        start = rig.clock.now_ms()
        given = [publisher.publish(partition, messages(b"a")).timestamp_ms]
        rig.clock.set_back(3_600_000)
        given.append(publisher.publish(partition, messages(b"b")).timestamp_ms)
        assert publisher.publish(other, messages(b"x")).timestamp_ms == start - 3_600_000
        rig.clock.advance(3_600_005)
        given.append(publisher.publish(partition, messages(b"c", b"d")).timestamp_ms)
        assert given == [start, start, start + 5]
        found = await records_of(partition)
        assert [record.timestamp for record in found] == [start, start, start + 5, start + 5]

    play(scenario)


def test_a_kafka_producers_time_far_ahead_moves_nobody_elses(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        topic = await rig.topics.create(NewTopic(name="t", partitions=1, configs=CREATE_TIME))
        partition, now_ms = topic.partitions[0], rig.clock.now_ms()
        partition.append(read_batch(build_batch([(4_102_444_800_000, b"k", b"v", ())])))
        assert publisher_of(rig).publish(partition, messages(b"a")).timestamp_ms == now_ms

    play(scenario)


def test_a_batch_built_with_its_time_is_not_stamped_again(
    play: Play, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(rig: Rig) -> None:
        partition = (await rig.topics.auto_create(published_topic("t"))).partitions[0]
        now_ms = rig.clock.now_ms()
        batch = read_batch(build_batch([(7, b"k", b"v", ())]))
        assert partition.append(batch, append_time_ms=now_ms - 9).log_append_time_ms == now_ms - 9
        assert batch.is_log_append_time and batch.max_timestamp == now_ms - 9 and batch.check_crc()
        built = read_batch(build_batch([(7, b"k", b"v", ())], log_append_time_ms=now_ms))
        crc = built.crc
        partition.append(built, append_time_ms=now_ms)
        assert built.crc == crc and built.check_crc()
        # A client that stamps by itself is not believed.
        forged = read_batch(build_batch([(7, b"k", b"v", ())], log_append_time_ms=5))
        partition.append(forged)
        assert forged.max_timestamp == now_ms and forged.check_crc()

    play(scenario)


# ---- sequences


def published(result: Published) -> tuple[int, int, int]:
    return result.base_offset, result.count, result.end_offset


@pytest.mark.parametrize("start", [0, 5, LAST_SEQUENCE - 3], ids=["first", "later", "over the end"])
def test_what_is_sent_again_in_other_portions_is_stored_once(play: Play, start: int) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        partition = (await rig.topics.auto_create(published_topic("t"))).partitions[0]

        def send(first: int, last: int) -> Published:
            sequence = (start + first) & LAST_SEQUENCE
            return publisher.publish(partition, numbered(first, last), producer_id=9, sequence=sequence)

        assert published(send(0, 2)) == (0, 3, 3)
        assert published(send(3, 5)) == (3, 3, 6)
        assert published(send(0, 5)) == (0, 6, 6)  # all of it known
        assert published(send(1, 1)) == (1, 1, 2)
        partly = send(2, 8)  # four known, three new
        assert published(partly) == (2, 7, 9)
        assert [partly.offset_of(index) for index in range(7)] == [2, 3, 4, 5, 6, 7, 8]
        assert await values_of(partition) == [b"%d" % number for number in range(9)]

    play(scenario)


def test_offsets_of_what_was_sent_again_are_told_as_long_as_they_are_known(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        partition = (await rig.topics.auto_create(published_topic("t"))).partitions[0]
        publisher.publish(partition, messages(b"somebody else's"))
        times = []
        for number in range(8):
            rig.clock.advance(10)
            times.append(
                publisher.publish(
                    partition, numbered(number, number), producer_id=9, sequence=number
                ).timestamp_ms
            )
        publisher.publish(partition, messages(b"somebody else's"))
        known = publisher.publish(partition, numbered(7, 7), producer_id=9, sequence=7)
        assert (*published(known), known.timestamp_ms) == (8, 1, 9, times[7])
        old = publisher.publish(partition, numbered(0, 0), producer_id=9, sequence=0)
        assert (*published(old), old.timestamp_ms) == (-1, 1, 9, -1)  # durable with its newest at the latest
        mixed = publisher.publish(partition, numbered(2, 8), producer_id=9, sequence=2)
        assert [mixed.offset_of(index) for index in range(7)] == [-1, 4, 5, 6, 7, 8, 10]

    play(scenario)


@pytest.mark.parametrize("ahead", [1, 2, 1 << 29], ids=["one", "two", "far"])
def test_a_hole_is_refused(play: Play, ahead: int) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        partition = (await rig.topics.auto_create(published_topic("t"))).partitions[0]
        publisher.publish(partition, numbered(0, 2), producer_id=9, sequence=0)
        error = refused(
            lambda: publisher.publish(partition, messages(b"x"), producer_id=9, sequence=3 + ahead)
        )
        assert error.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert partition.high_watermark == 3

    play(scenario)


def test_producers_and_partitions_count_apart(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        topic = await rig.topics.create(NewTopic(name="t", partitions=2))
        for partition in topic.partitions:
            for producer_id in (1, 2):
                publisher.publish(partition, messages(b"x"), producer_id=producer_id, sequence=0)
        assert [partition.high_watermark for partition in topic.partitions] == [2, 2]

    play(scenario)


@pytest.mark.parametrize(
    ("producer_id", "sequence"),
    [(-2, 0), (1 << 63, 0), (1, -1), (1, 1 << 31)],
    ids=["negative id", "large id", "no sequence", "large sequence"],
)
def test_numbers_that_cannot_be_are_refused(play: Play, producer_id: int, sequence: int) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        partition = (await rig.topics.auto_create(published_topic("t"))).partitions[0]
        error = refused(
            lambda: publisher.publish(partition, messages(b"x"), producer_id=producer_id, sequence=sequence)
        )
        assert error.code == ErrorCode.INVALID_REQUEST
        assert partition.end_offset == 0

    play(scenario)


def test_an_id_that_a_kafka_producer_carries_on_is_not_taken(play: Play) -> None:
    async def scenario(rig: Rig) -> None:
        publisher = publisher_of(rig)
        partition = (await rig.topics.auto_create(published_topic("t"))).partitions[0]
        partition.append(
            read_batch(build_batch([(1, b"k", b"v", ())], producer_id=9, producer_epoch=3, base_sequence=0))
        )
        error = refused(lambda: publisher.publish(partition, messages(b"x"), producer_id=9, sequence=0))
        assert error.code == ErrorCode.INVALID_PRODUCER_EPOCH

    play(scenario)


# ---- restarts, over files


@asynccontextmanager
async def opened_files(path: Path, clock: Clock) -> AsyncIterator[tuple[Topics, Publisher]]:
    storage = await SegmentStorage.open(path / "data", clock=clock)
    metadata = StoredMetadata(SqliteStore(path / "metadata.sqlite"))
    config = BrokerConfig.read()
    topics = Topics(
        node_id=BrokerId(1),
        nodes=[BrokerId(1)],
        storage=storage,
        metadata=metadata,
        config=config,
        clock=clock,
        counters=Counters(),
        on_failure=lambda error: pytest.fail(str(error)),
    )
    try:
        await topics.load(await metadata.begin(BrokerId(1)))
        yield topics, Publisher(clock=clock)
    finally:
        await topics.close()
        await storage.close()
        await metadata.close()


def run(scenario: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        await asyncio.wait_for(scenario(), 60)

    asyncio.run(main())


@pytest.mark.parametrize("configs", [{}, CREATE_TIME], ids=["arrival", "own times"])
def test_times_do_not_go_back_over_a_restart(tmp_path: Path, configs: dict[str, str]) -> None:
    async def scenario() -> None:
        clock = FakeClock()
        start = clock.now_ms()
        async with opened_files(tmp_path, clock) as (topics, publisher):
            await topics.create(
                NewTopic(
                    name="t", partitions=1, configs={"message.timestamp.type": "LogAppendTime"} | configs
                )
            )
            partition = (await topics.ensure(published_topic("t"))).partitions[0]
            await partition.wait_acknowledged(publisher.publish(partition, messages(b"a")).end_offset)
        clock.set_back(60_000)
        async with opened_files(tmp_path, clock) as (topics, publisher):
            partition = (await topics.ensure(published_topic("t"))).partitions[0]
            assert publisher.publish(partition, messages(b"b")).timestamp_ms == start

    run(scenario)


def test_what_a_producer_sent_is_known_after_a_restart(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened_files(tmp_path, FakeClock()) as (topics, publisher):
            partition = (await topics.ensure(published_topic("t"))).partitions[0]
            sent = publisher.publish(partition, numbered(0, 3), producer_id=9, sequence=0)
            await partition.wait_acknowledged(sent.end_offset)
        async with opened_files(tmp_path, FakeClock()) as (topics, publisher):
            partition = (await topics.ensure(published_topic("t"))).partitions[0]
            again = publisher.publish(partition, numbered(2, 5), producer_id=9, sequence=2)
            assert [again.offset_of(index) for index in range(4)] == [2, 3, 4, 5]
            assert await values_of(partition) == [b"%d" % number for number in range(6)]

    run(scenario)


def test_a_published_message_is_acknowledged_when_it_is_durable(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with opened_files(tmp_path, FakeClock()) as (topics, publisher):
            partition = (await topics.ensure(published_topic("t"))).partitions[0]
            sent = publisher.publish(partition, messages(b"a"), producer_id=9, sequence=0)
            assert partition.high_watermark == 0
            again = publisher.publish(partition, messages(b"a"), producer_id=9, sequence=0)
            assert again.end_offset == sent.end_offset == 1
            await partition.wait_acknowledged(Offset(again.end_offset))
            assert partition.high_watermark == 1

    run(scenario)
