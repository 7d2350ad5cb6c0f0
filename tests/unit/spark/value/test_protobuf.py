"""Values that are Protobuf, by compiled schemas that the test makes without protoc."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

pytest.importorskip("pyspark", reason="pyspark is not installed: pip install 'tailrace[spark]'")
pytest.importorskip("google.protobuf", reason="protobuf is not installed: pip install 'tailrace[protobuf]'")

from google.protobuf import descriptor_pb2, timestamp_pb2
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message_factory import GetMessageClass
from pyspark.sql.types import StructType

import tailrace
from tailrace.model import ConfigError
from tailrace.spark.link import close_links
from tailrace.spark.source.columns import arrow_schema
from tailrace.spark.source.data_source import TailraceDataSource
from tailrace.spark.value.decoding import decode_each
from tailrace.spark.value.protobuf import protobuf_reader
from tailrace.spark.value.schema import ValueSchema, read_schema

Field = descriptor_pb2.FieldDescriptorProto
SCALARS = {
    "d": (Field.TYPE_DOUBLE, "double", 0.5),
    "f": (Field.TYPE_FLOAT, "float", 0.25),
    "i32": (Field.TYPE_INT32, "int", -5),
    "s32": (Field.TYPE_SINT32, "int", -6),
    "u32": (Field.TYPE_UINT32, "bigint", 4_000_000_000),
    "i64": (Field.TYPE_INT64, "bigint", -(1 << 62)),
    "u64": (Field.TYPE_UINT64, "decimal(20,0)", Decimal((1 << 64) - 1)),
    "x64": (Field.TYPE_FIXED64, "decimal(20,0)", Decimal(7)),
    "b": (Field.TYPE_BOOL, "boolean", True),
    "s": (Field.TYPE_STRING, "string", "é"),
    "by": (Field.TYPE_BYTES, "binary", b"\xff"),
}


def descriptors() -> descriptor_pb2.FileDescriptorSet:
    """shop.Order with a field of every kind, and shop.Other."""
    file = descriptor_pb2.FileDescriptorProto(name="shop.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    colour = file.enum_type.add(name="Colour")
    colour.value.add(name="RED", number=0)
    colour.value.add(name="BLUE", number=1)
    order = file.message_type.add(name="Order")
    for number, (name, (kind, _, _)) in enumerate(SCALARS.items(), 1):
        order.field.add(name=name, number=number, type=kind, label=Field.LABEL_OPTIONAL)
    message, repeated, one = Field.TYPE_MESSAGE, Field.LABEL_REPEATED, Field.LABEL_OPTIONAL
    order.field.add(name="colour", number=20, type=Field.TYPE_ENUM, type_name=".shop.Colour", label=one)
    order.field.add(name="tags", number=21, type=Field.TYPE_STRING, label=repeated)
    order.field.add(name="at", number=22, type=message, type_name=".google.protobuf.Timestamp", label=one)
    order.field.add(name="line", number=23, type=message, type_name=".shop.Order.Line", label=one)
    order.field.add(name="lines", number=24, type=message, type_name=".shop.Order.Line", label=repeated)
    order.field.add(
        name="counts", number=25, type=message, type_name=".shop.Order.CountsEntry", label=repeated
    )
    order.nested_type.add(name="Line").field.add(name="n", number=1, type=Field.TYPE_INT32, label=one)
    entry = order.nested_type.add(name="CountsEntry")
    entry.field.add(name="key", number=1, type=Field.TYPE_STRING, label=one)
    entry.field.add(name="value", number=2, type=Field.TYPE_INT32, label=one)
    entry.options.map_entry = True
    file.message_type.add(name="Empty")
    node = file.message_type.add(name="Node")
    node.field.add(name="next", number=1, type=message, type_name=".shop.Node", label=one)
    made = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(made.file.add())
    made.file.append(file)
    return made


@pytest.fixture
def path(tmp_path: Path) -> Path:
    place = tmp_path / "shop.desc"
    place.write_bytes(descriptors().SerializeToString())
    return place


def order(**values: Any) -> bytes:
    pool = DescriptorPool()
    for each in descriptors().file:
        pool.Add(each)
    message = GetMessageClass(pool.FindMessageTypeByName("shop.Order"))(**values)
    found: bytes = message.SerializeToString()
    return found


def decode(schema: ValueSchema, *values: bytes, registry: str = "") -> tuple[list[Any], dict[int, str]]:
    struct = StructType().add("data", StructType.fromJson(json.loads(schema.struct)))
    kind = arrow_schema(struct, decodes=True).field("data").type
    found = decode_each(
        pa.array(values, pa.binary()), kind, protobuf_reader(definition=schema.definition, registry=registry)
    )
    return found.data.to_pylist(), found.bad


def test_types_and_values_of_protobuf(path: Path) -> None:
    schema = read_schema(f"{path}#shop.Order")
    assert schema.format == "protobuf"
    assert read_schema(schema.definition) == schema  # as it is kept, and given to the source
    values = {
        name: int(value) if isinstance(value, Decimal) else value for name, (_, _, value) in SCALARS.items()
    }
    value = order(
        **values,
        colour=1,
        tags=["a", "b"],
        at={"seconds": 5, "nanos": 7000},
        line={"n": 1},
        lines=[{"n": 2}],
        counts={"x": 3},
    )
    rows, bad = decode(schema, value, order(colour=9))
    assert bad == {}
    assert rows[0] == {name: each for name, (_, _, each) in SCALARS.items()} | {
        "colour": "BLUE",
        "tags": ["a", "b"],
        "at": datetime(1970, 1, 1, 0, 0, 5, 7, tzinfo=UTC),
        "line": {"n": 1},
        "lines": [{"n": 2}],
        "counts": [("x", 3)],
    }
    assert (rows[1]["i32"], rows[1]["line"], rows[1]["at"], rows[1]["colour"]) == (0, None, None, "9")


def test_the_types_are_spark_s(path: Path) -> None:
    found = StructType.fromJson(json.loads(read_schema(f"{path}#shop.Order").struct))
    kinds = {field.name: field.dataType.simpleString() for field in found}
    assert {name: kinds[name] for name in SCALARS} == {name: kind for name, (_, kind, _) in SCALARS.items()}
    assert (kinds["colour"], kinds["tags"], kinds["at"]) == ("string", "array<string>", "timestamp")
    assert (kinds["line"], kinds["lines"]) == ("struct<n:int>", "array<struct<n:int>>")
    assert kinds["counts"] == "map<string,int>"


def test_what_is_no_such_message_is_bad(path: Path) -> None:
    schema = read_schema(f"{path}#shop.Order")
    good = order(i32=5)
    rows, bad = decode(schema, good, b"\xff\xff", good[:-1], order(at={"seconds": 1 << 60}))
    assert rows[1:] == [None] * 3
    assert bad[1] == "it is not a Protobuf message shop.Order"
    assert bad[3] == "a timestamp is out of range"


def test_the_front_of_a_registry_is_passed_over(path: Path) -> None:
    schema = read_schema(f"{path}#shop.Order")
    body, front = order(i32=5), b"\0\0\0\0\1"
    values = (front + b"\0" + body, front + b"\4\2\6" + body, body, front, front + b"\x80" * 12)
    rows, bad = decode(schema, *values, registry="http://x")
    assert [row and row["i32"] for row in rows] == [5, 5, None, None, None]
    assert set(bad.values()) == {"it does not begin with the id of a schema"}


@pytest.mark.parametrize(
    ("message", "problem"),
    [
        ("", r"has the messages shop\.Order, shop\.Empty, shop\.Node\. Name one of them"),
        ("#shop.Nothing", r"has no message 'shop\.Nothing'"),
        ("#shop.Empty", r"the message shop\.Empty has no fields"),
        ("#shop.Node", r"shop\.Node contains itself"),
    ],
)
def test_a_message_that_is_no_row_is_refused(path: Path, message: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_schema(f"{path}{message}")


def test_what_is_not_compiled_is_refused_with_the_way_out(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"Compile it: protoc --include_imports -o shop\.desc shop\.proto"):
        read_schema("shop.proto")
    (tmp_path / "x.desc").write_bytes(b"\xff\xff\xff")
    with pytest.raises(ConfigError, match="is no compiled Protobuf schema"):
        read_schema(str(tmp_path / "x.desc"))


def test_the_source_reads_protobuf(path: Path) -> None:
    with tailrace.Broker() as broker:
        broker.produce("orders", order(i32=5, s="x"))
        made = TailraceDataSource(
            {
                "kafka.bootstrap.servers": broker.bootstrap_servers,
                "subscribe": "orders",
                "valueFormat": "protobuf",
                "valueSchema": f"{path}#shop.Order",
            }
        )
        schema = made.schema()
        assert isinstance(schema, StructType)
        reader = made.reader(schema)
        (row,) = [
            row for part in reader.partitions() for each in reader.read(part) for row in each.to_pylist()
        ]
        close_links()
    assert (row["data"]["i32"], row["data"]["s"]) == (5, "x")
    del made.options["valueSchema"]
    with pytest.raises(ConfigError, match="needs valueSchema, a compiled schema"):
        made.schema()
