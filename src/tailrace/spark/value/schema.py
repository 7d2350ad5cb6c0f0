"""The schema of a topic's values, as a user declares it: one text that says what it is by its form.

    order STRING, total DECIMAL(12,2)      columns as Spark's DDL has them; the values are JSON objects
    orders.ddl, orders.sql, orders.txt     a file with such a text
    orders.json, or {"type": "object"...   JSON Schema; the values are JSON objects

`ValueSchema` is what becomes of it. It is plain text, so it can be kept beside a checkpoint and sent to
workers. DDL is parsed by Spark alone: until then `struct` is empty.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from tailrace.model import ConfigError

Format = Literal["json"]

FILE_BYTES_MAX = 1 << 20
_DDL_SUFFIXES = (".ddl", ".sql", ".txt")
_JSON_SUFFIXES = (".json",)
SUFFIXES = _DDL_SUFFIXES + _JSON_SUFFIXES


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueSchema:
    """How values are encoded, and the columns in them."""

    format: Format = "json"
    ddl: str = ""  # columns, as they were written
    struct: str = ""  # the same as Spark's JSON of a struct; one of the two is given

    def __post_init__(self) -> None:
        assert bool(self.ddl) != bool(self.struct), "columns are given in one way"


def read_schema(text: str) -> ValueSchema:
    """What a declaration says; ConfigError if it is none, or its file cannot be read."""
    text = text.strip()
    if not text:
        raise ConfigError("the schema is empty. Write columns, such as: order STRING, total DECIMAL(12,2)")
    suffix = Path(text).suffix.lower()
    if suffix in SUFFIXES:
        return _read_content(_read_file(text), suffix, place=text)
    if text.startswith("{"):
        return _read_json(text, place="the schema")
    if " " not in text and "/" in text:
        raise ConfigError(f"the schema {text!r} is no file that is known by its end: {', '.join(SUFFIXES)}")
    return ValueSchema(ddl=text)


def _read_file(name: str) -> str:
    path = Path(name)
    try:
        with path.open("rb") as file:
            content = file.read(FILE_BYTES_MAX + 1)
    except OSError as error:
        raise ConfigError(f"cannot read the schema {name}: {error.strerror}") from error
    if len(content) > FILE_BYTES_MAX:
        raise ConfigError(f"the schema {name} is larger than {FILE_BYTES_MAX} bytes")
    try:
        return content.decode("utf-8-sig")
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
    from tailrace.spark.value.json_schema import read_json_schema

    return ValueSchema(struct=read_json_schema(document, place=place).json())
