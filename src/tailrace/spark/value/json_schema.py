"""JSON Schema to Spark's types.

    string                            STRING; format date-time is TIMESTAMP, date is DATE
    integer, number, boolean          BIGINT, DOUBLE, BOOLEAN
    object with properties            STRUCT; properties that are `required` are NOT NULL
    object with additionalProperties  MAP<STRING, ...>, if it has no properties
    array with items                  ARRAY
    null beside another type          that type, and null fits; `anyOf` and `oneOf` alike
    enum, const                       the type of the values
    $ref                              followed inside the document ("#/$defs/..."), not to other documents

What holds everything is STRING, the JSON as text: a schema without a type, several types, an object without
properties. Bounds, patterns and lengths are not checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DoubleType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.model import ConfigError

DEPTH_MAX = 32
_PLAIN = {"integer": LongType(), "number": DoubleType(), "boolean": BooleanType()}
_FORMATS = {"date-time": TimestampType(), "date": DateType()}


def read_json_schema(document: object, *, place: str) -> StructType:
    """The columns of the objects that a JSON Schema describes; ConfigError if it does not describe any."""
    if not isinstance(document, dict):
        raise ConfigError(f"{place} is no JSON Schema: it is not an object")
    found, _ = _Reader(document, place).type_of(document, 0)
    if not isinstance(found, StructType):
        raise ConfigError(f'{place} describes no columns: it needs "type": "object" and "properties"')
    return found


class _Reader:
    def __init__(self, document: Mapping[str, Any], place: str) -> None:
        self._document = document
        self._place = place

    def type_of(self, schema: object, depth: int) -> tuple[DataType, bool]:
        """Spark's type, and whether null fits."""
        if depth > DEPTH_MAX:
            raise ConfigError(f"{self._place} is nested more than {DEPTH_MAX} deep, or refers to itself")
        if not isinstance(schema, dict):
            return StringType(), True
        if "$ref" in schema:
            return self.type_of(self._find(schema["$ref"]), depth + 1)
        for key in ("anyOf", "oneOf"):
            if isinstance(schema.get(key), list):
                return self._one_of(schema[key], depth)
        names = _type_names(schema)
        nullable = not names or "null" in names
        names -= {"null"}
        if names == {"integer", "number"}:
            names = {"number"}
        if len(names) != 1:
            return StringType(), nullable
        return self._named(names.pop(), schema, depth), nullable

    def _one_of(self, choices: list[Any], depth: int) -> tuple[DataType, bool]:
        found = [self.type_of(each, depth + 1) for each in choices if each != {"type": "null"}]
        nullable = len(found) < len(choices) or any(null for _, null in found)
        kinds = [kind for kind, _ in found]
        same = bool(kinds) and all(kind == kinds[0] for kind in kinds)
        return (kinds[0] if same else StringType()), nullable

    def _named(self, name: str, schema: Mapping[str, Any], depth: int) -> DataType:
        if name in _PLAIN:
            return _PLAIN[name]
        if name == "string":
            return _FORMATS.get(str(schema.get("format")), StringType())
        if name == "array":
            items, nullable = self.type_of(schema.get("items"), depth + 1)
            return ArrayType(items, nullable)
        if name != "object":
            raise ConfigError(f"{self._place} has the type {name!r}, which JSON Schema does not know")
        return self._object(schema, depth)

    def _object(self, schema: Mapping[str, Any], depth: int) -> DataType:
        properties = schema.get("properties")
        if isinstance(properties, dict) and properties:
            required = schema.get("required", [])
            fields = []
            for name, each in properties.items():
                kind, nullable = self.type_of(each, depth + 1)
                fields.append(StructField(name, kind, nullable or name not in required))
            return StructType(fields)
        values = schema.get("additionalProperties")
        if isinstance(values, dict):
            kind, nullable = self.type_of(values, depth + 1)
            return MapType(StringType(), kind, nullable)
        return StringType()

    def _find(self, reference: object) -> object:
        """What "#/$defs/address" stands for."""
        if not isinstance(reference, str) or not (reference == "#" or reference.startswith("#/")):
            raise ConfigError(
                f"{self._place} refers to {reference!r}, and only references inside the document work."
                " Put what it refers to under $defs"
            )
        found: Any = self._document
        for part in reference.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or name not in found:
                raise ConfigError(f"{self._place} refers to {reference}, which is not in it")
            found = found[name]
        return found


def _type_names(schema: Mapping[str, Any]) -> set[str]:
    given = schema.get("type")
    if given is None and "properties" in schema:
        return {"object"}
    if given is None and ("enum" in schema or "const" in schema):
        values = schema["enum"] if isinstance(schema.get("enum"), list) else [schema.get("const")]
        return {_name_of(value) for value in values}
    return {str(each) for each in given} if isinstance(given, list) else {str(given)} if given else set()


def _name_of(value: object) -> str:
    if value is None:
        return "null"
    names = {bool: "boolean", int: "integer", float: "number", str: "string", list: "array"}
    return names.get(type(value), "object")
