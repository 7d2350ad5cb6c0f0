"""The same messages in the words of kafka-python and of kio, which know the protocol on their own account."""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import io
import warnings
from typing import Any

from kio.index import load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from tailrace.wire.kafka import APIS, Message
from tailrace.wire.kafka.schema import Field, read_fields

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # kafka-python reads its schemas in an old way
    _KAFKA_PYTHON = [
        importlib.import_module(f"kafka.protocol.{name}")
        for name in ("admin", "consumer", "metadata", "producer", "sasl")
    ]
    ApiMessage = importlib.import_module("kafka.protocol.api_message").ApiMessage


def kafka_python_knows(message_type: type[Message] | str) -> bool:
    """Whether there is such a message: it has none of delegation tokens, which only kio then stands for."""
    name = message_type if isinstance(message_type, str) else message_type.__name__
    return "DelegationToken" not in name


def kafka_python_type(message_type: type[Message] | str) -> Any:
    name = message_type if isinstance(message_type, str) else message_type.__name__
    for module in _KAFKA_PYTHON:
        found = getattr(module, name, None)
        if found is not None:
            return found
    raise LookupError(name)


def to_kafka_python(message: Message, version: int) -> Any:
    return _container(kafka_python_type(type(message)), message, version)


def _container(container: Any, message: Message, version: int) -> Any:
    values = {}
    for field in read_fields(type(message)):
        value = getattr(message, field.name)
        if version not in field.versions or (field.tag is not None and value == field.default):
            continue
        if field.struct is not None and value is not None:
            inner = container._struct.fields[field.name].data_class
            if field.array:
                value = [_container(inner, each, version) for each in value]
            else:
                value = _container(inner, value, version)
        name = _kafka_python_name(field, container)
        if name == "authorized_operations":
            value = {bit for bit in range(32) if value >> bit & 1}  # kafka-python has bits here
        values[name] = value
    return container(version=version, **values)


def _kafka_python_name(field: Field, container: Any) -> str:
    """Some messages have a shorter name for the operations that a client may perform."""
    shortened = field.name.endswith("authorized_operations") and field.name not in container._struct.fields
    return "authorized_operations" if shortened else field.name


def kafka_python_rewrites(message_type: type[Message], version: int, data: bytes) -> bytes:
    """What kafka-python writes after it has read our bytes."""
    # The plain reader: that of ApiVersionsResponse takes a message with an error for version 0.
    message = ApiMessage.decode.__func__(kafka_python_type(message_type), data, version=version)
    message._header = None
    return bytes(message.encode(version=version))


def kafka_python_bytes(message: Message, version: int) -> bytes:
    return bytes(to_kafka_python(message, version).encode(version=version))


def kio_type(message_type: type[Message] | str, version: int) -> Any:
    name = message_type if isinstance(message_type, str) else message_type.__name__
    request = name.endswith("Request")
    api_name = name.removesuffix("Request").removesuffix("Response")
    (key,) = (api.key for api in APIS.values() if api.name == api_name)
    return load_request_schema(key, version) if request else load_response_schema(key, version)


def to_kio(message: Message, version: int) -> Any:
    return _entity(kio_type(type(message), version), message, version)


def _entity(entity: Any, message: Message, version: int) -> Any:
    ours = [field for field in read_fields(type(message)) if version in field.versions]
    theirs = dataclasses.fields(entity)
    assert len(ours) == len(theirs), f"{entity} has other fields than {type(message)}"
    values = {}
    for field, their in zip(ours, theirs, strict=True):
        assert field.name.removesuffix("_ms") == their.name.removesuffix("_ms")
        values[their.name] = _kio_value(field, their, getattr(message, field.name), version)
    return entity(**values)


def _kio_value(field: Field, their: dataclasses.Field[Any], value: Any, version: int) -> Any:
    if value is None:
        return None
    if field.struct is not None:
        inner = _entity_class(their)
        if not field.array:
            return _entity(inner, value, version)
        return tuple(_entity(inner, each, version) for each in value)
    if field.array:
        return tuple(value)
    kind = their.metadata["kafka_type"]
    if kind == "error_code":
        return ErrorCode(value)
    if kind == "datetime_i64":
        return datetime.datetime.fromtimestamp(value / 1000, datetime.UTC)
    if kind.startswith("timedelta"):
        return datetime.timedelta(milliseconds=value)
    return value


def _entity_class(their: dataclasses.Field[Any]) -> Any:
    """The class inside `tuple[X, ...]` or `tuple[X, ...] | None`."""
    hint: Any = their.type
    while not dataclasses.is_dataclass(hint):
        hint = hint.__args__[0]
    return hint


def kio_bytes(message: Message, version: int) -> bytes:
    buffer = io.BytesIO()
    entity = to_kio(message, version)
    entity_writer(type(entity))(buffer, entity)
    return buffer.getvalue()


def kio_reads(message_type: type[Message] | str, version: int, data: bytes) -> Any:
    """What kio makes of bytes of ours; never of a stranger's, which can end the process."""
    entity, size = entity_reader(kio_type(message_type, version))(data, 0)
    assert size == len(data)
    return entity
