"""A frame as a JSON object, for clients that would rather not write bytes: one text message, one frame.

    {"type": "publish", "sequence": 7, "topic": "events", "key": "user-7",
     "properties": {"colour": "red"}, "body": "Hello"}

    type          the message's name in small letters, or its number
    sequence      0 if it is left out, and so is `timestamp`
    properties    the message's own
    body          text, or base64 where `encoding` says so
    all others    the protocol's properties, without the `_` in front of their names. One whose name would be
                  mistaken for the above keeps it: `_sequence`, of a producer, is not the frame's `sequence`

Values are texts and whole numbers. On the way out, what is always a number is one.

What is not an object, or has no sequence that an answer could carry, is a ProtocolError. Everything else that
is wrong is a BadJsonFrame, which has the sequence to answer with.
"""

from __future__ import annotations

import binascii
from typing import Any, Final

import msgspec

from tailrace.model import BrokerError, ErrorCode, ProtocolError
from tailrace.wire.native.frame import Frame
from tailrace.wire.native.property import shown, write_properties
from tailrace.wire.native.type import MessageType

_OWN: Final = frozenset({"type", "sequence", "timestamp", "properties", "body", "encoding"})
_NUMBERS: Final = frozenset(
    {
        "_ack_timeout_ms",
        "_count",
        "_dead_after_ms",
        "_delivery",
        "_epoch",
        "_frame_bytes_max",
        "_heartbeat_ms",
        "_offset",
        "_partition",
        "_partitions",
        "_pull",
        "_timeout_ms",
    }
)
_LONG_MAX = (1 << 63) - 1
_TYPE_MAX = (1 << 32) - 1
_SAFE_NUMBER_MAX = (1 << 53) - 1  # up to which JavaScript's numbers are exact
_NAMES = {int(member): member.name.lower() for member in MessageType}
_TYPES = {name.lower(): int(member) for name, member in MessageType.__members__.items()}  # older names too

_decode = msgspec.json.Decoder().decode
_encode = msgspec.json.Encoder().encode


class BadJsonFrame(BrokerError):
    """An object that is no frame; `sequence` is the one to answer with."""

    def __init__(self, message: str, *, sequence: int, code: ErrorCode = ErrorCode.INVALID_REQUEST) -> None:
        super().__init__(message, code=code)
        self.sequence = sequence


def read_json_frame(text: str | bytes) -> Frame:
    """The frame that a text is."""
    try:
        row = _decode(text)
    except (msgspec.DecodeError, RecursionError, UnicodeError) as error:
        raise ProtocolError(f"a text message is not JSON: {error}") from error
    if not isinstance(row, dict):
        raise ProtocolError('a text message is an object, such as {"type": "describe", "what": "topics"}')
    sequence = row.get("sequence", 0)
    if not _is_number(sequence, _LONG_MAX):
        raise ProtocolError("the sequence of a message is a whole number from 0 on")
    try:
        return Frame(
            _read_type(row.get("type")),
            sequence,
            _read_timestamp(row.get("timestamp", 0)),
            _read_properties(row),
            _read_body(row.get("body", ""), row.get("encoding", "text")),
        )
    except BrokerError as error:
        raise BadJsonFrame(str(error), sequence=sequence, code=error.code) from error


def write_json_frame(frame: Frame) -> str:
    """The text that a frame is."""
    row: dict[str, Any] = {"type": _NAMES.get(frame.type, frame.type), "sequence": frame.sequence}
    if frame.timestamp:
        row["timestamp"] = frame.timestamp
    own: dict[str, str] = {}
    for name, value in frame.properties.items():
        if name[0] != "_":
            own[name] = value
        else:
            row[_short(name)] = _number(value) if name in _NUMBERS else value
    if own:
        row["properties"] = own
    if frame.body:
        _write_body(row, bytes(frame.body))
    return _encode(row).decode()


# ---- reading


def _read_type(given: object) -> int:
    if isinstance(given, str):
        number = _TYPES.get(given)
        if number is None:
            raise BrokerError(
                f'type "{shown(given)}" is not known here. There are: {", ".join(_TYPES)}',
                code=ErrorCode.UNSUPPORTED_VERSION,
            )
        return number
    if not _is_number(given, _TYPE_MAX):
        raise _refusal('a message has a type, such as "type": "subscribe"')
    return given  # type: ignore[return-value]


def _read_timestamp(given: object) -> int:
    if not isinstance(given, int) or isinstance(given, bool) or not -_LONG_MAX - 1 <= given <= _LONG_MAX:
        raise _refusal("timestamp is a whole number of milliseconds since 1970")
    return given


def _read_properties(row: dict[str, Any]) -> dict[str, str]:
    properties: dict[str, str] = {}
    for name, value in row.items():
        if name in _OWN:
            continue
        full = name if name[:1] == "_" else f"_{name}"
        if full in properties:
            raise _refusal(f'"{shown(name)}" is given twice, with and without "_"')
        properties[full] = _text(name, value)
    own = row.get("properties", {})
    if not isinstance(own, dict):
        raise _refusal('properties is an object, such as {"colour": "red"}')
    for name, value in own.items():
        if name[:1] == "_":
            raise _refusal(f'"{shown(name)}" is the protocol\'s: it does not belong into properties')
        properties[name] = _text(name, value)
    write_properties(properties)  # which has the bounds and the rules of every frame
    return properties


def _read_body(given: object, encoding: object) -> bytes:
    if not isinstance(given, str):
        raise _refusal('body is a text; what is none is base64, with "encoding": "base64"')
    if encoding == "text":
        return given.encode("utf-8", "surrogatepass")
    if encoding != "base64":
        raise _refusal("encoding is text or base64")
    try:
        return binascii.a2b_base64(given, strict_mode=True)
    except (binascii.Error, ValueError) as error:
        raise _refusal(f"body is not base64: {error}") from error


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise _refusal(f'"{shown(name)}" is a text or a whole number')


def _is_number(value: object, most: int) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= most


def _refusal(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


# ---- writing


def _short(name: str) -> str:
    """A property's name without its `_`, unless it would mean something else then."""
    short = name[1:]
    return name if not short or short[0] == "_" or short in _OWN else short


def _number(value: str) -> int | str:
    if value.isascii() and value.isdigit() and len(value) <= 16:
        number = int(value)
        if number <= _SAFE_NUMBER_MAX and str(number) == value:
            return number
    return value


def _write_body(row: dict[str, Any], body: bytes) -> None:
    try:
        row["body"] = body.decode()
    except UnicodeDecodeError:
        row["body"] = binascii.b2a_base64(body, newline=False).decode()
        row["encoding"] = "base64"
