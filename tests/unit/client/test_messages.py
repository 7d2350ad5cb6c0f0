"""MessageProducer and MessageConsumer: the two documented examples, and what surrounds them."""

from __future__ import annotations

import concurrent.futures
import os
import re
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

import tailrace
from tailrace.client import (
    ConsumerRecord,
    MessageConsumer,
    MessageProducer,
    ProducerRecord,
    RecordMetadata,
    TopicPartition,
)
from tailrace.client.error import BufferFull, CannotConnect, ClientClosed
from tailrace.client.serialization import SerializationError
from tailrace.model import BrokerError, ConfigError

TIME_MS = int(time.time()) * 1000 - 60_000  # recent: retention must not take the records meanwhile


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture(autouse=True)
def _no_thread_is_left(broker: tailrace.Broker) -> Iterator[None]:
    before = threading.active_count()
    yield
    assert threading.active_count() == before


def poll_until(consumer: MessageConsumer, count: int) -> list[ConsumerRecord]:
    found: list[ConsumerRecord] = []
    for _ in range(200):
        found += consumer.poll(100)
        if len(found) >= count:
            return found
    raise AssertionError(f"{len(found)} records came, {count} were expected")


# ---- the examples


def test_the_two_examples_run(broker: tailrace.Broker, capsys: pytest.CaptureFixture[str]) -> None:
    props: dict[str, Any] = {}
    props["bootstrap.servers"] = broker.bootstrap_servers
    props["key.serializer"] = "org.apache.kafka.common.serialization.StringSerializer"
    props["value.serializer"] = "org.apache.kafka.common.serialization.StringSerializer"

    with MessageProducer(props) as producer:
        record = ProducerRecord("test-topic", "key1", "Hello World!")
        producer.send(record)

    props = {}
    props["bootstrap.servers"] = broker.bootstrap_servers
    props["group.id"] = "test-group"
    props["key.deserializer"] = "org.apache.kafka.common.serialization.StringDeserializer"
    props["value.deserializer"] = "org.apache.kafka.common.serialization.StringDeserializer"

    with MessageConsumer(props) as consumer:
        consumer.subscribe(["test-topic"])
        received = False
        while not received:  # `while True` in the document
            records = consumer.poll(timedelta(milliseconds=100))
            for each in records:
                print(f"Received: {each.value}")
                received = True

    assert capsys.readouterr().out == "Received: Hello World!\n"


# ---- sending


def test_a_future_and_a_callback_tell_where_a_record_went(broker: tailrace.Broker) -> None:
    heard: list[tuple[RecordMetadata | None, BaseException | None]] = []
    with MessageProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        future = producer.send(
            ProducerRecord("told", 0, TIME_MS, b"k", b"v"), lambda done, error: heard.append((done, error))
        )
        place = future.result(timeout=60)
        producer.flush()
    assert (place.topic, place.partition, place.offset, place.timestamp) == ("told", 0, 0, TIME_MS)
    assert heard == [(place, None)]


def test_an_error_reaches_future_and_callback(broker: tailrace.Broker) -> None:
    heard: list[tuple[RecordMetadata | None, BaseException | None]] = []
    with MessageProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        future = producer.send(
            ProducerRecord("told", 99, None, "v"), lambda done, error: heard.append((done, error))
        )
        with pytest.raises(BrokerError, match="no partition 99"):
            future.result(timeout=60)
    assert heard[0][0] is None
    assert isinstance(heard[0][1], BrokerError)


def test_flush_waits_for_everything(broker: tailrace.Broker) -> None:
    with MessageProducer({"bootstrap.servers": broker.bootstrap_servers, "linger.ms": 60_000}) as producer:
        futures = [producer.send(ProducerRecord("flushed", f"{index}")) for index in range(3000)]
        producer.flush()
        assert all(future.done() for future in futures)
    assert [record.value for record in broker.read("flushed")] == [b"%d" % index for index in range(3000)]


def test_several_threads_may_send(broker: tailrace.Broker) -> None:
    with MessageProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:

        def send(name: int) -> None:
            for index in range(200):
                producer.send(ProducerRecord("threads", f"{name}", f"{index}"))

        with concurrent.futures.ThreadPoolExecutor(4) as threads:
            list(threads.map(send, range(4)))
    found: dict[bytes | None, list[bytes | None]] = {}
    for record in broker.read("threads"):
        found.setdefault(record.key, []).append(record.value)
    assert set(found) == {b"0", b"1", b"2", b"3"}
    assert all(values == [b"%d" % index for index in range(200)] for values in found.values())


def test_sending_waits_for_room_and_then_gives_up(broker: tailrace.Broker) -> None:
    props = {
        "bootstrap.servers": broker.bootstrap_servers,
        "buffer.memory": 1000,
        "max.block.ms": 50,
        "linger.ms": 60_000,
    }
    with MessageProducer(props) as producer:
        producer.send(ProducerRecord("room", bytes(900)))
        with pytest.raises(BufferFull, match=r"max\.block\.ms"):
            producer.send(ProducerRecord("room", bytes(900)))
        producer.flush()
        producer.send(ProducerRecord("room", bytes(900)))


def test_a_send_can_be_cancelled_until_it_is_on_its_way(broker: tailrace.Broker) -> None:
    with MessageProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        producer.send(ProducerRecord("cancelled", "first")).result(timeout=60)
        held = threading.Event()
        producer._thread.loop.call_soon_threadsafe(held.wait, 10)
        future = producer.send(ProducerRecord("cancelled", "second"))
        assert future.cancel()
        held.set()
        last = producer.send(ProducerRecord("cancelled", "third"))
        last.result(timeout=60)
        assert not last.cancel()
    assert [record.value for record in broker.read("cancelled")] == [b"first", b"third"]


def test_a_cancelled_send_is_told_to_its_callback_and_makes_room(broker: tailrace.Broker) -> None:
    heard: list[tuple[RecordMetadata | None, BaseException | None]] = []
    props = {"bootstrap.servers": broker.bootstrap_servers, "buffer.memory": 1000}
    with MessageProducer(props) as producer:
        begun, go_on = threading.Event(), threading.Event()

        def hold(_done: RecordMetadata | None, _error: BaseException | None) -> None:
            begun.set()
            go_on.wait(60)

        producer.send(ProducerRecord("held", b"v"), hold)
        assert begun.wait(60)
        future = producer.send(
            ProducerRecord("held", bytes(900)), lambda done, error: heard.append((done, error))
        )
        assert future.cancel()
        go_on.set()
        assert producer.send(ProducerRecord("held", bytes(900))).result(timeout=60).offset == 1
    assert [(done, type(error)) for done, error in heard] == [(None, concurrent.futures.CancelledError)]


def test_a_producer_cannot_be_closed_by_its_own_callback_and_goes_on(broker: tailrace.Broker) -> None:
    heard: list[BaseException] = []
    with MessageProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:

        def close(_done: RecordMetadata | None, _error: BaseException | None) -> None:
            try:
                producer.close()
            except ClientClosed as error:
                heard.append(error)

        producer.send(ProducerRecord("t", b"v"), close).result(timeout=60)
        producer.send(ProducerRecord("t", b"w")).result(timeout=60)
    assert "its own callbacks" in str(heard[0])


def test_a_process_that_was_forked_off_cannot_use_a_producer(
    broker: tailrace.Broker, monkeypatch: pytest.MonkeyPatch
) -> None:
    with MessageProducer({"bootstrap.servers": broker.bootstrap_servers}) as producer:
        with monkeypatch.context() as forked:
            forked.setattr(os, "getpid", lambda: -1)
            with pytest.raises(ClientClosed, match="Make one after the fork"):
                producer.send(ProducerRecord("t", b"v"))
            producer.close()
        producer.send(ProducerRecord("t", b"v")).result(timeout=60)


def test_a_value_that_does_not_serialize_is_refused_at_once(broker: tailrace.Broker) -> None:
    props = {"bootstrap.servers": broker.bootstrap_servers, "value.serializer": "StringSerializer"}
    with MessageProducer(props) as producer, pytest.raises(SerializationError, match="takes text"):
        producer.send(ProducerRecord("t", 5))


def test_closing_twice_is_once_and_a_closed_one_says_so(broker: tailrace.Broker) -> None:
    producer = MessageProducer({"bootstrap.servers": broker.bootstrap_servers})
    producer.close()
    producer.close()
    with pytest.raises(ClientClosed):
        producer.send(ProducerRecord("t", "v"))
    with pytest.raises(ClientClosed):
        producer.flush()


def test_nobody_there_is_an_error_at_once() -> None:
    with pytest.raises(CannotConnect, match="tailrace up"):
        MessageProducer({"bootstrap.servers": "127.0.0.1:1"})
    with pytest.raises(CannotConnect, match="tailrace up"):
        MessageConsumer({"bootstrap.servers": "127.0.0.1:1"})


def test_a_misspelt_property_is_an_error_at_once() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean group\.id"):
        MessageConsumer({"bootstrap.servers": "127.0.0.1:1", "groupid": "g"})


# ---- records to send


def test_the_arguments_are_javas() -> None:
    def fields(record: ProducerRecord) -> tuple[Any, ...]:
        return record.partition, record.timestamp, record.key, record.value

    assert fields(ProducerRecord("t", "v")) == (None, None, None, "v")
    assert fields(ProducerRecord("t", "k", "v")) == (None, None, "k", "v")
    assert fields(ProducerRecord("t", 3, "k", "v")) == (3, None, "k", "v")
    assert fields(ProducerRecord("t", 3, 99, "k", "v")) == (3, 99, "k", "v")
    assert fields(ProducerRecord("t", value="v", partition=1)) == (1, None, None, "v")
    assert ProducerRecord("t", "v", headers=[("h", b"x")]).headers == (("h", b"x"),)
    assert "value='v'" in repr(ProducerRecord("t", "v"))


@pytest.mark.parametrize(
    ("args", "named"),
    [
        ((), {}),
        (("v",), {"value": "w"}),
        ((1, 2, "k", "v", "more"), {}),
        ((), {"value": "v", "valu": 1}),
        ((), {"key": "k"}),
    ],
)
def test_a_record_that_makes_no_sense_is_refused(args: tuple[Any, ...], named: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        ProducerRecord("t", *args, **named)


# ---- consuming


def consumer_of(broker: tailrace.Broker, group: str, **more: Any) -> MessageConsumer:
    return MessageConsumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, **more})


def test_a_group_commits_and_goes_on(broker: tailrace.Broker) -> None:
    for index in range(5):
        broker.produce("go-on", b"%d" % index)
    target = TopicPartition("go-on", 0)
    with consumer_of(broker, "go-on", **{"enable.auto.commit": False}) as consumer:
        consumer.subscribe("go-on")
        poll_until(consumer, 5)
        consumer.commit({target: 3})
        assert consumer.committed(target) == 3
        assert consumer.position(target) == 5
        assert consumer.assignment == {target}
    with consumer_of(broker, "go-on") as consumer:
        consumer.subscribe(re.compile("go-.*"))
        assert [record.value for record in poll_until(consumer, 2)] == [b"3", b"4"]


def test_a_listener_may_use_the_consumer(broker: tailrace.Broker) -> None:
    for index in range(3):
        broker.produce("listened", b"%d" % index)
    with consumer_of(broker, "listened") as consumer:
        consumer.subscribe(["listened"], on_assigned=lambda parts: consumer.seek(parts[0], 2))
        assert [record.value for record in poll_until(consumer, 1)] == [b"2"]


def test_records_can_be_looked_at_by_partition(broker: tailrace.Broker) -> None:
    broker.produce("looked", b"v", key=b"k", headers=[("h", None)], timestamp=TIME_MS)
    target = TopicPartition("looked", 0)
    with MessageConsumer({"bootstrap.servers": broker.bootstrap_servers}) as consumer:
        consumer.assign([target])
        records = consumer.poll(0)
        while records.is_empty():
            records = consumer.poll(timeout_ms=100)
        assert records.partitions() == {target}
        assert records.count() == len(records) == 1
        assert records.records(target) == records.records("looked") == list(records)
        assert records[0] == ConsumerRecord("looked", 0, 0, TIME_MS, b"k", b"v", (("h", None),))
        assert consumer.offsets_for_times({target: TIME_MS}) == {target: (0, TIME_MS)}
        assert consumer.offsets_for_times({target: TIME_MS + 1}) == {target: None}
        consumer.seek_to_beginning()
        assert consumer.position(target) == 0


def test_a_record_that_does_not_deserialize_can_be_passed_over(broker: tailrace.Broker) -> None:
    for value in (b"\0\0\0\1", b"bad", b"\0\0\0\3"):
        broker.produce("poison", value)
    target = TopicPartition("poison", 0)
    props = {"bootstrap.servers": broker.bootstrap_servers, "value.deserializer": "IntegerDeserializer"}
    with MessageConsumer(props) as consumer:
        consumer.assign([target])
        with pytest.raises(SerializationError, match=r"poison-0 offset 1: value\.deserializer"):
            poll_until(consumer, 3)
        assert consumer.position(target) == 0
        consumer.seek(target, 2)
        assert [record.value for record in poll_until(consumer, 1)] == [3]
