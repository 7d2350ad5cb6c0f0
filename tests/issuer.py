"""An issuer of JSON Web Tokens for tests: keys of its own, tokens as asked, and an HTTP server on loopback.

issuer = TokenIssuer()
issuer.token(sub="alice")                        a token that is valid for TokenIssuer.config()
with issuer.serve() as url: ...                  GET /keys is its JWKS, POST /token gives tokens to clients
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs

from joserfc import jws
from joserfc.jwk import ECKey, RSAKey

ISSUER: Final = "https://issuer.example"
AUDIENCE: Final = "tailrace"
CLIENT_ID, CLIENT_SECRET = "shop", "a secret of the shop"
_LEFT_OUT: Final = object()


@cache
def rsa_key(number: int = 0) -> RSAKey:
    """The same key every time: making one takes longest in these tests."""
    return RSAKey.generate_key(2048, {"kid": f"rsa-{number}"})


@cache
def ec_key() -> ECKey:
    return ECKey.generate_key("P-256", {"kid": "ec-0"})


class TokenIssuer:
    """Signs tokens, and counts what it is asked for."""

    def __init__(self, issuer: str = ISSUER) -> None:
        self.issuer = issuer
        self.keys: list[Any] = [rsa_key(), ec_key()]
        self.asked: list[str] = []
        self.lifetime_s = 3600.0
        self.subject = CLIENT_ID
        self.answer: bytes | None = None  # instead of the keys
        self.status = 200

    def key_set(self) -> dict[str, Any]:
        return {"keys": [{**each.as_dict(private=False), "use": "sig"} for each in self.keys]}

    def document(self) -> bytes:
        return json.dumps(self.key_set()).encode() if self.answer is None else self.answer

    def token(
        self,
        *,
        algorithm: str = "RS256",
        key: Any = None,
        header: Mapping[str, Any] | None = None,
        now: float | None = None,
        **claims: Any,
    ) -> str:
        """A signed token; a claim or header that is None is left out."""
        key = key or (ec_key() if algorithm == "ES256" else rsa_key())
        now = time.time() if now is None else now
        given = {
            "iss": self.issuer,
            "aud": AUDIENCE,
            "sub": "alice",
            "iat": int(now),
            "nbf": int(now),
            "exp": now + self.lifetime_s,
            **claims,
        }
        head = {"alg": algorithm, "kid": key.kid, **(header or {})}
        payload = {name: value for name, value in given.items() if value is not None}
        head = {name: value for name, value in head.items() if value is not None}
        return sign(head, json.dumps(payload).encode(), key)

    @contextmanager
    def serve(self) -> Iterator[str]:
        """Serve on a free loopback port; gives http://127.0.0.1:PORT."""
        server = ThreadingHTTPServer(("127.0.0.1", 0), _handler_of(self))
        server.daemon_threads = True
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()


def sign(header: dict[str, Any], payload: bytes, key: Any) -> str:
    """A token with any header, as an attacker may write it."""
    registry = jws.JWSRegistry(algorithms=[header["alg"]], strict_check_header=False)
    return jws.serialize_compact(header, payload, key, registry=registry)


def forged(header: dict[str, Any], payload: dict[str, Any], signature: bytes) -> str:
    """A token with any signature."""
    parts = [json.dumps(header).encode(), json.dumps(payload).encode(), signature]
    return ".".join(base64.urlsafe_b64encode(each).rstrip(b"=").decode() for each in parts)


def _handler_of(issuer: TokenIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            issuer.asked.append(self.path)
            self._answer(issuer.status, issuer.document())

        def do_POST(self) -> None:
            issuer.asked.append(self.path)
            size = int(self.headers.get("content-length", "0"))
            form = parse_qs(self.rfile.read(size).decode())
            if not self._is_known(form) or form.get("grant_type") != ["client_credentials"]:
                self._answer(401, b'{"error":"invalid_client","error_description":"wrong secret"}')
                return
            token = issuer.token(sub=issuer.subject)
            self._answer(
                200,
                json.dumps(
                    {"access_token": token, "token_type": "Bearer", "expires_in": issuer.lifetime_s}
                ).encode(),
            )

        def _is_known(self, form: dict[str, list[str]]) -> bool:
            given = self.headers.get("authorization", "")
            pair = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET}".encode()).decode()
            quoted = base64.b64encode(f"{CLIENT_ID}:{CLIENT_SECRET.replace(' ', '+')}".encode()).decode()
            in_form = form.get("client_id") == [CLIENT_ID] and form.get("client_secret") == [CLIENT_SECRET]
            return given in (f"Basic {pair}", f"Basic {quoted}") or in_form

        def _answer(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            """Quiet."""

    return Handler
