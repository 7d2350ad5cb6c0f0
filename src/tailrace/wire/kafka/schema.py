"""The notation in which the message modules write Kafka's schemas down, and its reader.

A struct of the protocol is a class, a field of it is an annotated attribute, in wire order:

    class MetadataRequest(Message):
        topics: Annotated[list[MetadataRequestTopic] | None, "null 1+"] = None
        allow_auto_topic_creation: Annotated[bool, "4+"] = True

The type says how the value travels:

    Int8 .. Int64, UInt16, UInt32     big-endian integers
    bool, float, UUID                 one byte, eight bytes, sixteen bytes
    str, bytes                        length and content
    list[X]                           count and elements
    a Message class                   its fields in order

`| None` makes it nullable. The note beside it, where there is one, holds up to three parts in this order:

    7+   2-4   3        the versions that have the field; without it all versions of the API
    null 1+             the versions that allow null; without it all that have the field
    tag 0               a tagged field (KIP-482): in the tag buffer, and only if it is not the default

Versions are those of the message that holds the struct. Names, order, versions and defaults are upstream's,
with one rule of our own: what can be null is null by default. A field that a version lacks has its default
after decoding and is left out by encoding; null in a version without null travels as empty.
"""

from __future__ import annotations

import re
import types
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, TypeAlias, Union, get_args, get_origin, get_type_hints
from uuid import UUID

import msgspec


class Message(msgspec.Struct, gc=False):
    """A struct of the protocol. Messages are trees, so the cycle collector need not look at them."""


Int8: TypeAlias = Annotated[int, "int8"]
Int16: TypeAlias = Annotated[int, "int16"]
Int32: TypeAlias = Annotated[int, "int32"]
Int64: TypeAlias = Annotated[int, "int64"]
UInt16: TypeAlias = Annotated[int, "uint16"]
UInt32: TypeAlias = Annotated[int, "uint32"]

ZERO_UUID = UUID(int=0)

# Letter for struct, and size on the wire.
FIXED = {
    "int8": ("b", 1),
    "int16": ("h", 2),
    "int32": ("i", 4),
    "int64": ("q", 8),
    "uint16": ("H", 2),
    "uint32": ("I", 4),
    "float64": ("d", 8),
    "bool": ("?", 1),
}
_BY_TYPE: dict[object, str] = {bool: "bool", float: "float64", str: "string", bytes: "bytes", UUID: "uuid"}
_VERSION_MAX = 0x7FFF
_VERSIONS = r"\d+(?:\+|-\d+)?"
_NOTE = re.compile(rf"(?P<versions>{_VERSIONS})?(?: ?null (?P<null>{_VERSIONS}))?(?: ?tag (?P<tag>\d+))?")


@dataclass(frozen=True, slots=True)
class Range:
    """Versions from first to last, both included."""

    first: int
    last: int

    def __contains__(self, version: int) -> bool:
        return self.first <= version <= self.last


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a struct. `kind` is a key of FIXED, "string", "bytes", "uuid" or "struct"."""

    name: str
    kind: str
    struct: type[Message] | None  # the class where kind is "struct"
    array: bool
    versions: Range
    null: Range | None
    tag: int | None
    default: Any  # an empty list or a struct stands for a new one each time

    def nullable(self, version: int) -> bool:
        return self.null is not None and version in self.null


def read_uuid(data: bytes) -> UUID:
    """The id in sixteen bytes. Zero means none, is frequent, and is always the same object."""
    return UUID(bytes=data) if any(data) else ZERO_UUID


@cache
def read_fields(message_type: type[Message]) -> tuple[Field, ...]:
    """All fields of a struct, in wire order."""
    hints = get_type_hints(message_type, include_extras=True)
    return tuple(_read_field(info, hints[info.name]) for info in msgspec.structs.fields(message_type))


def fields_of(message_type: type[Message], version: int) -> tuple[list[Field], list[Field]]:
    """The plain fields that a version has, in wire order, and the tagged ones, by tag."""
    present = [field for field in read_fields(message_type) if version in field.versions]
    tagged = sorted((field for field in present if field.tag is not None), key=lambda field: field.tag or 0)
    return [field for field in present if field.tag is None], tagged


def _read_field(info: msgspec.structs.FieldInfo, hint: Any) -> Field:
    hint, note = _split(hint)
    nullable = get_origin(hint) in (Union, types.UnionType)
    if nullable:
        (hint,) = (part for part in get_args(hint) if part is not types.NoneType)
    array = get_origin(hint) is list
    if array:
        (hint,) = get_args(hint)
    parts = _NOTE.fullmatch(note)
    assert parts is not None, f"{info.name}: {note!r} is not a note"
    versions = _range(parts["versions"])
    null = (_range(parts["null"]) if parts["null"] else versions) if nullable else None
    kind, struct = _kind(hint)
    return Field(
        name=info.name,
        kind=kind,
        struct=struct,
        array=array,
        versions=versions,
        null=null,
        tag=int(parts["tag"]) if parts["tag"] else None,
        default=info.default_factory() if info.default is msgspec.NODEFAULT else info.default,
    )


def _split(hint: Any) -> tuple[Any, str]:
    """A hint and its note. Int32 and its like are annotated themselves, and stay whole."""
    if get_origin(hint) is not Annotated:
        return hint, ""
    inner, *notes = get_args(hint)
    if inner is not int:
        return inner, notes[0]
    return Annotated[int, notes[0]], notes[1] if len(notes) > 1 else ""


def _kind(hint: Any) -> tuple[str, type[Message] | None]:
    if get_origin(hint) is Annotated:
        return get_args(hint)[1], None
    if hint in _BY_TYPE:
        return _BY_TYPE[hint], None
    return "struct", hint


def _range(text: str | None) -> Range:
    if text is None:
        return Range(0, _VERSION_MAX)
    if text.endswith("+"):
        return Range(int(text[:-1]), _VERSION_MAX)
    first, _, last = text.partition("-")
    return Range(int(first), int(last or first))
