"""Frames out of a byte stream: whole, in pieces of every size, and refused ones. No sockets."""

from __future__ import annotations

import random

import pytest

from tailrace.model import ProtocolError
from tailrace.net import FrameSplitter, RequestBudget

SHARED_BYTES = 64
SMALL_BYTES = 300
LARGE_KEY = 0x7878  # "xx"


class Sender:
    """Who a frame arrives from, for tests without sockets."""

    address = "192.0.2.1"
    held_bytes = 0

    def is_slow(self, now: float) -> bool:
        return False

    def refuse_slow(self) -> None:
        raise AssertionError("nothing waits")


ARRIVAL = Sender()


class Feed:
    """A splitter that is fed as a transport would, with others using the shared buffer in between."""

    def __init__(self, *, budget: int = 10_000, frame_bytes_max: int = 1000, read_bytes: int = 50) -> None:
        self.shared = memoryview(bytearray(SHARED_BYTES))
        self.budget = RequestBudget(budget)
        self.splitter = FrameSplitter(
            self.shared,
            self.budget,
            frame_bytes_max=frame_bytes_max,
            small_bytes_max=SMALL_BYTES,
            bytes_max_of=lambda key: frame_bytes_max if key == LARGE_KEY else SMALL_BYTES,
            read_bytes=read_bytes,
        )

    def receive(self, data: bytes) -> int:
        """One read: as many bytes as the buffer takes; returns how many."""
        buffer = self.splitter.get_buffer()
        assert len(buffer) > 0
        count = min(len(data), len(buffer))
        buffer[:count] = data[:count]
        self.splitter.received(count)
        return count

    def frames(self, data: bytes, *, at_once: int) -> list[bytes]:
        """Everything that comes out when `data` arrives in reads of `at_once` bytes."""
        found = []
        while data:
            taken = self.receive(data[:at_once])
            data = data[taken:]
            while (frame := self.splitter.next_frame(ARRIVAL)) is not None:
                found.append(bytes(frame))
                self.budget.give(len(frame))
            self.splitter.keep()
            self.shared[:] = b"\xee" * SHARED_BYTES  # another connection receives
        return found


def is_owned(splitter: FrameSplitter) -> bool:
    return splitter.owned


def has_rest(splitter: FrameSplitter) -> bool:
    return splitter.has_rest


def framed(*contents: bytes) -> bytes:
    return b"".join(len(content).to_bytes(4, "big") + content for content in contents)


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 5, 7, 63, 64, 1000])
def test_frames_come_out_whole_however_they_arrive(at_once: int) -> None:
    contents = [b"a", b"bc" * 10, b"d" * 59, b"e" * 60, b"f" * 61, b"x" * 500, b"h"]
    feed = Feed()
    assert feed.frames(framed(*contents), at_once=at_once) == contents
    assert feed.budget.used == 0


def test_random_frames_in_random_reads() -> None:
    rng = random.Random(5)
    contents = [rng.randbytes(rng.randint(1, 300)) for _ in range(500)]
    data, found, feed = framed(*contents), [], Feed()
    while data:
        taken = feed.receive(data[: rng.randint(1, 200)])
        data = data[taken:]
        while (frame := feed.splitter.next_frame(ARRIVAL)) is not None:
            found.append(bytes(frame))
            feed.budget.give(len(frame))
        feed.splitter.keep()
        feed.shared[:] = b"\xee" * SHARED_BYTES
    assert found == contents


def test_a_whole_frame_is_a_view_of_the_shared_buffer_and_a_partial_one_is_not() -> None:
    feed = Feed()
    feed.receive(framed(b"small", b"L" * 80))
    small = feed.splitter.next_frame(ARRIVAL)
    assert small is not None and small.obj is feed.shared.obj and not is_owned(feed.splitter)
    assert feed.splitter.next_frame(ARRIVAL) is None
    rest = b"L" * 80
    while (frame := feed.splitter.next_frame(ARRIVAL)) is None:
        feed.receive(rest)
    assert is_owned(feed.splitter) and frame.obj is not feed.shared.obj and len(frame) == 80


def test_a_frame_of_its_own_is_read_a_bounded_amount_at_a_time() -> None:
    feed = Feed(read_bytes=50)
    feed.receive(framed(b"x" * 500)[:10])
    assert feed.splitter.next_frame(ARRIVAL) is None
    assert len(feed.splitter.get_buffer()) == 50


@pytest.mark.parametrize("size", [0, -1, -(2**31), 1001, 2**31 - 1])
def test_a_size_out_of_bounds_is_refused_before_anything_is_buffered(size: int) -> None:
    feed = Feed()
    feed.receive(size.to_bytes(4, "big", signed=True))
    with pytest.raises(ProtocolError, match="bytes"):
        feed.splitter.next_frame(ARRIVAL)
    assert feed.budget.used == 0 and feed.splitter.frame_bytes == 0


def test_the_largest_size_is_taken() -> None:
    feed = Feed()
    assert feed.frames(framed(b"x" * 1000), at_once=64) == [b"x" * 1000]


@pytest.mark.parametrize("arrived", [6, 20])
def test_a_size_over_the_limit_of_its_api_is_refused_before_anything_is_buffered(arrived: int) -> None:
    feed = Feed()
    feed.receive(framed(b"y" * (SMALL_BYTES + 1))[:arrived])
    with pytest.raises(ProtocolError, match=f"{SMALL_BYTES + 1} bytes to API {0x7979} is over {SMALL_BYTES}"):
        feed.splitter.next_frame(ARRIVAL)
    assert feed.budget.used == 0 and feed.splitter.frame_bytes == 0


@pytest.mark.parametrize("arrived", [4, 5])
def test_a_large_frame_is_not_begun_before_its_api_is_known(arrived: int) -> None:
    feed = Feed()
    feed.receive(framed(b"x" * 500)[:arrived])
    assert feed.splitter.next_frame(ARRIVAL) is None
    assert feed.budget.used == 0 and feed.splitter.frame_bytes == 0


def test_the_largest_size_of_any_api_is_taken() -> None:
    feed = Feed()
    assert feed.frames(framed(b"y" * SMALL_BYTES), at_once=5) == [b"y" * SMALL_BYTES]


def test_without_budget_a_frame_is_not_begun() -> None:
    feed = Feed(budget=100)
    assert feed.budget.take_nowait(90)
    feed.receive(framed(b"x" * 20))
    assert feed.splitter.next_frame(ARRIVAL) is None and feed.splitter.wanted == 20
    feed.splitter.keep()
    feed.shared[:] = b"\xee" * SHARED_BYTES
    feed.budget.give(90)
    assert feed.budget.take_nowait(20)  # as a claim that is granted
    feed.splitter.grant()
    frame = feed.splitter.next_frame(ARRIVAL)
    assert frame is not None and bytes(frame) == b"x" * 20 and feed.splitter.wanted == 0
    assert feed.budget.used == 20


def test_while_the_budget_is_exhausted_little_is_read() -> None:
    shared = memoryview(bytearray(100_000))
    budget = RequestBudget(10)
    splitter = FrameSplitter(
        shared, budget, frame_bytes_max=1000, small_bytes_max=1000, bytes_max_of=lambda _: 1000, read_bytes=50
    )
    assert len(splitter.get_buffer()) == 100_000
    budget.take_nowait(10)
    budget.wait(10, lambda: None)
    assert len(splitter.get_buffer()) <= 1024


def test_what_is_abandoned_gives_its_budget_back() -> None:
    feed = Feed()
    feed.receive(framed(b"x" * 500)[:10])
    assert feed.splitter.next_frame(ARRIVAL) is None
    assert feed.budget.used == 500 == feed.splitter.abandon()
    assert feed.splitter.abandon() == 0


def test_a_large_frame_takes_of_the_budget_what_has_arrived_and_not_what_is_announced() -> None:
    """Steps of 64 KiB, 256 KiB, 1 MiB, ...: at most four times what is here, and one step."""
    step, size = 64 * 1024, 1_500_000
    feed = Feed(budget=1 << 30, frame_bytes_max=1 << 30, read_bytes=40_000)
    data = framed(b"x" * size)
    while (frame := feed.splitter.next_frame(ARRIVAL)) is None:
        held = feed.splitter.frame_held
        assert feed.budget.used == held <= max(step, 4 * feed.splitter.frame_filled)
        data = data[feed.receive(data) :]
    assert len(frame) == size == feed.budget.used


def test_a_rest_is_known_to_be_there() -> None:
    feed = Feed()
    assert not has_rest(feed.splitter)
    feed.receive(framed(b"one", b"two"))
    feed.splitter.next_frame(ARRIVAL)
    assert has_rest(feed.splitter)
    feed.splitter.keep()
    assert feed.splitter.next_frame(ARRIVAL) is not None
    assert not has_rest(feed.splitter)
