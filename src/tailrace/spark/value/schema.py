"""The schema of a topic's values, as a user declares it: one text that says what it is by its form.

    order STRING, total DECIMAL(12,2)      columns as Spark's DDL has them; the values are JSON objects
    orders.ddl, orders.sql, orders.txt     a file with such a text
    orders.json, or {"type": "object"...   JSON Schema; the values are JSON objects
    orders.avsc, or {"type": "record"...   an Avro schema; the values are Avro
    orders.desc, orders.desc#shop.Order    a compiled Protobuf schema, and which message; values are Protobuf
    http://registry:8081                   the newest schema of the subject TOPIC-value in a schema registry;
                                           /subjects/NAME behind it names another subject

`ValueSchema` is what becomes of it. It is plain text, so it can be kept beside a checkpoint and sent to
workers. DDL is parsed by Spark alone, and a registry is asked by `resolve` alone: until then `struct` is
empty.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal

from tailrace.model import ConfigError
from tailrace.spark.value.registry import check_address, fetch_latest, is_registry

Format = Literal["json", "avro", "protobuf"]

FILE_BYTES_MAX = 1 << 20
_DDL_SUFFIXES = (".ddl", ".sql", ".txt")
_JSON_SUFFIXES = (".json", ".avsc")
_COMPILED = ".desc"
_INLINE = "desc:"
SUFFIXES = (*_DDL_SUFFIXES, *_JSON_SUFFIXES, _COMPILED)


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSchema:
    """How values are encoded, and the columns in them."""

    format: Format = "json"
    ddl: str = ""  # columns, as they were written
    struct: str = ""  # the same as Spark's JSON of a struct
    definition: str = ""  # the Avro schema, or the compiled one of Protobuf
    registry: str = ""  # its address: values begin with the id of the schema that wrote them

    def __post_init__(self) -> None:
        assert not (self.ddl and self.struct), "columns are given in one way"
        assert self.ddl or self.struct or self.registry, "columns are given, or a registry has them"

    @property
    def is_resolved(self) -> bool:
        """Whether the columns are known, and not only where they are."""
        return bool(self.ddl or self.struct)


def read_schema(text: str) -> ValueSchema:
    """What a declaration says; ConfigError if it is none, or its file cannot be read."""
    text = text.strip()
    if not text:
        raise ConfigError("the schema is empty. Write columns, such as: order STRING, total DECIMAL(12,2)")
    if is_registry(text):
        check_address(text)
        return ValueSchema(registry=text)
    name, _, message = text.partition("#")
    if text.startswith(_INLINE):
        return _read_compiled(text.removeprefix(_INLINE), place="the schema")
    if name.lower().endswith(_COMPILED):
        from tailrace.spark.value.protobuf import write_definition

        return _read_compiled(write_definition(_read_bytes(name), message), place=f"the schema {name}")
    if name.lower().endswith(".proto"):
        raise ConfigError(
            f"the schema {name} is source text. Compile it: protoc --include_imports -o"
            f" {Path(name).stem}.desc {name}, and name that file"
        )
    suffix = Path(text).suffix.lower()
    if suffix in SUFFIXES:
        return _read_content(_read_file(text), suffix, place=text)
    if text.startswith("{"):
        return _read_json(text, place="the schema")
    if " " not in text and "/" in text:
        raise ConfigError(f"the schema {text!r} is no file that is known by its end: {', '.join(SUFFIXES)}")
    return ValueSchema(ddl=text)


def resolve(schema: ValueSchema, topic: str) -> ValueSchema:
    """The schema with its columns; asks the registry if that has them."""
    if schema.is_resolved:
        return schema
    found = fetch_latest(schema.registry, topic)
    if found.kind not in ("AVRO", "JSON"):
        raise ConfigError(
            f"the schema registry has a schema of type {found.kind} for {topic}, and values can be decoded"
            " that are AVRO or JSON"
        )
    return replace(_read_json(found.text, place=f"the schema of {topic}"), registry=schema.registry)


def _read_bytes(name: str) -> bytes:
    try:
        with Path(name).open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the schema {name}: {error.strerror}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"the schema {name} is larger than {FILE_BYTES_MAX} bytes")
    return content


def _read_compiled(definition: str, *, place: str) -> ValueSchema:
    from tailrace.spark.value.protobuf import read_protobuf_schema

    struct = read_protobuf_schema(definition, place=place).json()
    return ValueSchema(format="protobuf", struct=struct, definition=f"{_INLINE}{definition}")


def _read_file(name: str) -> str:
    try:
        return _read_bytes(name).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise ConfigError(f"the schema {name} is not UTF-8: {error}") from error


def _read_content(content: str, suffix: str, *, place: str) -> ValueSchema:
    if suffix in _JSON_SUFFIXES:
        return _read_json(content, place=place)
    ddl = " ".join(content.split())
    if not ddl:
        raise ConfigError(f"the schema {place} is empty")
    return ValueSchema(ddl=ddl)


def _read_json(content: str, *, place: str) -> ValueSchema:
    try:
        document: Any = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{place} is not JSON: {error}") from error
    from tailrace.spark.value.avro_schema import is_avro, read_avro_schema
    from tailrace.spark.value.json_schema import read_json_schema

    if is_avro(document):
        struct = read_avro_schema(document, place=place).json()
        return ValueSchema(format="avro", struct=struct, definition=json.dumps(document))

    return ValueSchema(struct=read_json_schema(document, place=place).json())
