"""The buffer pool: sizes, reuse, and the bound on what it keeps; by identity of the buffers."""

from __future__ import annotations

import ctypes
import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.runtime import BufferPool

SMALLEST = 16 * 1024


@pytest.mark.parametrize(
    ("size", "taken"),
    [
        (0, SMALLEST),
        (1, SMALLEST),
        (SMALLEST, SMALLEST),
        (SMALLEST + 1, 2 * SMALLEST),
        (1 << 20, 1 << 20),
        ((1 << 20) + 1, 1 << 21),
    ],
)
def test_sizes_are_powers_of_two(size: int, taken: int) -> None:
    assert len(BufferPool().take(size)) == taken


@given(st.integers(0, 1 << 22))
def test_a_buffer_is_large_enough_and_not_far_too_large(size: int) -> None:
    assert size <= len(BufferPool().take(size)) <= max(SMALLEST, 2 * size)


def test_buffers_can_be_written_and_begin_on_a_page() -> None:
    buffer = BufferPool().take(100)
    buffer[:3] = b"abc"
    assert bytes(buffer[:3]) == b"abc"
    assert ctypes.addressof(ctypes.c_char.from_buffer(buffer)) % mmap.PAGESIZE == 0


def test_what_was_given_back_is_taken_again() -> None:
    pool = BufferPool()
    buffer = pool.take(20_000)
    pool.give(buffer)
    assert pool.take(30_000) is buffer


def test_a_buffer_is_never_in_two_hands() -> None:
    pool = BufferPool()
    first = pool.take(100)
    pool.give(first)
    assert pool.take(100) is first
    assert pool.take(100) is not first


def test_a_buffer_of_another_size_does_not_serve() -> None:
    pool = BufferPool()
    small, large = pool.take(SMALLEST), pool.take(4 * SMALLEST)
    pool.give(small)
    pool.give(large)
    middle = pool.take(2 * SMALLEST)
    assert middle is not small
    assert middle is not large
    assert pool.take(4 * SMALLEST) is large


def test_no_more_is_kept_than_the_bound() -> None:
    pool = BufferPool(bytes_max=2 * SMALLEST)
    given_back = [pool.take(SMALLEST) for _ in range(3)]
    for buffer in given_back:
        pool.give(buffer)
    again = [pool.take(SMALLEST) for _ in range(3)]
    assert sum(any(buffer is known for known in given_back) for buffer in again) == 2


def test_taking_makes_room_for_the_next_return() -> None:
    pool = BufferPool(bytes_max=SMALLEST)
    first = pool.take(SMALLEST)
    pool.give(first)
    assert pool.take(SMALLEST) is first
    second = pool.take(SMALLEST)
    pool.give(second)
    assert pool.take(SMALLEST) is second


def test_one_larger_than_the_bound_is_let_go() -> None:
    pool = BufferPool(bytes_max=SMALLEST)
    buffer = pool.take(2 * SMALLEST)
    pool.give(buffer)
    assert pool.take(2 * SMALLEST) is not buffer
