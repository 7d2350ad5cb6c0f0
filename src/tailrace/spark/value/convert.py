"""Values of JSON as Python has them, to values that Arrow takes for a type: what Spark's from_json accepts.

    STRING             text as it is; anything else as JSON
    integers           whole numbers in their range; 1.0 is none
    FLOAT, DOUBLE      numbers, and "NaN", "Infinity", "-Infinity"
    DECIMAL(p, s)      numbers, and text that is one; rounded half up to s digits, not more than p in all
    BOOLEAN            true, false
    TIMESTAMP, DATE    text as ISO 8601 has it, UTC where it names no zone; TIMESTAMP also seconds since 1970
    BINARY             base64
    ARRAY, MAP, STRUCT what is in them; fields that a struct does not have are ignored

Null fits wherever it may be. A field that a value lacks is null.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Callable
from datetime import UTC, date, datetime
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from typing import Any

import pyarrow as pa

from tailrace.model import ConfigError

Convert = Callable[[Any], Any]

_NO_NUMBERS = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_SECONDS_MAX = 253_402_300_799  # the end of the year 9999
_EXACT = Context(prec=76, rounding=ROUND_HALF_UP)


class Misfit(ValueError):
    """A value that its type cannot hold; says which."""


def converter(kind: pa.DataType) -> Convert:
    """What makes values of a type; it raises Misfit for others."""
    types = pa.types
    if types.is_struct(kind):
        return _struct(kind)
    if types.is_list(kind):
        return _list(kind)
    if types.is_map(kind):
        return _map(kind)
    if types.is_decimal(kind):
        return _decimal(kind)
    if types.is_timestamp(kind):
        return _timestamp if kind.tz else _timestamp_without_zone
    if types.is_integer(kind):
        return _integer(kind)
    for is_kind, convert in (
        (types.is_string, _string),
        (types.is_floating, _floating),
        (types.is_boolean, _boolean),
        (types.is_date, _date),
        (types.is_binary, _binary),
    ):
        if is_kind(kind):
            return convert
    raise ConfigError(f"values cannot be decoded as {kind}")


def _struct(kind: pa.StructType) -> Convert:
    fields = [(field.name, converter(field.type), field.nullable) for field in kind]

    def convert(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Misfit("it is not a JSON object")
        made = {}
        for name, make, nullable in fields:
            given = value.get(name)
            if given is None:
                if not nullable:
                    raise Misfit(f"{name} is missing")
                continue
            try:
                made[name] = make(given)
            except Misfit as error:
                raise Misfit(_inside(name, error)) from None
        return made

    return convert


def _inside(name: str, error: Misfit) -> str:
    """The path of a field in front of what is wrong with it."""
    inner = str(error)
    return f"{name}.{inner}" if inner.endswith((" does not fit", " is missing")) else f"{name} does not fit"


def _list(kind: pa.ListType) -> Convert:
    make, nullable = converter(kind.value_type), kind.value_field.nullable

    def convert(value: Any) -> list[Any]:
        if not isinstance(value, list) or (not nullable and None in value):
            raise Misfit("it is not such an array")
        return [None if each is None else make(each) for each in value]

    return convert


def _map(kind: pa.MapType) -> Convert:
    key, make = converter(kind.key_type), converter(kind.item_type)

    def convert(value: Any) -> list[tuple[Any, Any]]:
        if not isinstance(value, dict):
            raise Misfit("it is not a JSON object")
        return [(key(name), None if each is None else make(each)) for name, each in value.items()]

    return convert


def _string(value: Any) -> str:
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"), default=float)


def _integer(kind: pa.DataType) -> Convert:
    top = 1 << (kind.bit_width - 1)

    def convert(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int) or not -top <= value < top:
            raise Misfit("it is not such a whole number")
        return value

    return convert


def _floating(value: Any) -> float:
    if isinstance(value, str) and value in _NO_NUMBERS:
        return _NO_NUMBERS[value]
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise Misfit("it is not a number")
    try:
        return float(value)
    except OverflowError:
        raise Misfit("it is too large") from None


def _decimal(kind: pa.DataType) -> Convert:
    unit, digits = Decimal(1).scaleb(-kind.scale), kind.precision

    def convert(value: Any) -> Decimal:
        if isinstance(value, bool) or not isinstance(value, int | float | str | Decimal):
            raise Misfit("it is not a number")
        try:
            made = _EXACT.quantize(Decimal(value), unit)
        except (InvalidOperation, ValueError):
            raise Misfit("it is not such a number") from None
        if not made.is_finite() or len(made.as_tuple().digits) > digits:
            raise Misfit("it has too many digits")
        return made

    return convert


def _boolean(value: Any) -> bool:
    if not isinstance(value, bool):
        raise Misfit("it is neither true nor false")
    return value


def _timestamp(value: Any) -> datetime:
    if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= _SECONDS_MAX:
        return datetime.fromtimestamp(value, UTC)
    moment = _moment(value)
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def _timestamp_without_zone(value: Any) -> datetime:
    moment = _moment(value)
    if moment.tzinfo is not None:
        raise Misfit("it has a time zone")
    return moment


def _moment(value: Any) -> datetime:
    try:
        return datetime.fromisoformat(value)
    except (TypeError, ValueError):
        raise Misfit("it is not a time") from None


def _date(value: Any) -> date:
    try:
        return date.fromisoformat(value[:10])
    except (TypeError, ValueError):
        raise Misfit("it is not a date") from None


def _binary(value: Any) -> bytes:
    try:
        return base64.b64decode(value, validate=True)
    except (TypeError, ValueError, binascii.Error):
        raise Misfit("it is not base64") from None
