"""Records as JSON objects, the same for reading and for writing, so that `tail` can be fed to `produce`.

    {"topic", "partition", "offset", "timestamp", "key", "value",
     "headers": [{"name", "value"}], "key_encoding", "value_encoding"}

Text is text. What is not UTF-8 is base64, and `key_encoding`, `value_encoding` or a header's `encoding` says
so; where they are absent it is text. null is a missing key or a tombstone. On the way in everything but the
value may be left out, and a value that is an object, a list, a number or a boolean is sent as JSON.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from tailrace.model import TailraceError
from tailrace.records import Record

_KNOWN = frozenset(
    {"topic", "partition", "offset", "timestamp", "key", "value", "headers", "key_encoding", "value_encoding"}
)


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


def record_row(topic: str, partition: int, record: Record) -> dict[str, object]:
    """A record as an object that JSON can hold."""
    row: dict[str, object] = {
        "topic": topic,
        "partition": partition,
        "offset": record.offset,
        "timestamp": record.timestamp,
    }
    for name, data in (("key", record.key), ("value", record.value)):
        row[name], encoding = _text(data)
        if encoding:
            row[f"{name}_encoding"] = encoding
    headers = []
    for name, data in record.headers:
        text, encoding = _text(data)
        headers.append({"name": name, "value": text, **({"encoding": encoding} if encoding else {})})
    row["headers"] = headers
    return row


def parse_record(line: bytes | str) -> ParsedRecord:
    """A record out of one line of JSON; BadRecord if it is none."""
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise BadRecord(f"this is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise BadRecord('a record is an object, such as {"key": "k", "value": "v"}')
    if unknown := row.keys() - _KNOWN:
        raise BadRecord(
            f"a record has no {', '.join(sorted(unknown))}; it may have {', '.join(sorted(_KNOWN))}"
        )
    if "value" not in row:
        raise BadRecord("a record needs a value; null is a tombstone")
    return ParsedRecord(
        value=_bytes(row["value"], row.get("value_encoding"), "value"),
        key=_bytes(row.get("key"), row.get("key_encoding"), "key"),
        partition=_number(row, "partition"),
        timestamp=_number(row, "timestamp"),
        headers=_headers(row.get("headers")),
    )


def _text(data: bytes | None) -> tuple[str | None, str]:
    if data is None:
        return None, ""
    try:
        return data.decode(), ""
    except UnicodeDecodeError:
        return base64.b64encode(data).decode(), "base64"


def _bytes(value: object, encoding: object, what: str) -> bytes | None:
    if encoding not in (None, "text", "json", "base64"):
        raise BadRecord(f"{what}_encoding is text, json or base64, and not {encoding}")
    if value is None and encoding != "json":
        return None
    if encoding == "base64":
        try:
            return base64.b64decode(str(value), validate=True)
        except binascii.Error as error:
            raise BadRecord(f"{what} is not base64: {error}") from error
    if isinstance(value, str) and encoding != "json":
        return _encoded(value, what)
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def _encoded(text: str, what: str) -> bytes:
    try:
        return text.encode()
    except UnicodeEncodeError as error:  # half of a surrogate pair, which JSON can spell
        raise BadRecord(f"{what} is not text: {error}") from error


def _number(row: Mapping[str, Any], name: str) -> int | None:
    value = row.get(name)
    if value is not None and (not isinstance(value, int) or isinstance(value, bool) or value < 0):
        raise BadRecord(f"{name} is a number from 0 on, and not {value!r}")
    return value


def _headers(given: object) -> list[tuple[str, bytes | None]]:
    if given is None:
        return []
    if isinstance(given, dict):
        return [(name, _bytes(value, None, f"header {name}")) for name, value in given.items()]
    if not isinstance(given, list) or not all(isinstance(each, dict) and "name" in each for each in given):
        raise BadRecord('headers are [{"name": "h", "value": "v"}] or {"h": "v"}')
    return [
        (str(each["name"]), _bytes(each.get("value"), each.get("encoding"), f"header {each['name']}"))
        for each in given
    ]
