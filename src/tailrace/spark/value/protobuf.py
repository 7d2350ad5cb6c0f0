"""Protobuf: a compiled schema to Spark's types, and values by it.

A schema is a FileDescriptorSet, which `protoc --include_imports -o orders.desc orders.proto` writes. A .proto
is source text, and compiling it takes protoc.

    bool, string, bytes, float, double          BOOLEAN, STRING, BINARY, FLOAT, DOUBLE
    int32, sint32, sfixed32 | uint32, fixed32   INT | BIGINT
    int64, sint64, sfixed64 | uint64, fixed64   BIGINT | DECIMAL(20,0)
    an enum                                     STRING: the name of its value, or its number if that has none
    a message, repeated, a map                  STRUCT, ARRAY, MAP
    google.protobuf.Timestamp                   TIMESTAMP

A field that can tell that it is not set is null then; others have the default of their type. Messages that
contain themselves, and messages without fields, are refused. With a schema registry a value begins with the
id of its schema and the number of its message, which are passed over: the declared message reads it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from tailrace.model import ConfigError
from tailrace.spark.value.convert import Misfit
from tailrace.spark.value.registry import HEADER_BYTES, NO_FRAME

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor

INSTALL_PROTOBUF = "pip install 'tailrace[protobuf]'"
DEPTH_MAX = 32
_TIMESTAMP = "google.protobuf.Timestamp"
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_INDEXES_MAX = 16

Convert = Callable[[Any], Any]


def read_protobuf_schema(definition: str, *, place: str) -> StructType:
    """The columns of a message. `definition` is DESCRIPTORS#MESSAGE, the first as base64."""
    found = _struct(_find_message(definition, place), place, ())
    assert isinstance(found, StructType)
    return found


def write_definition(content: bytes, message: str) -> str:
    """A compiled schema as text."""
    return f"{base64.b64encode(content).decode()}#{message}"


def protobuf_reader(*, definition: str, registry: str) -> Callable[[bytes], Any]:
    """What reads values into what Arrow takes for the columns; it raises Misfit for what is no such value."""
    from google.protobuf.message import DecodeError
    from google.protobuf.message_factory import GetMessageClass

    descriptor = _find_message(definition, "the Protobuf schema")
    message_class = GetMessageClass(descriptor)
    convert = _message_converter(descriptor)

    def read(value: bytes) -> Any:
        message = message_class()
        try:
            message.ParseFromString(_body(value) if registry else value)
        except DecodeError:
            raise Misfit(f"it is not a Protobuf message {descriptor.full_name}") from None
        return convert(message)

    return read


def _body(value: bytes) -> bytes:
    """What follows the schema id and the message indexes, which are a count and that number of varints."""
    if len(value) <= HEADER_BYTES or value[0] != 0:
        raise Misfit(NO_FRAME)
    count, at = _varint(value, HEADER_BYTES)
    if not 0 <= count <= _INDEXES_MAX:
        raise Misfit(NO_FRAME)
    for _ in range(count):
        _, at = _varint(value, at)
    return value[at:]


def _varint(value: bytes, at: int) -> tuple[int, int]:
    """A zigzag number, and where it ends."""
    number = shift = 0
    while at < len(value) and shift < 64:
        byte = value[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), at
        shift += 7
    raise Misfit(NO_FRAME)


# ---- the schema


def _find_message(definition: str, place: str) -> Descriptor:
    try:
        from google.protobuf.descriptor_pb2 import FileDescriptorSet
        from google.protobuf.descriptor_pool import DescriptorPool
        from google.protobuf.message import DecodeError
    except ImportError as error:
        raise ConfigError(
            f"Protobuf needs protobuf, which is not installed. Try: {INSTALL_PROTOBUF}"
        ) from error
    text, _, name = definition.removeprefix("desc:").rpartition("#")
    pool = DescriptorPool()
    try:
        files = FileDescriptorSet.FromString(base64.b64decode(text, validate=True)).file
        for each in files:
            pool.Add(each)
        if not name:
            last = pool.FindFileByName(files[-1].name) if files else None
            messages = list(last.message_types_by_name.values()) if last is not None else []
            if len(messages) != 1:
                names = ", ".join(each.full_name for each in messages) or "none"
                raise ConfigError(f"{place} has the messages {names}. Name one of them: FILE.desc#MESSAGE")
            return messages[0]
        return pool.FindMessageTypeByName(name)
    except KeyError:
        raise ConfigError(f"{place} has no message {name!r}") from None
    except (DecodeError, TypeError, binascii.Error) as error:
        raise ConfigError(
            f"{place} is no compiled Protobuf schema: {error}. Make one with protoc --include_imports -o"
            " orders.desc orders.proto"
        ) from error


def _struct(message: Descriptor, place: str, outer: tuple[str, ...]) -> DataType:
    if message.full_name == _TIMESTAMP:
        return TimestampType()
    if message.full_name in outer or len(outer) > DEPTH_MAX:
        raise ConfigError(f"{place}: {message.full_name} contains itself, which no type of Spark does")
    if not message.fields:
        raise ConfigError(f"{place}: the message {message.full_name} has no fields")
    inner = (*outer, message.full_name)
    return StructType([StructField(field.name, _field(field, place, inner)) for field in message.fields])


def _field(field: FieldDescriptor, place: str, outer: tuple[str, ...]) -> DataType:
    if _is_map(field):
        entry = field.message_type.fields_by_name
        return MapType(_single(entry["key"], place, outer), _single(entry["value"], place, outer))
    one = _single(field, place, outer)
    return ArrayType(one) if field.is_repeated else one


def _single(field: FieldDescriptor, place: str, outer: tuple[str, ...]) -> DataType:
    if field.message_type is not None:
        return _struct(field.message_type, place, outer)
    if field.enum_type is not None:
        return StringType()
    return _SCALARS[field.type]


_SCALARS: dict[int, DataType] = {
    1: DoubleType(),
    2: FloatType(),
    3: LongType(),  # int64
    4: DecimalType(20, 0),  # uint64
    5: IntegerType(),  # int32
    6: DecimalType(20, 0),  # fixed64
    7: LongType(),  # fixed32
    8: BooleanType(),
    9: StringType(),
    12: BinaryType(),
    13: LongType(),  # uint32
    15: IntegerType(),  # sfixed32
    16: LongType(),  # sfixed64
    17: IntegerType(),  # sint32
    18: LongType(),  # sint64
}
"""By FieldDescriptor.TYPE_*."""


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and bool(field.message_type.GetOptions().map_entry)


# ---- values


def _message_converter(message: Descriptor) -> Convert:
    if message.full_name == _TIMESTAMP:
        return _moment
    fields = [(field.name, field.has_presence, _field_converter(field)) for field in message.fields]

    def convert(value: Any) -> dict[str, Any]:
        return {
            name: None if has_presence and not value.HasField(name) else make(getattr(value, name))
            for name, has_presence, make in fields
        }

    return convert


def _field_converter(field: FieldDescriptor) -> Convert:
    if _is_map(field):
        item = _single_converter(field.message_type.fields_by_name["value"])
        return lambda value: [(key, item(value[key])) for key in value]
    one = _single_converter(field)
    return (lambda value: [one(each) for each in value]) if field.is_repeated else one


def _single_converter(field: FieldDescriptor) -> Convert:
    if field.message_type is not None:
        return _message_converter(field.message_type)
    if field.enum_type is not None:
        names = {number: value.name for number, value in field.enum_type.values_by_number.items()}
        return lambda value: names.get(value, str(value))
    return lambda value: value


def _moment(value: Any) -> datetime:
    try:
        return _EPOCH + timedelta(seconds=value.seconds, microseconds=value.nanos // 1000)
    except OverflowError:
        raise Misfit("a timestamp is out of range") from None
