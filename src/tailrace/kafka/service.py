"""What the connections of one Kafka listener share."""

from __future__ import annotations

from tailrace.broker.gate import Gate
from tailrace.kafka.cache import ReplyCache
from tailrace.kafka.config import KafkaConfig
from tailrace.kafka.fetch_session import FetchSessions
from tailrace.model import TopicPartition
from tailrace.net import NodeBudget, RequestBudget, RequestService
from tailrace.records import max_timestamp_at


class KafkaService(RequestService):
    """One listener's gate, bounds, caches and running handlers."""

    def __init__(self, gate: Gate, config: KafkaConfig, budget: RequestBudget | None = None) -> None:
        super().__init__(budget or NodeBudget().share("kafka"))
        self.gate = gate
        self.clock = gate.clock
        self.produce_ms = gate.counters.produce_ms
        self.config = config
        # A record that arrives alone must not find megabytes before it in the log's queue.
        self.large = RequestBudget(config.large_requests_bytes_max)
        self.produced = self.counters.tally("Produce")
        self.fetched = self.counters.tally("Fetch")
        self.metadata = ReplyCache()
        self.fetch_sessions = FetchSessions(
            sessions_max=config.sessions_max,
            partitions_max=config.session_partitions_max,
            idle_s=config.session_idle_s,
        )
        self.suspects: set[TopicPartition] = set()  # their records could not be read in mid-reply

    def note_fetch_age(self, data: memoryview) -> None:
        """Whole batches answer a Fetch now: note how old the newest record of the first one is.

        By the batch's header, since nothing is decoded here.
        """
        newest_ms = max_timestamp_at(data)
        if newest_ms >= 0:
            age_ms = max(self.clock.now_ms() - newest_ms, 0)  # a client's clock may be ahead
            self.gate.counters.fetch_age.observe(age_ms / 1000)
