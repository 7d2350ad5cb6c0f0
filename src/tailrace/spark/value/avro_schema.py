"""Avro schemas to Spark's types, as Spark's own Avro reader has them.

    boolean, int, long, float, double, string, bytes     BOOLEAN, INT, BIGINT, FLOAT, DOUBLE, STRING, BINARY
    record, array, map                                   STRUCT, ARRAY, MAP<STRING, ...>
    enum, fixed                                          STRING, BINARY
    a union with null                                    the other type, and null fits
    a union of int and long, of float and double         BIGINT, DOUBLE

    decimal, date                                        DECIMAL(p, s), DATE
    timestamp-millis, timestamp-micros                   TIMESTAMP; local-timestamp-*: TIMESTAMP_NTZ
    time-millis, time-micros, uuid                       INT, BIGINT, STRING

Other unions, types that contain themselves, and records without fields are refused.
"""

from __future__ import annotations

from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tailrace.model import ConfigError

DEPTH_MAX = 32
_PRIMITIVES: dict[str, DataType] = {
    "boolean": BooleanType(),
    "int": IntegerType(),
    "long": LongType(),
    "float": FloatType(),
    "double": DoubleType(),
    "string": StringType(),
    "bytes": BinaryType(),
}
_LOGICAL: dict[tuple[str, str], DataType] = {
    ("int", "date"): DateType(),
    ("int", "time-millis"): IntegerType(),
    ("long", "time-micros"): LongType(),
    ("long", "timestamp-millis"): TimestampType(),
    ("long", "timestamp-micros"): TimestampType(),
    ("long", "local-timestamp-millis"): TimestampNTZType(),
    ("long", "local-timestamp-micros"): TimestampNTZType(),
}
_WIDER = {frozenset({"int", "long"}): LongType(), frozenset({"float", "double"}): DoubleType()}
_DECIMAL_DIGITS_MAX = 38


def is_avro(document: object) -> bool:
    """Whether a JSON document is an Avro schema of records, and not a JSON Schema."""
    return isinstance(document, dict) and document.get("type") == "record"


def read_avro_schema(document: object, *, place: str) -> StructType:
    """The columns of the records that an Avro schema describes; ConfigError if it describes others."""
    found, _ = _Reader(place).type_of(document, "", 0)
    if not isinstance(found, StructType):
        raise ConfigError(f"{place} is not an Avro schema of a record")
    return found


class _Reader:
    def __init__(self, place: str) -> None:
        self._place = place
        self._named: dict[str, Any] = {}
        self._open: set[str] = set()  # records that are being read

    def type_of(self, schema: Any, space: str, depth: int) -> tuple[DataType, bool]:
        """Spark's type, and whether null fits."""
        if depth > DEPTH_MAX:
            raise ConfigError(f"{self._place} is nested more than {DEPTH_MAX} deep")
        if isinstance(schema, list):
            return self._union(schema, space, depth)
        if isinstance(schema, str):
            return self._by_name(schema, space, depth), False
        if not isinstance(schema, dict) or "type" not in schema:
            raise ConfigError(f"{self._place} has {str(schema)[:60]!r} where a type of Avro should be")
        return self._complex(schema, space, depth)

    def _union(self, choices: list[Any], space: str, depth: int) -> tuple[DataType, bool]:
        others = [each for each in choices if each != "null"]
        nullable = len(others) < len(choices)
        if len(others) == 1:
            return self.type_of(others[0], space, depth + 1)[0], nullable
        wider = _WIDER.get(frozenset(each for each in others if isinstance(each, str)))
        if wider is None or len(others) != 2:
            raise ConfigError(
                f"{self._place} has a union of several types, which is no column: {str(choices)[:100]}"
            )
        return wider, nullable

    def _by_name(self, name: str, space: str, depth: int) -> DataType:
        if name in _PRIMITIVES:
            return _PRIMITIVES[name]
        full = name if "." in name or not space else f"{space}.{name}"
        if full in self._open:
            raise ConfigError(f"{self._place}: {full} contains itself, which no type of Spark does")
        found = self._named.get(full, self._named.get(name))
        if found is None:
            raise ConfigError(f"{self._place} names the type {name!r}, which is not in it")
        return self.type_of(found, space, depth + 1)[0]

    def _complex(self, schema: dict[str, Any], space: str, depth: int) -> tuple[DataType, bool]:
        kind = schema["type"]
        if isinstance(kind, dict | list):
            return self.type_of(kind, space, depth + 1)
        logical = schema.get("logicalType")
        if logical == "decimal" and kind in ("bytes", "fixed"):
            self._remember(schema, space)
            return self._decimal(schema), False
        if (kind, logical) in _LOGICAL:
            return _LOGICAL[kind, str(logical)], False
        if kind == "array":
            items, nullable = self.type_of(schema.get("items"), space, depth + 1)
            return ArrayType(items, nullable), False
        if kind == "map":
            values, nullable = self.type_of(schema.get("values"), space, depth + 1)
            return MapType(StringType(), values, nullable), False
        if kind in ("enum", "fixed"):
            self._remember(schema, space)
            return (StringType() if kind == "enum" else BinaryType()), False
        if kind in ("record", "error"):
            return self._record(schema, space, depth), False
        return self._by_name(str(kind), space, depth), False

    def _record(self, schema: dict[str, Any], space: str, depth: int) -> StructType:
        full, inner = self._remember(schema, space)
        given = schema.get("fields")
        if not isinstance(given, list) or not given:
            raise ConfigError(f"{self._place}: the record {full} has no fields")
        self._open.add(full)
        fields = []
        for field in given:
            if not isinstance(field, dict) or not isinstance(field.get("name"), str) or "type" not in field:
                raise ConfigError(f"{self._place}: a field of {full} has no name or no type")
            kind, nullable = self.type_of(field["type"], inner, depth + 1)
            fields.append(StructField(field["name"], kind, nullable))
        self._open.discard(full)
        return StructType(fields)

    def _remember(self, schema: dict[str, Any], space: str) -> tuple[str, str]:
        """The full name of a named type, and the namespace inside it."""
        name = str(schema.get("name", ""))
        inner = name.rpartition(".")[0] or str(schema.get("namespace", space))
        full = name if "." in name or not inner else f"{inner}.{name}"
        self._named[full] = schema
        return full, inner

    def _decimal(self, schema: dict[str, Any]) -> DataType:
        precision, scale = schema.get("precision"), schema.get("scale", 0)
        if (
            not isinstance(precision, int)
            or not isinstance(scale, int)
            or not 0 <= scale <= precision <= _DECIMAL_DIGITS_MAX
            or precision < 1
        ):
            raise ConfigError(
                f"{self._place} has a decimal of precision {precision!r} and scale {scale!r}: Spark has up to"
                f" {_DECIMAL_DIGITS_MAX} digits"
            )
        return DecimalType(precision, scale)
