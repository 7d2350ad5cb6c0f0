"""The figures of one node, as a listener shows them.

`server/node.py` builds it, because that module knows the broker. A listener gets figures out of it and never
the broker itself: which topics, groups and subscriptions a client may see is decided by the gate.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.broker.health import Figures, clock_text, damage_text
from tailrace.metrics.health import collect_figures, damaged_partitions
from tailrace.metrics.observed import Observed
from tailrace.metrics.sampler import Sampler
from tailrace.net import ListenerCounters

if TYPE_CHECKING:
    from tailrace.metrics.exposition import Exporter


class NodeMetrics:
    """What is measured of one node: now, in the last hour, and as text for Prometheus."""

    def __init__(self, observed: Observed) -> None:
        self._observed = observed
        self.sampler = Sampler(observed)  # the server of the app starts it and stops it
        self._exporter: Exporter | None = None

    def __repr__(self) -> str:
        return f"<NodeMetrics with {self.sampler}>"

    @property
    def listeners(self) -> Mapping[str, ListenerCounters]:
        """The counters of every listener, by its name."""
        return self._observed.listeners

    @property
    def disk_free_bytes(self) -> int | None:
        """The free space of the newest sample; None where the logs are in memory."""
        return self._observed.free_space.newest_bytes

    @property
    def failure(self) -> Exception | None:
        """What ended the broker, once something did."""
        return self._observed.broker.cluster.failure

    @property
    def impairments(self) -> list[str]:
        """What the node does not do as it should although it serves, a sentence each."""
        broker = self._observed.broker
        refusal = broker.storage.counters.refusal()
        found = [] if refusal is None else [f"writes are refused: {refusal}"]
        if refusal is None and (trouble := broker.storage.counters.trouble()):
            found.append(trouble)
        if damaged := damaged_partitions(broker):
            found.append(damage_text(damaged))
        if broker.clock.ahead_ms:
            found.append(clock_text(broker.clock.ahead_ms))
        return found

    @property
    def exporter(self) -> Exporter:
        """The metrics as Prometheus reads them."""
        if self._exporter is None:
            from tailrace.metrics.exposition import Exporter  # imports prometheus_client

            self._exporter = Exporter(self._observed, self.sampler.loop_lag)
        return self._exporter

    async def collect_health(self) -> Figures:
        """The present figures that `broker.health` judges."""
        return await collect_figures(self._observed, self.sampler)
