"""A record as properties and body, and back: nothing that a record can hold is lost on the way.

    key        `_key`; `_key64` (base64) where it is not UTF-8 without NUL
    value      the body; none is `_null=1` with an empty body
    headers    a property each, if every one is a legal property of the message: its name is not empty, does
               not begin with `_`, has no `=` and no NUL, and comes once; its value is UTF-8 without NUL and
               not null. If one is not, or there are too many, `_headers` holds all of them: base64 of JSON
               [[name, base64 of the value or null], ...]

With `_headers` the legal ones are properties too, for the reader's convenience; whoever turns them back into
a record takes `_headers` alone. A value is handed through as it is, view or bytes, and never copied.

What does not make a record is a BrokerError with INVALID_REQUEST: the frame around it is sound.
"""

from __future__ import annotations

import binascii
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TypeAlias, TypeVar

import msgspec

from tailrace.model import BrokerError, ErrorCode
from tailrace.wire.native.limit import RECORD_PROPERTIES_BYTES_MAX, RECORD_PROPERTIES_MAX
from tailrace.wire.native.property import refusal, shown

Header: TypeAlias = tuple[str, bytes | None]
Body = TypeVar("Body", bytes, memoryview, bytes | memoryview)

_read_json = msgspec.json.Decoder(list[tuple[str, bytes | None]]).decode
_write_json = msgspec.json.Encoder().encode

_NAME_LETTERS_KEPT = 64  # longer names are not worth a place in the cache, which would hold megabytes of them


def properties_of_record(
    key: bytes | None, value: bytes | memoryview | None, headers: Sequence[Header]
) -> tuple[bytes, bytes | memoryview]:
    """Encoded properties and body of a record that a client sends; too large ones are refused."""
    properties = write_record_properties(key, headers, is_null=value is None)
    if len(properties) > RECORD_PROPERTIES_BYTES_MAX:
        raise BrokerError(
            f"key and headers of a message take {len(properties)} bytes, which is over "
            f"{RECORD_PROPERTIES_BYTES_MAX}. Put large content into the body",
            code=ErrorCode.MESSAGE_TOO_LARGE,
        )
    return properties, b"" if value is None else value


def write_record_properties(key: bytes | None, headers: Sequence[Header], *, is_null: bool = False) -> bytes:
    """Encoded properties of a record, whatever their size."""
    properties = b""
    if key is not None:
        properties = b"_key=%b\0" % key if _is_text(key) else b"_key64=%b\0" % _base64(key)
    if headers:
        properties += _write_headers(headers)
    return properties + b"_null=1\0" if is_null else properties


def record_of_properties(
    properties: Mapping[str, str], body: Body
) -> tuple[bytes | None, Body | None, list[Header]]:
    """Key, value and headers of the record that a message brings."""
    headers: list[Header] = []
    has_reserved = False
    for name, value in properties.items():
        if name[:1] == "_":
            has_reserved = True
        else:
            headers.append((name, value.encode()))
    if not has_reserved:
        return None, body, headers
    if "_headers" in properties:
        headers = _read_headers(properties["_headers"])
    key = _read_key(properties)
    if "_null" not in properties:
        return key, body, headers
    if properties["_null"] != "1" or len(body):
        raise refusal("a message without a value has _null=1 and an empty body. Leave _null out otherwise")
    return key, None, headers


def _write_headers(headers: Sequence[Header]) -> bytes:
    """All headers as properties, or as `_headers` and those that are legal besides."""
    if len(headers) > RECORD_PROPERTIES_MAX:
        return _write_unfit_headers(headers)
    pieces = []
    for name, value in headers:
        prefix = _kept_prefix(name) if len(name) <= _NAME_LETTERS_KEPT else _property_prefix(name)
        if prefix is None or value is None:
            return _write_unfit_headers(headers)
        pieces.append(prefix + value)
    pieces.append(b"")
    joined = b"\0".join(pieces)
    # One look at all of them: a NUL behind each and no other, and as a whole UTF-8 just if each value is.
    if joined.count(0) != len(headers) or not _is_utf8(joined):
        return _write_unfit_headers(headers)
    if len(headers) > 1 and len({name for name, _ in headers}) != len(headers):
        return _write_unfit_headers(headers)
    return joined


def _write_unfit_headers(headers: Sequence[Header]) -> bytes:
    try:
        everything = _base64(_write_json(headers))
    except UnicodeEncodeError as error:
        raise refusal("the name of a header holds a lone surrogate, which UTF-8 cannot express") from error
    pieces = [b"_headers=" + everything]
    if len(headers) <= RECORD_PROPERTIES_MAX:
        times = Counter([name for name, _ in headers])
        for name, value in headers:
            prefix = _property_prefix(name) if times[name] == 1 else None
            if prefix is not None and value is not None and _is_text(value):
                pieces.append(prefix + value)
    pieces.append(b"")
    return b"\0".join(pieces)


def _property_prefix(name: str) -> bytes | None:
    """`name=`, encoded; None if a property cannot have this name."""
    if not name or name[0] == "_" or "=" in name or "\0" in name:
        return None
    try:
        return f"{name}=".encode()
    except UnicodeEncodeError:
        return None  # a lone surrogate: the JSON refuses it, with a message


_kept_prefix = lru_cache(maxsize=1024)(_property_prefix)


def _is_text(value: bytes) -> bool:
    """Whether a value can be a property's."""
    return 0 not in value and _is_utf8(value)


def _is_utf8(data: bytes) -> bool:
    if data.isascii():
        return True
    try:
        str(data, "utf-8")
    except UnicodeDecodeError:
        return False
    return True


def _base64(data: bytes) -> bytes:
    return binascii.b2a_base64(data, newline=False)


def _read_base64(text: str, name: str) -> bytes:
    try:
        return binascii.a2b_base64(text, strict_mode=True)
    except ValueError as error:
        raise refusal(f'{name} = "{shown(text)}" is not base64: {error}') from error


def _read_key(properties: Mapping[str, str]) -> bytes | None:
    text = properties.get("_key")
    encoded = properties.get("_key64")
    if encoded is None:
        return None if text is None else text.encode()
    if text is not None:
        raise refusal("a message has _key or _key64, not both")
    return _read_base64(encoded, "_key64")


def _read_headers(text: str) -> list[Header]:
    try:
        return _read_json(_read_base64(text, "_headers"))
    except ValueError as error:
        raise refusal(
            "_headers is not what it should be, base64 of JSON [[name, base64 of the value or null], ...]: "
            f"{error}"
        ) from error
