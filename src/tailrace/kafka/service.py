"""What the connections of one Kafka listener share."""

from __future__ import annotations

from random import random

from tailrace.broker.gate import Gate
from tailrace.kafka.cache import ReplyCache
from tailrace.kafka.config import KafkaConfig
from tailrace.kafka.fetch_session import FetchSessions
from tailrace.model import TopicPartition
from tailrace.net import NodeBudget, RequestBudget, RequestService
from tailrace.net.logins import Logins
from tailrace.net.tls import ServerTls
from tailrace.records import max_timestamp_at

AGE_GAP_S = 0.001
"""About how long answers are not measured after one whose age was noted: then most of them pay nothing."""
_QUICK_ROUND_S = 0.02
"""A commit round up to this time is one whose bytes cost more than its syncs."""


class KafkaService(RequestService):
    """One listener's gate, bounds, caches and running handlers."""

    def __init__(
        self,
        gate: Gate,
        config: KafkaConfig,
        budget: RequestBudget | None = None,
        *,
        name: str = "kafka",
        logins: Logins | None = None,
        tls: ServerTls | None = None,
    ) -> None:
        super().__init__(budget or NodeBudget().share("kafka"), name=name, tls=tls)
        self.gate = gate
        self.logins = logins  # None: everybody is served as anonymous
        self.clock = gate.clock
        self.produce_ms = gate.counters.produce_ms
        self.config = config
        self.large = RequestBudget(config.large_requests_bytes_max)  # large requests that are served now
        self.produced = self.counters.tally("Produce")
        self.fetched = self.counters.tally("Fetch")
        self.metadata = ReplyCache()
        self.fetch_sessions = FetchSessions(
            sessions_max=config.sessions_max,
            partitions_max=config.session_partitions_max,
            idle_s=config.session_idle_s,
        )
        self.suspects: set[TopicPartition] = set()  # their records could not be read in mid-reply
        self.next_age_at = 0.0  # from this time on the age of an answer's records is noted

    def admit_large(self, size: int) -> bool:
        """Whether a large request of `size` bytes may be served now; else it waits for others (`large`).

        A record that arrives alone must not find megabytes before it in the log's queue. Where a commit takes
        long because syncs do, it waits for the sync anyway, and few bytes in each round only cost throughput:
        the bound grows with the time of a round, up to two rounds of the log.
        """
        if self.large.take_nowait(size):
            return True
        config = self.config
        scaled = int(config.large_requests_bytes_max * self.gate.commit_round_s / _QUICK_ROUND_S)
        bound = min(max(scaled, config.large_requests_bytes_max), config.large_requests_bytes_slow_max)
        self.large.resize(max(bound, config.large_requests_bytes_max))
        return self.large.take_nowait(size)

    def note_fetch_age(self, data: memoryview) -> None:
        """Whole batches answer a Fetch now: note how old the newest record of the first one is.

        By the batch's header, since nothing is decoded here. The answers of the next moment are not measured.
        """
        # A gap of random length: a fixed one would alias with periodic clients.
        self.next_age_at = self.clock.monotonic() + 2 * AGE_GAP_S * random()
        newest_ms = max_timestamp_at(data)
        if newest_ms >= 0:
            age_ms = max(self.clock.now_ms() - newest_ms, 0)  # a client's clock may be ahead
            self.gate.counters.fetch_age.observe(age_ms / 1000)
