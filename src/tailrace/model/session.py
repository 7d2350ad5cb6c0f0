"""Who is asking: the session that every request carries to the gate.

A listener makes one session per connection (HTTP: per request) and never changes it; a new authentication
makes a new session. Work that the broker does by itself, and the embedded broker, have sessions of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from tailrace.model.address import is_unix
from tailrace.model.scope import Scope


class Principal(NamedTuple):
    """A user as access control lists name it: `User:alice`."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")


def read_principal(text: str) -> Principal:
    """The principal that is written so."""
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def is_loopback_address(host: str) -> bool:
    """Whether an address is one by which a machine reaches itself; names are not looked up."""
    import ipaddress  # not for every program that imports tailrace

    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One authenticated, or anonymous, origin of requests."""

    principal: Principal = ANONYMOUS
    host: str = ""  # the peer's address without its port; "": in this process
    listener: str  # kafka, native, http, embedded or internal
    mechanism: str = ""  # how it authenticated, such as SCRAM-SHA-256; "": it did not
    expires_at_ms: int | None = None  # wall clock; None: never
    encrypted: bool = False  # whether the connection is one of TLS
    scope: Scope | None = None  # what its API token may do of what the owner may; None: all of it
    token_id: str = ""  # of the API token by which it came

    @property
    def is_private(self) -> bool:
        """Whether no other machine can read what is sent: then passwords may be."""
        return self.encrypted or is_unix(self.host) or is_loopback_address(self.host)

    def __str__(self) -> str:
        return f"{self.principal} at {self.host or 'this process'} by {self.listener}"


EMBEDDED = Session(listener="embedded")
"""The program that the broker runs in."""

INTERNAL = Session(principal=Principal("Broker", "internal"), listener="internal")
"""The broker's own work: what it does without being asked."""
