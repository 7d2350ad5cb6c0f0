"""What a listener demands before it serves a client, and a bound on clients that have not logged in.

connection made --enter--> pending --log in--> served
                              └── LOGIN_S without success, or too many pending: closed
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from tailrace.model.address import is_unix
from tailrace.security import AuthenticatorPort

LOGIN_S: Final = 10.0
"""How long a client may take to log in."""
LOGIN_BYTES_MAX: Final = 64 * 1024
"""The largest frame of a client that has not logged in."""


class PendingLogins:
    """Connections that have not logged in: of a node, and of one address."""

    def __init__(self, *, total_max: int = 1_000, per_address_max: int = 100) -> None:
        self._total_max = total_max
        self._per_address_max = per_address_max
        self._total = 0
        self._by_address: Counter[str] = Counter()

    def __repr__(self) -> str:
        return f"<PendingLogins {self._total} of {self._total_max}>"

    def __len__(self) -> int:
        return self._total

    def enter(self, host: str) -> bool:
        """Count a connection from an address; False if there is no room for it."""
        if self._total >= self._total_max:
            return False
        if not is_unix(host) and self._by_address[host] >= self._per_address_max:
            return False
        self._total += 1
        self._by_address[host] += 1
        return True

    def leave(self, host: str) -> None:
        """A connection that entered has logged in, or is gone."""
        self._total -= 1
        self._by_address[host] -= 1
        if not self._by_address[host]:
            del self._by_address[host]


@dataclass(frozen=True, slots=True, kw_only=True)
class Logins:
    """How the clients of one listener log in; a listener without this serves everybody as anonymous."""

    authenticator: AuthenticatorPort
    mechanisms: Sequence[str]
    pending: PendingLogins = field(default_factory=PendingLogins)
    timeout_s: float = LOGIN_S
    session_ms_max: int = 0  # then a client must log in again (KIP-368); 0: a login holds as long as it likes
