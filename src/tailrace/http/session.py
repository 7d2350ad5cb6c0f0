"""Who asks by HTTP: the session of one request, WebSocket or event stream.

`session_of` is the one place where an ASGI scope becomes a session, on the listener's own port and in
`broker.asgi()` alike. Authentication puts the principal into the session here.
"""

from __future__ import annotations

from typing import Final

from starlette.types import Scope

from tailrace.model.session import Session

LISTENER: Final = "http"
"""The name of this listener, in sessions and in metrics."""


def session_of(scope: Scope) -> Session:
    """The session of a request; its host is "" where the server of the app does not know the client."""
    client = scope.get("client")
    return Session(host=client[0] if client else "", listener=LISTENER)
