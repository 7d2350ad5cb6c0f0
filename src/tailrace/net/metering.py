"""Quotas, as a listener sees them: whom a request is charged to, and for how long the client then waits."""

from __future__ import annotations

from typing import Protocol


class Meter(Protocol):
    """The quotas of one client. Each charge returns the seconds for which the client is not read."""

    fetch_bytes_max: int
    """What one answer should have at most."""

    def produced(self, size: int) -> float:
        """So many bytes came in."""

    def fetched(self, size: int) -> float:
        """So many bytes go out."""

    def served(self, seconds: float) -> float:
        """The broker's thread was busy for so long."""

    def debt_s(self) -> float:
        """How long until nothing is owed."""


class Metering(Protocol):
    """The quotas of all clients."""

    def meter(self, user: str, client_id: str) -> Meter | None:
        """What requests of a client are charged to; None if it has no quota."""
