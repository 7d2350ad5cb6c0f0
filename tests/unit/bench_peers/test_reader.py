"""Readers of replies: fed whole, byte by byte and with a rest, and with replies that are wrong."""

from __future__ import annotations

import struct

import pytest
from bench.dialect.nats import NatsReader
from bench.dialect.rabbitmq import ConfirmReader, method
from bench.dialect.redis import BulkReader

from tailrace.bench.wire import FixedReader, LoadError, Reader
from tailrace.bench.wire.kafka import fetch_reader, fetch_ring, one_record, produce_reader, produce_ring
from tailrace.wire.kafka import FETCH, PRODUCE, ProduceResult, write_produce_response, write_response_head

TOPIC = "orders"
RING = produce_ring(one_record(100), topic=TOPIC, partition=0, in_flight=2)


def produce_reply(correlation_id: int, *, error: int = 0) -> bytes:
    body = write_produce_response(9, [(TOPIC, [ProduceResult(0, error, 7, -1, 0)])])
    return write_response_head(PRODUCE, 9, correlation_id, len(body)) + body


def ack(tag: int, *, multiple: bool = False) -> bytes:
    return method(1, (60, 80), struct.pack(">QB", tag, multiple))


CASES: dict[str, tuple[type[Reader] | None, bytes]] = {
    "kafka": (None, b"".join(map(produce_reply, range(3)))),
    "redis": (BulkReader, b"$5\r\n100-0\r\n$6\r\n100-10\r\n$5\r\n101-0\r\n"),
    "nats": (
        NatsReader,
        b"PING\r\nMSG _INBOX.1 1 2\r\n{}\r\n"
        b"MSG _INBOX.1 1 10\r\n0123456789\r\nPING\r\nMSG _INBOX.1 1 0\r\n\r\n",
    ),
    "rabbitmq": (ConfirmReader, ack(1) + ack(2) + ack(3)),
}


def reader_of(kind: str) -> Reader:
    made = CASES[kind][0]
    return produce_reader(RING, topic=TOPIC) if made is None else made()


def feed_in_pieces(reader: Reader, data: bytes, size: int) -> tuple[int, int]:
    """As a connection does: what is not used is shown again. (Replies, bytes left over.)"""
    replies, rest = 0, b""
    for at in range(0, len(data), size):
        rest += data[at : at + size]
        ended, used = reader.feed(memoryview(rest))
        replies += ended
        rest = rest[used:]
    return replies, len(rest)


@pytest.mark.parametrize("size", [1, 2, 7, 1000])
@pytest.mark.parametrize("kind", CASES)
def test_three_replies_are_three_however_they_arrive(kind: str, size: int) -> None:
    assert feed_in_pieces(reader_of(kind), CASES[kind][1], size) == (3, 0)


@pytest.mark.parametrize("kind", CASES)
def test_a_reply_without_its_end_is_none(kind: str) -> None:
    replies, _ = feed_in_pieces(reader_of(kind), CASES[kind][1][:-1], 1000)

    assert replies == 2


@pytest.mark.parametrize(
    ("kind", "bad"),
    [
        ("kafka", produce_reply(0, error=6)),
        ("kafka", produce_reply(1)),
        ("kafka", write_response_head(PRODUCE, 9, 0, 3) + b"\0\0\0"),
        ("redis", b"-ERR no such thing\r\n"),
        ("nats", b"-ERR 'Unknown Protocol Operation'\r\n"),
        ("nats", b'MSG _INBOX.1 1 22\r\n{"error":{"code":503}}\r\n'),
        ("nats", b"HMSG _INBOX.1 1 30 30\r\nNATS/1.0 404 Message Not Found\r\n"),
        ("nats", b"x" * 300),
        ("rabbitmq", method(1, (60, 120), struct.pack(">QB", 1, 0))),
    ],
)
def test_a_refusal_is_an_error(kind: str, bad: bytes) -> None:
    with pytest.raises(LoadError):
        reader_of(kind).feed(memoryview(bad))


def test_an_error_of_kafka_is_named() -> None:
    with pytest.raises(LoadError, match=r"error 6 \(NOT_LEADER"):
        produce_reader(RING, topic=TOPIC).feed(memoryview(produce_reply(0, error=6)))


def test_correlation_ids_begin_again_with_the_ring() -> None:
    ring = produce_ring(one_record(100_000), topic=TOPIC, partition=0, in_flight=2)
    assert ring.count == 2

    replies = b"".join(produce_reply(each % 2) for each in range(5))

    assert produce_reader(ring, topic=TOPIC).feed(memoryview(replies)) == (5, len(replies))


def test_a_fetch_reply_with_less_than_was_asked_for_is_an_error() -> None:
    ring = fetch_ring(topic=TOPIC, partition=0, offsets=[0], bytes_max=1000)
    reply = write_response_head(FETCH, 12, 0, 60) + bytes(60)

    with pytest.raises(LoadError, match="where the least is 1000"):
        fetch_reader(ring, topic=TOPIC).feed(memoryview(reply))


@pytest.mark.parametrize("name", ["", "x" * 126])
def test_a_topic_whose_name_does_not_fit_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="bytes here"):
        produce_reader(RING, topic=name)


def test_a_confirm_of_many_counts_each_of_them_once() -> None:
    reader = ConfirmReader()

    counts = [
        reader.feed(memoryview(each))[0] for each in (ack(2), ack(3, multiple=True), ack(3, multiple=True))
    ]

    assert counts == [1, 2, 0]


@pytest.mark.parametrize("size", [1, 2, 3, 1000])
def test_replies_of_one_size_are_counted_by_their_size(size: int) -> None:
    assert feed_in_pieces(FixedReader(reply_bytes=6, begins=b"*1"), b"*1abcd*1efgh*1", size)[0] == 2


def test_a_reply_of_one_size_that_begins_otherwise_is_an_error() -> None:
    with pytest.raises(LoadError, match="begins with"):
        FixedReader(reply_bytes=6, begins=b"*1").feed(memoryview(b"-ERR x"))


@pytest.mark.parametrize("begins", [b"", b"1234567"])
def test_a_beginning_must_fit_the_reply(begins: bytes) -> None:
    with pytest.raises(ValueError, match="begins with"):
        FixedReader(reply_bytes=6, begins=begins)
