"""Every server and durability that is measured, as a table.

A target is a running server and what an acknowledgement means on it. Durable is a sync to the disk before the
acknowledgement. Tailrace does that by default; `tailrace-os` is the same program with `fsync = os`, which
leaves the syncing to the system, as Kafka's default does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from bench.load import Load, WireLoad
from bench.server import KafkaServer, NatsServer, RabbitServer, RedisServer, Server, TailraceServer

PEERS = ("kafka", "redis", "nats", "rabbitmq")


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """One column of the report."""

    name: str
    title: str
    server: Server
    dialect: str
    durable: bool
    topic_configs: dict[str, str] = field(default_factory=dict)

    def takes(self, load: Load) -> bool:
        """Whether the load is meant for it."""
        if isinstance(load, WireLoad):
            return load.on == "all" or not self.durable
        return self.dialect == "kafka" and not self.topic_configs


def plan_targets(peers: Sequence[str]) -> list[Target]:
    """Tailrace in both ways, and the peers that were asked for."""
    unknown = [name for name in peers if name not in PEERS]
    if unknown:
        raise ValueError(f"no peer is called {unknown[0]!r}; there are {', '.join(PEERS)}")
    targets = [
        Target(
            name="tailrace",
            title="Tailrace (default: durable)",
            server=TailraceServer(fsync="commit"),
            dialect="kafka",
            durable=True,
        ),
        Target(
            name="tailrace-os",
            title="Tailrace (fsync = os)",
            server=TailraceServer(fsync="os"),
            dialect="kafka",
            durable=False,
        ),
    ]
    for name in PEERS:
        if name in peers:
            targets += _peer(name)
    return targets


def _peer(name: str) -> list[Target]:
    if name == "kafka":
        kafka = KafkaServer()
        flush = {"flush.messages": "1"}
        return [
            Target(name=name, title="Kafka (default)", server=kafka, dialect=name, durable=False),
            Target(
                name="kafka-durable",
                title="Kafka (flush.messages=1)",
                server=kafka,
                dialect=name,
                durable=True,
                topic_configs=flush,
            ),
        ]
    relaxed, durable, titles = _pair(name)
    return [
        Target(name=name, title=titles[0], server=relaxed, dialect=name, durable=False),
        Target(name=f"{name}-durable", title=titles[1], server=durable, dialect=name, durable=True),
    ]


def _pair(name: str) -> tuple[Server, Server, tuple[str, str]]:
    """The servers of the relaxed and of the durable target, which may be one, and what both are called."""
    if name == "nats":
        titles = ("NATS JetStream (default)", "NATS JetStream (sync_interval: always)")
        return NatsServer(durable=False), NatsServer(durable=True), titles
    if name == "redis":
        redis = RedisServer()
        return redis, redis, ("Redis Streams (appendfsync no)", "Redis Streams (appendfsync always)")
    rabbit = RabbitServer()
    return rabbit, rabbit, ("RabbitMQ stream", "RabbitMQ quorum queue")


def servers_of(targets: Sequence[Target]) -> list[Server]:
    """Each server once, in order."""
    return list(dict.fromkeys(target.server for target in targets))
