"""Fields of internal records: what is written comes back, and bytes that do not add up are refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.broker.internal import FieldReader, FieldWriter, MalformedFields
from tailrace.model import BrokerError, ErrorCode

INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
INT64_MAX = (1 << 63) - 1


@given(
    st.integers(-128, 127),
    st.integers(-(1 << 15), (1 << 15) - 1),
    st.integers(-(1 << 31), (1 << 31) - 1),
    INT64,
    st.text(st.characters(codec="utf-8"), max_size=20),
    st.binary(max_size=20),
)
def test_every_type_comes_back(a: int, b: int, c: int, d: int, text: str, raw: bytes) -> None:
    out = FieldWriter()
    out.int8(a)
    out.int16(b)
    out.int32(c)
    out.int64(d)
    out.varint(d)
    out.string(text)
    out.string(None)
    out.bytes(raw)
    out.raw(raw)
    fields = FieldReader(out.data)
    assert (fields.int8(), fields.int16(), fields.int32(), fields.int64()) == (a, b, c, d)
    assert fields.varint(at_least=d, at_most=d) == d
    assert fields.string() == text
    assert fields.nullable_string() is None
    assert fields.nullable_bytes() == raw
    assert fields.raw(len(raw)) == raw
    fields.end()


@pytest.mark.parametrize("raw", [b"", b"\x80", b"\xff" * 9, b"\x80" * 9 + b"\x02", b"\x80" * 10 + b"\x00"])
def test_a_varint_that_is_cut_off_or_too_long_is_refused(raw: bytes) -> None:
    with pytest.raises(MalformedFields) as refused:
        FieldReader(raw).varint(at_least=-INT64_MAX, at_most=INT64_MAX)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("value", [-1, 10, 1 << 40])
def test_a_varint_out_of_its_bounds_is_refused(value: int) -> None:
    out = FieldWriter()
    out.varint(value)
    with pytest.raises(MalformedFields):
        FieldReader(out.data).varint(at_least=0, at_most=9)


@pytest.mark.parametrize("count", [-1, 3, 1 << 40])
def test_a_count_that_its_elements_cannot_fill_is_refused(count: int) -> None:
    out = FieldWriter()
    out.varint(count)
    out.raw(b"12345")
    with pytest.raises(MalformedFields):
        FieldReader(out.data).varint_count(element_bytes_min=2)


def test_a_count_that_its_elements_can_fill_is_taken() -> None:
    out = FieldWriter()
    out.varint(2)
    out.raw(b"1234")
    assert FieldReader(out.data).varint_count(element_bytes_min=2) == 2


@pytest.mark.parametrize("size", [-1, 4, 1 << 40])
def test_raw_bytes_that_are_not_there_are_refused(size: int) -> None:
    with pytest.raises(MalformedFields):
        FieldReader(b"abc").raw(size)


def test_a_string_must_not_be_null_where_null_is_not_allowed() -> None:
    with pytest.raises(MalformedFields):
        FieldReader(b"\xff\xff").string()


def test_what_follows_the_last_field_is_refused() -> None:
    fields = FieldReader(b"\x01\x02")
    fields.int8()
    with pytest.raises(MalformedFields):
        fields.end()


def test_a_text_that_does_not_fit_its_length_is_refused_when_written() -> None:
    with pytest.raises(BrokerError):
        FieldWriter().string("x" * (1 << 15))
