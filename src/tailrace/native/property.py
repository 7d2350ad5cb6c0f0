"""Numbers and texts of a request, each with its bounds.

What is missing, is no number or lies outside is a BrokerError with INVALID_REQUEST that names the property,
the value and what is allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias

from tailrace.model import BrokerError, ErrorCode, escape

Properties: TypeAlias = Mapping[str, str]

LONG_MAX = (1 << 63) - 1
PARTITION_MAX = (1 << 31) - 1

_DIGITS_MAX = 19
_SHOWN = 40  # letters of a stranger's text that a message repeats


def text_of(properties: Properties, name: str) -> str:
    """A text that must be there, and not be empty."""
    value = properties.get(name)
    if not value:
        raise refusal(f"{name} is missing. This request needs it")
    return value


def number_of(properties: Properties, name: str, *, least: int, most: int, default: int | None = None) -> int:
    """A number that must be there unless it has a default."""
    value = properties.get(name)
    if value is None:
        if default is None:
            raise refusal(f"{name} is missing. This request needs it, a number from {least} to {most}")
        return default
    # int() would also take signs, spaces, underscores and digits of other scripts.
    if value.isascii() and value.isdigit() and len(value) <= _DIGITS_MAX:
        number = int(value)
        if least <= number <= most:
            return number
    raise refusal(f'{name} = "{shown(value)}" is not a number from {least} to {most}')


def partition_of(properties: Properties) -> int | None:
    """The partition that a request names, if it names one; whether there is such a one is not known here."""
    if "_partition" not in properties:
        return None
    return number_of(properties, "_partition", least=0, most=PARTITION_MAX)


def settings_of(properties: Properties) -> dict[str, str]:
    """The properties that do not belong to the protocol."""
    return {name: value for name, value in properties.items() if name[0] != "_"}


def refusal(message: str) -> BrokerError:
    """The error for a request that is framed well and cannot be understood."""
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


def shown(text: str) -> str:
    """The beginning of a stranger's text, fit for a message to a person."""
    return escape(text if len(text) <= _SHOWN else text[:_SHOWN] + "...")
