"""What a listener believes of JSON Web Tokens. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

ALGORITHMS: Final = ("RS256", "PS256", "ES256")
"""All that are ever accepted: signatures by a private key that only the issuer has."""
LOOPBACK: Final = frozenset({"127.0.0.1", "::1", "localhost"})


@dataclass(frozen=True, slots=True, kw_only=True)
class OauthConfig:
    """The issuer of a listener's tokens."""

    issuer: str
    audience: str
    jwks: str  # where its keys are: https, a file, or http on this machine
    principal_claim: str = "sub"
    algorithms: tuple[str, ...] = ALGORITHMS
    ca: str = ""  # a file with the certificates to trust for `jwks`; "": those of the system


def check_url(url: str) -> None:
    """ValueError unless keys and tokens may be fetched from there."""
    parts = urlsplit(url)
    if parts.username or parts.password:
        raise ValueError("it has a user or a password in it")
    if parts.scheme == "file":
        if parts.netloc or not parts.path.startswith("/"):
            raise ValueError("a file is written file:///path")
        return
    if not parts.hostname:
        raise ValueError("it is no address such as https://issuer.example/keys")
    if parts.scheme == "https" or (parts.scheme == "http" and parts.hostname in LOOPBACK):
        parts.port  # noqa: B018 - ValueError for one that is out of range
        return
    raise ValueError("it must be https:// (or file://, or http:// on this machine)")
