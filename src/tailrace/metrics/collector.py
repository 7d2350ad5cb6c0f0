"""Every metric of a node, by name. Base units, as Prometheus wants them: seconds, bytes, totals.

Figures are of topics, groups and subscriptions, not of partitions, unless somebody asks; what kafka_exporter
shows is by partition in its nature (`kafka_names`). Where there are too many of something, those that are
left out are counted in tailrace_metrics_truncated, and are still part of the totals without labels.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

from prometheus_client import CollectorRegistry, GCCollector, PlatformCollector, ProcessCollector
from prometheus_client.core import Metric
from prometheus_client.registry import Collector

from tailrace.broker.quotas.quota import OF_CLIENTS
from tailrace.broker.subscriptions import Subscription
from tailrace.metrics.family import Labels, counter, gauge, histogram, one
from tailrace.metrics.kafka_names import kafka_families
from tailrace.metrics.lag import Position, subscription_lag
from tailrace.metrics.loop_lag import LoopLag
from tailrace.metrics.observed import Observed
from tailrace.metrics.snapshot import Snapshot
from tailrace.net import ListenerCounters
from tailrace.security import BASIC, CONSOLE, MECHANISMS, TOKEN

NO_ERROR = "none"


class NodeCollector(Collector):
    """The families of one node; made as they are asked for, one after the other."""

    def __init__(self, observed: Observed, snapshot: Snapshot, loop_lag: LoopLag) -> None:
        self._observed = observed
        self._snapshot = snapshot
        self._loop_lag = loop_lag

    def collect(self) -> Iterator[Metric]:
        yield from self._node()
        yield from self._traffic()
        yield from self._requests()
        yield from self._connections()
        yield from self._logins()
        yield from self._quotas()
        yield from self._audit()
        yield from self._tls()
        yield from self._topics()
        yield from self._storage()
        yield from self._groups()
        yield from self._subscriptions()
        yield from self._lakes()
        yield from kafka_families(self._observed.broker, self._snapshot)
        if self._snapshot.by_partition:
            yield from self._partitions()
        yield from _process()

    # ---- by subject

    def _node(self) -> Iterator[Metric]:
        observed, snapshot = self._observed, self._snapshot
        yield from gauge("tailrace_info", "What runs here.", [(dict(observed.info), 1)])
        yield from gauge(
            "tailrace_topics", "Topics, the broker's own among them.", one(snapshot.topics_total)
        )
        yield from gauge("tailrace_partitions", "Partitions, of all topics.", one(snapshot.partitions_total))
        yield from gauge(
            "tailrace_under_replicated_partitions",
            "Partitions with fewer replicas in sync than they should have.",
            one(snapshot.under_replicated),
        )
        yield from gauge(
            "tailrace_offline_partitions",
            "Partitions that this node should serve and whose log is missing.",
            one(snapshot.offline),
        )
        yield from histogram(
            "tailrace_event_loop_lag_seconds",
            "How late the event loop came to a timer, ten times a second.",
            [({}, self._loop_lag.lateness)],
        )
        yield from gauge(
            "tailrace_metrics_truncated",
            "How many are left out of these metrics because there are too many of them.",
            (({"what": what}, count) for what, count in snapshot.truncated.items()),
        )

    def _traffic(self) -> Iterator[Metric]:
        totals = self._observed.broker.counters.totals()
        for name, doc, value in (
            ("records_in", "Records that were stored.", totals.records_in),
            ("bytes_in", "Bytes of batches that were stored.", totals.bytes_in),
            ("batches_in", "Batches that were stored.", totals.batches_in),
            ("records_out", "Records that were read.", totals.records_out),
            ("bytes_out", "Bytes that were read.", totals.bytes_out),
        ):
            yield from counter(f"tailrace_{name}", doc, one(value))
        yield from histogram(
            "tailrace_fetch_age_seconds",
            "How old records are when they answer a Fetch: by the newest timestamp of the first batch, of "
            "about 1,000 answers a second at most.",
            [({}, self._observed.broker.counters.fetch_age)],
        )

    def _requests(self) -> Iterator[Metric]:
        listeners = self._observed.listeners
        yield from counter(
            "tailrace_requests",
            'Requests that were answered, by API and by the error of the answer ("none": without one).',
            (sample for listener, counters in listeners.items() for sample in _by_error(listener, counters)),
        )
        yield from histogram(
            "tailrace_request_duration_seconds",
            "From when a request was taken to when its answer was known, waits for others included; of most.",
            (
                ({"listener": listener, "api": api}, tally.duration)
                for listener, counters in listeners.items()
                for api, tally in list(counters.tallies.items())  # some come while others are written
                if tally.duration.count
            ),
        )
        yield from counter(
            "tailrace_protocol_errors",
            "Clients that broke the protocol and were let go.",
            (({"listener": listener}, counters.protocol_errors) for listener, counters in listeners.items()),
        )
        yield from counter(
            "tailrace_internal_errors",
            "Bugs of the broker that a client met; the log has them.",
            (({"listener": listener}, counters.failures) for listener, counters in listeners.items()),
        )

    def _logins(self) -> Iterator[Metric]:
        logins = self._observed.logins
        yield from counter(
            "tailrace_logins",
            "Logins that succeeded and that failed, by mechanism.",
            (
                ({"mechanism": mechanism, "result": result}, by_mechanism[mechanism])
                for result, by_mechanism in (("succeeded", logins.succeeded), ("failed", logins.failed))
                for mechanism in (*MECHANISMS, BASIC, CONSOLE, TOKEN)
            ),
        )

    def _quotas(self) -> Iterator[Metric]:
        counts = self._observed.broker.quotas.counts
        yield from counter(
            "tailrace_throttled_requests",
            "Requests after which the client was not read for a time, by the quota that it had used up.",
            (({"quota": quota}, counts.requests.get(quota, 0)) for quota in OF_CLIENTS),
        )
        yield from counter(
            "tailrace_throttle_seconds",
            "For how long clients were not read, by the quota that they had used up.",
            (({"quota": quota}, counts.seconds.get(quota, 0.0)) for quota in OF_CLIENTS),
        )
        yield from counter(
            "tailrace_throttled_connections",
            "Connections that were refused because their address connects too often.",
            one(counts.connections),
        )

    def _audit(self) -> Iterator[Metric]:
        counts = self._observed.broker.audit.counts
        yield from counter("tailrace_audit_entries", "Entries of the audit log.", one(counts.recorded))
        yield from counter(
            "tailrace_audit_dropped",
            "Entries of the audit log that are in no topic, because too many waited to be written.",
            one(counts.dropped),
        )

    def _tls(self) -> Iterator[Metric]:
        listeners, now = self._observed.tls, time.time()
        yield from gauge(
            "tailrace_certificate_expiry_seconds",
            "Until the certificate of a listener expires; below 0 it has.",
            (({"listener": each.listener}, each.expires_at - now) for each in listeners),
        )
        yield from counter(
            "tailrace_tls_handshakes",
            "TLS handshakes of a listener, by what became of them.",
            (
                ({"listener": each.listener, "result": result}, count)
                for each in listeners
                for result, count in (("succeeded", each.counts.succeeded), *each.counts.failed.items())
            ),
        )

    def _connections(self) -> Iterator[Metric]:
        listeners = self._observed.listeners.items()
        yield from gauge(
            "tailrace_connections",
            "Connections that are open.",
            (({"listener": listener}, counters.connections) for listener, counters in listeners),
        )
        yield from counter(
            "tailrace_connections_accepted",
            "Connections that were accepted.",
            (({"listener": listener}, counters.accepted) for listener, counters in listeners),
        )
        yield from counter(
            "tailrace_connections_refused",
            "Connections that were closed at once because there were too many.",
            (({"listener": listener}, counters.refused) for listener, counters in listeners),
        )
        budgets = self._observed.budgets.items()
        yield from gauge(
            "tailrace_request_budget_used_bytes",
            "Bytes of requests that were read, or are being read, and are not answered.",
            (({"listener": listener}, budget.used) for listener, budget in budgets),
        )
        yield from gauge(
            "tailrace_request_budget_limit_bytes",
            "The most that a listener may use: what is kept for it, and what all listeners share.",
            (({"listener": listener}, budget.bytes_max) for listener, budget in budgets),
        )
        yield from gauge(
            "tailrace_unread_bytes",
            "Bytes that clients have not read: of connections that have more than 64 KiB of them.",
            (({"listener": listener}, budget.unread.bytes) for listener, budget in budgets),
        )
        yield from gauge(
            "tailrace_streams",
            "Live streams that are open: tails and WebSockets.",
            one(self._observed.streams),
        )

    def _topics(self) -> Iterator[Metric]:
        shown = [({"topic": each.topic.name}, each) for each in self._snapshot.topics]
        for name, doc in (
            ("records_in", "Records that were stored in a topic."),
            ("bytes_in", "Bytes of batches that were stored in a topic."),
            ("records_out", "Records that were read from a topic."),
            ("bytes_out", "Bytes that were read from a topic."),
        ):
            yield from counter(
                f"tailrace_topic_{name}",
                doc,
                ((labels, getattr(each.topic.counters, name)) for labels, each in shown),
            )
        yield from gauge(
            "tailrace_topic_log_bytes",
            "What the log of a topic takes, on disk or in memory.",
            ((labels, each.log_bytes) for labels, each in shown),
        )

    def _storage(self) -> Iterator[Metric]:
        storage, log_bytes = self._observed.broker.storage, self._snapshot.log_bytes
        yield from gauge("tailrace_log_bytes", "What all logs take, on disk or in memory.", one(log_bytes))
        yield from gauge(
            "tailrace_ring_bytes",
            "What the rings of the memory engine hold; 0 where logs are on disk.",
            one(0 if storage.durable else log_bytes),
        )
        free = self._observed.free_space.newest_bytes
        yield from gauge(
            "tailrace_disk_free_bytes",
            "Space left where the logs are.",
            () if free is None else one(free),
        )
        queue = storage.counters.commit_queue()
        yield from gauge(
            "tailrace_commit_queue_entries",
            "Batches, and changes of logs, that wait until they are durable.",
            one(queue.entries),
        )
        yield from gauge(
            "tailrace_commit_queue_bytes",
            "Bytes of batches that wait until they are durable.",
            one(queue.bytes),
        )
        yield from histogram(
            "tailrace_log_append_duration_seconds",
            "From when a commit round was taken to when it was durable; many appends share one.",
            [({}, storage.counters.append)],
        )
        yield from histogram(
            "tailrace_log_flush_duration_seconds",
            "The journal's write and sync of a commit round.",
            [({}, storage.counters.flush)],
        )
        for figure in storage.counters.figures():
            family = counter if figure.only_grows else gauge
            yield from family(figure.name, figure.doc, one(figure.value))

    def _groups(self) -> Iterator[Metric]:
        transactions = self._observed.broker.transactions
        yield from gauge(
            "tailrace_transactions_open",
            "Transactions that are open, or whose end is being written.",
            one(transactions.open_count),
        )
        yield from gauge(
            "tailrace_transactions_hanging",
            "Transactions that are open in a partition and unknown to their coordinator, at the last look.",
            one(len(transactions.hanging)),
        )
        yield from gauge(
            "tailrace_group_lag",
            "Records of a topic that a consumer group has not committed.",
            (
                ({"group": group, "topic": topic}, lag)
                for group, positions in self._snapshot.groups
                for topic, lag in sum_lag(positions).items()
            ),
        )

    def _subscriptions(self) -> Iterator[Metric]:
        shown = [(_labels_of(each), each) for each in self._snapshot.subscriptions]
        latencies = self._observed.broker.subscriptions.latencies
        yield from gauge(
            "tailrace_subscription_lag",
            "Messages that a subscription is not done with.",
            ((labels, subscription_lag(each)) for labels, each in shown),
        )
        yield from gauge(
            "tailrace_subscription_in_flight",
            "Messages that are with members of a subscription.",
            ((labels, sum(part.machine.in_flight for part in each.partitions)) for labels, each in shown),
        )
        yield from gauge(
            "tailrace_subscription_retry_buffer_bytes",
            "What messages take that are kept to be delivered again.",
            ((labels, each.retained_bytes) for labels, each in shown),
        )
        memory = self._observed.broker.subscriptions.memory
        yield from gauge(
            "tailrace_subscriptions_memory_bytes",
            "What all subscriptions keep of messages: held by members, waiting for one, or read again.",
            one(memory.bytes),
        )
        yield from gauge(
            "tailrace_subscriptions_memory_limit_bytes",
            "The most that all subscriptions keep of messages; at it the least recently used forget theirs.",
            one(memory.bytes_max),
        )
        yield from gauge(
            "tailrace_subscription_members",
            "Members of a subscription.",
            ((labels, len(each.members)) for labels, each in shown),
        )
        for name, doc in (
            ("delivered", "Messages that were delivered, again or for the first time."),
            ("redelivered", "Messages that were delivered again."),
            ("acknowledged", "Messages that were acknowledged."),
        ):
            yield from counter(
                f"tailrace_subscription_{name}",
                doc,
                ((labels, getattr(each.counters, name)) for labels, each in shown),
            )
        yield from counter(
            "tailrace_subscription_dead",
            "Dead letters that were written.",
            ((labels, each.dead) for labels, each in shown),
        )
        yield from counter(
            "tailrace_subscription_skipped",
            "Messages that were never delivered: gone from the log, or in a batch that cannot be decoded.",
            (
                ({**labels, "reason": reason}, count)
                for labels, each in shown
                for reason, count in each.skipped.items()
            ),
        )
        yield from histogram(
            "tailrace_delivery_latency_seconds",
            "From a message's timestamp to its first delivery on a subscription; the oldest of each piece.",
            [({}, latencies.delivery)],
        )
        yield from histogram(
            "tailrace_ack_latency_seconds",
            "From a delivery to its acknowledgement; of each subscription one message at a time.",
            [({}, latencies.acknowledgement)],
        )

    def _lakes(self) -> Iterator[Metric]:
        yield from gauge(
            "tailrace_lake_missing_offsets",
            "Offsets that a lake misses because they were deleted before they were archived; as its newest "
            "archive told.",
            (
                ({"lake": lake, "topic": topic, "partition": partition}, count)
                for (lake, topic, partition), count in self._snapshot.lakes_missing.items()
            ),
        )

    def _partitions(self) -> Iterator[Metric]:
        shown = [each for each in self._snapshot.partitions if each.is_held_here]
        for name, doc, attribute in (
            ("log_bytes", "What the log of a partition takes.", "size_bytes"),
            ("start_offset", "The first offset of a partition that can be read.", "start_offset"),
            ("end_offset", "The offset that the next record of a partition gets.", "end_offset"),
        ):
            yield from gauge(
                f"tailrace_partition_{name}",
                doc,
                (
                    ({"topic": each.topic, "partition": str(each.index)}, getattr(each, attribute))
                    for each in shown
                    if each.is_held_here
                ),
            )


def sum_lag(positions: list[Position]) -> dict[str, int]:
    """The lag by topic."""
    lag: dict[str, int] = {}
    for each in positions:
        lag[each.topic] = lag.get(each.topic, 0) + each.lag
    return lag


def _by_error(listener: str, counters: ListenerCounters) -> Iterator[tuple[Labels, float]]:
    for api, tally in list(counters.tallies.items()):
        if not tally.requests:
            continue
        yield {"listener": listener, "api": api, "error": NO_ERROR}, tally.requests - tally.failed
        for error, count in list(tally.errors.items()):
            yield {"listener": listener, "api": api, "error": error}, count


def _labels_of(subscription: Subscription) -> Labels:
    return {"subscription": subscription.config.name, "topic": subscription.config.topic}


def _process() -> Iterator[Metric]:
    """Of the process and its interpreter; not by the global registry: several brokers live in one process."""
    registry = CollectorRegistry()
    ProcessCollector(registry=registry)
    PlatformCollector(registry=registry)
    GCCollector(registry=registry)
    yield from registry.collect()
