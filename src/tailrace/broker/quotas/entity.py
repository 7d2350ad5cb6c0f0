"""For whom a quota is, as Kafka names it: a user, a client id, a user with a client id, or an address.

A part without a name is the default: it is for every user, client id or address without a quota of its own.

    user=alice          user=alice,client-id=*          user=*,client-id=etl%2C1        ip=10.0.0.7

is the text of an entity, in keys of the metadata store and in REST. Names are percent-encoded, so that a bare
* is the default and nothing else.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

from tailrace.model import BrokerError, ErrorCode

USER: Final = "user"
CLIENT_ID: Final = "client-id"
IP: Final = "ip"
NAME_LENGTH_MAX: Final = 256
_TYPES: Final = (USER, CLIENT_ID, IP)
_ANY: Final = "*"


@dataclass(frozen=True, slots=True)
class Entity:
    """Types with names, in the order of `_TYPES`; a name of None is the default. Made by `make_entity`."""

    parts: tuple[tuple[str, str | None], ...]

    def __str__(self) -> str:
        return ",".join(
            f"{kind}={_ANY if name is None else quote(name, safe='')}" for kind, name in self.parts
        )

    @property
    def is_address(self) -> bool:
        return self.parts[0][0] == IP

    def names(self) -> dict[str, str | None]:
        """The names by type."""
        return dict(self.parts)


def make_entity(names: Mapping[str, str | None]) -> Entity:
    """The entity of these names; INVALID_REQUEST says what is wrong with them."""
    check_types(names)
    if not names:
        raise invalid("a quota is for a user, a client id, both, or an address")
    if IP in names and len(names) > 1:
        raise invalid("a quota of an address is for the address alone")
    for kind, name in names.items():
        if name is not None:
            _check_name(kind, name)
    return Entity(tuple((kind, _canonical(kind, names[kind])) for kind in _TYPES if kind in names))


def check_types(types: Iterable[str]) -> None:
    """INVALID_REQUEST for a type that no entity has."""
    for each in types:
        if each not in _TYPES:
            raise invalid(f"there is no entity type {each[:20]!r}. There are: {', '.join(_TYPES)}")


def read_entity(text: str) -> Entity:
    """The entity of a text; INVALID_REQUEST."""
    names: dict[str, str | None] = {}
    for part in text.split(","):
        kind, equals, name = part.partition("=")
        if not equals or not name or kind in names:
            raise invalid(
                f"{text[:80]!r} is no entity, such as user=alice, user=*,client-id=etl or ip=10.0.0.7"
            )
        names[kind] = None if name == _ANY else unquote(name)
    return make_entity(names)


def invalid(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)


def _check_name(kind: str, name: str) -> None:
    if not 1 <= len(name) <= NAME_LENGTH_MAX:
        raise invalid(
            f"the name of a {kind} has 1 to {NAME_LENGTH_MAX} characters; without a name it is the default"
        )
    if kind == IP:
        try:
            ipaddress.ip_address(name)
        except ValueError:
            raise invalid(f"{name[:60]!r} is no IP address") from None


def _canonical(kind: str, name: str | None) -> str | None:
    """An address as sockets write it."""
    return str(ipaddress.ip_address(name)) if kind == IP and name is not None else name
