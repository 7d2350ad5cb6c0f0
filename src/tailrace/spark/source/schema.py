"""The columns of a record as Spark's types: those of its own Kafka source.

Nothing but these is imported: Spark starts a Python that asks for them and for no more.
"""

from __future__ import annotations

import json
from dataclasses import replace

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.model import ConfigError
from tailrace.spark.source.value_option import DATA, DATA_ERROR, ValueSettings
from tailrace.spark.value.schema import ValueSchema, resolve


def with_values(columns: StructType, value: ValueSettings, topic: str | None) -> StructType | str:
    """The columns with those that come of decoding; as text where Spark has to read the user's text.

    Asks the registry if that alone has the columns; they may all be null then, since older schemas may not
    have them.
    """
    schema = value.schema
    if schema is None:
        raise ConfigError(
            "option valueFormat needs valueSchema, such as: order STRING, total DECIMAL(12,2)."
            " Or give a schema that has the column data"
        )
    if not schema.is_resolved:
        schema = _resolve(schema, value, topic)
    added = [] if value.fails else [StructField(DATA_ERROR, StringType())]
    if schema.ddl:
        own = [f"{field.name} {field.dataType.simpleString()}" for field in (*columns.fields, *added)]
        return ", ".join([*own, f"{DATA} STRUCT<{schema.ddl}>"])
    data = StructField(DATA, StructType.fromJson(json.loads(schema.struct)))
    return StructType([*columns.fields, *added, data])


def _resolve(schema: ValueSchema, value: ValueSettings, topic: str | None) -> ValueSchema:
    if topic is None:
        raise ConfigError(
            "a schema registry has the columns of one topic, and this read is of several. Read one with"
            " subscribe, or set valueSchema"
        )
    found = resolve(schema, topic)
    if found.format != value.format:
        raise ConfigError(
            f"option valueFormat={value.format!r}: the schema registry has {topic} as {found.format}"
        )
    struct = StructType.fromJson(json.loads(found.struct))
    return replace(found, struct=_nullable(struct).json())


def _nullable(kind: DataType) -> DataType:
    if isinstance(kind, StructType):
        return StructType([StructField(each.name, _nullable(each.dataType)) for each in kind.fields])
    if isinstance(kind, ArrayType):
        return ArrayType(_nullable(kind.elementType))
    if isinstance(kind, MapType):
        return MapType(kind.keyType, _nullable(kind.valueType))
    return kind


def spark_schema(*, headers: bool) -> StructType:
    """The columns of Spark's Kafka source; headers where they are asked for."""
    fields = [
        StructField("key", BinaryType()),
        StructField("value", BinaryType()),
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("offset", LongType()),
        StructField("timestamp", TimestampType()),
        StructField("timestampType", IntegerType()),
    ]
    if headers:
        header = StructType([StructField("key", StringType()), StructField("value", BinaryType())])
        fields.append(StructField("headers", ArrayType(header)))
    return StructType(fields)
