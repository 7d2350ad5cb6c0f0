"""A login that Spark ships to its workers: the one place where a password is pickled.

Spark sends the options of a source or sink, this among them, from the driver to every worker over its own
connections. What protects those protects the password (`spark.network.crypto.enabled`).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.client.credentials import Credentials


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


def spark_login(credentials: Credentials | None) -> SparkLogin | None:
    """Credentials as they are shipped."""
    if credentials is None:
        return None
    return SparkLogin(credentials.username, credentials.mechanism, credentials.password.reveal())
