"""The server's side of one SCRAM exchange (RFC 5802 section 3).

    first --challenge--> challenged --finish--> done

A user that is not known, or may not log in, gets a verifier that no password proves: the exchange goes on and
fails at its last step, with the answer that a wrong password gets.
"""

from __future__ import annotations

import hmac
import secrets
from collections.abc import Callable
from typing import Final

from tailrace.security.failure import malformed, wrong_credentials
from tailrace.security.sasl.scram_message import (
    NONCE_LENGTH_MAX,
    ClientFirst,
    encode_base64,
    read_client_final,
    read_client_first,
)
from tailrace.security.verifier import HASHES, Verifier, stored_key

_NONCE_BYTES: Final = 24
_OWN_NONCE_LENGTH: Final = _NONCE_BYTES * 4 // 3


def new_nonce() -> str:
    return secrets.token_urlsafe(_NONCE_BYTES)


class ScramServer:
    """One exchange: `challenge` the first message, `finish` with the second. Each is called once."""

    __slots__ = ("_first", "_make_nonce", "_mechanism", "_nonce", "_server_first", "_verifier", "user")

    def __init__(self, mechanism: str, *, make_nonce: Callable[[], str] = new_nonce) -> None:
        self._mechanism = mechanism
        self._make_nonce = make_nonce
        self.user = ""  # as the client named it; proven by `finish` alone
        self._first: ClientFirst | None = None
        self._verifier: Verifier | None = None
        self._nonce = ""
        self._server_first = ""

    def __repr__(self) -> str:
        return f"<ScramServer {self._mechanism}>"

    def challenge(self, data: bytes, find: Callable[[str], Verifier]) -> bytes:
        """The answer to the client's first message; `find` gives the verifier of a user, known or not."""
        assert self._first is None, "challenged before"
        try:
            first = read_client_first(data)
        except ValueError as error:
            raise malformed(self._mechanism, str(error)) from None
        self.user = first.user
        if first.authzid not in ("", first.user):
            raise malformed(self._mechanism, "a user may act as nobody else (authzid)")
        if len(first.nonce) > NONCE_LENGTH_MAX - _OWN_NONCE_LENGTH:
            raise malformed(self._mechanism, "its nonce is too long")
        verifier = find(first.user)
        self._first, self._verifier = first, verifier
        self._nonce = first.nonce + self._make_nonce()
        salt = encode_base64(verifier.salt)
        self._server_first = f"r={self._nonce},s={salt},i={verifier.iterations}"
        return self._server_first.encode()

    def finish(self, data: bytes) -> bytes:
        """The answer to the client's proof; AuthenticationFailed if it does not hold."""
        first, verifier = self._first, self._verifier
        assert first is not None and verifier is not None, "not challenged, or finished before"
        self._verifier = None
        try:
            final = read_client_final(data)
        except ValueError as error:
            raise malformed(self._mechanism, str(error)) from None
        if not hmac.compare_digest(final.gs2_header, first.gs2_header.encode()):
            raise malformed(self._mechanism, "c= is not the gs2 header of the first message")
        if not self._is_own_nonce(final.nonce, first.nonce):
            raise malformed(self._mechanism, "its nonce is not the one of this exchange")
        signed = f"{first.bare},{self._server_first},{final.without_proof}".encode()
        name = HASHES[self._mechanism]
        signature = hmac.digest(verifier.stored_key, signed, name)
        if len(final.proof) != len(signature):
            raise malformed(self._mechanism, "its proof has the wrong size")
        key = bytes(a ^ b for a, b in zip(final.proof, signature, strict=True))
        if not hmac.compare_digest(stored_key(self._mechanism, key), verifier.stored_key):
            raise wrong_credentials(self._mechanism)
        return f"v={encode_base64(hmac.digest(verifier.server_key, signed, name))}".encode()

    def _is_own_nonce(self, nonce: str, client_nonce: str) -> bool:
        """Whether a final nonce is that of this exchange, or that with the client's part in front once more.

        librdkafka before 2.6.1 sends the second form, as kcat of Debian 12 does. It holds both nonces of this
        exchange as well, and the proof covers our own first message in any case.
        """
        given = nonce.encode()
        is_exact = hmac.compare_digest(given, self._nonce.encode())
        is_doubled = hmac.compare_digest(given, (client_nonce + self._nonce).encode())
        return is_exact or is_doubled
