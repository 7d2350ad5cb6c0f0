"""Properties: the named texts of a message, encoded as `key=value` with a NUL behind each.

    _topic=events\\0_key=user-7\\0colour=red\\0

Text is UTF-8. A key is not empty and has no `=`; a key and a value have no NUL; a value may be empty and may
have `=`. No key comes twice. Keys that begin with `_` belong to the protocol, all others to the message.

Reading gives new strings and keeps nothing of the buffer. Bytes that break these rules are a ProtocolError;
a mapping that cannot be encoded is a BrokerError with INVALID_REQUEST, raised before anything is sent.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.model import BrokerError, ErrorCode, ProtocolError, escape
from tailrace.wire.native.limit import PROPERTIES_BYTES_MAX, PROPERTIES_MAX

_SHOWN = 40  # letters of a stranger's text that a message repeats


def read_properties(
    view: bytes | memoryview, *, bytes_max: int = PROPERTIES_BYTES_MAX, count_max: int = PROPERTIES_MAX
) -> dict[str, str]:
    """The properties that these bytes are, in their order."""
    size = len(view)
    if not size:
        return {}
    if size > bytes_max:
        raise ProtocolError(f"the properties of a message have {size} bytes, which is over {bytes_max}")
    try:
        text = str(view, "utf-8")
    except UnicodeDecodeError as error:
        raise ProtocolError("the properties of a message are not UTF-8") from error
    count = text.count("\0")
    if count > count_max:
        raise ProtocolError(f"a message has {count} properties, which is over {count_max}")
    pieces = text.split("\0")
    if pieces.pop():
        raise ProtocolError("the properties of a message do not end with a NUL")
    properties = {}
    try:
        for piece in pieces:
            key, value = piece.split("=", 1)
            properties[key] = value
    except ValueError as error:
        raise ProtocolError(_illegal_piece(pieces)) from error
    if len(properties) != count or "" in properties:
        raise ProtocolError(_illegal_piece(pieces))
    return properties


def write_properties(properties: Mapping[str, str]) -> bytes:
    """The bytes of properties."""
    text = "".join([f"{key}={value}\0" for key, value in properties.items()])
    if text.count("\0") != len(properties) or "" in properties or "=" in "".join(properties):
        raise refusal(_illegal_property(properties))
    try:
        data = text.encode()
    except UnicodeEncodeError as error:
        raise refusal("a property holds a lone surrogate, which UTF-8 cannot express") from error
    if len(data) > PROPERTIES_BYTES_MAX or len(properties) > PROPERTIES_MAX:
        raise refusal(
            f"{len(properties)} properties with {len(data)} bytes are too much: a message has at most "
            f"{PROPERTIES_MAX} properties and {PROPERTIES_BYTES_MAX} bytes of them. "
            "Put large content into its body"
        )
    return data


def refusal(message: str) -> BrokerError:
    """The error for content that is framed well and cannot be understood, or cannot be sent."""
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


def shown(text: str) -> str:
    """The beginning of a stranger's text, fit for a message to a person."""
    return escape(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")


def _illegal_piece(pieces: list[str]) -> str:
    """Why the pieces between NULs are not properties."""
    seen = set()
    for piece in pieces:
        key, equals, _ = piece.partition("=")
        if not equals:
            return f'the property "{shown(piece)}" has no "=" between key and value'
        if not key:
            return "a property has an empty key"
        if key in seen:
            return f'the property "{shown(key)}" is given twice in one message'
        seen.add(key)
    raise AssertionError("these properties are legal")


def _illegal_property(properties: Mapping[str, str]) -> str:
    """Why a mapping cannot be encoded."""
    for key, value in properties.items():
        if not key:
            return "a property has an empty key"
        if "=" in key or "\0" in key:
            return f'the key "{shown(key)}" of a property has "=" or NUL in it'
        if "\0" in value:
            return (
                f'the value of property "{shown(key)}" has a NUL in it. Binary content belongs into the body'
            )
    raise AssertionError("these properties are legal")
