"""Where a consumer begins: at the beginning, at the end, at an offset, at a time; and what it does beyond."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.interop.clients.port import Client, Feature, Message, Producing, Reading, TopicPartition, needs

_BASE_MS = 1_700_000_000_000


def numbers(first: int, last: int) -> list[Message]:
    """Messages whose values are their numbers."""
    return [Message(value=b"%d" % n, partition=0) for n in range(first, last)]


def test_from_the_end_only_later_records_come(client: Client, reference: Client, topic: str) -> None:
    reference.produce(topic, numbers(0, 10))
    consumer = client.open(Reading(assign={TopicPartition(topic, 0): "latest"}))
    reference.produce(topic, numbers(10, 13))
    assert [record.value for record in consumer.take(3)] == [b"10", b"11", b"12"]
    consumer.close()


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_from_an_offset_inside_a_batch_the_record_itself_comes_first(
    client: Client, reference: Client, topic: str, codec: str
) -> None:
    reference.produce(topic, numbers(0, 100), Producing(codec=codec, linger_ms=50))
    consumer = client.open(Reading(assign={TopicPartition(topic, 0): 37}))
    records = consumer.take(63)
    assert [record.offset for record in records] == list(range(37, 100))
    assert [record.value for record in records] == [b"%d" % n for n in range(37, 100)]
    consumer.close()


def test_a_waiting_consumer_gets_a_record_when_it_is_written(
    client: Client, reference: Client, topic: str
) -> None:
    consumer = client.open(Reading(assign={TopicPartition(topic, 0): "earliest"}))
    for number in range(5):
        reference.produce(topic, numbers(number, number + 1))
        assert [record.value for record in consumer.take(1)] == [b"%d" % number]
    consumer.close()


@needs(Feature.OFFSETS)
@pytest.mark.parametrize("codec", ["none", "zstd"])
def test_a_time_is_found_inside_a_batch(client: Client, reference: Client, topic: str, codec: str) -> None:
    times = [_BASE_MS + 1000 * n for n in range(50)]
    sent = [Message(value=b"v", partition=0, timestamp_ms=time) for time in times]
    reference.produce(topic, sent, Producing(codec=codec, linger_ms=50))
    where = TopicPartition(topic, 0)
    assert client.admin.offset_at(where, _BASE_MS) == 0
    assert client.admin.offset_at(where, _BASE_MS + 20_000) == 20
    assert client.admin.offset_at(where, _BASE_MS + 20_001) == 21
    assert client.admin.offset_at(where, _BASE_MS - 5) == 0


@needs(Feature.OFFSETS)
def test_out_of_order_times_find_the_first_that_is_late_enough(
    client: Client, reference: Client, topic: str
) -> None:
    for delta in (5000, 1000, 9000, 2000):
        reference.produce(topic, [Message(value=b"v", partition=0, timestamp_ms=_BASE_MS + delta)])
    where = TopicPartition(topic, 0)
    found = [client.admin.offset_at(where, _BASE_MS + delta) for delta in (0, 5000, 5001, 9000)]
    assert found == [0, 0, 2, 2]


@needs(Feature.OFFSETS)
def test_beginning_and_end_are_told(client: Client, reference: Client, topic: str) -> None:
    where = TopicPartition(topic, 0)
    assert (client.admin.offset_at(where, "earliest"), client.admin.offset_at(where, "latest")) == (0, 0)
    reference.produce(topic, numbers(0, 7))
    reference.admin.delete_records(where, before=3)
    assert (client.admin.offset_at(where, "earliest"), client.admin.offset_at(where, "latest")) == (3, 7)


@needs(Feature.GROUPS)
@pytest.mark.parametrize(("reset", "values"), [("earliest", [b"5", b"6"]), ("latest", [])])
def test_a_consumer_whose_offset_is_gone_resets(
    client: Client, reference: Client, topic: str, group: str, reset: str, values: list[bytes]
) -> None:
    where = TopicPartition(topic, 0)
    reference.produce(topic, numbers(0, 7))
    keeper = reference.open(Reading(topics=[topic], group=group))
    keeper.take(1)
    keeper.commit({where: 2})
    keeper.close()
    reference.admin.delete_records(where, before=5)
    consumer = client.open(Reading(topics=[topic], group=group, reset=reset))
    assert [record.value for record in consumer.take(len(values))] == values
    if reset == "earliest":
        consumer.close()
        return
    # Its position is the end only once it has looked: records go on until it sees one.
    for number in range(7, 200):
        reference.produce(topic, numbers(number, number + 1))
        if got := consumer.take_all(within_s=0.2):
            break
    assert got and int(got[0].value or b"0") >= 7
    consumer.close()


def test_a_read_of_many_partitions_is_complete(
    client: Client, reference: Client, make_topic: Callable[..., str]
) -> None:
    topic = make_topic(partitions=12)
    sent = [Message(value=b"%d" % n * 100, partition=n % 12) for n in range(600)]
    reference.produce(topic, sent, Producing(codec="lz4"))
    consumer = client.open(Reading(assign={TopicPartition(topic, index): "earliest" for index in range(12)}))
    records = consumer.take(600)
    assert {record.value for record in records} == {message.value for message in sent}
    consumer.close()
