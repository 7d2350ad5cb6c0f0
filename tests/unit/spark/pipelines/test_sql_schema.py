"""Types of JSON values from samples; what Spark makes of them is tested with Spark."""

from __future__ import annotations

import json
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark.pipelines.sql_schema import DEPTH_MAX, FIELDS_MAX, infer_shape, struct_text


def infer_type(values: Iterable[bytes | None]) -> str | None:
    return struct_text(infer_shape(values))


@pytest.mark.parametrize(
    ("values", "found"),
    [
        ([b'{"a": 1}'], "struct<`a`: bigint>"),
        ([b'{"a": 1}', b'{"b": "x"}'], "struct<`a`: bigint, `b`: string>"),
        ([b'{"a": 1}', b'{"a": 1.5}'], "struct<`a`: double>"),
        ([b'{"a": 1}', b'{"a": "x"}'], "struct<`a`: string>"),
        ([b'{"a": null}'], "struct<`a`: string>"),
        ([b'{"a": null}', b'{"a": true}'], "struct<`a`: boolean>"),
        ([b'{"a": {"b": [1, 2.5]}}'], "struct<`a`: struct<`b`: array<double>>>"),
        ([b'{"a": []}'], "struct<`a`: array<string>>"),
        ([b'{"a": [{"b": 1}, {"c": 1}]}'], "struct<`a`: array<struct<`b`: bigint, `c`: bigint>>>"),
        ([b'{"a": {}}'], "struct<`a`: string>"),
        ([b'{"a": {"b": 1}}', b'{"a": [1]}'], "struct<`a`: string>"),
        ([b'{"a": 99999999999999999999}'], "struct<`a`: double>"),
        ([b'  {"a b`c": 1}'], "struct<`a b``c`: bigint>"),
        ([b'{"a": 1, "A": 2, "": 3}'], "struct<`a`: bigint>"),
        ([b"no", None, b"", b'{"a": 1}', b'{"broken'], "struct<`a`: bigint>"),
    ],
)
def test_types(values: list[bytes | None], found: str) -> None:
    assert infer_type(values) == found


@pytest.mark.parametrize(
    "values", [[], [None], [b""], [b"[1]"], [b"1"], [b'"x"'], [b"{}"], [b"{"], [b"\xff{"], [b'{"": 1}']]
)
def test_a_sample_without_objects_has_no_type(values: list[bytes | None]) -> None:
    assert infer_type(values) is None


def test_what_is_too_deep_or_too_wide_is_cut() -> None:
    deep = b'{"a":' * 100 + b"1" + b"}" * 100
    assert (infer_type([deep]) or "").count("struct") == DEPTH_MAX
    wide = json.dumps({f"f{at}": at for at in range(FIELDS_MAX + 10)}).encode()
    assert (infer_type([wide]) or "").count("bigint") == FIELDS_MAX
    assert infer_type([b"[" * 100_000, b'{"a":' * 100_000]) is None


@given(
    st.lists(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
            lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        ),
        max_size=5,
    )
)
def test_any_json_has_a_type_or_none(values: list[object]) -> None:
    found = infer_type(json.dumps(value).encode() for value in values)
    assert found is None or (found.startswith("struct<`") and found.endswith(">"))


def test_a_shape_is_widened_to_hold_what_came_later() -> None:
    known = infer_shape([b'{"a": 1, "b": "x"}'])
    assert struct_text(infer_shape([b'{"a": 1.5, "c": true}'], known)) == (
        "struct<`a`: double, `b`: string, `c`: boolean>"
    )
    assert infer_shape([], known) == known
