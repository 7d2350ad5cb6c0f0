"""Schemas as users declare them: DDL, files and JSON Schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")

from pyspark.sql.types import StructType

from tailrace.model import ConfigError
from tailrace.spark.value.json_schema import read_json_schema
from tailrace.spark.value.schema import FILE_BYTES_MAX, ValueSchema, read_schema


def columns(properties: dict[str, Any], **more: Any) -> str:
    found = read_json_schema({"type": "object", "properties": properties, **more}, place="x")
    return found.simpleString().removeprefix("struct<").removesuffix(">")


def test_columns_are_ddl_of_json_values(tmp_path: Path) -> None:
    assert read_schema(" a INT, b STRING ") == ValueSchema(ddl="a INT, b STRING")
    for name in ("orders.ddl", "orders.sql", "orders.txt"):
        (tmp_path / name).write_text("a INT,\n  b STRING\n")
        assert read_schema(str(tmp_path / name)) == ValueSchema(ddl="a INT, b STRING")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\xff\xfe", "is not UTF-8"),
        (b" " * (FILE_BYTES_MAX + 1), "is larger than"),
    ],
)
def test_a_file_that_is_no_schema_is_named(tmp_path: Path, content: bytes, message: str) -> None:
    (tmp_path / "orders.ddl").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"orders\.ddl {message}"):
        read_schema(str(tmp_path / "orders.ddl"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the schema is empty"),
        ("./orders.xml", "is no file that is known by its end"),
        ("{", "is not JSON"),
        ("{}", 'needs "type": "object"'),
        ('{"type": "array"}', 'needs "type": "object"'),
        ("missing.json", "cannot read the schema missing.json: No such file"),
    ],
)
def test_a_text_that_is_no_schema_is_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_schema(text)


def test_a_json_schema_is_kept_as_spark_s_json(tmp_path: Path) -> None:
    (tmp_path / "orders.json").write_text('{"properties": {"a": {"type": "integer"}}}')
    found = read_schema(str(tmp_path / "orders.json"))
    assert StructType.fromJson(json.loads(found.struct)).simpleString() == "struct<a:bigint>"


@pytest.mark.parametrize(
    ("schema", "kind"),
    [
        ({"type": "integer"}, "bigint"),
        ({"type": "number"}, "double"),
        ({"type": ["integer", "number"]}, "double"),
        ({"type": "boolean"}, "boolean"),
        ({"type": "string"}, "string"),
        ({"type": "string", "format": "date-time"}, "timestamp"),
        ({"type": "string", "format": "date"}, "date"),
        ({"type": ["null", "integer"]}, "bigint"),
        ({"type": ["string", "integer"]}, "string"),
        ({"anyOf": [{"type": "null"}, {"type": "integer"}]}, "bigint"),
        ({"oneOf": [{"type": "string"}, {"type": "integer"}]}, "string"),
        ({"enum": ["a", "b"]}, "string"),
        ({"enum": [1, 2]}, "bigint"),
        ({"const": True}, "boolean"),
        ({"type": "array", "items": {"type": "integer"}}, "array<bigint>"),
        ({"type": "array"}, "array<string>"),
        ({"type": "object"}, "string"),
        ({"type": "object", "additionalProperties": {"type": "number"}}, "map<string,double>"),
        ({"properties": {"x": {"type": "integer"}}}, "struct<x:bigint>"),
        ({"$ref": "#/$defs/money"}, "struct<cents:bigint>"),
        ({}, "string"),
        (True, "string"),
    ],
)
def test_types_of_json_schema(schema: Any, kind: str) -> None:
    money = {"type": "object", "properties": {"cents": {"type": "integer"}}}
    assert columns({"a": schema}, **{"$defs": {"money": money}}) == f"a:{kind}"


def test_what_is_required_may_not_be_null() -> None:
    properties = {"a": {"type": "integer"}, "b": {"type": ["integer", "null"]}, "c": {"type": "integer"}}
    found = read_json_schema({"properties": properties, "required": ["a", "b"]}, place="x")
    assert [(field.name, field.nullable) for field in found] == [("a", False), ("b", True), ("c", True)]


@pytest.mark.parametrize(
    ("properties", "message"),
    [
        ({"a": {"$ref": "http://example.com/x"}}, "only references inside the document work"),
        ({"a": {"$ref": "#/$defs/nothing"}}, "which is not in it"),
        ({"a": {"$ref": "#"}}, "refers to itself"),
        ({"a": {"type": "integr"}}, "'integr', which JSON Schema does not know"),
    ],
)
def test_what_no_column_can_be_is_refused(properties: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        columns(properties)
