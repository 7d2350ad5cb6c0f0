"""TLS that Spark ships to its workers: paths of files, which every worker has, and the password of a key.

The password travels as that of a login does (`login`).
"""

from __future__ import annotations

import hashlib
from dataclasses import astuple, dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tailrace.client.tls import ClientTls


@dataclass(frozen=True, slots=True)
class SparkTls:
    """A ClientTls that can be pickled; it does not show the password."""

    ca: str | None
    ca_text: str | None
    cert: str | None
    key: str | None
    check_hostname: bool
    verify: bool
    key_password: str | None = field(default=None, repr=False)

    def client_tls(self) -> ClientTls:
        from tailrace.client.tls import ClientTls
        from tailrace.security import Secret

        return ClientTls(
            ca=self.ca,
            ca_text=self.ca_text,
            cert=self.cert,
            key=self.key,
            check_hostname=self.check_hostname,
            verify=self.verify,
            key_password=None if self.key_password is None else Secret(self.key_password),
        )

    def digest(self) -> str:
        """Tells two settings apart, and shows none of them."""
        return hashlib.sha256(repr(astuple(self)).encode()).hexdigest()


def spark_tls(tls: ClientTls | None) -> SparkTls | None:
    """Settings as they are shipped."""
    if tls is None:
        return None
    return SparkTls(
        ca=tls.ca,
        ca_text=tls.ca_text,
        cert=tls.cert,
        key=tls.key,
        check_hostname=tls.check_hostname,
        verify=tls.verify,
        key_password=None if tls.key_password is None else tls.key_password.reveal(),
    )
