"""Which columns a DataFrame to be written has, and whether they can be what their names say.

    value      binary or string                                    required; null is a tombstone
    key        binary or string                                    null: any partition
    headers    array<struct<key: string, value: binary>>
    topic      string                                              not looked at where the option is set
    partition  int                                                 null: by key
    timestamp  timestamp                                           null: the time of writing

Other columns are not looked at, as in Spark's Kafka sink, so that what was read from a topic can be written
to another. One that differs from these by case alone is refused: dropping all keys in silence because they
are called `Key` cannot be what anybody wants.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    StringType,
    StructType,
    TimestampType,
)

from tailrace.model import ConfigError

CONTENT = ("key", "value", "headers", "timestamp")
"""What becomes part of a record; the rest only says where it goes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Columns:
    """What to take from every Arrow batch; picklable."""

    content: tuple[str, ...]
    topic: str | None
    """Where all rows go; None: as the column says."""
    has_partition: bool

    def content_of(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The columns of the records themselves."""
        return batch.select(list(self.content))


def plan_columns(schema: StructType, *, topic: str | None) -> Columns:
    """Check the schema of what is to be written; ConfigError names the column and what it may be."""
    names = schema.fieldNames()
    _check_names(names)
    if "value" not in names:
        raise ConfigError(f"there is no column 'value' among {_listed(names)}. {_nearest(names)}")
    if topic is None and "topic" not in names:
        raise ConfigError(
            "no topic is given. Set the option topic, or add a column 'topic' that names one in every row"
        )
    for name in _TYPES:
        if name in names and not (name == "topic" and topic is not None):
            _check_type(name, schema[name].dataType)
    return Columns(
        content=tuple(name for name in CONTENT if name in names),
        topic=topic,
        has_partition="partition" in names,
    )


def _check_names(names: Sequence[str]) -> None:
    for name in names:
        if name not in _TYPES and name.lower() in _TYPES:
            raise ConfigError(
                f"column {name!r} is to be written in lower case. Rename it to {name.lower()!r}"
            )
        if name in _TYPES and names.count(name) > 1:
            raise ConfigError(f"there are {names.count(name)} columns {name!r}. Keep one of them")


def _check_type(name: str, kind: DataType) -> None:
    fits, wanted = _TYPES[name]
    if not fits(kind):
        raise ConfigError(f"column {name!r} is {kind.simpleString()} and may be {wanted}. Cast it")


def _is_bytes(kind: DataType) -> bool:
    return isinstance(kind, BinaryType | StringType)


def _is_headers(kind: DataType) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = {field.name: field.dataType for field in kind.elementType.fields}
    return (
        fields.keys() == {"key", "value"}
        and isinstance(fields["key"], StringType)
        and _is_bytes(fields["value"])
    )


_TYPES: dict[str, tuple[Callable[[DataType], bool], str]] = {
    "value": (_is_bytes, "binary or string"),
    "key": (_is_bytes, "binary or string"),
    "headers": (_is_headers, "array<struct<key:string,value:binary>>"),
    "topic": (lambda kind: isinstance(kind, StringType), "string"),
    "partition": (lambda kind: isinstance(kind, IntegerType), "int"),
    "timestamp": (lambda kind: isinstance(kind, TimestampType), "timestamp"),
}


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"


def _nearest(names: Sequence[str]) -> str:
    near = difflib.get_close_matches("value", names, n=1, cutoff=0.6)
    if near:
        return f"Did you mean {near[0]!r}? Rename it"
    return "Make one, for example with to_json(struct(*)) as value"
