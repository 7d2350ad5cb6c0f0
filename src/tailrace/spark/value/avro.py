"""Avro values, read by fastavro: as they are, or with the id of their schema in front.

Without a registry a value is one datum in Avro's binary encoding, written with the declared schema. With one
it begins with the id of the schema that wrote it (registry.py). It is then resolved to the declared schema by
Avro's rules, or taken as it was written where only the registry's address was declared.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable
from datetime import time
from functools import lru_cache
from typing import Any
from uuid import UUID

import pyarrow as pa

from tailrace.model import ConfigError
from tailrace.spark.value.convert import Convert, Misfit
from tailrace.spark.value.registry import HEADER_BYTES, NO_FRAME, UnknownSchema, fetch_schema

INSTALL_AVRO = "pip install 'tailrace[avro]'"
_DAY_S = 3600


def avro_reader(kind: pa.StructType, *, definition: str, registry: str) -> Callable[[bytes], Any]:
    """What reads values into what Arrow takes for a type; it raises Misfit for what is no such value."""
    decode = _load_fastavro()
    declared = _parse(definition) if definition else None
    fit = fitter(kind)

    def read(value: bytes) -> Any:
        if registry:
            writer, body = _writer_of(registry, value), value[HEADER_BYTES:]
        else:
            assert declared is not None, "without a registry a schema is declared"
            writer, body = declared, value
        source = io.BytesIO(body)
        try:
            found = decode(source, writer, declared if registry else None)
        except Exception as error:  # it raises whatever the bytes make happen
            raise Misfit(f"it is not Avro of its schema: {type(error).__name__}") from None
        if source.tell() != len(body):
            raise Misfit("it is longer than Avro of its schema")
        return fit(found)

    return read


def _schema_id(value: bytes) -> int:
    """The id of the schema of a value that a registry's client wrote; Misfit if it has none."""
    if len(value) < HEADER_BYTES or value[0] != 0:
        raise Misfit(NO_FRAME)
    return int.from_bytes(value[1:HEADER_BYTES], "big")


def _writer_of(registry: str, value: bytes) -> Any:
    schema_id = _schema_id(value)
    try:
        return _parsed(registry, schema_id)
    except UnknownSchema:
        raise Misfit(f"the registry does not know its schema, {schema_id}") from None


@lru_cache(maxsize=1024)
def _parsed(registry: str, schema_id: int) -> Any:
    found = fetch_schema(registry, schema_id)
    if found.kind != "AVRO":
        raise Misfit(f"its schema, {schema_id}, is {found.kind} and not Avro")
    return _parse(found.text)


def _parse(text: str) -> Any:
    from fastavro import parse_schema
    from fastavro.schema import SchemaParseException, UnknownType

    try:
        return parse_schema(json.loads(text))
    except (SchemaParseException, UnknownType, ValueError) as error:
        raise ConfigError(f"the Avro schema cannot be read: {error}") from error


def _load_fastavro() -> Callable[..., Any]:
    try:
        from fastavro import schemaless_reader
    except ImportError as error:
        raise ConfigError(f"Avro needs fastavro, which is not installed. Try: {INSTALL_AVRO}") from error
    return schemaless_reader  # type: ignore[no-any-return]


# ---- to Arrow


def fitter(kind: pa.DataType) -> Convert:
    """What makes of fastavro's values those that Arrow takes; Misfit for a null where none may be."""
    types = pa.types
    if types.is_struct(kind):
        return _fit_struct(kind)
    if types.is_list(kind):
        each = fitter(kind.value_type)
        return lambda value: [None if item is None else each(item) for item in value]
    if types.is_map(kind):
        item_of = fitter(kind.item_type)
        return lambda value: [(key, None if item is None else item_of(item)) for key, item in value.items()]
    if types.is_string(kind):
        return lambda value: str(value) if isinstance(value, UUID) else value
    if types.is_integer(kind):
        unit = 1_000 if kind.bit_width == 32 else 1_000_000
        return lambda value: _since_midnight(value, unit) if isinstance(value, time) else value
    return lambda value: value


def _fit_struct(kind: pa.StructType) -> Convert:
    fields = [(field.name, fitter(field.type), field.nullable) for field in kind]

    def fit(value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise Misfit("it is not a record")
        made = {}
        for name, fit_field, nullable in fields:
            given = value.get(name)
            if given is None and not nullable:
                raise Misfit(f"{name} is missing")
            made[name] = None if given is None else fit_field(given)
        return made

    return fit


def _since_midnight(value: time, unit: int) -> int:
    seconds = value.hour * _DAY_S + value.minute * 60 + value.second
    return seconds * unit + value.microsecond * unit // 1_000_000
