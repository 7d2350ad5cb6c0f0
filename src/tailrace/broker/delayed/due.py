"""When a message is to be delivered: the properties `deliver_at` and `delay_ms`.

`deliver_at` is a time in milliseconds since 1970, `delay_ms` counts from the arrival. A time that has passed
means at once. Both together, or something that is no such number, is refused: a message that was meant to
wait must not be delivered because of a slip of the pen.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.model import BrokerError, ErrorCode

DELIVER_AT = "deliver_at"
DELAY_MS = "delay_ms"

_DAYS_AHEAD_MAX = 366
_AHEAD_MS_MAX = _DAYS_AHEAD_MAX * 24 * 3_600_000
_DIGITS_MAX = 15  # the year 33658

Headers = Sequence[tuple[str, bytes | None]]


def read_due_ms(headers: Headers, *, now_ms: int) -> int | None:
    """When it is due, if that lies ahead; INVALID_REQUEST for nonsense."""
    due_ms: int | None = None
    for name, value in headers:
        if name not in (DELIVER_AT, DELAY_MS):
            continue
        if due_ms is not None:
            raise _refuse(f"say once when a message is due: with {DELIVER_AT} or with {DELAY_MS}")
        due_ms = _read_number(name, value) + (now_ms if name == DELAY_MS else 0)
    if due_ms is None or due_ms <= now_ms:
        return None
    if due_ms - now_ms > _AHEAD_MS_MAX:
        raise _refuse(
            f"{due_ms} lies more than {_DAYS_AHEAD_MAX} days ahead. {DELIVER_AT} is in milliseconds"
        )
    return due_ms


def without_delay(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The headers that are delivered."""
    return [header for header in headers if header[0] not in (DELIVER_AT, DELAY_MS)]


def _read_number(name: str, value: bytes | None) -> int:
    text = (value or b"").decode("ascii", "replace")
    if not (text.isascii() and text.isdecimal() and len(text) <= _DIGITS_MAX):
        raise _refuse(f"{name} = {text[:40]!r} is not a number of milliseconds from 0 on")
    return int(text)


def _refuse(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)
