"""Values that the source decodes, read from a broker in this process and without Spark itself."""

from __future__ import annotations

import pickle
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import tailrace
from tailrace.model import ConfigError
from tailrace.spark.link import close_links

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")

from pyspark.sql.types import (
    DecimalType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
)

from tailrace.spark.source.data_source import TailraceDataSource
from tailrace.spark.source.schema import spark_schema
from tailrace.spark.source.value_reading import BadValue

ORDER = StructType([StructField("order", StringType()), StructField("total", DecimalType(12, 2))])
DATA, ERROR = StructField("data", ORDER), StructField("dataError", StringType())


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        for value in (b'{"order": "a", "total": 1.5}', None, b'{"order": "b", "total": "x"}', b"no"):
            running.produce("orders", value)
        yield running
        close_links()


def source(broker: tailrace.Broker, **given: str) -> TailraceDataSource:
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders", "valueFormat": "json"}
    return TailraceDataSource({**base, **given})


def read(made: TailraceDataSource, schema: StructType) -> list[dict[str, Any]]:
    """All rows, read by a reader that travelled to a worker."""
    reader = pickle.loads(pickle.dumps(made.reader(schema)))
    return [row for part in reader.partitions() for found in reader.read(part) for row in found.to_pylist()]


def test_values_are_a_typed_column_and_bad_ones_are_null_with_their_reason(broker: tailrace.Broker) -> None:
    schema = StructType([*spark_schema(headers=False).fields, ERROR, DATA])
    rows = read(source(broker, badRows="null"), schema)
    assert [row["data"] for row in rows] == [{"order": "a", "total": Decimal("1.50")}, None, None, None]
    assert [row["dataError"] for row in rows] == [None, None, "total does not fit", "it is not JSON"]
    assert rows[2]["value"] == b'{"order": "b", "total": "x"}'


def test_a_bad_value_fails_the_read_and_is_named(broker: tailrace.Broker) -> None:
    with pytest.raises(BadValue, match=r"orders-0 at offset 2: total does not fit\. Set badRows=null"):
        read(source(broker), StructType([DATA]))


def test_a_schema_may_have_the_column_in_any_place_and_nothing_else(broker: tailrace.Broker) -> None:
    rows = read(source(broker, endingOffsets='{"orders":{"0":1}}'), StructType([DATA]))
    assert rows == [{"data": {"order": "a", "total": Decimal("1.50")}}]
    text = StructField("value", StringType())
    rows = read(source(broker, endingOffsets='{"orders":{"0":1}}'), StructType([DATA, text]))
    assert rows[0]["value"] == '{"order": "a", "total": 1.5}'


def test_without_the_column_nothing_is_decoded(broker: tailrace.Broker) -> None:
    assert len(read(source(broker), spark_schema(headers=False))) == 4


def test_columns_in_words_are_left_to_spark(broker: tailrace.Broker) -> None:
    found = source(broker, valueSchema="order STRING", badRows="null").schema()
    assert isinstance(found, str)
    assert found.startswith("key binary, value binary, topic string")
    assert found.endswith("dataError string, data STRUCT<order STRING>")
    assert "dataError" not in source(broker, valueSchema="order STRING").schema()


def test_a_json_schema_gives_the_columns(broker: tailrace.Broker, tmp_path: Path) -> None:
    path = tmp_path / "orders.json"
    path.write_text('{"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}')
    found = source(broker, valueSchema=str(path)).schema()
    assert isinstance(found, StructType)
    assert found["data"].dataType == StructType([StructField("n", LongType(), nullable=False)])


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"valueFormat": "xml"}, "option valueFormat='xml' is not possible. Use one of: json"),
        ({"badRows": "drop"}, "option badRows='drop' is not possible. Use one of: fail, null"),
        ({"valueSchema": ""}, "option valueSchema: the schema is empty"),
        ({"valueSchema": "nowhere/orders.json"}, "option valueSchema: cannot read the schema nowhere"),
        ({}, "option valueFormat needs valueSchema"),
    ],
)
def test_wrong_options_are_named(broker: tailrace.Broker, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(broker, **given).schema()


def test_a_schema_without_a_format_is_refused(broker: tailrace.Broker) -> None:
    made = TailraceDataSource({**source(broker, valueSchema="a INT").options})
    del made.options["valueFormat"]
    with pytest.raises(ConfigError, match="option valueSchema needs valueFormat"):
        made.schema()
    with pytest.raises(ConfigError, match="a record has no column 'data'"):
        TailraceDataSource(
            {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
        ).reader(StructType([DATA]))


@pytest.mark.parametrize("data", [StructField("data", IntegerType()), StructField("data", StructType([]))])
def test_data_that_is_no_struct_is_refused(broker: tailrace.Broker, data: StructField) -> None:
    with pytest.raises(ConfigError, match="values are decoded as structs only"):
        read(source(broker), StructType([data]))
