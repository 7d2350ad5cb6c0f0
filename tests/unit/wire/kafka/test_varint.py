"""Unsigned varints: values at every width, and what is wider than 32 bits or cut short."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.model import ProtocolError
from tailrace.wire.kafka.varint import read_uvarint, write_uvarint

EDGES = {
    0: b"\x00",
    1: b"\x01",
    0x7F: b"\x7f",
    0x80: b"\x80\x01",
    0x3FFF: b"\xff\x7f",
    0x4000: b"\x80\x80\x01",
    0x0FFFFFFF: b"\xff\xff\xff\x7f",
    0x10000000: b"\x80\x80\x80\x80\x01",
    0xFFFFFFFF: b"\xff\xff\xff\xff\x0f",
}


@pytest.mark.parametrize(("value", "data"), EDGES.items())
def test_edges_of_every_width(value: int, data: bytes) -> None:
    assert write_uvarint(value) == data
    assert read_uvarint(b"?" + data + b"!", 1) == (value, 1 + len(data))


@given(st.integers(0, 0xFFFFFFFF))
def test_round_trip(value: int) -> None:
    data = write_uvarint(value)
    assert read_uvarint(memoryview(data), 0) == (value, len(data))


@pytest.mark.parametrize("data", [b"\x80\x80\x80\x80\x10", b"\xff\xff\xff\xff\x7f", b"\x80" * 5 + b"\x00"])
def test_more_than_32_bits_or_five_bytes_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_uvarint(data, 0)


@pytest.mark.parametrize("data", [b"", b"\x80", b"\xff\xff\xff\xff"])
def test_a_cut_varint_is_an_index_error(data: bytes) -> None:
    with pytest.raises(IndexError):
        read_uvarint(data, 0)
