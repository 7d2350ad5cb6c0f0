"""Avro values, with and without a schema registry: a real HTTP server that speaks the registry's REST."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from datetime import UTC, date, datetime, time
from decimal import Decimal
from typing import Any
from uuid import UUID

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")
pytest.importorskip("fastavro", reason="fastavro is not installed: pip install 'tailrace[avro]'")

import fastavro
from pyspark.sql.types import StructType
from tests.schema_registry import Registry, serving

import tailrace
from tailrace.model import ConfigError
from tailrace.spark.link import close_links
from tailrace.spark.source.columns import arrow_schema
from tailrace.spark.source.data_source import TailraceDataSource
from tailrace.spark.source.value_reading import BadValue
from tailrace.spark.value.avro import avro_reader
from tailrace.spark.value.avro_schema import read_avro_schema
from tailrace.spark.value.decoding import decode_each
from tailrace.spark.value.registry import RegistryError, fetch_latest, fetch_schema
from tailrace.spark.value.schema import read_schema, resolve

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [{"name": "id", "type": "string"}, {"name": "cents", "type": "int"}],
}
WIDER = {
    **ORDER,
    "fields": [
        {"name": "id", "type": "string"},
        {"name": "cents", "type": "long"},
        {"name": "city", "type": "string", "default": "Ulm"},
    ],
}


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as running:
        yield running


def encode(schema: Any, value: Any, *, schema_id: int | None = None) -> bytes:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    front = b"" if schema_id is None else b"\0" + schema_id.to_bytes(4, "big")
    return front + out.getvalue()


def kind_of(schema: Any) -> pa.StructType:
    struct = StructType().add("data", read_avro_schema(schema, place="x"))
    return arrow_schema(struct, decodes=True).field("data").type


def decode(schema: Any, *values: bytes, registry: str = "") -> tuple[list[Any], dict[int, str]]:
    kind = kind_of(schema)
    read = avro_reader(kind, definition=json.dumps(schema), registry=registry)
    found = decode_each(pa.array(values, pa.binary()), kind, read)
    return found.data.to_pylist(), found.bad


def field(kind: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": "a", "type": kind}]}


@pytest.mark.parametrize(
    ("kind", "spark", "value", "found"),
    [
        ("boolean", "boolean", True, True),
        ("int", "int", -5, -5),
        ("long", "bigint", 1 << 40, 1 << 40),
        ("float", "float", 0.5, 0.5),
        ("double", "double", 0.1, 0.1),
        ("string", "string", "é", "é"),
        ("bytes", "binary", b"\xff", b"\xff"),
        (["null", "int"], "int", None, None),
        (["int", "null"], "int", 5, 5),
        (["int", "long"], "bigint", 5, 5),
        ({"type": "enum", "name": "E", "symbols": ["X", "Y"]}, "string", "Y", "Y"),
        ({"type": "fixed", "name": "F", "size": 2}, "binary", b"ab", b"ab"),
        ({"type": "array", "items": ["null", "int"]}, "array<int>", [1, None], [1, None]),
        ({"type": "map", "values": "int"}, "map<string,int>", {"k": 1}, [("k", 1)]),
        (
            {"type": "record", "name": "N", "fields": [{"name": "x", "type": "int"}]},
            "struct<x:int>",
            {"x": 1},
            {"x": 1},
        ),
        (
            {"type": "bytes", "logicalType": "decimal", "precision": 9, "scale": 2},
            "decimal(9,2)",
            Decimal("1.25"),
            Decimal("1.25"),
        ),
        ({"type": "int", "logicalType": "date"}, "date", date(2024, 1, 1), date(2024, 1, 1)),
        (
            {"type": "long", "logicalType": "timestamp-millis"},
            "timestamp",
            datetime(2024, 1, 1, tzinfo=UTC),
            datetime(2024, 1, 1, tzinfo=UTC),
        ),
        (
            {"type": "long", "logicalType": "local-timestamp-micros"},
            "timestamp_ntz",
            datetime(2024, 1, 1),
            datetime(2024, 1, 1),
        ),
        ({"type": "int", "logicalType": "time-millis"}, "int", time(1, 0, 0, 5000), 3_600_005),
        ({"type": "long", "logicalType": "time-micros"}, "bigint", time(0, 0, 1, 7), 1_000_007),
        ({"type": "string", "logicalType": "uuid"}, "string", UUID(int=7), str(UUID(int=7))),
    ],
)
def test_types_of_avro(kind: Any, spark: str, value: object, found: object) -> None:
    schema = field(kind)
    assert read_avro_schema(schema, place="x").simpleString() == f"struct<a:{spark}>"
    assert decode(schema, encode(schema, {"a": value})) == ([{"a": found}], {})


@pytest.mark.parametrize(
    ("schema", "message"),
    [
        (field(["int", "string"]), "a union of several types"),
        (field("R"), "R contains itself"),
        (field("Other"), "names the type 'Other', which is not in it"),
        (field({"type": "record", "name": "E", "fields": []}), "the record E has no fields"),
        (field({"type": "bytes", "logicalType": "decimal", "precision": 99}), "Spark has up to 38 digits"),
        (field({"items": "int"}), "where a type of Avro should be"),
        ({"type": "record", "name": "R", "fields": [{"name": "a"}]}, "has no name or no type"),
    ],
)
def test_what_no_column_can_be_is_refused(schema: Any, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_schema(json.dumps(schema))


def test_a_named_type_is_used_again() -> None:
    money = {"type": "record", "name": "Money", "fields": [{"name": "cents", "type": "int"}]}
    fields = [
        {"name": "a", "type": money},
        {"name": "b", "type": "shop.Money"},
        {"name": "c", "type": "Money"},
    ]
    schema = {"type": "record", "name": "R", "namespace": "shop", "fields": fields}
    one = "struct<cents:int>"
    assert read_avro_schema(schema, place="x").simpleString() == f"struct<a:{one},b:{one},c:{one}>"


def test_what_is_not_avro_of_the_schema_is_bad() -> None:
    good = encode(ORDER, {"id": "a", "cents": 5})
    rows, bad = decode(ORDER, good, good[:-1], good + b"x", b"", b"\xff" * 20)
    assert rows == [{"id": "a", "cents": 5}, None, None, None, None]
    assert list(bad) == [1, 2, 3, 4]
    assert bad[2] == "it is longer than Avro of its schema"


# ---- with a registry


def test_values_of_older_schemas_are_resolved_to_the_declared_one(registry: Registry) -> None:
    old, new = registry.register("orders-value", ORDER), registry.register("orders-value", WIDER)
    values = (
        encode(ORDER, {"id": "a", "cents": 5}, schema_id=old),
        encode(WIDER, {"id": "b", "cents": 6, "city": "Bonn"}, schema_id=new),
        encode(ORDER, {"id": "c", "cents": 7}),
        encode(ORDER, {"id": "d", "cents": 8}, schema_id=99),
    )
    rows, bad = decode(WIDER, *values, *values[:2], registry=registry.url)
    assert rows[:2] == [{"id": "a", "cents": 5, "city": "Ulm"}, {"id": "b", "cents": 6, "city": "Bonn"}]
    assert rows[4:] == rows[:2]
    assert bad == {
        2: "it does not begin with the id of a schema",
        3: "the registry does not know its schema, 99",
    }
    assert [path for path, _ in registry.asked].count(f"/schemas/ids/{old}") == 1


def test_the_newest_schema_of_a_topic_is_resolved(registry: Registry) -> None:
    registry.register("orders-value", ORDER)
    found = resolve(read_schema(registry.url), "orders")
    assert (found.format, found.registry) == ("avro", registry.url)
    assert json.loads(found.definition) == ORDER
    registry.register("my subject", '{"properties": {"n": {"type": "integer"}}}', schemaType="JSON")
    found = resolve(read_schema(f"{registry.url}/subjects/my%20subject"), "orders")
    assert (found.format, found.definition) == ("json", "")


def test_a_password_in_the_address_is_sent_and_not_shown(registry: Registry) -> None:
    address = registry.url.replace("://", "://ann:s%40cret@")
    with pytest.raises(ConfigError, match="the schema registry has nothing at") as caught:
        fetch_latest(address, "orders")
    assert "cret" not in str(caught.value)
    assert registry.asked == [("/subjects/orders-value/versions/latest", "Basic YW5uOnNAY3JldA==")]


def test_schemas_that_cannot_be_used_are_refused(registry: Registry) -> None:
    registry.register("orders-value", "message Order { int32 a = 1; }", schemaType="PROTOBUF")
    with pytest.raises(ConfigError, match="a schema of type PROTOBUF for orders"):
        resolve(read_schema(registry.url), "orders")
    number = registry.register("other-value", ORDER, references=[{"name": "x"}])
    with pytest.raises(ConfigError, match="a reference without a version"):
        fetch_schema(registry.url, number)


def test_an_answer_without_an_end_is_refused(registry: Registry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.spark.value.registry.REPLY_BYTES_MAX", 1000)
    number = registry.register("orders-value", {**ORDER, "doc": "x" * 1000})
    with pytest.raises(RegistryError, match="is over 1000 bytes"):
        fetch_schema(registry.url, number)


def test_a_registry_that_does_not_answer_is_named() -> None:
    with pytest.raises(RegistryError, match="the schema registry cannot be asked: http://127"):
        fetch_latest("http://127.0.0.1:1", "orders")
    for address in ("http://", "https:///x"):
        with pytest.raises(ConfigError, match="is no address"):
            read_schema(address)


# ---- in the source


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        running.create_topic("orders")
        yield running
        close_links()


def source(broker: tailrace.Broker, **given: str) -> TailraceDataSource:
    base = {"kafka.bootstrap.servers": broker.bootstrap_servers, "subscribe": "orders"}
    return TailraceDataSource({**base, **given})


def rows_of(made: TailraceDataSource) -> list[Any]:
    schema = made.schema()
    assert isinstance(schema, StructType)
    reader = made.reader(schema)
    return [
        row["data"]
        for part in reader.partitions()
        for found in reader.read(part)
        for row in found.to_pylist()
    ]


def test_the_source_reads_avro_with_a_schema_or_a_registry(
    broker: tailrace.Broker, registry: Registry
) -> None:
    number = registry.register("orders-value", ORDER)
    broker.produce("orders", encode(ORDER, {"id": "a", "cents": 5}, schema_id=number))
    framed = {"valueFormat": "avro", "schemaRegistry": registry.url}
    assert rows_of(source(broker, **framed)) == [{"id": "a", "cents": 5}]
    wider = source(broker, **framed, valueSchema=json.dumps(WIDER))
    assert rows_of(wider) == [{"id": "a", "cents": 5, "city": "Ulm"}]
    broker.produce("orders", encode(ORDER, {"id": "b", "cents": 6}))
    with pytest.raises(BadValue, match="orders-0 at offset 1: it does not begin with the id"):
        rows_of(wider)
    plain = source(
        broker, valueFormat="avro", valueSchema=json.dumps(ORDER), startingOffsets='{"orders":{"0":1}}'
    )
    assert rows_of(plain) == [{"id": "b", "cents": 6}]


def test_the_source_reads_json_with_an_id_in_front(broker: tailrace.Broker, registry: Registry) -> None:
    schema = '{"properties": {"n": {"type": "integer"}}}'
    number = registry.register("orders-value", schema, schemaType="JSON")
    front = b"\0" + number.to_bytes(4, "big")
    for value in (front + b'{"n": 1}', None, b'{"n": 2}', front + b'{"n": "x"}'):
        broker.produce("orders", value)
    made = source(broker, valueFormat="json", schemaRegistry=registry.url, badRows="null")
    assert rows_of(made) == [{"n": 1}, None, None, None]


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"valueFormat": "avro"}, "needs valueSchema, an Avro schema, or schemaRegistry"),
        ({"valueFormat": "avro", "valueSchema": "a INT"}, "does not go with a valueSchema of json"),
        ({"valueFormat": "json", "valueSchema": json.dumps(ORDER)}, "does not go with a valueSchema of avro"),
        ({"schemaRegistry": "http://x"}, "option schemaRegistry needs valueFormat"),
        ({"valueFormat": "avro", "schemaRegistry": "x"}, "is no address"),
        (
            {"valueFormat": "avro", "schemaRegistry": "http://127.0.0.1:1", "subscribe": "a,b"},
            "has the columns of one topic, and this read is of several",
        ),
    ],
)
def test_wrong_options_are_named(broker: tailrace.Broker, given: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        source(broker, **given).schema()
