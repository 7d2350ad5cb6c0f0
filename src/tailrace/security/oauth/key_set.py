"""The public keys of an issuer (RFC 7517), read strictly. Pure.

Only keys by which one of our algorithms can be checked are kept: RSA from 2,048 to 8,192 bits, and P-256. A
secret key ("oct") is passed over, so that no token is ever checked by a shared secret.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

DOCUMENT_BYTES_MAX: Final = 256 * 1024
KEYS_MAX: Final = 100
_BITS_MIN: Final = 2_048
_BITS_MAX: Final = 8_192
_KINDS: Final = {"RSA": ("RS256", "PS256"), "EC": ("ES256",)}


@dataclass(frozen=True, slots=True, kw_only=True)
class IssuerKey:
    """A key, and what may be checked by it."""

    kid: str  # "": it has none
    algorithms: tuple[str, ...]
    key: Any  # of joserfc


@dataclass(frozen=True, slots=True)
class KeySet:
    """The keys of one moment."""

    keys: Sequence[IssuerKey]

    def find(self, kid: str | None, algorithm: str) -> IssuerKey | None:
        """The key of this name. A token without a name is checked by the only key, if there is one only."""
        if kid is None:
            return self.keys[0] if len(self.keys) == 1 and algorithm in self.keys[0].algorithms else None
        return next((each for each in self.keys if each.kid == kid and algorithm in each.algorithms), None)

    def has(self, kid: str | None) -> bool:
        """Whether a key of this name is known; without a name none is looked for."""
        return kid is None or any(each.kid == kid for each in self.keys)


def read_key_set(data: bytes) -> KeySet:
    """ValueError for what is no set of keys, or has none that can be used."""
    if len(data) > DOCUMENT_BYTES_MAX:
        raise ValueError(f"it is over {DOCUMENT_BYTES_MAX} bytes")
    try:
        document = json.loads(data)
    except (ValueError, RecursionError):
        raise ValueError("it is not JSON") from None
    rows = document.get("keys") if isinstance(document, dict) else None
    if not isinstance(rows, list):
        raise ValueError('it has no list "keys"')
    if len(rows) > KEYS_MAX:
        raise ValueError(f"it has {len(rows)} keys, and {KEYS_MAX} at most are read")
    found = [key for each in rows if isinstance(each, dict) and (key := _read_key(each)) is not None]
    if not found:
        raise ValueError("it has no RSA key of 2048 bits or more and no P-256 key for signatures")
    return KeySet(tuple(found))


def _read_key(row: Mapping[str, Any]) -> IssuerKey | None:
    """A key that can be used; None for any other, which the issuer may have for other purposes."""
    kind, kid, named = row.get("kty"), row.get("kid", ""), row.get("alg")
    uses = row.get("key_ops", ["verify"])
    if kind not in _KINDS or not isinstance(kid, str) or row.get("use", "sig") != "sig":
        return None
    if not isinstance(uses, list) or "verify" not in uses:
        return None
    algorithms = _KINDS[kind] if named is None else tuple(each for each in _KINDS[kind] if each == named)
    names = ("kty", "n", "e") if kind == "RSA" else ("kty", "crv", "x", "y")
    public = {name: row[name] for name in names if isinstance(row.get(name), str)}
    if not algorithms or len(public) != len(names) or public.get("crv", "P-256") != "P-256":
        return None
    if kind == "RSA" and not _BITS_MIN <= _bits(public["n"]) <= _BITS_MAX:
        return None
    key = _import(public)
    return None if key is None else IssuerKey(kid=kid, algorithms=algorithms, key=key)


def _import(public: dict[str, str]) -> Any:
    from joserfc.errors import JoseError
    from joserfc.jwk import import_key

    try:
        key = import_key(dict(public))
        assert key.public_key is not None  # which reads the numbers, and refuses a point off the curve
    except (JoseError, ValueError, TypeError, KeyError):
        return None
    return key


def _bits(number: str) -> int:
    """The size of a number in base64url; 0 if it is none."""
    try:
        return int.from_bytes(base64.urlsafe_b64decode(number + "=" * (-len(number) % 4))).bit_length()
    except ValueError:
        return 0
