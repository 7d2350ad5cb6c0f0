"""A batch of values as typed rows: `data`, and why a value is bad.

    Arrow's own JSON reader      a whole batch at once, if every value in it fits and the types are plain ones
    convert.py                   value by value, for what that reader refuses

Arrow's reader is the stricter of the two and has the same results, so which one has read a value cannot be
told. A batch that it refuses is halved until the parts are small: one bad value costs little.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from tailrace.spark.value.convert import Convert, Misfit, converter
from tailrace.spark.value.registry import HEADER_BYTES, NO_FRAME

PART_ROWS = 1024
"""The rows that are read one by one where Arrow's reader refuses one of them."""
_BLOCK_BYTES_MAX = 1 << 30
_REFUSALS = (pa.ArrowException, TypeError, ValueError, OverflowError)

Read = Callable[[bytes], Any]
"""Makes a Python value of an encoded one; it raises Misfit for what is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decoded:
    """The values of a batch."""

    data: pa.Array  # of structs; null where the value is null or bad
    bad: dict[int, str] = field(default_factory=dict)  # row: why it does not fit


def decode_json(values: pa.Array, kind: pa.StructType) -> Decoded:
    """Values that are JSON objects."""
    fits = _fits_arrow(kind)
    convert = converter(kind)
    return _spread(values, lambda given: _decode_json(given, kind, convert, fast=fits))


def decode_each(values: pa.Array, kind: pa.StructType, read: Read) -> Decoded:
    """Values of any encoding, one by one. What `read` gives must be what Arrow takes for the type."""
    return _spread(values, lambda given: _decode_slowly(given, kind, read))


def decode_framed(values: pa.Array, decode: Callable[[pa.Array], Decoded]) -> Decoded:
    """Values that begin with the id of their schema, as a registry's clients write them."""
    is_long = pc.greater_equal(pc.binary_length(values), HEADER_BYTES)
    framed = pc.fill_null(pc.and_(pc.starts_with(values, b"\x00"), is_long), False)
    bodies = pc.binary_replace_slice(values, 0, HEADER_BYTES, b"")
    found = decode(pc.if_else(framed, bodies, pa.scalar(None, values.type)))
    is_stray = pc.and_(pc.is_valid(values), pc.invert(framed))
    strays = np.flatnonzero(is_stray.to_numpy(zero_copy_only=False))
    return Decoded(data=found.data, bad=found.bad | {int(at): NO_FRAME for at in strays})


def _spread(values: pa.Array, decode: Callable[[pa.Array], Decoded]) -> Decoded:
    """Decode what is not null, and put it back into its rows."""
    if not values.null_count:
        return decode(values)
    places = np.flatnonzero(pc.is_valid(values).to_numpy(zero_copy_only=False))
    found = decode(values.take(pa.array(places)))
    rows = np.full(len(values), -1, dtype=np.int64)
    rows[places] = np.arange(len(places))
    data = found.data.take(pa.array(rows, mask=rows < 0))
    return Decoded(data=data, bad={int(places[at]): reason for at, reason in found.bad.items()})


def _decode_json(values: pa.Array, kind: pa.StructType, convert: Convert, *, fast: bool) -> Decoded:
    found = _read_arrow(values, kind) if fast else None
    if found is not None:
        return Decoded(data=found)
    if not fast or len(values) <= PART_ROWS:
        return _decode_slowly(values, kind, lambda value: convert(_load(value)))
    half = len(values) // 2
    one = _decode_json(values[:half], kind, convert, fast=True)
    other = _decode_json(values[half:], kind, convert, fast=True)
    return Decoded(
        data=pa.concat_arrays([one.data, other.data]),
        bad=one.bad | {half + at: reason for at, reason in other.bad.items()},
    )


def _decode_slowly(values: pa.Array, kind: pa.StructType, read: Read) -> Decoded:
    rows: list[Any] = []
    bad: dict[int, str] = {}
    for at, value in enumerate(values.to_pylist()):
        try:
            rows.append(read(value))
        except Misfit as error:
            rows.append(None)
            bad[at] = str(error)
    try:
        return Decoded(data=pa.array(rows, type=kind), bad=bad)
    except _REFUSALS:
        return _take_each(rows, kind, bad)


def _take_each(rows: list[Any], kind: pa.StructType, bad: dict[int, str]) -> Decoded:
    """The rows that Arrow takes for the type, one by one."""
    taken = []
    for at, row in enumerate(rows):
        try:
            taken.append(pa.array([row], type=kind))
        except _REFUSALS as error:
            taken.append(pa.nulls(1, kind))
            bad[at] = f"it does not fit: {error}"
    return Decoded(data=pa.concat_arrays(taken), bad=bad)


def _load(value: bytes) -> Any:
    try:
        return json.loads(value, parse_float=Decimal)
    except (ValueError, RecursionError):
        raise Misfit("it is not JSON") from None


# ---- Arrow's reader


def _fits_arrow(kind: pa.DataType) -> bool:
    """Whether Arrow's reader has the same results for a type, where it reads it at all."""
    types = pa.types
    if types.is_struct(kind):
        return all(_fits_arrow(field.type) for field in kind)
    if types.is_list(kind):
        return _fits_arrow(kind.value_type)
    if types.is_timestamp(kind):
        return kind.tz is not None
    checks = (types.is_integer, types.is_floating, types.is_boolean, types.is_string, types.is_decimal128)
    return any(check(kind) for check in checks)


def _read_arrow(values: pa.Array, kind: pa.StructType) -> pa.Array | None:
    """All values at once; None if the reader refuses one of them."""
    if not len(values):
        return pa.array([], type=kind)
    try:
        text = pc.ascii_trim_whitespace(values.cast(pa.string()))
    except pa.ArrowInvalid:  # not UTF-8
        return None
    # The reader would take two objects in one value, and null for an object.
    if not pc.all(pc.and_(pc.starts_with(text, "{"), pc.ends_with(text, "}"))).as_py():
        return None
    lines = pa.ListArray.from_arrays(pa.array([0, len(text)], pa.int32()), text)
    joined = pc.binary_join(lines, "\n")[0].as_buffer()
    if joined.size > _BLOCK_BYTES_MAX:
        return None
    try:
        table = pj.read_json(
            pa.BufferReader(joined),
            read_options=pj.ReadOptions(use_threads=False, block_size=joined.size + 1),
            parse_options=pj.ParseOptions(
                explicit_schema=pa.schema([field.with_nullable(True) for field in kind]),
                newlines_in_values=True,
                unexpected_field_behavior="ignore",
            ),
        )
    except pa.ArrowInvalid:
        return None
    if table.num_rows != len(values):
        return None
    columns = [table.column(field.name).combine_chunks() for field in kind]
    found = pa.StructArray.from_arrays(columns, fields=list(kind))
    try:
        found.validate(full=True)  # the reader takes decimals with more digits than their type has
    except pa.ArrowInvalid:
        return None
    return None if _lacks(found, kind) else found


def _lacks(array: pa.Array, kind: pa.DataType) -> bool:
    """Whether something may be null that must not be; of a doubtful case it says yes."""
    if pa.types.is_struct(kind):
        return any(
            (not field.nullable and array.field(at).null_count > 0) or _lacks(array.field(at), field.type)
            for at, field in enumerate(kind)
        )
    if pa.types.is_list(kind):
        inner = array.flatten()
        return (not kind.value_field.nullable and inner.null_count > 0) or _lacks(inner, kind.value_type)
    return False
