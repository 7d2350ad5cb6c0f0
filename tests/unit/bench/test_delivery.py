"""Records from a producer to a consumer: through an embedded broker, and against peers that misbehave."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace
from tailrace.bench.wire import LoadError, Window
from tailrace.bench.wire.delivery import Route, deliver
from tailrace.bench.wire.topic import connect

WINDOW = Window(warm_s=0.02, seconds=0.2)


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


def route(topic: str, *, first_offset: int = 1, per_s: int = 500) -> Route:
    return Route(topic=topic, partition=0, first_offset=first_offset, per_s=per_s, record_bytes=50)


def connections(broker: tailrace.Broker) -> tuple[socket.socket, socket.socket]:
    host, _, port = broker.bootstrap_servers.rpartition(":")
    return connect(host, int(port)), connect(host, int(port))


def test_records_arrive_at_their_rate_and_are_timed(broker: tailrace.Broker) -> None:
    broker.produce("timed", b"first")
    marks: list[float] = []
    window = Window(warm_s=0.02, seconds=1, mark=lambda: marks.append(time.monotonic()))
    producer, consumer = connections(broker)
    with producer, consumer:
        outcome = deliver(producer, consumer, route=route("timed"), window=window)
    (seen,) = outcome.lanes.values()
    assert 0 < seen.replies <= 500 * outcome.seconds + 100  # no more than the rate, and a backlog
    assert seen.payload_bytes == seen.replies * 50
    assert seen.latency is not None and 0 < seen.latency.p50_ms < 10_000
    assert marks[1] - marks[0] >= 1


def test_everything_that_was_sent_is_in_the_log_once(broker: tailrace.Broker) -> None:
    broker.produce("once", b"first")
    producer, consumer = connections(broker)
    with producer, consumer:
        outcome = deliver(producer, consumer, route=route("once"), window=WINDOW)
    values = [record.value for record in broker.read("once")]
    assert values == [b"first"] + [bytes(50)] * (len(values) - 1)
    assert outcome.lanes[""].replies < len(values)


def test_no_answer_is_outstanding_at_the_end(tmp_path: Path) -> None:
    with tailrace.Broker(data_dir=tmp_path) as broker:  # its answers wait for the disk
        broker.produce("drained", b"first")
        producer, consumer = connections(broker)
        with producer, consumer:
            deliver(producer, consumer, route=route("drained", per_s=20_000), window=WINDOW)
            producer.settimeout(0.3)
            with pytest.raises(TimeoutError):
                producer.recv(1)


def test_a_topic_that_is_not_there_is_an_error(broker: tailrace.Broker) -> None:
    producer, consumer = connections(broker)
    with producer, consumer, pytest.raises(LoadError, match="UNKNOWN_TOPIC_OR_PARTITION"):
        deliver(producer, consumer, route=route("absent"), window=WINDOW)


def test_an_offset_that_is_not_there_is_an_error(broker: tailrace.Broker) -> None:
    broker.produce("short", b"first")
    producer, consumer = connections(broker)
    with producer, consumer, pytest.raises(LoadError, match="OFFSET_OUT_OF_RANGE"):
        deliver(producer, consumer, route=route("short", first_offset=1000), window=WINDOW)


def test_records_of_somebody_else_are_an_error(broker: tailrace.Broker) -> None:
    for _ in range(1000):
        broker.produce("shared", b"theirs")
    producer, consumer = connections(broker)
    with producer, consumer, pytest.raises(LoadError, match="records that we did not send"):
        deliver(producer, consumer, route=route("shared", first_offset=0), window=WINDOW)


# ---- peers that misbehave


@pytest.mark.parametrize(
    ("sent", "told"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "a reply of 1213486160 bytes"),
        (struct.pack(">i", -1), "a reply of -1 bytes"),
        (struct.pack(">i", 3), "a reply of 3 bytes"),
        (struct.pack(">ii", 4, 1), "makes no sense"),
        (struct.pack(">iibxxx", 8, 1, 0), "makes no sense"),
        (None, "closed the connection"),
    ],
)
def test_a_reply_that_is_none_is_an_error(sent: bytes | None, told: str) -> None:
    with pytest.raises(LoadError, match=told):
        answer_fetch(sent)


def answer_fetch(sent: bytes | None) -> None:
    """Run a delivery whose consumer hears this, and whose producer hears nothing."""
    producer, silent = socket.socketpair()
    consumer, peer = socket.socketpair()
    with producer, silent, consumer, peer:
        if sent is None:
            peer.shutdown(socket.SHUT_WR)
        else:
            peer.sendall(sent)
        deliver(producer, consumer, route=route("t"), window=WINDOW)
