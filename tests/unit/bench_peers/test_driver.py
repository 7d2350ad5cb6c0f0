"""The driver against a peer that answers, and others that refuse, close, or answer too often."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from tailrace.bench.wire import FixedReader, Lane, LoadError, Window, drive
from tailrace.bench.wire.ring import ring_of

REQUEST = b"request!"
RING = ring_of([REQUEST] * 8, payload_bytes=100)


@contextmanager
def peer(serve: Callable[[socket.socket], None]) -> Iterator[socket.socket]:
    """A connection whose other end a thread serves."""
    ours, theirs = socket.socketpair()
    ours.settimeout(60)
    thread = threading.Thread(target=serve, args=(theirs,))
    thread.start()
    try:
        yield ours
    finally:
        ours.close()
        thread.join(60)
        theirs.close()


def answer_each(theirs: socket.socket, *, reply: bytes = b"ok!!") -> None:
    rest = b""
    while data := theirs.recv(1 << 16):
        whole, left = divmod(len(rest) + len(data), len(REQUEST))
        rest = bytes(left)
        theirs.sendall(reply * whole)


def lane_on(sock: socket.socket, *, in_flight: int = 3, name: str = "") -> Lane:
    return Lane(
        sock=sock,
        ring=RING,
        reader=FixedReader(reply_bytes=4, begins=b"ok"),
        in_flight=in_flight,
        name=name,
    )


def test_replies_within_the_window_are_counted_and_timed() -> None:
    marks: list[int] = []
    with peer(answer_each) as sock:
        outcome = drive([lane_on(sock)], Window(warm_s=0.01, seconds=0.5, mark=lambda: marks.append(1)))

    result = outcome.lanes[""]
    assert result.replies > 0
    assert result.payload_bytes == 100 * result.replies
    assert result.latency is not None
    assert 0 < result.latency.p50_ms <= result.latency.p999_ms <= result.latency.max_ms
    assert outcome.seconds >= 0.5
    assert outcome.driver_cpu_s > 0
    assert len(marks) == 2


def test_lanes_of_one_name_share_their_figures_and_others_do_not() -> None:
    with peer(answer_each) as first, peer(answer_each) as second, peer(answer_each) as third:
        lanes = [lane_on(first, name="a"), lane_on(second, name="a"), lane_on(third, name="b")]
        outcome = drive(lanes, Window(warm_s=0, seconds=0.5))

    assert list(outcome.lanes) == ["a", "b"]
    assert all(result.replies > 0 for result in outcome.lanes.values())


def test_no_more_is_in_flight_than_asked_for() -> None:
    most = 0

    def serve(theirs: socket.socket) -> None:
        nonlocal most
        while data := theirs.recv(1 << 16):
            most = max(most, len(data) // len(REQUEST))
            theirs.sendall(b"ok!!" * (len(data) // len(REQUEST)))

    with peer(serve) as sock:
        drive([lane_on(sock, in_flight=5)], Window(warm_s=0, seconds=0.02))

    assert most == 5


def test_requests_larger_than_the_socket_takes_are_sent_whole() -> None:
    size = 3_000_000
    ring = ring_of([bytes(size)] * 2, payload_bytes=size)

    def serve(theirs: socket.socket) -> None:
        seen = 0
        while data := theirs.recv(1 << 16):
            seen += len(data)
            while seen >= size:
                seen -= size
                theirs.sendall(b"ok!!")

    with peer(serve) as sock:
        reader = FixedReader(reply_bytes=4, begins=b"ok")
        lane = Lane(sock=sock, ring=ring, reader=reader, in_flight=2)
        outcome = drive([lane], Window(warm_s=0, seconds=1))

    assert outcome.lanes[""].replies > 0


def refuse(theirs: socket.socket) -> None:
    answer_each(theirs, reply=b"no!!")


def answer_twice(theirs: socket.socket) -> None:
    theirs.recv(len(REQUEST))
    theirs.sendall(b"ok!!" * 4)
    while theirs.recv(1 << 16):
        pass


def close(theirs: socket.socket) -> None:
    theirs.recv(len(REQUEST))
    theirs.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize(
    ("serve", "message"),
    [(refuse, "begins with"), (answer_twice, "replies to"), (close, r"closed|broke")],
)
def test_a_peer_that_does_not_play_is_an_error(serve: Callable[[socket.socket], None], message: str) -> None:
    with peer(serve) as sock, pytest.raises(LoadError, match=message):
        drive([lane_on(sock)], Window(warm_s=0, seconds=5))


@pytest.mark.parametrize("in_flight", [0, 9])
def test_a_window_fits_the_ring(in_flight: int) -> None:
    with peer(answer_each) as sock, pytest.raises(ValueError, match="in flight"):
        drive([lane_on(sock, in_flight=in_flight)], Window(warm_s=0, seconds=0.01))
