"""One topic, two listeners: what is published natively is read by Kafka clients, and the other way round.

The native side is tailrace.client.BrokerClient; the other is each of the Python clients of Kafka, whose word
counts for what a record holds.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest
from tests.interop.clients.catalog import CATALOG, Entry
from tests.interop.clients.partitioners import murmur2_partition
from tests.interop.clients.port import (
    CODECS,
    Client,
    Feature,
    Headers,
    Message,
    Producing,
    Reading,
    Record,
    TopicPartition,
)
from tests.interop.deadline import wait_until
from tests.interop.server import ServerProcess

from tailrace.client import BrokerClient
from tailrace.client.native.blocking import Message as NativeMessage

_LIBRARIES = ("confluent", "kafka_python", "aiokafka")
_RECEIVE_S = 60

ODD_HEADERS: Headers = (
    ("text", "žluťoučký 馬".encode()),
    ("binary", b"\x00\xff\xfe"),
    ("again", b"first"),
    ("again", b"second"),
    ("a=b", b"an equals sign in the name"),
    ("_ours", b"looks reserved"),
    ("nul", b"before\x00after"),
    ("empty", b""),
)


@pytest.fixture(params=_LIBRARIES)
def library(request: pytest.FixtureRequest, start_client: Callable[[Entry], Client]) -> Client:
    """A Kafka client written for Python."""
    (entry,) = [each for each in CATALOG if each.name == request.param]
    return start_client(entry)


@pytest.fixture
def native(server: ServerProcess | None) -> Iterator[BrokerClient]:
    """A client of the native listener of the same server."""
    if server is None:
        pytest.skip("the broker was given: it has no native listener")
    port = json.loads((server.data_dir / "tailrace.ports.json").read_text())["native"]
    with BrokerClient("127.0.0.1", port, client_id="cross-listener") as client:
        yield client


def read(client: Client, topic: str, count: int, *, partitions: int = 1) -> list[Record]:
    """Everything from the beginning, as a Kafka client sees it."""
    starts = {TopicPartition(topic, index): "earliest" for index in range(partitions)}
    consumer = client.open(Reading(assign=starts))
    try:
        return consumer.take(count)
    finally:
        consumer.close()


def receive(client: BrokerClient, subscription: str, count: int) -> list[NativeMessage]:
    """So many messages of a subscription, each acknowledged, in the order of arrival."""
    received: list[NativeMessage] = []
    end = time.monotonic() + _RECEIVE_S
    while len(received) < count and time.monotonic() < end:
        for message in client.pull(subscription, count=count - len(received), wait_ms=500):
            message.ack()
            received.append(message)
    assert len(received) == count, f"{len(received)} of {count} within {_RECEIVE_S} s"
    return received


def headers_for(client: Client) -> Headers:
    """Every kind of header that this client can send."""
    null: Headers = () if Feature.NULL_HEADERS in client.lacks else (("null", None),)
    return ODD_HEADERS + null


# ---- published natively, read through Kafka


def test_properties_are_headers(native: BrokerClient, library: Client, fresh_name: str) -> None:
    published = native.publish(
        fresh_name,
        "hello",
        key="customer-7",
        properties={"colour": "red", "größe": "žlutá", "empty": ""},
        ttl_ms=60_000,
        priority=9,
        created_at=1_700_000_000_123,
    )
    (record,) = read(library, fresh_name, 1)
    assert (record.key, record.value) == (b"customer-7", b"hello")
    assert (record.partition, record.offset) == (published.partition, published.offset) == (0, 0)
    assert record.timestamp_ms == published.timestamp
    assert dict(record.headers) == {
        "colour": b"red",
        "größe": "žlutá".encode(),
        "empty": b"",
        "ttl_ms": b"60000",
        "priority": b"9",
        "created_at": b"1700000000123",
    }


def test_binary_headers_keys_and_tombstones_come_as_they_were_given(
    native: BrokerClient, library: Client, fresh_name: str
) -> None:
    native.publish(fresh_name, b"\x00\xff binary", key=b"\xfe\x00", headers=[*ODD_HEADERS, ("null", None)])
    native.publish(fresh_name, None, key=b"gone")
    native.publish(fresh_name, b"", key=b"")
    first, second, third = read(library, fresh_name, 3)
    assert (first.key, first.value) == (b"\xfe\x00", b"\x00\xff binary")
    assert first.headers == (*ODD_HEADERS, ("null", None))
    assert (second.key, second.value) == (b"gone", None)
    assert (third.key, third.value) == (b"", b"")


def test_a_delayed_message_is_a_record_when_it_is_due(
    native: BrokerClient, library: Client, topic: str
) -> None:
    consumer = library.open(Reading(assign={TopicPartition(topic, 0): "earliest"}))
    try:
        before_ms = int(time.time() * 1000)
        delayed = native.publish(topic, "later", delay_ms=5_000, properties={"colour": "red"})
        native.publish(topic, "now")
        assert (delayed.partition, delayed.offset) == (-1, -1)
        now, later = consumer.take(2)
    finally:
        consumer.close()
    assert [now.value, later.value] == [b"now", b"later"]
    assert dict(later.headers)["colour"] == b"red"
    assert later.timestamp_ms - before_ms >= 5_000 - 20  # clocks tick in milliseconds


def test_a_batch_of_many_publishers_comes_in_the_order_of_its_offsets(
    native: BrokerClient, library: Client, topic: str
) -> None:
    placed = {native.publish(topic, f"{number}").offset: b"%d" % number for number in range(100)}
    records = read(library, topic, 100)
    assert {record.offset: record.value for record in records} == placed
    stamps = [record.timestamp_ms for record in records]
    assert stamps == sorted(stamps)


def test_keys_are_where_kafkas_partitioner_puts_them(
    native: BrokerClient, library: Client, wide_topic: str
) -> None:
    keys = [b"key-%d" % number for number in range(60)]
    for key in keys:
        native.publish(wide_topic, b"v", key=key)
    found = {record.key: record.partition for record in read(library, wide_topic, 60, partitions=4)}
    assert found == {key: murmur2_partition(key, 4) for key in keys}


# ---- produced through Kafka, received natively


@pytest.mark.parametrize("codec", CODECS)
def test_records_are_received_as_they_were_produced(
    native: BrokerClient, library: Client, topic: str, fresh: Callable[[str], str], codec: str
) -> None:
    sent = [
        Message(value=b"plain", partition=0),
        Message(value=b"\x00\xff", key=b"\xfe\x00\n", headers=headers_for(library), partition=0),
        Message(value=None, key=b"gone", headers=(("why", b"deleted"),), partition=0),
        Message(value=b"", key="ключ".encode(), partition=0),
        *(Message(value=b"value %d " % n * n, key=b"%d" % n, partition=0) for n in range(1, 60)),
        Message(value=b"y" * 20_000, timestamp_ms=1_700_000_000_123, partition=0),
    ]
    library.produce(topic, sent, Producing(codec=codec))
    name = fresh("subscription")
    native.create_subscription(name, topic)
    received = receive(native, name, len(sent))
    assert [message.offset for message in received] == list(range(len(sent)))
    for message, wanted in zip(received, sent, strict=True):
        assert (message.key, message.body) == (wanted.key, wanted.value or b"")
        assert message.is_tombstone == (wanted.value is None)
        assert tuple(message.headers) == wanted.headers
        assert (message.topic, message.partition, message.delivery_count) == (topic, 0, 1)
    assert received[-1].timestamp == 1_700_000_000_123


def test_headers_that_are_text_are_properties_even_beside_others(
    native: BrokerClient, library: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    library.produce(
        topic,
        [
            Message(value=b"v", headers=(("colour", b"red"), ("size", b"5")), partition=0),
            Message(value=b"v", headers=(("colour", b"red"), ("binary", b"\xff")), partition=0),
        ],
    )
    name = fresh("subscription")
    native.create_subscription(name, topic)
    first, second = receive(native, name, 2)
    assert first.properties == {"colour": "red", "size": "5"}
    assert second.properties == {"colour": "red"}
    assert second.headers == [("colour", b"red"), ("binary", b"\xff")]


def test_what_a_kafka_client_produced_goes_round_and_comes_back(
    native: BrokerClient, library: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    """Received natively, published natively with what was received, read through Kafka: the same record."""
    headers = headers_for(library)
    library.produce(topic, [Message(value=b"v", key=b"k\x00", headers=headers, partition=0)])
    name, copied = fresh("subscription"), fresh("copy")
    native.create_subscription(name, topic)
    (message,) = receive(native, name, 1)
    native.publish(copied, message.body, key=message.key, headers=message.headers)
    (record,) = read(library, copied, 1)
    assert (record.key, record.value, record.headers) == (b"k\x00", b"v", headers)


# ---- side by side


def test_a_subscription_and_a_group_each_get_everything(
    native: BrokerClient, library: Client, topic: str, group: str, fresh: Callable[[str], str]
) -> None:
    name = fresh("subscription")
    native.create_subscription(name, topic)
    consumer = library.open(Reading(topics=[topic], group=group))
    try:
        library.produce(topic, [Message(value=b"kafka %d" % n, partition=0) for n in range(20)])
        for number in range(20):
            native.publish(topic, f"native {number}")
        received = receive(native, name, 40)
        records = consumer.take(40)
        consumer.commit({TopicPartition(topic, 0): 40})
    finally:
        consumer.close()
    assert [message.body for message in received] == [record.value for record in records]
    assert [message.offset for message in received] == [record.offset for record in records]
    assert native.pull(name, count=10, wait_ms=100) == []
    assert native.describe_subscription(name)["lag"] == 0
    # Neither moved the other: a replay concerns the subscription alone.
    native.seek(name, "earliest")
    assert len(receive(native, name, 40)) == 40
    assert library.admin.group_offsets(group)[TopicPartition(topic, 0)][0] == 40


def test_dead_letters_are_read_through_kafka(
    native: BrokerClient, library: Client, topic: str, fresh: Callable[[str], str]
) -> None:
    name = fresh("subscription")
    native.create_subscription(name, topic, max_deliveries=2, backoff_ms=10)
    library.produce(
        topic,
        [
            Message(value=b"fine", partition=0),
            Message(value=b"bad", key=b"k", headers=(("colour", b"red"), ("raw", b"\xff")), partition=0),
        ],
    )
    (fine,) = native.pull(name, count=1, wait_ms=5_000)
    fine.ack()
    for delivery in (1, 2):
        (bad,) = native.pull(name, count=1, wait_ms=5_000)
        assert (bad.body, bad.delivery_count) == (b"bad", delivery)
        bad.nack(reason="no thanks")
    wait_until(
        lambda: bool(native.describe_dead_letters(name)), within_s=_RECEIVE_S, what="there is no dead letter"
    )
    (letter,) = read(library, f"{name}.dlq", 1)
    assert (letter.key, letter.value) == (b"k", b"bad")
    assert letter.headers[:2] == (("colour", b"red"), ("raw", b"\xff"))
    told = {header: (value or b"").decode() for header, value in letter.headers[2:]}
    assert abs(int(told.pop("_dlq_time")) - time.time() * 1000) < 60_000
    assert told == {
        "_dlq_subscription": name,
        "_dlq_topic": topic,
        "_dlq_partition": "0",
        "_dlq_offset": "1",
        "_dlq_reason": "no thanks",
        "_dlq_deliveries": "2",
    }
