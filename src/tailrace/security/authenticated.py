"""What a login comes to: who the client is, and within which bounds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from tailrace.model.scope import Scope
from tailrace.model.session import ANONYMOUS, Principal, Session


@dataclass(frozen=True, slots=True)
class Authenticated:
    """A principal that was proven."""

    principal: Principal
    mechanism: str
    expires_at_ms: int | None = None  # when the proof ends, on the wall clock; None: it does not
    scope: Scope | None = None  # of an API token; None: all that the principal may
    token_id: str = ""

    def session(self, *, host: str, listener: str, encrypted: bool = False) -> Session:
        """The session of this client, by way of a listener; `encrypted`: its connection has TLS."""
        return Session(
            principal=self.principal,
            host=host,
            listener=listener,
            mechanism=self.mechanism,
            expires_at_ms=self.expires_at_ms,
            scope=self.scope,
            token_id=self.token_id,
            encrypted=encrypted,
        )


NOT_AUTHENTICATED: Final = Authenticated(ANONYMOUS, "")
"""A client that was not asked, or is served something that needs no login."""
