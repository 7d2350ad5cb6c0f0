"""A login that Spark ships to its workers: the one place where a password or a token is pickled.

Spark sends the options of a source or sink, this among them, from the driver to every worker over its own
connections. What protects those protects the password (`spark.network.crypto.enabled`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tailrace.client.credentials import AnyCredentials, Credentials


@dataclass(frozen=True, slots=True)
class SparkLogin:
    """User, password and mechanism; it does not show the password."""

    username: str
    mechanism: str
    password: str = field(repr=False)

    def credentials(self) -> Credentials:
        from tailrace.client.credentials import Credentials
        from tailrace.security import Secret

        return Credentials(self.username, Secret(self.password), self.mechanism)

    def digest(self) -> str:
        """Tells two logins apart, and is no password."""
        text = "\0".join((self.username, self.mechanism, self.password))
        return hashlib.sha256(text.encode()).hexdigest()


@dataclass(frozen=True, slots=True)
class SparkToken:
    """A login by OAUTHBEARER, as the properties that say where its token comes from."""

    properties: tuple[tuple[str, str], ...] = field(repr=False)

    def credentials(self) -> AnyCredentials:
        from tailrace.client.sasl_properties import read_sasl

        found = read_sasl(dict(self.properties))
        assert found is not None, "they were read before"
        return found

    def digest(self) -> str:
        """Tells two logins apart, and is no secret."""
        return hashlib.sha256(repr(self.properties).encode()).hexdigest()


AnyLogin = SparkLogin | SparkToken


def spark_token(given: Mapping[str, str | None]) -> SparkToken:
    """Properties of OAUTHBEARER as they are shipped."""
    return SparkToken(tuple(sorted((name, value) for name, value in given.items() if value)))


def spark_login(credentials: Credentials | None) -> SparkLogin | None:
    """Credentials as they are shipped."""
    if credentials is None:
        return None
    return SparkLogin(credentials.username, credentials.mechanism, credentials.password.reveal())
