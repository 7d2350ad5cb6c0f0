"""Everybody who is measured, as a table: a running server, and how its client is used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec

from bench.native.server import NativeTailraceServer
from bench.server import NatsServer, NotHere, RabbitServer, RedisServer, Server
from bench.server.process import HOST
from tailrace.bench.native.load import IN_FLIGHT
from tailrace.bench.native.messaging import Messaging

PEERS = ("rabbitmq", "nats", "redis")
RATE, ONE, LATENCY = "rate", "one", "latency"
STEPS = (RATE, ONE, LATENCY)
"""What is measured in one go: publish and deliver, which belong together; one publish; end to end."""

LOADS = {
    "publish": "200 publishes in flight, each awaited, 100 bytes",
    "deliver": "one subscription, prefetch 200, every delivery acknowledged",
    "one": "one publish at a time, each waited for",
    "latency": "publish to handler, 1,000 messages/s",
}

_PACKAGES = {"rabbitmq": "aio_pika", "nats": "nats", "redis": "redis", "redis-pipeline": "redis"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Contender:
    """One row of every table."""

    name: str
    title: str
    server: Server
    kind: str  # which Messaging
    steps: tuple[str, ...] = STEPS

    def find_client(self) -> None:
        """NotHere if the client is not installed."""
        package = _PACKAGES.get(self.kind)
        if package is not None and find_spec(package) is None:
            raise NotHere(
                f"its client {package} is not installed. Try: make bench-native, or pip install '.[bench]'"
            )

    def bootstrap(self) -> str | None:
        """The Kafka listener, by which topics of Tailrace are deleted."""
        if isinstance(self.server, NativeTailraceServer):
            return f"{HOST}:{self.server.kafka_port}"
        return None


def plan_contenders(peers: Sequence[str]) -> list[Contender]:
    """Tailrace in both ways, and the peers that were asked for."""
    unknown = [name for name in peers if name not in PEERS]
    if unknown:
        raise ValueError(f"no peer is called {unknown[0]!r}; there are {', '.join(PEERS)}")
    contenders = [
        Contender(
            name="tailrace",
            title="Tailrace (default: synced)",
            server=NativeTailraceServer(engine="segment"),
            kind="tailrace",
        ),
        Contender(
            name="tailrace-memory",
            title="Tailrace (memory engine)",
            server=NativeTailraceServer(engine="memory"),
            kind="tailrace",
        ),
    ]
    for name in PEERS:
        if name in peers:
            contenders += _peer(name)
    return contenders


def _peer(name: str) -> list[Contender]:
    if name == "rabbitmq":
        return [
            Contender(name=name, title="RabbitMQ (quorum queue, synced)", server=RabbitServer(), kind=name)
        ]
    if name == "nats":
        title = "NATS JetStream (file, not synced)"
        return [Contender(name=name, title=title, server=NatsServer(durable=False), kind=name)]
    redis = RedisServer()
    piped = "redis-pipeline"
    return [
        Contender(name=name, title="Redis Streams (synced)", server=redis, kind=name),
        Contender(
            name=piped,
            title="Redis Streams (synced, pipelines of 200)",
            server=redis,
            kind=piped,
            steps=(RATE,),
        ),
    ]


def messaging_of(kind: str, where: Mapping[str, object]) -> Messaging:
    """A connection, not open yet. A client is imported only where it is used: others may not be there."""
    host, port, name = HOST, int(str(where["port"])), str(where["topic"])
    if kind == "tailrace":
        from tailrace.bench.native.subject import TailraceMessaging
        from tailrace.model.address import Address

        return TailraceMessaging(
            Address(host, port), topic=name, subscription=name, bootstrap=str(where["bootstrap"])
        )
    if kind == "rabbitmq":
        from bench.native.rabbitmq import RabbitMessaging

        return RabbitMessaging(host=host, port=port, name=name)
    if kind == "nats":
        from bench.native.nats import NatsMessaging

        return NatsMessaging(host=host, port=port, name=name)
    from bench.native.redis import PipelinedRedisMessaging, RedisMessaging

    chosen = PipelinedRedisMessaging if kind == "redis-pipeline" else RedisMessaging
    return chosen(host=host, port=port, name=name, connections=redis_connections(str(where["role"])))


def redis_connections(role: str) -> int:
    """One for every command in flight and a few more; a command that finds none free waits for one.

    A thousand messages a second keep a handful busy, and opening more would be in the way of the messages.
    """
    return 8 if role == "latency" else IN_FLIGHT + 8
