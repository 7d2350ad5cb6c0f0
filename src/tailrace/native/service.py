"""What the connections of one native listener share."""

from __future__ import annotations

from tailrace.broker import Broker
from tailrace.native.config import NativeConfig
from tailrace.native.counting import RequestCounts
from tailrace.net import RequestBudget, RequestService


class NativeService(RequestService):
    """One listener's broker, bounds and running requests."""

    def __init__(self, broker: Broker, config: NativeConfig, budget: RequestBudget | None = None) -> None:
        super().__init__(
            budget
            or RequestBudget(
                config.request_bytes_max,
                reserve_bytes=config.small_requests_bytes_max,
                small_bytes=config.small_request_bytes,
            )
        )
        self.broker = broker
        self.config = config
        self.requests = RequestCounts(self.counters)
