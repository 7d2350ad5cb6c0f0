"""Arrow's types for a schema that Spark hands over."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from tailrace.model import ConfigError
from tailrace.spark.codec.schema import TIMESTAMP_TYPE
from tailrace.spark.source.task import check_columns

_ARROW: dict[type[DataType], pa.DataType] = {
    BinaryType: pa.binary(),
    BooleanType: pa.bool_(),
    ByteType: pa.int8(),
    DateType: pa.date32(),
    DoubleType: pa.float64(),
    FloatType: pa.float32(),
    IntegerType: pa.int32(),
    LongType: pa.int64(),
    ShortType: pa.int16(),
    StringType: pa.string(),
    TimestampNTZType: pa.timestamp("us"),
    TimestampType: TIMESTAMP_TYPE,
}


def arrow_schema(schema: StructType, *, decodes: bool = False) -> pa.Schema:
    """What Spark expects batches of `schema` to be; ConfigError if records cannot be read so.

    `decodes` says that values are decoded: then it may have the columns that come of that.
    """
    return check_columns(pa.schema([_field(field) for field in schema.fields]), decodes=decodes)


def _field(field: StructField) -> pa.Field:
    return pa.field(field.name, _type(field.dataType, field.name), nullable=field.nullable)


def _type(kind: DataType, column: str) -> pa.DataType:
    if isinstance(kind, ArrayType):
        element = pa.field("element", _type(kind.elementType, column), nullable=kind.containsNull)
        return pa.list_(element)
    if isinstance(kind, MapType):
        value = pa.field("value", _type(kind.valueType, column), nullable=kind.valueContainsNull)
        return pa.map_(_type(kind.keyType, column), value)
    if isinstance(kind, StructType):
        return pa.struct([_field(each) for each in kind.fields])
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    found = _ARROW.get(type(kind))
    if found is None:
        raise ConfigError(
            f"column {column!r} cannot be read as {kind.simpleString()}."
            " Leave the schema out, or cast it in the query"
        )
    return found
