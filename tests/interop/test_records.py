"""Records sent and read back by every client: what went in comes out, whatever the codec."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Callable

import pytest
from tests.interop.clients.port import (
    CODECS,
    Client,
    Feature,
    Message,
    Placed,
    Producing,
    Reading,
    Record,
    TopicPartition,
    needs,
)
from tests.interop.raw import read_batches

_BASE_MS = 1_700_000_000_000


def read(client: Client, topic: str, count: int, *, partitions: int = 1) -> list[Record]:
    """Everything from the beginning."""
    starts = {TopicPartition(topic, index): "earliest" for index in range(partitions)}
    consumer = client.open(Reading(assign=starts))
    try:
        return consumer.take(count)
    finally:
        consumer.close()


def messages(client: Client) -> list[Message]:
    """Of every shape that this client can send, into partition 0, compressible."""
    timed = Feature.TIMESTAMPS not in client.lacks
    null = None if Feature.NULL_HEADERS not in client.lacks else b"something"
    shapes = [
        Message(value=b"plain"),
        Message(value=b"keyed", key=b"k"),
        Message(value=b"\x00\xff binary \n", key=b"\xfe\x00\n"),
        Message(value=None, key=b"gone"),
        Message(value=b"", key=b"empty"),
        Message(value="žluťoučký 馬".encode(), key="ключ".encode()),
        Message(value=b"x", headers=(("a", b"1"), ("b", b"zwei"), ("c", null))),
        Message(value=b"y" * 20_000, key=b"long"),
    ]
    return [
        Message(
            value=shape.value,
            key=shape.key,
            headers=shape.headers,
            timestamp_ms=_BASE_MS + index if timed else None,
            partition=0,
        )
        for index, shape in enumerate(shapes)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_records_come_back_as_they_were_sent(client: Client, topic: str, bootstrap: str, codec: str) -> None:
    sent = messages(client)
    before_ms = int(time.time() * 1000) - 5000
    placed = client.produce(topic, sent, Producing(codec=codec))
    records = read(client, topic, len(sent))
    assert [record.offset for record in records] == list(range(len(sent)))
    if Feature.PLACED not in client.lacks:
        assert placed == [Placed(0, offset) for offset in range(len(sent))]
    for record, message in zip(records, sent, strict=True):
        if message.timestamp_ms is None:
            assert before_ms <= record.timestamp_ms <= int(time.time() * 1000) + 5000
        stamp = message.timestamp_ms or record.timestamp_ms
        assert (record.key, record.value, record.headers) == (message.key, message.value, message.headers)
        assert record.timestamp_ms == stamp
    # A client that finds no version it likes falls back to sending uncompressed, and nobody notices.
    assert codec in {batch.codec for batch in read_batches(bootstrap, topic)}


@pytest.mark.parametrize("codec", CODECS)
def test_a_client_reads_what_another_one_wrote(
    client: Client, reference: Client, topic: str, codec: str
) -> None:
    sent = [Message(value=b"value %d " % n * n, key=b"%d" % n, partition=0) for n in range(1, 60)]
    reference.produce(topic, sent, Producing(codec=codec))
    assert [record.value for record in read(client, topic, len(sent))] == [each.value for each in sent]


@needs(Feature.PARTITIONER)
def test_keys_are_where_the_clients_partitioner_puts_them(client: Client, wide_topic: str) -> None:
    keys = [f"key-{number}".encode() for number in range(100)]
    client.produce(wide_topic, [Message(value=b"v", key=key) for key in keys])
    found = {record.key: record.partition for record in read(client, wide_topic, len(keys), partitions=4)}
    assert found == {key: client.partition_of(key, partitions=4) for key in keys}
    assert set(found.values()) == {0, 1, 2, 3}


def test_ten_megabytes_come_back_byte_for_byte(client: Client, topic: str, bootstrap: str) -> None:
    rng = random.Random(10)
    sent = [Message(value=rng.randbytes(20_000), partition=0) for _ in range(500)]
    client.produce(topic, sent, Producing(codec="none"))
    records = read(client, topic, len(sent))
    assert [record.offset for record in records] == list(range(len(sent)))
    assert all(record.value == message.value for record, message in zip(records, sent, strict=True))
    batches = read_batches(bootstrap, topic)
    assert len(batches) > 5
    assert sum(batch.records for batch in batches) == len(sent)


def test_order_holds_within_each_partition(client: Client, wide_topic: str) -> None:
    sent = [Message(value=b"%d" % n, partition=n % 4) for n in range(200)]
    client.produce(wide_topic, sent)
    records = read(client, wide_topic, len(sent), partitions=4)
    assert Counter(record.partition for record in records) == {0: 50, 1: 50, 2: 50, 3: 50}
    for partition in range(4):
        values = [record.value for record in records if record.partition == partition]
        assert values == [b"%d" % n for n in range(partition, 200, 4)]


@needs(Feature.ACKS_NONE)
def test_records_sent_without_an_answer_arrive(client: Client, topic: str) -> None:
    client.produce(topic, [Message(value=b"%d" % n, partition=0) for n in range(20)], Producing(acks=0))
    assert [record.value for record in read(client, topic, 20)] == [b"%d" % n for n in range(20)]


def test_a_topic_is_made_by_its_first_record(
    client: Client, reference: Client, fresh_name: str, settle: Callable[[str, int], None]
) -> None:
    client.produce(fresh_name, [Message(value=b"first", partition=0)])
    settle(fresh_name, 4)
    assert [record.value for record in read(client, fresh_name, 1)] == [b"first"]
    assert reference.admin.topics()[fresh_name] == 4
