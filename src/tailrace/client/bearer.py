"""Logins with a token: one that is given, one that a function gives, or one fetched from a token endpoint.

    BearerCredentials(fixed(Secret))                 the same token every time
    BearerCredentials(called(function))              str or Secret, at once or awaited; called for every login
    BearerCredentials(ClientCredentials(...).token)  OAuth 2.0 client credentials (RFC 6749 section 4.4)

A function is asked anew before a login ends, so a connection outlives its token.
"""

from __future__ import annotations

import asyncio
import base64
import inspect
import json
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Protocol
from urllib.parse import quote_plus, urlencode

from tailrace.model import ConfigError
from tailrace.security import OAUTHBEARER, AuthenticationFailed, Secret
from tailrace.security.oauth.config import check_url
from tailrace.security.sasl.oauthbearer import ACKNOWLEDGED, write_bearer

GiveToken = Callable[[], "str | Secret | Awaitable[str | Secret]"]
TokenSource = Callable[[], Awaitable[Secret]]

_FETCH_S: Final = 10.0
_ANSWER_BYTES_MAX: Final = 64 * 1024
_FRESH: Final = 0.8  # of its lifetime, after which another token is fetched
_SHOWN_MAX: Final = 200


class Exchange(Protocol):
    """Messages of one login: `first`, then `answer` what the broker says until it returns None."""

    async def first(self) -> bytes: ...

    async def answer(self, data: bytes) -> bytes | None: ...


@dataclass(frozen=True, slots=True)
class BearerCredentials:
    """A login by OAUTHBEARER."""

    source: TokenSource = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)
    mechanism: str = OAUTHBEARER

    def begin(self) -> Exchange:
        """A new login."""
        return _BearerExchange(self)


class _BearerExchange:
    def __init__(self, credentials: BearerCredentials) -> None:
        self._credentials = credentials

    async def first(self) -> bytes:
        token = await self._credentials.source()
        try:
            return write_bearer(token, self._credentials.extensions)
        except ValueError:
            raise ConfigError("the token or an extension has characters that no token has") from None

    async def answer(self, data: bytes) -> bytes | None:
        """A refusal is acknowledged; the broker then says why (RFC 7628 section 3.2.3)."""
        return ACKNOWLEDGED if data else None


def fixed(token: Secret) -> TokenSource:
    """The same token every time."""

    async def give() -> Secret:
        return token

    return give


def called(function: GiveToken) -> TokenSource:
    """What a function gives. One that does not wait runs in a thread, since it may ask a server."""

    async def give() -> Secret:
        if inspect.iscoroutinefunction(function):
            found: Any = await function()
        else:
            found = await asyncio.to_thread(function)
            if inspect.isawaitable(found):
                found = await found
        if isinstance(found, Secret):
            return found
        if not isinstance(found, str) or not found:
            raise ConfigError(f"the function for tokens gave {type(found).__name__}, and a text is needed")
        return Secret(found)

    return give


class ClientCredentials:
    """Tokens of an endpoint, for a client with an id and a secret; each is used until it is nearly over."""

    def __init__(
        self, url: str, *, client_id: str, client_secret: Secret, scope: str = "", ca: str = ""
    ) -> None:
        try:
            check_url(url)
            if url.startswith("file:"):
                raise ValueError("a file answers no request")
        except ValueError as error:
            raise ConfigError(f"sasl.oauthbearer.token.endpoint.url: {error}") from None
        self._url = url
        self._client_id = client_id
        self._client_secret = client_secret
        self._scope = scope
        self._ca = ca
        self._token: Secret | None = None
        self._fresh_until = 0.0
        self._fetching = asyncio.Lock()

    def __repr__(self) -> str:
        return f"<ClientCredentials of {self._client_id} at {self._url}>"

    async def token(self) -> Secret:
        """A token that holds for a while; AuthenticationFailed says why the endpoint gave none."""
        async with self._fetching:
            if self._token is None or time.monotonic() >= self._fresh_until:
                await self._fetch()
            assert self._token is not None
            return self._token

    async def _fetch(self) -> None:
        from tailrace.security.oauth.fetch import CannotFetch, fetch

        form = {"grant_type": "client_credentials", **({"scope": self._scope} if self._scope else {})}
        pair = f"{quote_plus(self._client_id)}:{quote_plus(self._client_secret.reveal())}"
        headers = {
            "authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
            "content-type": "application/x-www-form-urlencoded",
        }
        asked_at = time.monotonic()
        try:
            status, answer = await fetch(
                self._url,
                timeout_s=_FETCH_S,
                bytes_max=_ANSWER_BYTES_MAX,
                ca=self._ca,
                method="POST",
                headers=headers,
                body=urlencode(form).encode(),
            )
        except CannotFetch as error:
            raise AuthenticationFailed(f"no token from the token endpoint: {error}") from error
        found = _object(answer)
        token = found.get("access_token")
        if status != 200 or not isinstance(token, str) or not token:
            raise AuthenticationFailed(
                f"no token from the token endpoint: status {status}{_reason(found)}. "
                "Check client id and secret"
            )
        lifetime_s = found.get("expires_in")
        if isinstance(lifetime_s, bool) or not isinstance(lifetime_s, int | float) or lifetime_s < 0:
            lifetime_s = 0.0  # not told: the next login asks again
        self._token, self._fresh_until = Secret(token), asked_at + min(lifetime_s, 86_400) * _FRESH


def _object(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _reason(found: Mapping[str, Any]) -> str:
    """What the endpoint says of a refusal (RFC 6749 section 5.2)."""
    said = [found[name] for name in ("error", "error_description") if isinstance(found.get(name), str)]
    text = ": ".join(said)[:_SHOWN_MAX]
    return f" ({text})" if text.isprintable() and text else ""
