"""A stream cut into frames: whole, byte by byte, in any pieces, with trailing bytes, with wrong lengths."""

from __future__ import annotations

import itertools
import random
import struct
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import ProtocolError
from tailrace.wire.native import PROPERTIES_BYTES_MAX, Frame, FrameReader, read_frame, write_frame

BODIES = [b"", b"a", b"b" * 100, b"", b"c" * 3000, b"d"]
WHOLES = [
    write_frame(2, sequence=at, properties={"n": str(at)}, body=body) for at, body in enumerate(BODIES, 1)
]
FRAMES = [read_frame(whole[4:]) for whole in WHOLES]
STREAM = b"".join(WHOLES)


def drain(reader: FrameReader) -> list[Frame]:
    frames = []
    while (frame := reader.next_frame()) is not None:
        frames.append(frame)
    return frames


def fed(reader: FrameReader, data: bytes, *, at_once: int) -> list[Frame]:
    frames = []
    for at in range(0, len(data), at_once):
        reader.feed(data[at : at + at_once])
        frames += drain(reader)
    return frames


@pytest.mark.parametrize("at_once", [1, 2, 3, 4, 5, 31, 32, 33, 100, 1000, len(STREAM)])
def test_frames_come_out_whole_however_they_arrive(at_once: int) -> None:
    reader = FrameReader(10_000)
    assert fed(reader, STREAM, at_once=at_once) == FRAMES
    assert reader.pending_bytes == 0


@given(cuts=st.lists(st.integers(0, len(STREAM)), max_size=10), drained=st.lists(st.booleans(), max_size=11))
def test_frames_come_out_whole_if_nobody_takes_them_for_a_while(cuts: list[int], drained: list[bool]) -> None:
    reader, frames = FrameReader(10_000), []
    places = [0, *sorted(cuts), len(STREAM)]
    for at, (begin, end) in enumerate(itertools.pairwise(places)):
        reader.feed(STREAM[begin:end])
        if at < len(drained) and drained[at]:
            frames += drain(reader)
    assert frames + drain(reader) == FRAMES


def test_there_is_none_before_anything_arrived() -> None:
    reader = FrameReader(1000)
    assert reader.next_frame() is None
    reader.feed(b"")
    assert reader.next_frame() is None and reader.pending_bytes == 0


def test_a_frame_comes_with_its_last_byte_and_not_before() -> None:
    for size in range(len(WHOLES[1])):
        reader = FrameReader(1000)
        reader.feed(WHOLES[1][:size])
        assert reader.next_frame() is None
        assert reader.pending_bytes == size
        reader.feed(WHOLES[1][size:])
        assert reader.next_frame() == FRAMES[1]


def test_trailing_bytes_wait_for_the_rest() -> None:
    for size in range(1, len(WHOLES[2])):
        reader = FrameReader(1000)
        reader.feed(WHOLES[1] + WHOLES[2][:size])
        assert drain(reader) == [FRAMES[1]]
        assert reader.pending_bytes == size
        reader.feed(WHOLES[2][size:] + WHOLES[3])
        assert drain(reader) == FRAMES[2:4]


@pytest.mark.parametrize("size", [len(WHOLES[0] + WHOLES[1]), 50, 400])
def test_what_was_handed_out_is_not_overwritten(size: int) -> None:
    """Neither by what arrives later nor by the owner of a buffer that was fed."""
    reader = FrameReader(10_000)
    buffer = bytearray(STREAM)
    reader.feed(memoryview(buffer)[:size])
    frames = drain(reader)
    buffer[:size] = bytes(size)
    reader.feed(memoryview(buffer)[size:])
    frames += drain(reader)
    buffer[:] = bytes(len(buffer))
    reader.feed(STREAM)
    assert frames + drain(reader) == FRAMES + FRAMES


def test_a_frame_that_arrived_whole_is_not_copied() -> None:
    data = write_frame(2, body=bytes(1_000_000))
    reader = FrameReader(2_000_000)
    tracemalloc.start()
    try:
        reader.feed(data)
        frame = reader.next_frame()
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert frame is not None and len(frame.body) == 1_000_000
    assert peak < 10_000


@pytest.mark.parametrize("size", [0, 1, 27, 1001, 2**31, 2**32 - 1])
def test_a_length_out_of_bounds_is_refused_as_soon_as_it_is_known(size: int) -> None:
    reader = FrameReader(1000)
    reader.feed(struct.pack(">I", size))
    with pytest.raises(ProtocolError, match=f"a frame of {size} bytes is not between 28 and 1000"):
        reader.next_frame()


def test_the_largest_frame_is_taken() -> None:
    reader = FrameReader(1000)
    assert len(fed(reader, write_frame(2, body=bytes(1000 - 28)), at_once=64)) == 1


@pytest.mark.parametrize("change", [-100, -1, 1, 100])
def test_a_wrong_total_length_is_refused(change: int) -> None:
    wrong = struct.pack(">I", len(WHOLES[2]) - 4 + change) + WHOLES[2][4:] + bytes(200)
    for at_once in (1, 50, len(wrong)):
        with pytest.raises(ProtocolError):
            fed(FrameReader(1000), wrong, at_once=at_once)


def test_a_broken_stream_stays_broken() -> None:
    for broken in (struct.pack(">I", 5), struct.pack(">I", 28) + b"\xff" * 28):
        reader = FrameReader(1000)
        reader.feed(WHOLES[0] + broken)
        assert reader.next_frame() == FRAMES[0]
        for _ in range(3):
            with pytest.raises(ProtocolError):
                reader.next_frame()
            reader.feed(WHOLES[0])


def test_properties_are_bounded_by_the_frame_unless_told_otherwise() -> None:
    encoded = b"a=" + b"x" * PROPERTIES_BYTES_MAX + b"\0"
    content = struct.pack(">IqqI", 9, 1, 0, len(encoded)) + encoded + bytes(4)
    whole = struct.pack(">I", len(content)) + content
    assert len(fed(FrameReader(100_000), whole, at_once=5000)) == 1
    with pytest.raises(ProtocolError, match="over 65536"):
        fed(FrameReader(100_000, properties_bytes_max=PROPERTIES_BYTES_MAX), whole, at_once=5000)


def test_a_large_frame_in_small_pieces_costs_about_its_size() -> None:
    data = write_frame(2, body=bytes(1_000_000))
    reader = FrameReader(2_000_000)
    tracemalloc.start()
    try:
        frames = fed(reader, data, at_once=random.Random(3).randint(900, 1000))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(frames) == 1
    assert peak < 3_000_000
