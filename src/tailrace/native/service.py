"""What the connections of one native listener share."""

from __future__ import annotations

from tailrace.broker.gate import Gate
from tailrace.native.config import NativeConfig
from tailrace.native.counting import RequestCounts
from tailrace.net import NodeBudget, RequestBudget, RequestService
from tailrace.net.logins import Logins
from tailrace.net.tls import ServerTls


class NativeService(RequestService):
    """One listener's gate, bounds and running requests."""

    def __init__(
        self,
        gate: Gate,
        config: NativeConfig,
        budget: RequestBudget | None = None,
        *,
        name: str = "native",
        logins: Logins | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        super().__init__(budget or NodeBudget().share("native"), name=name, tls=tls)
        self.gate = gate
        self.logins = logins  # None: everybody is served as anonymous
        self.clock = gate.clock
        self.publisher = gate.publisher
        self.config = config
        self.requests = RequestCounts(self.counters)
