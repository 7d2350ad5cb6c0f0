"""The client's side of one SCRAM exchange (RFC 5802 section 3).

    first -> prove -> check

A broker that does not know the password cannot pass `check`: its signature proves that it has the verifier.
Iterations are bounded both ways. Few would make the proof cheap to guess from for whoever poses as the
broker; many would keep the client computing. A Kafka broker may use more than ours.
"""

from __future__ import annotations

import hmac
from collections.abc import Callable
from typing import Final

from tailrace.security.failure import AuthenticationFailed
from tailrace.security.sasl.scram_message import (
    encode_base64,
    escape,
    read_server_final,
    read_server_first,
)
from tailrace.security.sasl.scram_server import new_nonce
from tailrace.security.secret import Secret
from tailrace.security.verifier import (
    HASHES,
    ITERATIONS_MIN,
    client_key,
    salted_password,
    server_key,
    stored_key,
)

_GS2_HEADER: Final = "n,,"
_ITERATIONS_MAX: Final = 1_000_000


class ScramClient:
    """One exchange: `first`, then `prove` the challenge, then `check` the server's signature."""

    __slots__ = ("_bare", "_mechanism", "_nonce", "_password", "_signature")

    def __init__(
        self, mechanism: str, user: str, password: Secret, *, make_nonce: Callable[[], str] = new_nonce
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = make_nonce()
        self._bare = f"n={escape(user)},r={self._nonce}"
        self._signature = b""

    def __repr__(self) -> str:
        return f"<ScramClient {self._mechanism}>"

    def first(self) -> bytes:
        return (_GS2_HEADER + self._bare).encode()

    def prove(self, challenge: bytes) -> bytes:
        """The proof that answers a challenge. Slow: it hashes the password."""
        try:
            found = read_server_first(challenge)
        except ValueError as error:
            raise self._distrust(str(error)) from None
        if not found.nonce.startswith(self._nonce) or len(found.nonce) == len(self._nonce):
            raise self._distrust("its nonce does not continue ours")
        if not ITERATIONS_MIN <= found.iterations <= _ITERATIONS_MAX:
            raise self._distrust(f"it asks for {found.iterations} iterations")
        mechanism = self._mechanism
        salted = salted_password(mechanism, self._password, salt=found.salt, iterations=found.iterations)
        without_proof = f"c={encode_base64(_GS2_HEADER.encode())},r={found.nonce}"
        signed = f"{self._bare},{found.text},{without_proof}".encode()
        key = client_key(mechanism, salted)
        signature = hmac.digest(stored_key(mechanism, key), signed, HASHES[mechanism])
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        self._signature = hmac.digest(server_key(mechanism, salted), signed, HASHES[mechanism])
        return f"{without_proof},p={encode_base64(proof)}".encode()

    def check(self, final: bytes) -> None:
        """AuthenticationFailed unless the server knows the verifier of the password."""
        try:
            signature = read_server_final(final)
        except ValueError as error:
            raise self._distrust(str(error)) from None
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise self._distrust("its signature is wrong: it may not be the broker that knows this user")

    def _distrust(self, reason: str) -> AuthenticationFailed:
        return AuthenticationFailed(f"the broker's {self._mechanism} message is not valid: {reason}")
