"""`oauth` of a [[listeners]] entry: whose JSON Web Tokens the listener accepts.

    sasl = ["OAUTHBEARER"]
    oauth = { issuer = "https://issuer.example", audience = "tailrace", jwks = "https://issuer.example/keys" }

Without issuer, audience and jwks the listener does not open.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tailrace.security import OAUTHBEARER
from tailrace.security.oauth.config import ALGORITHMS, OauthConfig, check_url

_REQUIRED: Final = ("issuer", "audience", "jwks")
_OPTIONAL: Final = ("principal_claim", "algorithms", "ca")
OAUTH_KEY: Final = (
    "table",
    "{}",
    "Whose JSON Web Tokens are accepted, with OAUTHBEARER in sasl: issuer and audience (iss and aud of a "
    "token are exactly these), jwks (where the keys of the issuer are: https:// or file://), principal_claim "
    "(the claim that names the principal; sub), algorithms (of RS256, PS256 and ES256), ca (a PEM file with "
    "the certificates to trust for jwks). Needs the extra auth: pip install 'tailrace[auth]'.",
)
"""Type, default and meaning of the key."""


def oauth_problems(table: Mapping[str, object]) -> Iterator[str]:
    """What is wrong with `oauth` of a listener, and with OAUTHBEARER without it."""
    given, sasl = table.get("oauth"), table.get("sasl", [])
    is_offered = isinstance(sasl, list) and OAUTHBEARER in sasl
    if given is None:
        if is_offered:
            yield (
                f"sasl has {OAUTHBEARER} and needs oauth = {{ issuer = ..., audience = ..., jwks = ... }}: "
                "else any token would do"
            )
        return
    if not isinstance(given, dict):
        yield "oauth must be a table: { issuer = ..., audience = ..., jwks = ... }"
        return
    if not is_offered:
        yield f'oauth without {OAUTHBEARER} has no effect: write sasl = ["{OAUTHBEARER}"]'
    yield from _value_problems(given)


def read_oauth(table: Mapping[str, object]) -> OauthConfig | None:
    """`oauth` of a listener without problems."""
    given = table.get("oauth")
    if not isinstance(given, dict):
        return None
    return OauthConfig(**{**given, "algorithms": tuple(given.get("algorithms", ALGORITHMS))})


def _value_problems(given: Mapping[str, object]) -> Iterator[str]:
    known = (*_REQUIRED, *_OPTIONAL)
    for key in sorted(given.keys() - set(known)):
        yield f"oauth.{key} is not a setting. There are: {', '.join(known)}"
    for key in _REQUIRED:
        if not given.get(key):
            yield f"oauth.{key} is missing: without it tokens of others would be accepted"
    for key in known:
        if key != "algorithms" and key in given and not isinstance(given[key], str):
            yield f"oauth.{key} must be a text"
    for key in _OPTIONAL:
        if key in given and not given[key]:
            yield f"oauth.{key} is empty. Leave it out for its default"
    yield from _algorithm_problems(given.get("algorithms", list(ALGORITHMS)))
    jwks = given.get("jwks")
    if isinstance(jwks, str) and jwks:
        try:
            check_url(jwks)
        except ValueError as error:
            yield f"oauth.jwks: {error}"


def _algorithm_problems(algorithms: object) -> Iterator[str]:
    if not isinstance(algorithms, list) or not all(isinstance(each, str) for each in algorithms):
        yield f"oauth.algorithms must be a list of {', '.join(ALGORITHMS)}"
        return
    for each in algorithms:
        if each not in ALGORITHMS:
            yield f"oauth.algorithms has {each!r}, and only {', '.join(ALGORITHMS)} are ever accepted"
