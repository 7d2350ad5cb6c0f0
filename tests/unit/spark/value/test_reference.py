"""Schemas that refer to others of their registry: made one document, and read by the source over HTTP."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator, Mapping
from typing import Any

import fastavro
import pytest
from pyspark.sql.types import StructType
from tests.schema_registry import Registry, serving

import tailrace
from tailrace.model import ConfigError
from tailrace.spark.link import close_links
from tailrace.spark.source.data_source import TailraceDataSource
from tailrace.spark.value.avro_schema import read_avro_schema
from tailrace.spark.value.json_schema import read_json_schema
from tailrace.spark.value.reference import SCHEMAS_MAX, Source, Version, write_out
from tailrace.spark.value.registry import fetch_latest


def record(name: str, /, **fields: Any) -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": [{"name": n, "type": t} for n, t in fields.items()]}


def written(kind: str, root: Any, others: Mapping[str, tuple[Any, list[str]]], refers: list[str]) -> Any:
    """The document of a schema; `others` have the names by which all of them refer to each other."""

    def source(document: Any, names: list[str]) -> Source:
        return Source(text=json.dumps(document), references={name: Version(name, 1) for name in names})

    text = write_out(
        kind, source(root, refers), fetch=lambda version: source(*others[version.subject]), what="orders"
    )
    return json.loads(text)


def columns(document: Any, *, kind: str = "AVRO") -> str:
    read = read_avro_schema if kind == "AVRO" else read_json_schema
    return read(document, place="x").simpleString()


# ---- Avro


def test_a_type_is_written_out_where_it_is_first_named() -> None:
    order = {
        **record("Order", to="Address", back="shop.Address", old={"type": "array", "items": "Address"}),
        "namespace": "shop",
    }
    found = written("AVRO", order, {"shop.Address": (record("Address", city="string"), [])}, ["shop.Address"])
    assert columns(found) == (
        "struct<to:struct<city:string>,back:struct<city:string>,old:array<struct<city:string>>>"
    )
    assert json.dumps(found).count('"city"') == 1
    fastavro.parse_schema(found)


@pytest.mark.parametrize(
    ("named", "shown"),
    [
        ("a.Colour", "string"),
        (["null", "a.Colour"], "string"),
        ({"type": "a.Colour"}, "string"),
        ({"type": "map", "values": "a.Colour"}, "map<string,string>"),
    ],
)
def test_a_type_is_found_wherever_it_is_named(named: Any, shown: str) -> None:
    colour = {"type": "enum", "name": "Colour", "namespace": "a", "symbols": ["RED"]}
    found = written("AVRO", record("R", x=named), {"a.Colour": (colour, [])}, ["a.Colour"])
    assert columns(found) == f"struct<x:{shown}>"
    fastavro.parse_schema(found)


def test_types_that_need_others_come_with_them_and_keep_their_namespaces() -> None:
    person = {**record("Person", home="Address", old="a.Address", pet="Pet"), "namespace": "a"}
    others = {
        "a.Person": (person, ["a.Address", "Pet"]),
        "a.Address": ({**record("Address", city="string"), "namespace": "a"}, []),
        "Pet": (record("Pet", name="string", next="Collar"), ["Collar"]),  # of no namespace
        "Collar": (record("Collar", size="int"), []),
    }
    found = written("AVRO", record("R", who="a.Person"), others, ["a.Person"])
    assert columns(found) == (
        "struct<who:struct<home:struct<city:string>,old:struct<city:string>"
        ",pet:struct<name:string,next:struct<size:int>>>>"
    )
    pet = found["fields"][0]["type"]["fields"][2]["type"]
    assert (pet["name"], pet["namespace"]) == ("Pet", "")
    fastavro.parse_schema(found)


def test_schemas_without_an_end_are_refused() -> None:
    asked: list[Version] = []

    def fetch(version: Version) -> Source:
        asked.append(version)
        following = Version(version.subject, version.version + 1)
        return Source(text="{}", references={"x": following})

    source = Source(text='"x"', references={"x": Version("x", 1)})
    with pytest.raises(ConfigError, match=f"more than {SCHEMAS_MAX} other schemas"):
        write_out("AVRO", source, fetch=fetch, what="orders")
    assert len(asked) == SCHEMAS_MAX


def test_two_types_that_contain_each_other_come_to_an_end_and_are_refused() -> None:
    others = {"A": (record("A", b="B"), ["B"]), "B": (record("B", a="A"), ["A"])}
    found = written("AVRO", record("R", a="A"), others, ["A"])
    with pytest.raises(ConfigError, match="A contains itself"):
        columns(found)


# ---- JSON Schema


@pytest.mark.parametrize(
    ("base", "reference", "name"),
    [
        (None, "address.json", "address.json"),
        (None, "address.json#/$defs/full", "address.json"),
        ("http://shop.example/order.json", "address.json", "http://shop.example/address.json"),
        ("http://shop.example/order.json", "address.json", "address.json"),
    ],
)
def test_a_reference_leads_into_the_one_document(base: str | None, reference: str, name: str) -> None:
    address = {
        "type": "object",
        "properties": {"city": {"$ref": "#/$defs/text"}},
        "$defs": {"text": {"type": "string"}, "full": {"properties": {"city": {"$ref": "#/$defs/text"}}}},
    }
    order = {
        "type": "object",
        "properties": {"n": {"$ref": "#/$defs/text"}, "to": {"$ref": reference}},
        "$defs": {"text": {"type": "integer"}},  # another one than in the other document
    }
    root = order if base is None else {"$id": base, **order}
    found = written("JSON", root, {name: (address, [])}, [name])
    assert columns(found, kind="JSON") == "struct<n:bigint,to:struct<city:string>>"


def test_a_reference_that_the_registry_does_not_name_is_refused() -> None:
    root = {"properties": {"to": {"$ref": "other.json"}}}
    found = written("JSON", root, {"address.json": ({}, [])}, ["address.json"])
    with pytest.raises(ConfigError, match=r"refers to 'other\.json'"):
        columns(found, kind="JSON")


# ---- over HTTP


@pytest.fixture
def registry() -> Iterator[Registry]:
    with serving() as running:
        yield running


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running
        close_links()


def test_the_source_reads_values_whose_schemas_refer_to_others(
    broker: tailrace.Broker, registry: Registry
) -> None:
    address = record("Address", city="string")
    registry.register("address", record("Address", street="string"))
    registry.register("address", address)
    refers = [{"name": "Address", "subject": "address", "version": 2}]
    number = registry.register("orders-value", record("Order", to="Address"), references=refers)
    out = io.BytesIO()
    whole = fastavro.parse_schema(record("Order", to=address))
    fastavro.schemaless_writer(out, whole, {"to": {"city": "Ulm"}})
    broker.produce("orders", b"\0" + number.to_bytes(4, "big") + out.getvalue())
    options = {
        "kafka.bootstrap.servers": broker.bootstrap_servers,
        "subscribe": "orders",
        "valueFormat": "avro",
        "schemaRegistry": registry.url,
    }
    made = TailraceDataSource(options)
    schema = made.schema()
    assert isinstance(schema, StructType)
    reader = made.reader(schema)
    rows = [
        row["data"]
        for part in reader.partitions()
        for found in reader.read(part)
        for row in found.to_pylist()
    ]
    assert rows == [{"to": {"city": "Ulm"}}]


def test_a_version_that_is_gone_is_named(registry: Registry) -> None:
    refers = [{"name": "Address", "subject": "address", "version": 7}]
    registry.register("orders-value", record("Order", to="Address"), references=refers)
    with pytest.raises(ConfigError, match="/subjects/address/versions/7"):
        fetch_latest(registry.url, "orders")
