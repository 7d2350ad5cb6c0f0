"""Which schemas can be written: Spark's types in, a plan or an error that names the column out."""

from __future__ import annotations

import pyarrow as pa
import pytest
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
    TimestampNTZType,
    TimestampType,
)

from tailrace.model import ConfigError
from tailrace.spark.sink.columns import Columns, plan_columns

HEADER = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


def schema_of(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_a_value_and_a_topic_are_enough() -> None:
    expected = Columns(content=("value",), topic="orders", has_partition=False)
    assert plan_columns(schema_of(value=StringType()), topic="orders") == expected


def test_all_columns_in_any_order() -> None:
    schema = schema_of(
        timestamp=TimestampType(),
        topic=StringType(),
        value=BinaryType(),
        partition=IntegerType(),
        headers=ArrayType(HEADER),
        key=StringType(),
    )
    columns = plan_columns(schema, topic=None)
    assert columns == Columns(
        content=("key", "value", "headers", "timestamp"), topic=None, has_partition=True
    )


def test_what_was_read_from_a_topic_can_be_written_and_the_rest_is_left_out() -> None:
    schema = schema_of(key=BinaryType(), value=BinaryType(), offset=LongType(), timestampType=IntegerType())
    columns = plan_columns(schema, topic="copy")
    batch = pa.record_batch({"offset": [1], "key": [b"k"], "timestampType": [0], "value": [b"v"]})
    assert columns.content_of(batch).schema.names == ["key", "value"]


def test_the_option_makes_the_column_topic_meaningless() -> None:
    assert plan_columns(schema_of(value=BinaryType(), topic=LongType()), topic="orders").topic == "orders"


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (schema_of(key=BinaryType()), r"no column 'value' among 'key'\. Make one"),
        (schema_of(), "no column 'value' among none"),
        (schema_of(val=BinaryType()), r"Did you mean 'val'\? Rename it"),
        (schema_of(value=LongType()), r"'value' is bigint and may be binary or string\. Cast it"),
        (schema_of(value=BinaryType(), key=IntegerType()), "'key' is int and may be binary or string"),
        (schema_of(value=BinaryType(), partition=LongType()), "'partition' is bigint and may be int"),
        (schema_of(value=BinaryType(), timestamp=LongType()), "'timestamp' is bigint and may be timestamp"),
        (schema_of(value=BinaryType(), timestamp=TimestampNTZType()), "'timestamp' is timestamp_ntz"),
        (
            schema_of(value=BinaryType(), headers=MapType(StringType(), BinaryType())),
            r"'headers' is map<string,binary> and may be array<struct<key:string,value:binary>>",
        ),
        (schema_of(value=BinaryType(), headers=ArrayType(StringType())), r"'headers' is array<string>"),
        (schema_of(value=BinaryType(), headers=ArrayType(schema_of(key=StringType()))), "'headers' is array"),
        (schema_of(value=BinaryType(), Key=BinaryType()), "column 'Key' .* Rename it to 'key'"),
        (schema_of(VALUE=BinaryType()), "Rename it to 'value'"),
        (StructType([StructField("value", BinaryType())] * 2), "there are 2 columns 'value'"),
    ],
)
def test_a_wrong_column_is_named_with_what_it_may_be(schema: StructType, said: str) -> None:
    with pytest.raises(ConfigError, match=said):
        plan_columns(schema, topic="orders")


def test_without_a_topic_anywhere_there_is_nowhere_to_go() -> None:
    with pytest.raises(ConfigError, match="Set the option topic, or add a column 'topic'"):
        plan_columns(schema_of(value=BinaryType()), topic=None)


def test_a_column_topic_must_be_text() -> None:
    with pytest.raises(ConfigError, match="'topic' is int and may be string"):
        plan_columns(schema_of(value=BinaryType(), topic=IntegerType()), topic=None)
