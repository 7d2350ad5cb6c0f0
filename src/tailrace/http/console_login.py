"""The console's login, before the app: a page, POST /login and POST /logout, and the cookie of a session.

    Authorization header        ──► Login (http/login.py), as for every other program
    cookie of a session         ──► the app, as this user; changes and WebSockets must come from our own pages
    neither, a page is wanted   ──► the login page, at the address that was asked for
    neither, anything else      ──► Login: the probes are answered, all else is 401

The cookie is `__Host-tailrace` over TLS, which browsers give to this very origin alone, and
`tailrace_<port>` on a plaintext listener, because cookies do not tell ports apart. It is HttpOnly and
SameSite=Strict. Neither keeps out a page from another port of this machine, so a change needs the exact
Origin and the CSRF token of its session, and a WebSocket the exact Origin.
"""

from __future__ import annotations

import asyncio
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

import msgspec
from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.http.app import count_refused, refuse
from tailrace.http.console_files import Console
from tailrace.http.console_session import ConsoleSession, ConsoleSessions
from tailrace.http.error import Code, HttpError, answer_to
from tailrace.http.session import CONSOLE_KEY, ENCRYPTED_KEY, NOT_LOGGED_IN, SESSION_KEY, LoggedIn
from tailrace.model import BrokerError
from tailrace.net import ListenerCounters
from tailrace.net.logins import Logins
from tailrace.security import CONSOLE, AuthenticationFailed, Secret
from tailrace.security.audit import LOGOUT, OK, Audit, event_of

CSRF_HEADER: Final = "tailrace-csrf"
IDLE_HEADER: Final = "tailrace-idle"
"""For how many seconds the user of a page has done nothing: pages refresh themselves, which is no use."""

_LOGIN: Final = "/login"
_LOGOUT: Final = "/logout"
_BODY_BYTES_MAX: Final = 4096
_BODY_S: Final = 10.0
_SAFE: Final = frozenset({"GET", "HEAD"})
_FOR_PROGRAMS: Final = ("/api/", "/assets/", "/health", "/metrics")
_POLICY: Final = 1008
_WRONG: Final = (
    "The user name or the password is wrong, or the user is disabled. The broker's administrator sets "
    "passwords with: tailrace user passwd NAME"
)


class Credentials(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the login page sends."""

    user: str
    password: str

    def __repr__(self) -> str:
        return "<Credentials>"


class _Received(NamedTuple):
    """A request with what was read of it."""

    scope: Scope
    headers: Headers
    path: str


class ConsoleLogin:
    """Knows browsers by their cookies; everything else is for `Login`."""

    def __init__(
        self,
        app: ASGIApp,
        others: ASGIApp,
        *,
        console: Console,
        logins: Logins,
        sessions: ConsoleSessions,
        audit: Audit,
        name: str,
        counters: ListenerCounters,
    ) -> None:
        """`app` is behind the login, `others` is for requests without a cookie of ours."""
        self._app = app
        self._others = others
        self._console = console
        self._logins = logins
        self._sessions = sessions
        self._audit = audit
        self._name = name
        self._counters = counters

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return
        request = _Received(scope, Headers(scope=scope), scope["path"])
        if "authorization" in request.headers or SESSION_KEY in scope:  # SESSION_KEY: of a certificate
            await self._others(scope, receive, _without_question(request, send))
            return
        session = self._session_of(request)
        try:
            if scope["type"] == "http" and request.path in (_LOGIN, _LOGOUT) and scope["method"] == "POST":
                await self._log_in_or_out(request, session, receive, send)
            elif session is not None:
                _check_own(request, session)
                await self._serve(request, session, receive, send)
            else:
                await self._serve_stranger(request, receive, send)
        except HttpError as error:
            await self._refuse(error, scope, receive, send)

    # ---- with a session

    def _session_of(self, request: _Received) -> ConsoleSession | None:
        given = _cookie_of(request)
        return None if given is None else self._sessions.find(given, idle_s=_idle_of(request.headers))

    async def _serve(self, request: _Received, session: ConsoleSession, receive: Receive, send: Send) -> None:
        if request.scope["type"] == "http" and request.path == _LOGIN:
            await _see_other("/")(request.scope, receive, send)
            return
        login = LoggedIn(session.who, self._name)
        scope = {**request.scope, SESSION_KEY: login, CONSOLE_KEY: session}
        ending = _Ending(session, self._sessions, scope, receive, send)
        try:
            await self._app(scope, ending.receive, ending.send)
        finally:
            await ending.close()

    # ---- without one

    async def _serve_stranger(self, request: _Received, receive: Receive, send: Send) -> None:
        scope = request.scope
        if scope["type"] == "http" and scope["method"] in _SAFE:
            if self._console.is_of_login(request.path):
                await self._app({**scope, SESSION_KEY: NOT_LOGGED_IN}, receive, send)
                return
            if _wants_page(request):
                self._counters.requests += 1
                page = self._console.login_page(comes_from_elsewhere=_comes_from_elsewhere(request))
                await page(scope, receive, send)
                return
        await self._others(scope, receive, _without_question(request, send))

    async def _log_in_or_out(
        self, request: _Received, session: ConsoleSession | None, receive: Receive, send: Send
    ) -> None:
        self._counters.requests += 1
        _check_origin(request)
        if request.path == _LOGIN:
            answer = await self._log_in(request, session, receive, send)
        else:
            answer = self._log_out(request, session)
        await answer(request.scope, receive, send)

    async def _log_in(
        self, request: _Received, before: ConsoleSession | None, receive: Receive, send: Send
    ) -> Response:
        given = await _read_credentials(request, receive, send)
        host = _host_of(request.scope)
        if not self._logins.pending.enter(host):
            raise HttpError(
                Code.BROKER_NOT_AVAILABLE, "too many logins are being checked", headers={"retry-after": "1"}
            )
        try:
            found = await self._logins.authenticator.check(
                given.user, Secret(given.password), host=host, mechanism=CONSOLE
            )
        except AuthenticationFailed:
            raise HttpError(Code.AUTHENTICATION_FAILED, _WRONG) from None
        except BrokerError as error:
            raise answer_to(error) or error from None
        finally:
            self._logins.pending.leave(host)
        if found.token_id:  # a person logs in with a password; a token is for programs
            raise HttpError(Code.AUTHENTICATION_FAILED, _WRONG)
        if before is not None:
            self._sessions.end(before)
        made, _ = self._sessions.open(found)
        return _with_cookie(Response(status_code=204), request.scope, made)

    def _log_out(self, request: _Received, session: ConsoleSession | None) -> Response:
        if session is not None:
            _check_csrf(request, session)
            self._sessions.end(session)
            gone = session.who.session(host=_host_of(request.scope), listener=self._name)
            self._audit.record(event_of(gone, what=LOGOUT, result=OK))
        return _with_cookie(Response(status_code=204), request.scope, "")

    async def _refuse(self, error: HttpError, scope: Scope, receive: Receive, send: Send) -> None:
        self._counters.requests += scope["type"] == "http"
        count_refused(self._counters, error)
        await refuse(error, scope, receive, send)


class _Ending:
    """Tells a request that its client is gone once the session has ended: streams outlive no logout."""

    def __init__(
        self,
        session: ConsoleSession,
        sessions: ConsoleSessions,
        scope: Scope,
        receive: Receive,
        send: Send,
    ) -> None:
        self._session = session
        self._sessions = sessions
        self._is_socket = scope["type"] == "websocket"
        self._receive = receive
        self._send = send
        self._pending: asyncio.Future[Message] | None = None
        self._over: asyncio.Future[None] | None = None
        self._is_cut = False

    async def receive(self) -> Message:
        """The next message; the client's leave if the session ends before."""
        if self._pending is None:
            self._pending = asyncio.ensure_future(self._receive())
        if self._over is None:
            self._over = asyncio.get_running_loop().create_future()
            self._session.watch(self._end)
        while not self._pending.done() and not self._session.ended:
            left_s = self._sessions.left_s(self._session)
            if left_s <= 0:
                self._sessions.end_over()
            else:
                waits: set[asyncio.Future[Any]] = {self._pending, self._over}
                await asyncio.wait(waits, timeout=left_s, return_when=asyncio.FIRST_COMPLETED)
        if not self._pending.done():
            return await self._cut()
        message, self._pending = self._pending.result(), None
        return message

    async def send(self, message: Message) -> None:
        if self._is_cut and self._is_socket:
            raise OSError("the session has ended")
        await self._send(message)

    async def close(self) -> None:
        """The request is over."""
        self._session.unwatch(self._end)
        if self._pending is not None:
            self._pending.cancel()
            await asyncio.gather(self._pending, return_exceptions=True)

    def _end(self) -> None:
        if self._over is not None and not self._over.done():
            self._over.set_result(None)

    async def _cut(self) -> Message:
        if not self._is_socket:
            return {"type": "http.disconnect"}
        if not self._is_cut:
            self._is_cut = True
            await self._send({"type": "websocket.close", "code": _POLICY, "reason": "the session has ended"})
        return {"type": "websocket.disconnect", "code": _POLICY}


# ---- what a request must bring


def _check_own(request: _Received, session: ConsoleSession) -> None:
    """Whether a request with a cookie comes from a page of ours, where that matters."""
    if request.scope["type"] == "websocket":
        _check_origin(request)
    elif request.scope["method"] not in _SAFE:
        _check_origin(request)
        _check_csrf(request, session)
    elif _comes_from_elsewhere(request) and not _is_navigation(request):
        raise _foreign("a page of another origin asked for this")


def _check_origin(request: _Received) -> None:
    origin = request.headers.get("origin", "")
    # A plaintext listener may stand behind a proxy with TLS, which has the other scheme.
    allowed = ("https",) if ENCRYPTED_KEY in request.scope else ("http", "https")
    try:
        found = urlsplit(origin)
    except ValueError:
        raise _foreign("the Origin header makes no sense") from None
    is_bare = origin == f"{found.scheme}://{found.netloc}"
    if not is_bare or found.scheme not in allowed or found.netloc.lower() != _host_header(request):
        raise _foreign("Origin is not this console")


def _check_csrf(request: _Received, session: ConsoleSession) -> None:
    if not session.is_csrf(request.headers.get(CSRF_HEADER, "")):
        raise _foreign(f"{CSRF_HEADER} is not that of the session. Load the page again")


def _foreign(why: str) -> HttpError:
    return HttpError(
        Code.AUTHORIZATION_FAILED,
        f"a session of the console is for its own pages: {why}. Programs log in with an Authorization header",
    )


async def _read_credentials(request: _Received, receive: Receive, send: Send) -> Credentials:
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
        raise HttpError(Code.INVALID_REQUEST, "a login is sent as JSON", status=415)
    data = bytearray()
    try:
        async with asyncio.timeout(_BODY_S):
            async for piece in Request(request.scope, receive, send).stream():
                data += piece
                if len(data) > _BODY_BYTES_MAX:
                    raise HttpError(Code.INVALID_REQUEST, "a login has 4 KiB at most", status=413)
    except TimeoutError:
        raise HttpError(Code.INVALID_REQUEST, "the login did not come in time", status=408) from None
    except ClientDisconnect:
        raise HttpError(Code.INVALID_REQUEST, "the client left") from None
    try:
        return msgspec.json.decode(bytes(data), type=Credentials)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):  # whose text may repeat what was sent
        raise HttpError(Code.INVALID_REQUEST, 'a login is {"user": "...", "password": "..."}') from None


# ---- facts of a request


def _cookie_name(scope: Scope) -> str:
    if ENCRYPTED_KEY in scope:
        return "__Host-tailrace"
    server = scope.get("server")
    return f"tailrace_{server[1] if server else 0}"


def _cookie_of(request: _Received) -> str | None:
    """The value of our cookie. None also if it was sent twice: a neighbour may have planted one of them."""
    name = _cookie_name(request.scope)
    pairs = ";".join(request.headers.getlist("cookie")).split(";")
    found = [
        value.strip() for key, _, value in (pair.partition("=") for pair in pairs) if key.strip() == name
    ]
    return found[0] if len(found) == 1 else None


def _with_cookie(response: Response, scope: Scope, value: str) -> Response:
    words = [f"{_cookie_name(scope)}={value}", "Path=/", "HttpOnly", "SameSite=Strict"]
    if ENCRYPTED_KEY in scope:
        words.append("Secure")
    if not value:
        words.append("Max-Age=0")
    response.headers.append("set-cookie", "; ".join(words))
    return response


def _idle_of(headers: Headers) -> float:
    given = headers.get(IDLE_HEADER, "")
    return float(given) if given.isascii() and given.isdecimal() and len(given) < 10 else 0.0


def _host_of(scope: Scope) -> str:
    client = scope.get("client")
    return client[0] if client else ""


def _host_header(request: _Received) -> str:
    return request.headers.get("host", "").lower()


def _is_navigation(request: _Received) -> bool:
    """Whether a person goes to this address."""
    mode = request.headers.get("sec-fetch-mode")
    if mode is not None:
        return mode == "navigate"
    return "text/html" in request.headers.get("accept", "") and not request.path.startswith(_FOR_PROGRAMS)


def _wants_page(request: _Received) -> bool:
    return _is_navigation(request) and not request.path.startswith("/health")


def _comes_from_elsewhere(request: _Received) -> bool:
    """Whether the browser says that another origin asks; another port of this machine is `same-site`."""
    return request.headers.get("sec-fetch-site") in ("cross-site", "same-site")


def _see_other(where: str) -> Response:
    return Response(status_code=303, headers={"location": where})


def _without_question(request: _Received, send: Send) -> Send:
    """Ask a browser for no login: it would open a box of its own, and the console has its login page."""
    if "sec-fetch-mode" not in request.headers and IDLE_HEADER not in request.headers:
        return send

    async def send_quietly(message: Message) -> None:
        if message["type"] in ("http.response.start", "websocket.http.response.start"):
            headers = MutableHeaders(scope=message)
            if "www-authenticate" in headers:
                del headers["www-authenticate"]
        await send(message)

    return send_quietly
