"""Arrow's types for a schema that Spark hands over."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.model import ConfigError
from tailrace.spark.codec import TIMESTAMP_TYPE
from tailrace.spark.source.task import check_columns

_ARROW = {
    BinaryType: pa.binary(),
    StringType: pa.string(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    TimestampType: TIMESTAMP_TYPE,
}


def arrow_schema(schema: StructType) -> pa.Schema:
    """What Spark expects batches of `schema` to be; ConfigError if records cannot be read so."""
    return check_columns(pa.schema([_field(field) for field in schema.fields]))


def _field(field: StructField) -> pa.Field:
    return pa.field(field.name, _type(field.dataType, field.name), nullable=field.nullable)


def _type(kind: DataType, column: str) -> pa.DataType:
    if isinstance(kind, ArrayType):
        element = pa.field("element", _type(kind.elementType, column), nullable=kind.containsNull)
        return pa.list_(element)
    if isinstance(kind, StructType):
        return pa.struct([_field(each) for each in kind.fields])
    found = _ARROW.get(type(kind))
    if found is None:
        raise ConfigError(
            f"column {column!r} cannot be read as {kind.simpleString()}."
            " Leave the schema out, or cast it in the query"
        )
    return found
