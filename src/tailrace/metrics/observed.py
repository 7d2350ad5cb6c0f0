"""What is looked at: one node, as its figures need to know it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tailrace.broker import Broker
from tailrace.metrics.free_space import FreeSpace
from tailrace.net import ListenerCounters, RequestBudget
from tailrace.net.tls import ServerTls
from tailrace.security import LoginCounts


@dataclass(frozen=True, slots=True, kw_only=True)
class Observed:
    """A broker with its listeners."""

    broker: Broker
    listeners: Mapping[str, ListenerCounters] = field(default_factory=dict)  # by name
    budgets: Mapping[str, RequestBudget] = field(default_factory=dict)  # of request bytes, by listener
    info: Mapping[str, str] = field(default_factory=dict)  # version, engine: what never changes
    free_space: FreeSpace = field(default_factory=FreeSpace)
    logins: LoginCounts = field(default_factory=LoginCounts)
    tls: Sequence[ServerTls] = ()  # of the listeners that have it

    @property
    def requests(self) -> int:
        """Requests that were taken, by all listeners."""
        return sum(listener.requests for listener in self.listeners.values())

    @property
    def streams(self) -> int:
        """Live streams that are open, of all listeners."""
        return sum(listener.streams for listener in self.listeners.values())

    @property
    def errors(self) -> int:
        """Requests that were answered with an error, clients that broke the protocol, and bugs of ours."""
        return sum(
            listener.protocol_errors
            + listener.failures
            + sum(tally.failed for tally in listener.tallies.values())
            for listener in self.listeners.values()
        )
