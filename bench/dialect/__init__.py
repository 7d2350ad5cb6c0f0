"""How each kind of server is spoken to over raw sockets: connections set up, requests prebuilt, replies
counted.

A dialect makes what a part of a load needs (a topic, a stream, a queue, and what there is to fetch), gives
its lanes, and takes everything away again. A request that a server has no counterpart for is `Unsupported`.
"""

from bench.dialect.kafka import BareDialect, KafkaDialect
from bench.dialect.nats import NatsDialect
from bench.dialect.port import Dialect, Unsupported
from bench.dialect.rabbitmq import RabbitDialect
from bench.dialect.redis import RedisDialect

DIALECTS: dict[str, type[Dialect]] = {
    "bare": BareDialect,
    "kafka": KafkaDialect,
    "nats": NatsDialect,
    "rabbitmq": RabbitDialect,
    "redis": RedisDialect,
}

__all__ = ["DIALECTS", "Dialect", "Unsupported"]
