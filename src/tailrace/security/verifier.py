"""What is stored of a password: per SCRAM mechanism a salt, a number of iterations and two keys (RFC 5802).

    SaltedPassword = PBKDF2(password, salt, iterations)
    ClientKey      = HMAC(SaltedPassword, "Client Key")      StoredKey = H(ClientKey)
    ServerKey      = HMAC(SaltedPassword, "Server Key")

Only StoredKey and ServerKey are kept. A password given in the clear (PLAIN, HTTP Basic) is checked against
the same keys. Passwords are hashed as the UTF-8 bytes they are, as Kafka and its clients do.
"""

from __future__ import annotations

import hashlib
import hmac
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from tailrace.security.secret import Secret

SCRAM_SHA_256: Final = "SCRAM-SHA-256"
SCRAM_SHA_512: Final = "SCRAM-SHA-512"
HASHES: Final[Mapping[str, str]] = MappingProxyType({SCRAM_SHA_256: "sha256", SCRAM_SHA_512: "sha512"})
"""The SCRAM mechanisms, and the hash of each by Python's name."""

SALT_BYTES: Final = 16
SALT_BYTES_MIN: Final = 8
SALT_BYTES_MAX: Final = 64
ITERATIONS: Final = 16_384
ITERATIONS_MIN: Final = 4_096
ITERATIONS_MAX: Final = 16_384


@dataclass(frozen=True, slots=True, kw_only=True)
class Verifier:
    """What proves a password by one mechanism."""

    mechanism: str
    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __post_init__(self) -> None:
        size = hash_bytes(self.mechanism)
        if len(self.stored_key) != size or len(self.server_key) != size:
            raise ValueError(f"the keys of {self.mechanism} have {size} bytes each")
        check_parameters(self.salt, self.iterations)

    def __repr__(self) -> str:
        return f"<Verifier {self.mechanism}, {self.iterations} iterations>"


def hash_bytes(mechanism: str) -> int:
    """The size of the hash of a SCRAM mechanism; ValueError for another name."""
    if mechanism not in HASHES:
        raise ValueError(f"{mechanism} is none of {', '.join(HASHES)}")
    return hashlib.new(HASHES[mechanism]).digest_size


def check_parameters(salt: bytes, iterations: int) -> None:
    """ValueError unless both are what we accept; Kafka has the same bounds for iterations."""
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"iterations must be {ITERATIONS_MIN} to {ITERATIONS_MAX}, and are {iterations}")
    if not SALT_BYTES_MIN <= len(salt) <= SALT_BYTES_MAX:
        raise ValueError(f"a salt has {SALT_BYTES_MIN} to {SALT_BYTES_MAX} bytes, and not {len(salt)}")


def salted_password(mechanism: str, password: Secret, *, salt: bytes, iterations: int) -> bytes:
    """PBKDF2: takes milliseconds, and is not for the event loop."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.reveal().encode(), salt, iterations)


def client_key(mechanism: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Client Key", HASHES[mechanism])


def server_key(mechanism: str, salted: bytes) -> bytes:
    return hmac.digest(salted, b"Server Key", HASHES[mechanism])


def stored_key(mechanism: str, key: bytes) -> bytes:
    """StoredKey of a ClientKey."""
    return hashlib.new(HASHES[mechanism], key).digest()


def verifier_of(mechanism: str, salted: bytes, *, salt: bytes, iterations: int) -> Verifier:
    """The verifier of a salted password; ValueError if its salt or iterations are refused."""
    return Verifier(
        mechanism=mechanism,
        salt=salt,
        iterations=iterations,
        stored_key=stored_key(mechanism, client_key(mechanism, salted)),
        server_key=server_key(mechanism, salted),
    )


def make_verifiers(password: Secret) -> dict[str, Verifier]:
    """New verifiers of a password for every mechanism, with new salts; slow, like `salted_password`."""
    made = {}
    for mechanism in HASHES:
        salt = secrets.token_bytes(SALT_BYTES)
        salted = salted_password(mechanism, password, salt=salt, iterations=ITERATIONS)
        made[mechanism] = verifier_of(mechanism, salted, salt=salt, iterations=ITERATIONS)
    return made


def proves(password: Secret, verifier: Verifier) -> bool:
    """Whether this is the password of the verifier; slow, like `salted_password`."""
    mechanism = verifier.mechanism
    salted = salted_password(mechanism, password, salt=verifier.salt, iterations=verifier.iterations)
    return hmac.compare_digest(stored_key(mechanism, client_key(mechanism, salted)), verifier.stored_key)
