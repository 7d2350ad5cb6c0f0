"""Who is asking: the session that every request carries to the gate.

A listener makes one session per connection (HTTP: per request) and never changes it; a new authentication
makes a new session. Work that the broker does by itself, and the embedded broker, have sessions of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

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


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One authenticated, or anonymous, origin of requests."""

    principal: Principal = ANONYMOUS
    host: str = ""  # the peer's address without its port; "": in this process
    listener: str  # kafka, native, http, embedded or internal
    mechanism: str = ""  # how it authenticated, such as SCRAM-SHA-256; "": it did not
    expires_at_ms: int | None = None  # wall clock; None: never
    scope: Scope | None = None  # what its API token may do of what the owner may; None: all of it
    token_id: str = ""  # of the API token by which it came

    def __str__(self) -> str:
        return f"{self.principal} at {self.host or 'this process'} by {self.listener}"


EMBEDDED = Session(listener="embedded")
"""The program that the broker runs in."""

INTERNAL = Session(principal=Principal("Broker", "internal"), listener="internal")
"""The broker's own work: what it does without being asked."""
