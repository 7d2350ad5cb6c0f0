"""The servers that are measured: how each is found, configured and started. `process` is what they share."""

from bench.server.kafka import KafkaServer
from bench.server.nats import NatsServer
from bench.server.process import NotHere, Server
from bench.server.rabbitmq import RabbitServer
from bench.server.redis import RedisServer
from bench.server.tailrace import TailraceServer

__all__ = ["KafkaServer", "NatsServer", "NotHere", "RabbitServer", "RedisServer", "Server", "TailraceServer"]
