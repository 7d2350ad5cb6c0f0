"""Serializers by the Java client's names and as functions."""

from __future__ import annotations

from uuid import UUID

import pytest

from tailrace.client.serialization import SerializationError, find_deserializer, find_serializer
from tailrace.model import ConfigError

PACKAGE = "org.apache.kafka.common.serialization."


@pytest.mark.parametrize(
    ("kind", "value", "data"),
    [
        ("String", "ü", b"\xc3\xbc"),
        ("ByteArray", b"x", b"x"),
        ("Bytes", b"x", b"x"),
        ("Integer", 1, b"\0\0\0\1"),
        ("Long", -1, b"\xff" * 8),
        ("Short", 2, b"\0\2"),
        ("Double", 1.5, b"\x3f\xf8\0\0\0\0\0\0"),
        ("Float", 1.5, b"\x3f\xc0\0\0"),
        ("UUID", UUID(int=1), b"00000000-0000-0000-0000-000000000001"),
    ],
)
def test_a_named_serializer_and_its_deserializer_are_the_java_clients(
    kind: str, value: object, data: bytes
) -> None:
    assert find_serializer(f"{PACKAGE}{kind}Serializer", name="value.serializer")(value) == data
    assert find_deserializer(f"{kind}Deserializer", name="value.deserializer")(data) == value


@pytest.mark.parametrize("setting", [None, "StringSerializer", lambda value: b"never"])
def test_none_stays_none(setting: object) -> None:
    assert find_serializer(setting, name="n")(None) is None


def test_without_a_serializer_bytes_and_text_are_taken() -> None:
    serialize = find_serializer(None, name="n")
    assert [serialize("a"), serialize(b"a"), serialize(bytearray(b"a"))] == [b"a"] * 3
    assert find_deserializer(None, name="n")(b"\xff") == b"\xff"


def test_a_function_is_a_serializer() -> None:
    assert find_serializer(lambda value: b"<%d>" % value, name="n")(5) == b"<5>"
    assert find_deserializer(len, name="n")(b"abc") == 3


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        (None, 5),
        ("StringSerializer", b"x"),
        ("IntegerSerializer", "x"),
        ("IntegerSerializer", 2**31),
        ("UUIDSerializer", "x"),
    ],
)
def test_a_value_that_does_not_fit_names_the_property(setting: object, value: object) -> None:
    with pytest.raises(SerializationError, match=r"value\.serializer"):
        find_serializer(setting, name="value.serializer")(value)


def test_bytes_that_do_not_fit_name_the_property() -> None:
    with pytest.raises(SerializationError, match=r"key\.deserializer"):
        find_deserializer("IntegerDeserializer", name="key.deserializer")(b"abc")
    with pytest.raises(SerializationError, match=r"key\.deserializer"):
        find_deserializer("StringDeserializer", name="key.deserializer")(b"\xff")


@pytest.mark.parametrize("setting", ["AvroSerializer", "StringDeserializer", "", 5])
def test_an_unknown_serializer_is_refused_with_the_known_ones(setting: object) -> None:
    with pytest.raises(ConfigError, match="StringSerializer"):
        find_serializer(setting, name="value.serializer")
