"""Values decoded by the source on a real Spark, and that it takes for bad what Spark's from_json does."""

from __future__ import annotations

from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import tailrace
from tailrace.spark.pipelines.sql_bad import BAD, decode_json

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "a BIGINT, i INT, s STRING, f DOUBLE, b BOOLEAN, d DECIMAL(12,2), t TIMESTAMP, dt DATE, n TIMESTAMP_NTZ,"
    " bi BINARY, l ARRAY<BIGINT>, m MAP<STRING, BIGINT>, st STRUCT<x: BIGINT, y: STRING>"
)
VALUES = [
    *(
        b'{"a": %s}' % each
        for each in (b"1", b'"1"', b"1.5", b"1.0", b"null", b"99999999999999999999", b"true")
    ),
    *(b'{"i": %s}' % each for each in (b"3000000000", b"-5")),
    *(b'{"s": %s}' % each for each in (b'"x"', b"5", b'{"q":1}', b"true", b'"\xc3\xa9"')),
    *(b'{"f": %s}' % each for each in (b"1", b"1.5", b'"NaN"', b'"1.5"', b"true")),
    *(b'{"b": %s}' % each for each in (b"true", b'"true"', b"1")),
    *(b'{"d": %s}' % each for each in (b"1.25", b'"12.3"', b"12.345", b"99999999999.5", b'"zz"', b"1e3")),
    *(b'{"t": "%s"}' % each for each in (b"2024-01-01T00:00:00Z", b"2024-01-01", b"2024-01-01 10:00:00.5")),
    *(b'{"t": %s}' % each for each in (b'"nope"', b"5")),
    *(b'{"dt": %s}' % each for each in (b'"2024-01-01"', b'"x"')),
    *(b'{"n": "%s"}' % each for each in (b"2024-01-01T00:00:00", b"2024-01-01T00:00:00Z")),
    *(b'{"bi": "%s"}' % each for each in (b"aGk=", b"***")),
    *(b'{"l": %s}' % each for each in (b"[1,2]", b'[1,"x"]', b"5", b"[]")),
    *(b'{"m": %s}' % each for each in (b'{"x":1}', b'{"x":"q"}')),
    *(b'{"st": %s}' % each for each in (b'{"x":1,"z":2}', b'{"x":"q"}', b"{}")),
    *(b"{}", b"[1]", b"5", b"no", b"", b"  ", b"null", b'{"a":1', b'{"A":7}', b'{"a":01}', b'{\n"a":1}'),
]


def read(spark: SparkSession, broker: tailrace.Broker, **options: str) -> DataFrame:
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    return spark.read.format("tailrace").options(**base, **options).load()


def test_the_source_and_from_json_agree(spark: SparkSession, broker: tailrace.Broker) -> None:
    for value in VALUES:
        broker.produce("orders", value)
    broker.produce("orders", None, key=b"tombstone")
    own = read(spark, broker, valueFormat="json", valueSchema=COLUMNS, badRows="null").orderBy("offset")
    struct = own.schema["data"].dataType
    sparks = decode_json(read(spark, broker), struct).orderBy("offset")  # type: ignore[arg-type]
    found = [(row["dataError"] is not None, row["data"]) for row in own.collect()]
    expected = [
        (row[BAD] is not None, None if row[BAD] is not None else row["data"]) for row in sparks.collect()
    ]
    differing = [
        (value, one, other)
        for value, one, other in zip([*VALUES, None], found, expected, strict=True)
        if repr(one) != repr(other)  # NaN is not equal to itself
    ]
    assert not differing


def test_a_stream_decodes_and_names_what_does_not_fit(
    spark: SparkSession, broker: tailrace.Broker, tmp_path: Path
) -> None:
    broker.produce("orders", b'{"order": "a", "total": 1.5}')
    broker.produce("orders", b'{"order": "b", "total": "x"}')
    stream = (
        spark.readStream.format("tailrace")
        .option("kafka.bootstrap.servers", broker.bootstrap_servers)
        .option("subscribe", "orders")
        .option("startingOffsets", "earliest")
        .option("valueFormat", "json")
    )
    declared = (
        stream.option("badRows", "null").option("valueSchema", "order STRING, total DECIMAL(12,2)").load()
    )
    query = (
        declared.select("offset", "data.*", "dataError")
        .writeStream.format("memory")
        .queryName("decoded")
        .option("checkpointLocation", str(tmp_path / "cp"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    rows = sorted(tuple(row) for row in spark.sql("SELECT * FROM decoded").collect())
    assert rows == [(0, "a", Decimal("1.50"), None), (1, None, None, "total does not fit")]
    own = read(spark, broker, valueFormat="json", valueSchema="order STRING, total DECIMAL(12,2)")
    with pytest.raises(Exception, match="orders-0 at offset 1: total does not fit"):
        own.select("data").collect()
