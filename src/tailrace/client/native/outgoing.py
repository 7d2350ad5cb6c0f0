"""A message as its publisher gives it, turned into properties and body as the protocol wants them.

Properties and headers are the same thing to a record: its headers. Where headers are given, the properties go
behind them, and what cannot be a property travels in `_headers` (tailrace.wire.native.record).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, TypeAlias

from tailrace.client.native.error import InvalidMessage
from tailrace.model.payload import wrong_payload
from tailrace.wire.native import Header, properties_of_record, write_properties

if TYPE_CHECKING:
    from tailrace.security.messages import Sealer

Body: TypeAlias = bytes | bytearray | memoryview | str | None
Key: TypeAlias = bytes | str | None
Text: TypeAlias = str | int | float | bool
"""What a property or a setting may be given as; it travels as text."""

DELAYS = ("deliver_at", "delay_ms")
PRIORITY_MAX = 9


def text_of(value: Text) -> str:
    """A property or a setting as text; booleans as the broker writes them."""
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int | float):
        return str(value)
    raise TypeError(
        f"a property or a setting is text, a number or a boolean, not {type(value).__name__}. Try: json.dumps"
    )


def ms_of(moment: int | datetime) -> int:
    """Milliseconds since 1970; a datetime without a zone is local time, as everywhere in Python."""
    return round(moment.timestamp() * 1000) if isinstance(moment, datetime) else moment


def body_of(body: Body) -> bytes | None:
    """The body as bytes of our own, as it leaves later."""
    if body.__class__ is bytes or body is None:
        return body
    if isinstance(body, str):
        return body.encode()
    if isinstance(body, bytes | bytearray | memoryview):
        return bytes(body)
    raise wrong_payload("body", body, takes_text=True)


def key_of(key: Key) -> bytes | None:
    """The key as bytes."""
    if key is None or isinstance(key, bytes):
        return key
    if isinstance(key, str):
        return key.encode()
    raise wrong_payload("key", key, takes_text=True)


def meant_properties(
    properties: Mapping[str, Text] | None,
    *,
    delay_ms: int | None = None,
    deliver_at: int | datetime | None = None,
    ttl_ms: int | None = None,
    priority: int | None = None,
    created_at: int | datetime | None = None,
) -> dict[str, str]:
    """All properties of a message, those that have a meaning to the broker among them."""
    texts = {name: text_of(value) for name, value in properties.items()} if properties else {}
    if priority is not None and not 0 <= priority <= PRIORITY_MAX:
        raise InvalidMessage(f"priority = {priority} is not between 0 and {PRIORITY_MAX}")
    meant = {"delay_ms": delay_ms, "ttl_ms": ttl_ms, "priority": priority}
    meant["deliver_at"] = None if deliver_at is None else ms_of(deliver_at)
    meant["created_at"] = None if created_at is None else ms_of(created_at)
    for name, number in meant.items():
        if number is None:
            continue
        if number < 0:
            raise InvalidMessage(f"{name} = {number} is below 0")
        texts[name] = str(number)
    return texts


def write_outgoing(
    key: bytes | None, body: bytes | None, properties: Mapping[str, str], headers: Sequence[Header] | None
) -> bytes:
    """The encoded properties of a message."""
    reserved = next((name for name in properties if name[:1] == "_"), None)
    if reserved is not None:
        raise InvalidMessage(
            f'the property "{reserved}" begins with "_", which the protocol keeps for itself'
        )
    if headers:
        everything = [*headers, *((name, value.encode()) for name, value in properties.items())]
        return properties_of_record(key, body, everything)[0]
    encoded = properties_of_record(key, body, ())[0]
    return encoded + write_properties(properties) if properties else encoded


def seal_outgoing(
    sealer: Sealer,
    topic: str,
    key: bytes | None,
    body: bytes | None,
    properties: Mapping[str, str],
    headers: Sequence[Header] | None,
) -> tuple[bytes | None, list[Header]]:
    """Body and headers of an encrypted message. Its properties stay readable."""
    given = list(headers or ())
    sealer.check_names(topic, [*(name for name, _ in given), *properties])
    sealed, added = sealer.seal(topic, key, body)
    return sealed, [*given, *added]


def is_delayed(properties: Mapping[str, str], headers: Sequence[Header] | None) -> bool:
    """Whether a message may have to wait for its time, and so cannot be part of a batch."""
    if any(name in properties for name in DELAYS):
        return True
    return headers is not None and any(name in DELAYS for name, _ in headers)
