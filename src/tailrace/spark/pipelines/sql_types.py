"""The types of the values that a query reads: declared or guessed once, then kept with its checkpoint.

    <checkpoint>/_tailrace_types.json    per topic: the struct of `data`, declared or guessed

A query that is started again has the types that it began with, whatever its topics hold by then: Spark's
state and the rows that were written have them too. Other types are taken on command alone (`widen`): declared
ones as they are declared now, guessed ones so that they hold the newest values as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from tailrace.model import ConfigError
from tailrace.spark.pipelines.sql_query import quoted
from tailrace.spark.pipelines.sql_schema import Shape
from tailrace.spark.pipelines.sql_sink import write_marker
from tailrace.spark.value.registry import without_password

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.types import DataType, StructType

TYPES_FILE = "_tailrace_types.json"
_VERSION = 1

Origin = Literal["declared", "guessed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicType:
    """The type of the column `data` of one topic."""

    origin: Origin
    struct: str | None  # Spark's JSON of it; None where there is no such column
    format: str = "json"  # of the values
    definition: str = ""  # the schema of values that are not JSON
    registry: str = ""  # where the schemas of values are, which begin with their ids
    shape: Any = None  # of a guess: what it was made of, so that it can be widened

    @property
    def is_plain_json(self) -> bool:
        """Whether Spark itself can decode the values."""
        return self.format == "json" and not self.registry

    def spark_type(self) -> StructType | None:
        """As Spark has it."""
        from pyspark.sql.types import StructType

        return None if self.struct is None else StructType.fromJson(json.loads(self.struct))

    def columns(self) -> str:
        """As DDL has it, for people; "" where there is no column `data`."""
        found = self.spark_type()
        return "" if found is None else columns_text(found)


Types = Mapping[str, TopicType]
Guess = Callable[[Shape], TopicType | None]
"""Looks at the newest values; makes a type that holds them and a shape. None while there are no values."""


def plan_type(
    topic: str, *, declared: TopicType | None, kept: TopicType | None, guess: Guess, widen: bool
) -> TopicType | None:
    """The type to read a topic with; None if nothing is known of it yet.

    ConfigError if the declared type is not the one that the query began with.
    """
    if kept is None:
        return declared or guess(None)
    if widen:
        return declared or guess(kept.shape) or kept
    if declared is not None and declared.columns() != kept.columns():
        raise ConfigError(
            f"sql: {topic} is declared as {declared.columns()}, and the query began with"
            f" {kept.columns() or 'no column data'}. To go on with the declared types add --widen (widen ="
            " true); to start over give the query another --name, --checkpoint or folder"
        )
    return declared or kept


def parse_columns(session: SparkSession, ddl: str, *, topic: str) -> str:
    """Columns as DDL has them, as Spark's JSON of a struct; ConfigError if Spark cannot read them."""
    from pyspark.errors import PySparkException

    try:
        found = session.sql(f"SELECT CAST(NULL AS STRUCT<{ddl}>) AS data").schema
        if found.names == ["data"]:
            return found["data"].dataType.json()
        reason = "it is more than columns"
    except PySparkException as error:
        reason = str(error).strip().splitlines()[0]
    raise ConfigError(
        f"the schema of {topic} is not a list of columns: {ddl!r}: {reason}."
        " Write for example: order STRING, total DECIMAL(12,2)"
    )


def columns_text(struct: StructType) -> str:
    """A struct as DDL has columns."""
    return ", ".join(
        f"{quoted(field.name)} {_type_text(field.dataType)}{'' if field.nullable else ' NOT NULL'}"
        for field in struct.fields
    )


def _type_text(kind: DataType) -> str:
    from pyspark.sql.types import ArrayType, MapType, StructType

    if isinstance(kind, StructType):
        return f"STRUCT<{columns_text(kind)}>"
    if isinstance(kind, ArrayType):
        return f"ARRAY<{_type_text(kind.elementType)}>"
    if isinstance(kind, MapType):
        return f"MAP<{_type_text(kind.keyType)}, {_type_text(kind.valueType)}>"
    return kind.simpleString().upper()


# ---- kept


def read_kept(checkpoint: Path) -> dict[str, TopicType]:
    """The types that a query began with; none if it has not begun yet."""
    path = checkpoint / TYPES_FILE
    try:
        content = path.read_bytes()
    except FileNotFoundError:
        return {}
    try:
        document = msgspec.json.decode(content, type=dict[str, Any])
        if document.get("v") != _VERSION:
            raise msgspec.ValidationError(f"version {document.get('v')!r}")
        return msgspec.convert(document.get("topics"), dict[str, TopicType])
    except msgspec.DecodeError as error:
        raise ConfigError(
            f"sql: {str(path)!r} is damaged, or of another version: {error}."
            " Restore it, or start over with another checkpoint"
        ) from error


def write_kept(checkpoint: Path, types: Types) -> None:
    """Keep the types of a query, on disk when this returns; nothing is written if they are there.

    A registry is kept without its password: the declaration has that.
    """
    kept = {
        topic: replace(kind, registry=without_password(kind.registry)) if kind.registry else kind
        for topic, kind in types.items()
    }
    content = {"v": _VERSION, "topics": msgspec.to_builtins(kept)}
    if read_kept(checkpoint) != kept:
        checkpoint.mkdir(parents=True, exist_ok=True)
        write_marker(checkpoint / TYPES_FILE, content)
