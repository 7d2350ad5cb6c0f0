"""Whether a JSON Web Token is one of the issuer's, for us, and valid now. Pure: keys and time are given.

    header    alg one of ours, kid a text; `crit` is refused; jku, jwk, x5u and x5c are never looked at
    claims    iss and aud exactly ours (aud may be a list that holds ours), exp ahead
              nbf and iat at most SKEW_S ahead

The signature is checked before a single claim is believed. A reason repeats nothing of the token.
"""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from tailrace.security.oauth.config import OauthConfig
from tailrace.security.oauth.key_set import KeySet
from tailrace.security.secret import Secret

TOKEN_BYTES_MAX: Final = 16 * 1024
SKEW_S: Final = 30
_LIFETIME_S_MAX: Final = 366 * 86_400
_NAME_LENGTH_MAX: Final = 256
_COMPACT: Final = re.compile(r"(?P<header>[\w-]{2,8192})\.[\w-]{2,}\.[\w-]{2,}", re.ASCII)
_RESERVED: Final = frozenset({"ANONYMOUS", "token"})


class JwtRefused(ValueError):
    """The token is not accepted; the text says why."""


@dataclass(frozen=True, slots=True)
class Header:
    """What a token says of its signature."""

    algorithm: str
    kid: str | None


@dataclass(frozen=True, slots=True)
class Claims:
    """What a token proves."""

    principal: str
    expires_at_ms: int


def read_header(token: Secret, config: OauthConfig) -> Header:
    """The header, before anything is checked; JwtRefused for one that no key of the issuer could check."""
    text = token.reveal()
    found = _COMPACT.fullmatch(text) if len(text) <= TOKEN_BYTES_MAX else None
    if found is None:
        raise JwtRefused("it is not a signed JSON Web Token")
    header = _object(found["header"])
    algorithm, kid = header.get("alg"), header.get("kid")
    if not isinstance(algorithm, str) or algorithm not in config.algorithms:
        raise JwtRefused(f"its algorithm is none of {', '.join(config.algorithms)}")
    if "crit" in header:
        raise JwtRefused("it has critical headers, and none is known")
    if kid is not None and not isinstance(kid, str):
        raise JwtRefused("its kid is no text")
    return Header(algorithm, kid)


def read_claims(token: Secret, header: Header, keys: KeySet, config: OauthConfig, *, now_ms: int) -> Claims:
    """What the token proves, by the keys of its issuer."""
    key = keys.find(header.kid, header.algorithm)
    if key is None:
        raise JwtRefused("its key is none of the issuer's")
    claims = _verified(token, header.algorithm, key.key)
    now_s = now_ms / 1000
    _check_purpose(claims, config)
    expires_s = _check_times(claims, now_s)
    expires_s = min(expires_s, now_s + _LIFETIME_S_MAX)
    return Claims(_principal(claims, config.principal_claim), int(expires_s * 1000))


def _verified(token: Secret, algorithm: str, key: Any) -> Mapping[str, Any]:
    from joserfc.errors import JoseError
    from joserfc.jws import deserialize_compact

    try:
        found = deserialize_compact(token.reveal(), key, algorithms=[algorithm])
    except (JoseError, ValueError, TypeError):
        raise JwtRefused("its signature is wrong") from None
    return _claims(bytes(found.payload))


def _check_purpose(claims: Mapping[str, Any], config: OauthConfig) -> None:
    if claims.get("iss") != config.issuer:
        raise JwtRefused("it is of another issuer (iss)")
    audience = claims.get("aud")
    held = audience if isinstance(audience, list) else [audience]
    if not any(isinstance(each, str) and each == config.audience for each in held):
        raise JwtRefused("it is for another audience (aud)")


def _check_times(claims: Mapping[str, Any], now_s: float) -> float:
    """When it ends, in seconds."""
    expires_s = _number(claims, "exp")
    if expires_s is None:
        raise JwtRefused("it has no end (exp)")
    if now_s >= expires_s:
        raise JwtRefused(f"it expired {min(now_s - expires_s, 10**9):.0f} s ago (exp)")
    for name, meaning in (("nbf", "it is not valid yet"), ("iat", "it was issued in the future")):
        at_s = _number(claims, name)
        if at_s is not None and at_s > now_s + SKEW_S:
            raise JwtRefused(f"{meaning} ({name}). Do the clocks agree?")
    return expires_s


def _number(claims: Mapping[str, Any], name: str) -> float | None:
    value = claims.get(name)
    if value is None:
        return None
    if isinstance(value, bool) or not isinstance(value, int | float) or abs(value) > 10**15:
        raise JwtRefused(f"its {name} is no time")
    if not math.isfinite(value):
        raise JwtRefused(f"its {name} is no time")
    return float(value)


def _principal(claims: Mapping[str, Any], claim: str) -> str:
    name = claims.get(claim)
    if not isinstance(name, str) or not 1 <= len(name) <= _NAME_LENGTH_MAX or name in _RESERVED:
        raise JwtRefused(f"its {claim} names no principal")
    if any(not each.isprintable() or each.isspace() for each in name):
        raise JwtRefused(f"its {claim} names no principal")
    return name


def _object(part: str) -> Mapping[str, Any]:
    try:
        return _claims(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    except JwtRefused:
        raise
    except ValueError:
        raise JwtRefused("it is not a signed JSON Web Token") from None


def _claims(data: bytes) -> Mapping[str, Any]:
    try:
        found = json.loads(data)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise JwtRefused("a part of it is no JSON object")
    return found
