"""Whom a browser may call a listener for: pages of its own, under names of its own.

A browser on this machine runs pages of other sites, and those can make it call 127.0.0.1. Two checks keep
them out, and neither costs an honest client anything:

- Host must be a loopback name, an address, or one that the configuration allows: a name that an attacker's
  DNS points at 127.0.0.1 (DNS rebinding) is not.
- Origin, which browsers send with everything that changes something and with every WebSocket, must be this
  very listener.

Every answer says that it may not be framed, guessed at, used by other sites or kept on a disk, and that a
page of ours loads nothing from elsewhere.
"""

from __future__ import annotations

import ipaddress
import re
from collections.abc import Collection
from urllib.parse import urlsplit

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from tailrace.http.app import count_refused, refuse
from tailrace.http.error import Code, HttpError
from tailrace.http.session import ENCRYPTED_KEY
from tailrace.net import ListenerCounters

_LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "::1"})
_CONTENT_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self' 'unsafe-inline'; img-src 'self' data:; "
    "font-src 'self'; connect-src 'self'; manifest-src 'self'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_HEADERS = {
    "content-security-policy": _CONTENT_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",  # an asset says otherwise itself
}
_ALWAYS_TLS = "max-age=31536000"
_HOST = re.compile(r"(?P<name>\[[0-9a-f:.]+\]|[a-z0-9._-]+)(?::[0-9]*)?", re.IGNORECASE)
"""RFC 9110 section 7.2, without what no browser sends: what it does not match is nobody's name."""


class Guard:
    """Refuses a foreign Host or Origin; the app behind it hears of neither."""

    def __init__(
        self, app: ASGIApp, *, allowed_hosts: Collection[str] = (), counters: ListenerCounters | None = None
    ) -> None:
        """`counters` are of the listener that it keeps, which is not asked about what is refused."""
        self._app = app
        self._counters = counters
        self._allowed = frozenset(each.lower() for each in allowed_hosts)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            await self._app(scope, receive, send)
            return

        async def send_guarded(message: Message) -> None:
            if message["type"] in ("http.response.start", "websocket.http.response.start"):
                headers = MutableHeaders(scope=message)
                for name, value in _HEADERS.items():
                    headers.setdefault(name, value)
                if ENCRYPTED_KEY in scope and _may_be_pinned(host_name(Headers(scope=scope).get("host", ""))):
                    headers.setdefault("strict-transport-security", _ALWAYS_TLS)
            await send(message)

        refusal = check(Headers(scope=scope), self._allowed)
        if refusal is None:
            await self._app(scope, receive, send_guarded)
        else:
            if self._counters is not None:
                self._counters.requests += scope["type"] == "http"
                count_refused(self._counters, refusal)
            await refuse(refusal, scope, receive, send_guarded)


def check(headers: Headers, allowed: Collection[str]) -> HttpError | None:
    """Why a request with these headers is refused; None if it is not."""
    for header in ("host", "origin"):
        if len(headers.getlist(header)) > 1:  # whoever else reads the request may believe the other one
            return HttpError(Code.INVALID_REQUEST, f"a request has one {header.title()} header at most")
    host = headers.get("host", "")
    name = host_name(host)
    if not name or not (name in _LOOPBACK_NAMES or name in allowed or _is_address(name)):
        return HttpError(
            Code.AUTHORIZATION_FAILED,
            f"Host {host[:100]!r} is not one of this node. Call it by address, or allow the name with "
            "http.allowed_hosts",
        )
    origin = headers.get("origin")
    if origin is not None and _authority(origin) != host.lower():
        return HttpError(
            Code.AUTHORIZATION_FAILED,
            f"pages of {origin[:100]!r} may not use this node: it answers its own only",
        )
    return None


def _may_be_pinned(name: str) -> bool:
    """Whether a browser may be told to use TLS alone for a name.

    It would do so on every port, and on localhost other programs are served without it. It never does so for
    an address.
    """
    return bool(name) and name not in _LOOPBACK_NAMES and not _is_address(name)


def host_name(host: str) -> str:
    """A Host header without its port and brackets, in small letters."""
    found = _HOST.fullmatch(host)
    return "" if found is None else found["name"].strip("[]").lower()


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc.lower()
    except ValueError:
        return ""


def _is_address(name: str) -> bool:
    """No DNS can make an address mean another machine."""
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
