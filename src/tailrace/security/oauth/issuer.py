"""Who a JSON Web Token is: the check that a listener with `oauth` makes.

A token that was accepted is remembered by its hash for a moment, since HTTP clients send it with every
request. It is checked again after REMEMBERED_S, and as soon as the keys of the issuer change.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections import OrderedDict
from collections.abc import Callable
from typing import Final, NamedTuple

from tailrace.model import ConfigError
from tailrace.model.session import Principal
from tailrace.security.authenticated import Authenticated
from tailrace.security.failure import AuthenticationFailed
from tailrace.security.mechanism import OAUTHBEARER
from tailrace.security.oauth.config import OauthConfig
from tailrace.security.oauth.jwt import JwtRefused, read_claims, read_header
from tailrace.security.oauth.key_set import read_key_set
from tailrace.security.oauth.keys import IssuerKeys, Load, read_document
from tailrace.security.secret import Secret

REMEMBERED_S: Final = 60.0
_REMEMBERED_MAX: Final = 10_000


class _Remembered(NamedTuple):
    found: Authenticated
    until: float
    generation: int  # of the keys


class Issuer:
    """The issuer whose tokens a listener accepts."""

    def __init__(
        self,
        config: OauthConfig,
        *,
        now_ms: Callable[[], int],
        monotonic: Callable[[], float],
        load: Load | None = None,
    ) -> None:
        self._config = config
        self._now_ms = now_ms
        self._monotonic = monotonic
        self._keys = IssuerKeys(config, monotonic=monotonic, load=load)
        self._remembered: OrderedDict[bytes, _Remembered] = OrderedDict()

    def __repr__(self) -> str:
        return f"<Issuer {self._config.issuer}>"

    async def check(self, token: Secret) -> Authenticated:
        """Who the token is; AuthenticationFailed says what is wrong with it."""
        digest = hashlib.sha256(token.reveal().encode()).digest()
        known = self._known(digest)
        if known is not None:
            return known
        try:
            header = read_header(token, self._config)
            keys = await self._keys.for_kid(header.kid)
            if not keys.keys:
                raise JwtRefused("the keys of its issuer are not known at the moment")
            claims = read_claims(token, header, keys, self._config, now_ms=self._now_ms())
        except JwtRefused as error:
            raise AuthenticationFailed(
                f"authentication failed ({OAUTHBEARER}): the token is not accepted: {error}"
            ) from None
        found = Authenticated(
            Principal("User", claims.principal), OAUTHBEARER, expires_at_ms=claims.expires_at_ms
        )
        self._remember(digest, found)
        return found

    async def close(self) -> None:
        await self._keys.close()

    # ---- inside

    def _known(self, digest: bytes) -> Authenticated | None:
        entry = self._remembered.get(digest)
        if entry is None:
            return None
        ends_ms = entry.found.expires_at_ms
        is_over = ends_ms is not None and self._now_ms() >= ends_ms
        if is_over or self._monotonic() >= entry.until or entry.generation != self._keys.generation:
            del self._remembered[digest]
            return None
        return entry.found

    def _remember(self, digest: bytes, found: Authenticated) -> None:
        entry = _Remembered(found, self._monotonic() + REMEMBERED_S, self._keys.generation)
        self._remembered[digest] = entry
        if len(self._remembered) > _REMEMBERED_MAX:
            self._remembered.popitem(last=False)


def check_usable(config: OauthConfig, *, listener: str) -> None:
    """ConfigError for what would refuse every token: no joserfc, or a file of keys that is none."""
    if importlib.util.find_spec("joserfc") is None:
        raise ConfigError(
            f"listeners {listener!r}: oauth needs joserfc. Install it: pip install 'tailrace[auth]'"
        )
    if config.jwks.startswith("file:"):
        try:
            read_key_set(read_document(config.jwks))
        except ValueError as error:
            raise ConfigError(f"listeners {listener!r}: oauth: jwks: {error}") from None
