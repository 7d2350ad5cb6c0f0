"""The columns of a record as Spark's types: those of its own Kafka source.

Nothing but these is imported: Spark starts a Python that asks for them and for no more.
"""

from __future__ import annotations

import json

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.model import ConfigError
from tailrace.spark.source.value_option import DATA, DATA_ERROR, ValueSettings


def with_values(columns: StructType, value: ValueSettings) -> StructType | str:
    """The columns with those that come of decoding; as text where Spark has to read the user's text."""
    schema = value.schema
    if schema is None:
        raise ConfigError(
            "option valueFormat needs valueSchema, such as: order STRING, total DECIMAL(12,2)."
            " Or give a schema that has the column data"
        )
    added = [] if value.fails else [StructField(DATA_ERROR, StringType())]
    if schema.ddl:
        own = [f"{field.name} {field.dataType.simpleString()}" for field in (*columns.fields, *added)]
        return ", ".join([*own, f"{DATA} STRUCT<{schema.ddl}>"])
    data = StructField(DATA, StructType.fromJson(json.loads(schema.struct)))
    return StructType([*columns.fields, *added, data])


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
