"""Who asks by HTTP: the session of one request, WebSocket or event stream.

`session_of` is the one place where an ASGI scope becomes a session, on the listener's own port and in
`broker.asgi()` alike. A listener that demands a login puts into the scope who logged in (`login`).
"""

from __future__ import annotations

from typing import Final, NamedTuple

from starlette.types import Scope

from tailrace.model.session import Session
from tailrace.security import NOT_AUTHENTICATED, Authenticated

LISTENER: Final = "http"
"""The name of this listener, in sessions and in metrics."""
SESSION_KEY: Final = "tailrace.login"
"""Where the scope has who logged in; absent where nobody is asked."""

CONSOLE_KEY: Final = "tailrace.console"
"""Where the scope has the console session by which a request came; absent for other requests."""


ENCRYPTED_KEY: Final = "tailrace.encrypted"
"""Where the scope of a listener with TLS says so. Its scheme may be the word of a proxy."""


class LoggedIn(NamedTuple):
    """Who a request is of, and on which listener."""

    who: Authenticated
    listener: str = LISTENER

    @property
    def mechanism(self) -> str:
        """Of the login; "": there is none, which only probes of health may come with."""
        return self.who.mechanism


NOT_LOGGED_IN: Final = LoggedIn(NOT_AUTHENTICATED)


def session_of(scope: Scope) -> Session:
    """The session of a request; its host is "" where the server of the app does not know the client."""
    client = scope.get("client")
    login: LoggedIn = scope.get(SESSION_KEY, NOT_LOGGED_IN)
    return login.who.session(
        host=client[0] if client else "", listener=login.listener, encrypted=ENCRYPTED_KEY in scope
    )


def is_stranger(scope: Scope) -> bool:
    """Whether a login was demanded and not given."""
    return SESSION_KEY in scope and not scope[SESSION_KEY].mechanism
