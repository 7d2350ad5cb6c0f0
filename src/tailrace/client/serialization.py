"""Keys and values as bytes: the serializers that Kafka's properties name, and any callable.

`key.serializer` and its three companions take a class name of the Java client, with or without its package,
or a function. Without one a producer takes bytes and text, and a consumer gets bytes. None stays None: it is
a missing key, or a tombstone.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, TypeAlias
from uuid import UUID

from tailrace.model import ConfigError, TailraceError

Serializer: TypeAlias = Callable[[Any], bytes | None]
Deserializer: TypeAlias = Callable[[bytes | None], Any]


class SerializationError(TailraceError):
    """A key or value does not fit its serializer, or its bytes do not fit the deserializer."""


def find_serializer(setting: object, *, name: str) -> Serializer:
    """The serializer that a property means."""
    if setting is None:
        return _guarded(_write_any, name)
    if callable(setting):
        return _guarded(setting, name)
    return _guarded(_lookup(setting, _SERIALIZERS, "Serializer", name), name)


def find_deserializer(setting: object, *, name: str) -> Deserializer:
    """The deserializer that a property means."""
    if setting is None:
        return bytes_or_none
    if callable(setting):
        return _guarded(setting, name)
    return _guarded(_lookup(setting, _DESERIALIZERS, "Deserializer", name), name)


def bytes_or_none(data: bytes | None) -> bytes | None:
    return data


def _guarded(function: Callable[[Any], Any], name: str) -> Callable[[Any], Any]:
    def convert(value: Any) -> Any:
        if value is None:
            return None
        try:
            return function(value)
        except (TypeError, ValueError, struct.error, AttributeError) as error:
            kind = type(value).__name__
            raise SerializationError(f"{name} cannot take this {kind}: {error}") from error

    return convert


def _lookup(
    setting: object, table: Mapping[str, Callable[[Any], Any]], suffix: str, name: str
) -> Callable[[Any], Any]:
    found = table.get(str(setting).rpartition(".")[2].removesuffix(suffix))
    if found is None:
        known = ", ".join(kind + suffix for kind in table)
        raise ConfigError(f"{name}: {setting} is not known. Use a function, or one of {known}")
    return found


def _write_any(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode()
    return _write_bytes(value)


def _write_bytes(value: object) -> bytes:
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    raise TypeError("it takes bytes; set a serializer for anything else")


def _write_text(value: object) -> bytes:
    if not isinstance(value, str):
        raise TypeError("it takes text")
    return value.encode()


def _write_number(kind: str) -> Callable[[Any], bytes]:
    return struct.Struct(kind).pack


def _read_number(kind: str) -> Callable[[bytes], Any]:
    layout = struct.Struct(kind)

    def read(data: bytes) -> Any:
        return layout.unpack(data)[0]

    return read


_NUMBERS = {"Integer": ">i", "Long": ">q", "Short": ">h", "Float": ">f", "Double": ">d"}
_SERIALIZERS: Mapping[str, Callable[[Any], Any]] = {
    "String": _write_text,
    "ByteArray": _write_bytes,
    "Bytes": _write_bytes,
    "UUID": lambda value: _write_text(str(UUID(str(value)))),
    "Void": lambda _value: None,
    **{name: _write_number(kind) for name, kind in _NUMBERS.items()},
}
_DESERIALIZERS: Mapping[str, Callable[[Any], Any]] = {
    "String": lambda data: data.decode(),
    "ByteArray": bytes_or_none,
    "Bytes": bytes_or_none,
    "UUID": lambda data: UUID(data.decode()),
    "Void": lambda _data: None,
    **{name: _read_number(kind) for name, kind in _NUMBERS.items()},
}
