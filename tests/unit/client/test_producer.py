"""The producer against a scripted broker: batching, order under retries, idempotence, bounds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest
from tests import unhurried
from tests.unit.client.conftest import INIT_PRODUCER_ID, Answer, FakeBroker

from tailrace.client.accumulator import RecordMetadata
from tailrace.client.error import BufferFull, ClientClosed, TimedOut, UnknownTopic
from tailrace.client.kafka import KafkaClient
from tailrace.client.producer import Producer, ProducerConfig
from tailrace.model import BrokerError, ErrorCode
from tailrace.records import Compression, read_batch
from tailrace.wire.kafka import PRODUCE, ProduceRequest, ProduceResult
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdResponse
from tailrace.wire.kafka.partitioner import partition_of_key

Test = Callable[[FakeBroker, Producer], Awaitable[None]]
DEADLINE_S = 60.0


def with_producer(test: Test, *, partitions: int = 1, **settings: Any) -> None:
    async def run() -> None:
        async with FakeBroker() as fake, fake.client() as client:
            fake.topics["t"] = partitions
            async with Producer(client, ProducerConfig(**settings)) as producer:
                await test(fake, producer)

    unhurried.run(run())


def failing(fake: FakeBroker, codes: Iterable[int], *, keep: bool = False) -> None:
    """Answer the first batches with these codes; `keep` them nevertheless, as one whose reply is lost."""
    left = list(codes)

    def decide(topic: str, partition: int, batch: bytes) -> ProduceResult:
        if not left:
            return fake.keep(topic, partition, batch)
        code = left.pop(0)
        if keep:
            fake.keep(topic, partition, batch)
        return ProduceResult(partition, error_code=code)

    fake.handlers[PRODUCE] = lambda version, request: fake.answer_produce(version, request, decide)


async def send_all(producer: Producer, count: int, **where: Any) -> list[RecordMetadata]:
    futures = [await producer.send("t", b"%d" % index, **where) for index in range(count)]
    return [await future for future in futures]


def numbers(count: int) -> list[bytes | None]:
    return [b"%d" % index for index in range(count)]


# ---- the ordinary way


def test_a_record_arrives_and_its_place_is_told() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        future = await producer.send("t", b"v", key=b"k", headers=[("h", b"x")], timestamp_ms=1234)
        assert await future == RecordMetadata("t", 0, 0, 1234)
        (record,) = read_batch(fake.stored["t", 0][0]).records()
        assert (record.key, record.value, record.headers) == (b"k", b"v", (("h", b"x"),))
        assert record.timestamp == 1234

    with_producer(test)


def test_records_sent_together_travel_together() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        done = await send_all(producer, 100)
        assert [each.offset for each in done] == list(range(100))
        assert fake.values() == numbers(100)
        assert len(fake.asked_for(PRODUCE)) < 20

    with_producer(test)


def test_a_batch_holds_no_more_than_batch_bytes() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        futures = [await producer.send("t", bytes(100)) for _ in range(30)]
        await producer.flush()
        assert all(future.done() for future in futures)
        assert all(len(batch) <= 500 for batch in fake.stored["t", 0])

    with_producer(test, batch_bytes=500)


def test_a_linger_waits_and_a_flush_does_not() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        first = await producer.send("t", b"a")
        second = await producer.send("t", b"b")
        await asyncio.sleep(0.05)
        assert not fake.asked_for(PRODUCE)
        await producer.flush()
        assert first.done() and second.done()
        assert len(fake.stored["t", 0]) == 1

    with_producer(test, linger_s=60)


def test_a_linger_ends() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        assert (await asyncio.wait_for(await producer.send("t", b"a"), 60)).offset == 0

    with_producer(test, linger_s=0.02)


@pytest.mark.parametrize("codec", Compression)
def test_batches_are_compressed(codec: Compression) -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        await send_all(producer, 3)
        assert {read_batch(batch).compression for batch in fake.stored["t", 0]} == {codec}
        assert fake.values() == numbers(3)

    with_producer(test, compression=codec)


def test_a_key_goes_where_the_java_client_sends_it() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        for key in (b"a", b"b", b"foobar"):
            done = await (await producer.send("t", b"", key=key))
            assert done.partition == partition_of_key(key, partitions=5)

    with_producer(test, partitions=5)


def test_a_partition_may_be_chosen() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        assert (await (await producer.send("t", b"", key=b"k", partition=2))).partition == 2

    with_producer(test, partitions=3)


def test_leaving_the_block_sends_everything() -> None:
    async def run() -> None:
        async with FakeBroker() as fake, fake.client() as client:
            async with Producer(client, ProducerConfig(linger_s=60)) as producer:
                for index in range(5):
                    await producer.send("t", b"%d" % index)
            assert fake.values() == numbers(5)
            with pytest.raises(ClientClosed):
                await producer.send("t", b"late")

    unhurried.run(run())


def test_without_acks_nothing_is_waited_for() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        (done,) = await send_all(producer, 1)
        assert done.offset == -1
        assert not fake.asked_for(INIT_PRODUCER_ID)

    with_producer(test, acks=0, idempotent=False)


# ---- idempotence and order


def test_sequences_count_records_and_the_producer_id_is_asked_for_once() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        for _ in range(3):
            await send_all(producer, 4)
        batches = [read_batch(batch) for batch in fake.stored["t", 0]]
        expected = 0
        for batch in batches:
            assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (1001, 0, expected)
            expected += batch.count
        assert fake.producers == 1

    with_producer(test)


@pytest.mark.parametrize("code", [2, 3, 5, 6, 7, 19, 20, 56])
def test_a_retry_keeps_bytes_sequence_and_order(code: int) -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        failing(fake, [code, code])
        await send_all(producer, 50)
        assert fake.values() == numbers(50)
        sent = [bytes(request.topics[0].partitions[0].records) for request in fake.asked_for(PRODUCE)]
        assert sent[0] == sent[1] == sent[2]

    with_producer(test, batch_bytes=400)


def test_a_lost_connection_keeps_order() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        drops = [True, False, True]

        def unreliable(version: int, request: ProduceRequest) -> Answer:
            if drops and drops.pop():
                fake.drop_connections()
                return None
            return fake.produce(version, request)

        fake.handlers[PRODUCE] = unreliable
        await send_all(producer, 30)
        assert fake.values() == numbers(30)

    with_producer(test, batch_bytes=300)


def test_a_duplicate_counts_as_arrived() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        failing(fake, [ErrorCode.DUPLICATE_SEQUENCE_NUMBER], keep=True)
        (done,) = await send_all(producer, 1)
        assert done.offset == -1
        assert fake.values() == [b"0"]

    with_producer(test)


@pytest.mark.parametrize("code", [ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID])
def test_a_broker_that_lost_the_sequence_gets_the_batch_under_a_new_id(code: int) -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        await send_all(producer, 2)
        failing(fake, [code])
        await send_all(producer, 1)
        last = read_batch(fake.stored["t", 0][-1])
        assert (last.producer_id, last.base_sequence) == (1002, 0)

    with_producer(test)


def test_after_a_batch_was_given_up_the_lane_goes_on_under_a_new_id() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        failing(fake, [ErrorCode.INVALID_RECORD])
        with pytest.raises(BrokerError, match="invalid record"):
            await (await producer.send("t", b"bad"))
        await send_all(producer, 1)
        (batch,) = map(read_batch, fake.stored["t", 0])
        assert (batch.producer_id, batch.base_sequence) == (1002, 0)

    with_producer(test)


def test_a_batch_that_is_too_large_is_sent_in_halves() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        def decide(topic: str, partition: int, batch: bytes) -> ProduceResult:
            if read_batch(batch).count > 3:
                return ProduceResult(partition, error_code=ErrorCode.MESSAGE_TOO_LARGE)
            return fake.keep(topic, partition, batch)

        fake.handlers[PRODUCE] = lambda version, request: fake.answer_produce(version, request, decide)
        done = await send_all(producer, 10)
        assert fake.values() == numbers(10)
        assert [each.offset for each in done] == list(range(10))
        sequences = [read_batch(batch).base_sequence for batch in fake.stored["t", 0]]
        assert sequences == sorted(sequences)
        assert sequences[0] == 0

    with_producer(test, linger_s=0.01)


def test_a_flush_waits_for_the_halves_of_a_batch_too() -> None:
    async def run() -> None:
        async with FakeBroker() as fake, fake.client() as client:

            def decide(topic: str, partition: int, batch: bytes) -> ProduceResult:
                if read_batch(batch).count > 1:
                    return ProduceResult(partition, error_code=ErrorCode.MESSAGE_TOO_LARGE)
                return fake.keep(topic, partition, batch)

            fake.handlers[PRODUCE] = lambda version, request: fake.answer_produce(version, request, decide)
            async with Producer(client, ProducerConfig(linger_s=60.0)) as producer:
                futures = [await producer.send("t", b"%d" % index) for index in range(4)]
            assert [(await future).offset for future in futures] == [0, 1, 2, 3]

    unhurried.run(run())


# ---- trouble


def test_one_record_that_is_too_large_for_the_topic_fails_alone() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        failing(fake, [ErrorCode.MESSAGE_TOO_LARGE])
        with pytest.raises(BrokerError, match=r"max\.message\.bytes"):
            await (await producer.send("t", b"v"))
        assert (await send_all(producer, 1))[0].offset == 0

    with_producer(test)


def test_a_record_over_the_request_size_is_refused_before_it_is_sent() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        with pytest.raises(BrokerError, match=r"over max\.request\.size, 1000"):
            await producer.send("t", bytes(2000))
        assert producer.bytes_buffered == 0

    with_producer(test, request_bytes_max=1000)


def test_what_does_not_arrive_in_time_fails_and_says_why() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        failing(fake, [6] * 1000)
        with pytest.raises(TimedOut, match=r"did not arrive within 0\.2 s: .*not leader"):
            await (await producer.send("t", b"v"))
        assert producer.bytes_buffered == 0

    with_producer(test, delivery_timeout_s=0.2)


def test_without_retries_the_first_error_counts() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        failing(fake, [6])
        with pytest.raises(BrokerError, match="not leader"):
            await (await producer.send("t", b"v"))

    with_producer(test, retries_max=0)


def test_a_topic_that_nobody_creates_fails_its_own_records_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.client.kafka.CREATE_WAIT_S", 0.2)

    async def test(fake: FakeBroker, producer: Producer) -> None:
        lost = await producer.send("absent", b"v")
        assert (await (await producer.send("t", b"v"))).offset == 0
        with pytest.raises(UnknownTopic, match="topic absent does not exist"):
            await lost
        assert producer.bytes_buffered == 0

    with_producer(test)


def test_a_partition_that_does_not_exist_fails_the_record() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        with pytest.raises(BrokerError, match="topic t has no partition 7"):
            await (await producer.send("t", b"v", partition=7))
        assert producer.bytes_buffered == 0

    with_producer(test)


def test_sending_waits_for_room() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        release = asyncio.Event()

        async def held(version: int, request: ProduceRequest) -> Answer:
            await release.wait()
            return fake.produce(version, request)

        fake.handlers[PRODUCE] = held
        await producer.send("t", bytes(500))
        waiting = asyncio.ensure_future(producer.send("t", bytes(600)))
        done, _ = await asyncio.wait([waiting], timeout=0.05)
        assert not done
        with pytest.raises(BufferFull, match=r"buffer\.memory is 1000"):
            producer.send_nowait("t", bytes(600), future=asyncio.get_running_loop().create_future())
        release.set()
        await (await waiting)

    with_producer(test, buffer_bytes_max=1000)


def test_closing_in_a_hurry_fails_what_is_left() -> None:
    async def run() -> None:
        async with FakeBroker() as fake, fake.client() as client:
            fake.handlers[PRODUCE] = lambda version, request: None
            producer = Producer(client)
            future = await producer.send("t", b"v")
            await producer.close(timeout_s=0.05)
            with pytest.raises(ClientClosed):
                await future

    unhurried.run(run())


def test_who_waits_for_room_is_told_that_the_producer_was_closed() -> None:
    async def run() -> None:
        async with FakeBroker() as fake, fake.client() as client:
            fake.handlers[PRODUCE] = lambda version, request: None
            producer = Producer(client, ProducerConfig(buffer_bytes_max=1000))
            await producer.send("t", bytes(900))
            waiting = asyncio.ensure_future(producer.send("t", bytes(900)))
            await asyncio.sleep(0)
            await producer.close(timeout_s=0)
            with pytest.raises(ClientClosed):
                await asyncio.wait_for(waiting, DEADLINE_S)

    unhurried.run(run())


def test_a_producer_id_that_cannot_be_had_is_asked_for_again() -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        errors = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]

        def busy(version: int, request: object) -> InitProducerIdResponse:
            return InitProducerIdResponse(error_code=errors.pop() if errors else 0, producer_id=7)

        fake.handlers[INIT_PRODUCER_ID] = busy
        await send_all(producer, 1)
        assert read_batch(fake.stored["t", 0][0]).producer_id == 7

    with_producer(test)


def test_a_future_that_nobody_waits_for_makes_no_noise(caplog: pytest.LogCaptureFixture) -> None:
    async def test(fake: FakeBroker, producer: Producer) -> None:
        failing(fake, [ErrorCode.INVALID_RECORD])
        await producer.send("t", b"v")
        await producer.flush()

    with_producer(test)
    assert not [each for each in caplog.records if each.name == "asyncio"]


def test_the_client_is_not_the_producers_to_close() -> None:
    async def run() -> None:
        async with FakeBroker() as fake, fake.client() as client:
            async with Producer(client):
                pass
            assert isinstance(client, KafkaClient)
            assert await client.metadata()

    unhurried.run(run())
