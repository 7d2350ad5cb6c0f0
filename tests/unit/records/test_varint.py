"""Varints of both twins, against bytes written by hand and the limits of 32 and 64 bits."""

from __future__ import annotations

from types import ModuleType

import pytest

from tailrace.records import BatchError

INT32 = [
    (0, "00"),
    (-1, "01"),
    (1, "02"),
    (-64, "7f"),
    (63, "7e"),
    (64, "8001"),
    (-65, "8101"),
    (8191, "fe7f"),
    (8192, "808001"),
    (2**31 - 1, "feffffff0f"),
    (-(2**31), "ffffffff0f"),
]
INT64 = [
    *INT32,
    (2**31, "8080808010"),
    (2**63 - 1, "feffffffffffffffff01"),
    (-(2**63), "ffffffffffffffffff01"),
]


@pytest.mark.parametrize(("value", "encoded"), INT64)
def test_writes_the_shortest_form(twin: ModuleType, value: int, encoded: str) -> None:
    out = bytearray(b"before")
    twin.write_varint(out, value)
    assert out == b"before" + bytes.fromhex(encoded)


@pytest.mark.parametrize(("value", "encoded"), INT32)
def test_reads_32_bits(twin: ModuleType, value: int, encoded: str) -> None:
    data = b"\xff" + bytes.fromhex(encoded) + b"\x80after"
    assert twin.read_varint(memoryview(data), 1) == (value, 1 + len(encoded) // 2)


@pytest.mark.parametrize(("value", "encoded"), INT64)
def test_reads_64_bits(twin: ModuleType, value: int, encoded: str) -> None:
    data = b"\xff" + bytes.fromhex(encoded) + b"\x80after"
    assert twin.read_varlong(data, 1) == (value, 1 + len(encoded) // 2)


def test_reads_a_longer_form_than_needed(twin: ModuleType) -> None:
    assert twin.read_varint(b"\x82\x80\x80\x80\x00", 0) == (1, 5)
    assert twin.read_varlong(b"\x82" + b"\x80" * 8 + b"\x00", 0) == (1, 10)


@pytest.mark.parametrize(
    ("name", "encoded"),
    [
        ("read_varint", ""),
        ("read_varint", "80"),
        ("read_varint", "ffffffff"),
        ("read_varint", "8080808010"),  # 2^31: bit 33 is set
        ("read_varint", "808080808000"),  # six bytes
        ("read_varlong", ""),
        ("read_varlong", "ffffffffffffffffff"),
        ("read_varlong", "80808080808080808002"),  # bit 65 is set
        ("read_varlong", "8080808080808080808000"),  # eleven bytes
    ],
)
def test_refuses_cut_off_and_overlong_ones(twin: ModuleType, name: str, encoded: str) -> None:
    with pytest.raises(BatchError, match="varint"):
        getattr(twin, name)(bytes.fromhex(encoded), 0)


@pytest.mark.parametrize("value", [2**63, -(2**63) - 1, 2**200])
def test_refuses_to_write_more_than_64_bits(twin: ModuleType, value: int) -> None:
    out = bytearray()
    with pytest.raises(BatchError, match="64 bits"):
        twin.write_varint(out, value)
    assert out == b""
