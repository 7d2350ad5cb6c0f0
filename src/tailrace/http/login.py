"""Who calls a listener that demands a login: HTTP Basic (RFC 7617), before the app.

Only `/health` and `/health/ready` are answered without one, and then say no version. Everything else is
answered 401, by which a browser asks its user. A password is checked per request; one that was right a moment
ago costs no hashing (`security.remembered`). A failure is answered when its time has come, and the number of
checks under way for one address is bounded.
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Receive, Scope, Send

from tailrace.http.app import count_refused, refuse
from tailrace.http.error import Code, HttpError, answer_to
from tailrace.http.session import NOT_LOGGED_IN, SESSION_KEY, LoggedIn
from tailrace.model import BrokerError
from tailrace.net import ListenerCounters
from tailrace.net.logins import Logins
from tailrace.security import BASIC, Secret

_OPEN: Final = frozenset({"/health", "/health/ready"})
_HEADER_BYTES_MAX: Final = 4096
_ASK: Final = {"www-authenticate": 'Basic realm="tailrace", charset="UTF-8"'}


class Login:
    """Lets requests pass with the principal that they prove."""

    def __init__(self, app: ASGIApp, logins: Logins, *, name: str, counters: ListenerCounters) -> None:
        self._app = app
        self._logins = logins
        self._name = name
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        try:
            who = await self._identify(scope)
        except BrokerError as error:
            await self._refuse(_as_http(error), scope, receive, send)
        except HttpError as error:
            await self._refuse(error, scope, receive, send)
        else:
            await self._app({**scope, SESSION_KEY: who}, receive, send)

    async def _identify(self, scope: Scope) -> LoggedIn:
        given = Headers(scope=scope).getlist("authorization")
        if not given:
            if scope["type"] == "http" and scope["path"] in _OPEN:
                return NOT_LOGGED_IN
            raise HttpError(
                Code.AUTHENTICATION_FAILED,
                "this listener needs a user and a password: curl --user NAME",
                headers=_ASK,
            )
        if len(given) > 1:
            raise HttpError(Code.INVALID_REQUEST, "a request has one Authorization header at most")
        user, password = _read_basic(given[0])
        client = scope.get("client")
        host = client[0] if client else ""
        pending = self._logins.pending
        if not pending.enter(host):
            raise HttpError(
                Code.BROKER_NOT_AVAILABLE, "too many logins are being checked", headers={"retry-after": "1"}
            )
        try:
            found = await self._logins.authenticator.check(user, password, host=host, mechanism=BASIC)
        finally:
            pending.leave(host)
        return LoggedIn(found, self._name)

    async def _refuse(self, error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
        self._counters.requests += scope["type"] == "http"
        count_refused(self._counters, error)
        await refuse(error, scope, receive, send)


def _read_basic(header: str) -> tuple[str, Secret]:
    """User and password; an error of HTTP that repeats nothing of the header."""
    scheme, _, encoded = header.partition(" ")
    if scheme.lower() != "basic" or len(header) > _HEADER_BYTES_MAX:
        raise _malformed()
    try:
        user, colon, password = base64.b64decode(encoded.strip(), validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise _malformed() from None
    if not colon or not user or not password:
        raise _malformed()
    return user, Secret(password)


def _malformed() -> HttpError:
    return HttpError(
        Code.AUTHENTICATION_FAILED,
        "the Authorization header is not Basic with NAME:PASSWORD in base64",
        headers=_ASK,
    )


def _as_http(error: BrokerError) -> HttpError:
    found = answer_to(error)
    assert found is not None
    if found.code is Code.AUTHENTICATION_FAILED:
        found.headers.update(_ASK)
    return found
