"""Batches of JSON values as typed rows: what fits, what does not, and that both ways of reading agree."""

from __future__ import annotations

import json
from datetime import UTC, date, datetime
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.spark.value import decoding
from tailrace.spark.value.convert import Misfit, converter
from tailrace.spark.value.decoding import decode_each, decode_framed, decode_json
from tailrace.spark.value.registry import NO_FRAME

LONG = pa.struct([("a", pa.int64())])
TIME = pa.timestamp("us", tz="UTC")


def decode(*values: bytes | None, kind: pa.StructType = LONG) -> tuple[list[Any], dict[int, str]]:
    found = decode_json(pa.array(values, pa.binary()), kind)
    assert found.data.type == kind
    return found.data.to_pylist(), found.bad


@pytest.mark.parametrize(
    ("kind", "given", "found"),
    [
        (pa.int64(), "1", 1),
        (pa.int8(), "-128", -128),
        (pa.string(), '"x"', "x"),
        (pa.string(), "5", "5"),
        (pa.string(), "true", "true"),
        (pa.string(), '{"q": [1, "é"]}', '{"q":[1,"é"]}'),
        (pa.float64(), "1", 1.0),
        (pa.float64(), '"-Infinity"', float("-inf")),
        (pa.float64(), "-Infinity", float("-inf")),
        (pa.bool_(), "true", True),
        (pa.decimal128(12, 2), "1.25", Decimal("1.25")),
        (pa.decimal128(12, 2), '"12.3"', Decimal("12.30")),
        (pa.decimal128(12, 2), "12.345", Decimal("12.35")),
        (pa.decimal128(12, 2), "1e3", Decimal("1000.00")),
        (TIME, '"2024-01-01T02:00:00+02:00"', datetime(2024, 1, 1, tzinfo=UTC)),
        (TIME, '"2024-01-01 00:00:00.5"', datetime(2024, 1, 1, microsecond=500_000, tzinfo=UTC)),
        (TIME, "5", datetime(1970, 1, 1, 0, 0, 5, tzinfo=UTC)),
        (pa.timestamp("us"), '"2024-01-01T00:00:00"', datetime(2024, 1, 1)),
        (pa.date32(), '"2024-01-01"', date(2024, 1, 1)),
        (pa.date32(), '"2024-01-01T10:00:00Z"', date(2024, 1, 1)),
        (pa.binary(), '"aGk="', b"hi"),
        (pa.list_(pa.int64()), "[1, null]", [1, None]),
        (pa.map_(pa.string(), pa.int64()), '{"x": 1}', [("x", 1)]),
        (pa.struct([("b", pa.int64())]), '{"b": 1, "other": 2}', {"b": 1}),
        (pa.int64(), "null", None),
    ],
)
def test_a_value_that_fits_its_type(kind: pa.DataType, given: str, found: object) -> None:
    value = f'{{"a": {given}}}'.encode()
    assert decode(value, kind=pa.struct([("a", kind)])) == ([{"a": found}], {})


@pytest.mark.parametrize(
    ("kind", "given"),
    [
        *((pa.int64(), each) for each in ('"1"', "1.5", "1.0", "true", "99999999999999999999", "[1]")),
        (pa.int8(), "128"),
        *((pa.float64(), each) for each in ('"1.5"', "true", '"Nan"')),
        *((pa.bool_(), each) for each in ("1", '"true"')),
        *((pa.decimal128(12, 2), each) for each in ("99999999999.5", '"zz"', "true", '"NaN"')),
        *((TIME, each) for each in ('"nope"', "true", "1e300", "99999999999999")),
        (pa.timestamp("us"), '"2024-01-01T00:00:00Z"'),
        *((pa.date32(), each) for each in ('"x"', "5")),
        (pa.binary(), '"***"'),
        *((pa.list_(pa.int64()), each) for each in ('[1, "x"]', "5")),
        *((pa.map_(pa.string(), pa.int64()), each) for each in ('{"x": "y"}', "[]")),
        (pa.struct([("b", pa.int64())]), "5"),
    ],
)
def test_a_value_that_does_not_fit_its_type(kind: pa.DataType, given: str) -> None:
    value = f'{{"a": {given}}}'.encode()
    rows, bad = decode(value, kind=pa.struct([("a", kind)]))
    assert rows == [None]
    assert list(bad) == [0]


NOT_NULL = pa.field("b", pa.int64(), nullable=False)


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (pa.struct([NOT_NULL]), b"{}"),
        (pa.struct([NOT_NULL]), b'{"b": null}'),
        (pa.struct([("s", pa.struct([NOT_NULL]))]), b'{"s": {}}'),
        (pa.struct([("l", pa.list_(NOT_NULL))]), b'{"l": [1, null]}'),
        (pa.struct([("l", pa.list_(pa.struct([NOT_NULL])))]), b'{"l": [{"b": 1}, {}]}'),
    ],
)
def test_null_where_there_may_be_none_is_bad(kind: pa.StructType, value: bytes) -> None:
    rows, bad = decode(value, kind=kind)
    assert (rows, list(bad)) == ([None], [0])


def test_a_field_with_too_many_digits_is_named() -> None:
    _, bad = decode(b'{"total": 123.4}', kind=pa.struct([("total", pa.decimal128(4, 2))]))
    assert bad == {0: "total does not fit"}


def test_values_without_the_id_of_a_schema_are_named_and_the_others_are_read() -> None:
    front = b"\0\0\0\0\7"
    values = pa.array([front + b'{"a": 1}', b'{"a": 2}', None, b"\0", front + b'{"a": "x"}'], pa.binary())
    found = decode_framed(values, lambda bodies: decode_json(bodies, LONG))
    assert found.data.to_pylist() == [{"a": 1}, None, None, None, None]
    assert found.bad == {1: NO_FRAME, 3: NO_FRAME, 4: "a does not fit"}


def test_a_bad_value_is_named_by_its_path_and_leaves_the_others_alone() -> None:
    kind = pa.struct([pa.field("a", pa.struct([pa.field("b", pa.int64(), nullable=False)]))])
    values = (b'{"a": {"b": 1}}', b'{"a": {"b": "x"}}', None, b'{"a": {}}', b"no", b"[]", b"", b'{"a": 5}')
    rows, bad = decode(*values, kind=kind)
    assert rows == [{"a": {"b": 1}}, *[None] * 7]
    assert bad == {
        1: "a.b does not fit",
        3: "a.b is missing",
        4: "it is not JSON",
        5: "it is not a JSON object",
        6: "it is not JSON",
        7: "a does not fit",
    }


@pytest.mark.parametrize(
    "value",
    [b'{"a": 1} {"a": 2}', b"null", b'{"a": 1}\n{"a": 2}', b'{"a": 01}', b"{'a': 1}", b"\xff\xfe", b'{"a":1'],
)
def test_what_is_not_one_json_object_is_bad(value: bytes) -> None:
    rows, bad = decode(b'{"a": 1}', value, b'{"a": 3}')
    assert rows == [{"a": 1}, None, {"a": 3}]
    assert list(bad) == [1]


def test_text_over_several_lines_is_one_value() -> None:
    assert decode(b'{\n  "a": 1\n}\n', b' {"a": 2}') == ([{"a": 1}, {"a": 2}], {})


def test_one_bad_value_among_many_is_found_and_the_others_are_read_together(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slow: list[int] = []
    really = decoding._decode_slowly

    def counted(values: pa.Array, kind: pa.StructType, read: decoding.Read) -> decoding.Decoded:
        slow.append(len(values))
        return really(values, kind, read)

    monkeypatch.setattr(decoding, "_decode_slowly", counted)
    values = [b'{"a": %d}' % at for at in range(20_000)]
    values[12_345] = b'{"a": "x"}'
    rows, bad = decode(*values)
    assert bad == {12_345: "a does not fit"}
    assert [row and row["a"] for row in rows] == [None if at == 12_345 else at for at in range(20_000)]
    assert sum(slow) <= decoding.PART_ROWS


NESTED = pa.struct(
    [
        ("i", pa.int32()),
        ("s", pa.string()),
        ("f", pa.float64()),
        ("b", pa.bool_()),
        ("d", pa.decimal128(6, 2)),
        ("l", pa.list_(pa.int64())),
        ("t", pa.struct([("x", pa.int64()), ("y", pa.string())])),
    ]
)
plain = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-(2**40), 2**40),
    st.floats(-1e6, 1e6),
    st.text(max_size=5),
    st.lists(st.integers(-9, 9), max_size=2),
)
document = st.dictionaries(
    st.sampled_from(["i", "s", "f", "b", "d", "l", "other"]),
    plain,
    max_size=6,
) | st.fixed_dictionaries({"t": st.dictionaries(st.sampled_from(["x", "y", "z"]), plain, max_size=3)})


@given(st.lists(document, min_size=1, max_size=6))
@settings(max_examples=150, deadline=None)
def test_both_ways_of_reading_agree(documents: list[dict[str, object]]) -> None:
    values = [json.dumps(each).encode() for each in documents]
    found = decode_json(pa.array(values, pa.binary()), NESTED)
    convert = converter(NESTED)
    slow = decode_each(pa.array(values, pa.binary()), NESTED, lambda value: convert(decoding._load(value)))
    assert found.bad == slow.bad
    assert found.data.equals(slow.data)


def test_values_of_another_encoding_are_read_one_by_one() -> None:
    def read(value: bytes) -> dict[str, int]:
        if value == b"x":
            raise Misfit("no number")
        return {"a": int(value)}

    found = decode_each(pa.array([b"1", None, b"x"], pa.binary()), LONG, read)
    assert found.data.to_pylist() == [{"a": 1}, None, None]
    assert found.bad == {2: "no number"}
