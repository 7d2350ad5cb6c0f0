"""Who calls a listener that demands a login: HTTP Basic (RFC 7617) or Bearer (RFC 6750), before the app.

Only `/health` and `/health/ready` are answered without one, and then say no version. Everything else is
answered 401, by which a browser asks its user. A password is checked per request; one that was right a moment
ago costs no hashing (`security.remembered`). A failure is answered when its time has come, and the number of
checks under way for one address is bounded. A token is read from the Authorization header alone, never from
the URL, which proxies and browsers write down.
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
from tailrace.security import BASIC, OAUTHBEARER, PLAIN, Authenticated, AuthenticationFailed, Secret
from tailrace.security.api_token import is_api_token

_OPEN: Final = frozenset({"/health", "/health/ready"})
_OFFERS: Final = {PLAIN: "passwords and API tokens", OAUTHBEARER: "JSON Web Tokens"}
_BYTES_MAX: Final = {"basic": 4096, "bearer": 16 * 1024}
_ASK: Final = {"www-authenticate": 'Basic realm="tailrace", charset="UTF-8"'}
_ASK_FOR_TOKEN: Final = {"www-authenticate": 'Bearer realm="tailrace", error="invalid_token"'}


class Login:
    """Lets requests pass with the principal that they prove."""

    def __init__(self, app: ASGIApp, logins: Logins, *, name: str, counters: ListenerCounters) -> None:
        self._app = app
        self._logins = logins
        self._name = name
        self._counters = counters
        self._ask = _ASK if PLAIN in logins.mechanisms else {"www-authenticate": 'Bearer realm="tailrace"'}

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
                "this listener needs a user and a password (curl --user NAME), or a token as Bearer",
                headers=self._ask,
            )
        if len(given) > 1:
            raise HttpError(Code.INVALID_REQUEST, "a request has one Authorization header at most")
        scheme, credentials = _read_header(given[0])
        client = scope.get("client")
        host = client[0] if client else ""
        pending = self._logins.pending
        if not pending.enter(host):
            raise HttpError(
                Code.BROKER_NOT_AVAILABLE, "too many logins are being checked", headers={"retry-after": "1"}
            )
        try:
            found = await self._check(scheme, credentials, host)
        finally:
            pending.leave(host)
        return LoggedIn(found, self._name)

    async def _check(self, scheme: str, credentials: str, host: str) -> Authenticated:
        authenticator, token = self._logins.authenticator, Secret(credentials)
        needed = PLAIN if scheme == "basic" or is_api_token(token) else OAUTHBEARER
        if needed not in self._logins.mechanisms:
            raise HttpError(
                Code.AUTHENTICATION_FAILED,
                f"this listener does not offer {_OFFERS[needed]}",
                headers=self._ask if scheme == "basic" else _ASK_FOR_TOKEN,
            )
        if scheme == "basic":
            user, password = _read_basic(credentials)
            return await authenticator.check(user, password, host=host, mechanism=BASIC)
        try:
            return await authenticator.check_bearer(token, host=host)
        except AuthenticationFailed as error:
            raise HttpError(Code.AUTHENTICATION_FAILED, str(error), headers=_ASK_FOR_TOKEN) from None

    async def _refuse(self, error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
        self._counters.requests += scope["type"] == "http"
        count_refused(self._counters, error)
        await refuse(error, scope, receive, send)


def _read_header(header: str) -> tuple[str, str]:
    """The scheme, which is `basic` or `bearer`, and what follows it."""
    scheme, _, credentials = header.partition(" ")
    scheme = scheme.lower()
    if scheme not in _BYTES_MAX or len(header) > _BYTES_MAX[scheme] or not credentials.strip():
        raise _malformed()
    return scheme, credentials.strip()


def _read_basic(encoded: str) -> tuple[str, Secret]:
    """User and password; an error of HTTP that repeats nothing of the header."""
    try:
        user, colon, password = base64.b64decode(encoded, validate=True).decode().partition(":")
    except (binascii.Error, ValueError):
        raise _malformed() from None
    if not colon or not user or not password:
        raise _malformed()
    return user, Secret(password)


def _malformed() -> HttpError:
    return HttpError(
        Code.AUTHENTICATION_FAILED,
        "the Authorization header is neither Basic with NAME:PASSWORD in base64 nor Bearer with a token",
        headers=_ASK,
    )


def _as_http(error: BrokerError) -> HttpError:
    found = answer_to(error)
    assert found is not None
    if found.code is Code.AUTHENTICATION_FAILED:
        found.headers.update(_ASK)
    return found
