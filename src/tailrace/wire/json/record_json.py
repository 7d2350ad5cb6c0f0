"""Records as JSON objects, the same for reading and for writing, so that `tail` can be fed to `produce`.

    {"topic", "partition", "offset", "timestamp", "key", "value",
     "headers": [{"name", "value"}], "key_encoding", "value_encoding"}

Text is text. What is not UTF-8 is base64, and `key_encoding`, `value_encoding` or a header's `encoding` says
so; where they are absent it is text. null is a missing key or a tombstone. On the way in everything but the
value may be left out, `encoding` is a shorter name for `value_encoding`, headers may be an object of names
and values, and a value that is an object, a list, a number or a boolean is sent as JSON. Topic and offset of
a record that was read are passed over.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from tailrace.model import TailraceError
from tailrace.records import Record

Encoding = Literal["text", "json", "base64"]
_Partition = Annotated[int, Meta(ge=0, le=2**31 - 1)]
_Time = Annotated[int, Meta(ge=0, le=2**63 - 1)]


class HeaderInput(Struct, frozen=True, forbid_unknown_fields=True):
    """A header to be sent."""

    name: str
    value: Any = None
    encoding: Encoding | None = None


class RecordInput(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A record to be sent. `encoding` is the value's: text, json or base64."""

    value: Any
    key: Any = None
    headers: list[HeaderInput] | dict[str, Any] | None = None
    partition: _Partition | None = None
    timestamp: _Time | None = None
    encoding: Encoding | None = None
    value_encoding: Encoding | None = None
    key_encoding: Encoding | None = None
    topic: Any = None
    offset: Any = None


class HeaderRow(Struct, frozen=True):
    """A header of a record."""

    name: str
    value: str | None
    encoding: Literal["base64"] | UnsetType = UNSET


class RecordRow(Struct, frozen=True, kw_only=True):
    """A record as it was stored; what is not UTF-8 is base64 and says so."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: str | None
    key_encoding: Literal["base64"] | UnsetType = UNSET
    value: str | None
    value_encoding: Literal["base64"] | UnsetType = UNSET
    headers: list[HeaderRow]


_FIELDS = ", ".join(sorted(RecordInput.__struct_fields__))
_DECODER = msgspec.json.Decoder(RecordInput)


class BadRecord(TailraceError):
    """A line that is no record; the message says why."""


@dataclass(slots=True, kw_only=True)
class ParsedRecord:
    """A record to be sent."""

    value: bytes | None
    key: bytes | None = None
    partition: int | None = None
    timestamp: int | None = None
    headers: list[tuple[str, bytes | None]] = field(default_factory=list)


# ---- out


def view_record(topic: str, partition: int, record: Record) -> RecordRow:
    """A record as JSON shows it."""
    key, key_encoding = _text(record.key)
    value, value_encoding = _text(record.value)
    return RecordRow(
        topic=topic,
        partition=partition,
        offset=record.offset,
        timestamp=record.timestamp,
        key=key,
        key_encoding=key_encoding,
        value=value,
        value_encoding=value_encoding,
        headers=[HeaderRow(name, *_text(data)) for name, data in record.headers],
    )


def record_row(topic: str, partition: int, record: Record) -> dict[str, object]:
    """A record as an object that JSON can hold."""
    row: dict[str, object] = msgspec.to_builtins(view_record(topic, partition, record))
    return row


def _text(data: bytes | None) -> tuple[str | None, Literal["base64"] | UnsetType]:
    if data is None:
        return None, UNSET
    try:
        return data.decode(), UNSET
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


# ---- in


def parse_record(line: bytes | str) -> ParsedRecord:
    """A record out of one line of JSON; BadRecord if it is none."""
    try:
        return read_input(_DECODER.decode(line))
    except msgspec.ValidationError as error:
        raise BadRecord(_readable(str(error))) from error
    except (msgspec.DecodeError, UnicodeError, RecursionError) as error:
        raise BadRecord(f"this is not JSON: {error}") from error


def read_input(row: RecordInput) -> ParsedRecord:
    """The record that somebody wants to send; BadRecord if its parts do not go together."""
    encoding = row.value_encoding
    if row.encoding is not None:
        if encoding is not None and encoding != row.encoding:
            raise BadRecord(f"encoding is {row.encoding}, and value_encoding {encoding}: give one of them")
        encoding = row.encoding
    value, key = row.value, row.key
    return ParsedRecord(
        value=value.encode() if type(value) is str and not encoding else _bytes(value, encoding, "value"),
        key=key.encode()
        if type(key) is str and not row.key_encoding
        else _bytes(key, row.key_encoding, "key"),
        partition=row.partition,
        timestamp=row.timestamp,
        headers=_headers(row.headers) if row.headers else [],
    )


def _bytes(value: object, encoding: Encoding | None, what: str) -> bytes | None:
    if value is None and encoding != "json":
        return None
    if encoding == "base64":
        if not isinstance(value, str):
            raise BadRecord(f"{what} is not base64: it is no text")
        try:
            return base64.b64decode(value, validate=True)
        except ValueError as error:
            raise BadRecord(f"{what} is not base64: {error}") from error
    if isinstance(value, str) and encoding != "json":
        return value.encode()
    return msgspec.json.encode(value)


def _headers(given: list[HeaderInput] | dict[str, Any]) -> list[tuple[str, bytes | None]]:
    if isinstance(given, dict):
        return [(name, _bytes(value, None, f"header {name}")) for name, value in given.items()]
    return [(each.name, _bytes(each.value, each.encoding, f"header {each.name}")) for each in given]


def _readable(message: str) -> str:
    """What msgspec says of a wrong record, as it is told to a person."""
    text, _, place = message.replace("`", "").partition(" - at $")
    place = place.lstrip(".")
    if place.startswith("headers"):
        return f'headers are [{{"name": "h", "value": "v"}}] or {{"h": "v"}} ({place}: {text})'
    if place:
        return f"{place}: {text}"
    if text.startswith("Object missing required field value"):
        return "a record needs a value; null is a tombstone"
    if text.startswith("Object contains unknown field "):
        return f"a record has no {text.rpartition(' ')[2]}; it may have {_FIELDS}"
    return f'a record is an object, such as {{"key": "k", "value": "v"}} ({text})'
