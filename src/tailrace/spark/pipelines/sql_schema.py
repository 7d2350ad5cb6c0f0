"""The type of JSON values, learnt from a sample, as Spark writes types.

Fields that some values lack are there all the same. Where values disagree, the type is the one that holds
both (numbers: double) or else text, which for Spark is the JSON as it was written. What was null in all of
the sample is text too.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from typing import Any

FIELDS_MAX = 500
DEPTH_MAX = 8
_LONG_MAX = (1 << 63) - 1

Shape = str | list[Any] | dict[str, Any] | None
"""A name of a type, [items], {field: shape}, or None for nothing seen but nulls."""


def infer_shape(values: Iterable[bytes | None], known: Shape = None) -> Shape:
    """The shape that holds the JSON objects among some values, and what `known` holds."""
    shape = known
    for value in values:
        found = _parse(value)
        if isinstance(found, dict):
            shape = _merge(shape, _shape_of(found, 0))
    return shape


def struct_text(shape: Shape) -> str | None:
    """A shape as Spark writes a struct; None if it is none, or has no fields that a struct can have."""
    return _type_of(shape) if isinstance(shape, dict) and _fields_of(shape) else None


def _parse(value: bytes | None) -> object:
    if value is None or not value.lstrip().startswith(b"{"):
        return None
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _shape_of(value: object, depth: int) -> Shape:
    if value is None:
        return None
    if isinstance(value, bool):
        return "boolean"
    if isinstance(value, int):
        return "bigint" if -_LONG_MAX - 1 <= value <= _LONG_MAX else "double"
    if isinstance(value, float):
        return "double"
    if depth < DEPTH_MAX and isinstance(value, dict):
        return {str(name): _shape_of(each, depth + 1) for name, each in value.items()}
    if depth < DEPTH_MAX and isinstance(value, list):
        items: Shape = None
        for each in value:
            items = _merge(items, _shape_of(each, depth + 1))
        return [items]
    return "string"


def _merge(one: Shape, other: Shape) -> Shape:
    if one is None or one == other:
        return other
    if other is None:
        return one
    if isinstance(one, dict) and isinstance(other, dict):
        return {name: _merge(one.get(name), other.get(name)) for name in (*one, *other)}
    if isinstance(one, list) and isinstance(other, list):
        return [_merge(one[0], other[0])]
    if {one if isinstance(one, str) else "", other if isinstance(other, str) else ""} == {"bigint", "double"}:
        return "double"
    return "string"


def _type_of(shape: Shape) -> str:
    if isinstance(shape, str):
        return shape
    if isinstance(shape, list):
        return f"array<{_type_of(shape[0])}>"
    fields = _fields_of(shape) if isinstance(shape, dict) else {}
    if not fields:
        return "string"
    inside = ", ".join(f"`{name.replace('`', '``')}`: {_type_of(each)}" for name, each in fields.items())
    return f"struct<{inside}>"


def _fields_of(shape: dict[str, Any]) -> dict[str, Shape]:
    """The fields that a struct can have: Spark knows no empty names, and no two that differ in capitals."""
    kept: dict[str, Shape] = {}
    seen: set[str] = set()
    for name, each in shape.items():
        if name and name.lower() not in seen and len(kept) < FIELDS_MAX:
            seen.add(name.lower())
            kept[name] = each
    return kept
