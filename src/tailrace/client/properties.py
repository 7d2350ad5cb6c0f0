"""Kafka's property names, as a dict gives them to `MessageProducer` and `MessageConsumer`.

A name is known, or it is an error with a suggestion: a setting that does nothing in silence is worse than one
that is refused. Values may be numbers and booleans, or text as in a properties file. Names that only tune
another implementation are accepted and listed in IGNORED.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from typing import Any, TypeVar

from tailrace.client.consumer import ConsumerConfig, Reset
from tailrace.client.credentials import AnyCredentials
from tailrace.client.fetcher import FetchConfig
from tailrace.client.kafka import KafkaClient
from tailrace.client.membership import GroupConfig
from tailrace.client.producer import ProducerConfig
from tailrace.client.sasl_properties import PROTOCOL, SASL_PROPERTIES, TOKEN, read_sasl
from tailrace.client.ssl_properties import SSL_PROPERTIES, read_tls
from tailrace.model import ConfigError
from tailrace.records import Compression
from tailrace.wire.kafka.assignor import ASSIGNORS

T = TypeVar("T")

_CLIENT = (
    frozenset(
        {
            "bootstrap.servers",
            "client.id",
            "request.timeout.ms",
            "socket.connection.setup.timeout.ms",
            "security.protocol",
            "metadata.max.age.ms",
        }
    )
    | SASL_PROPERTIES
    | SSL_PROPERTIES
)
PRODUCER_PROPERTIES = _CLIENT | {
    "acks",
    "batch.size",
    "buffer.memory",
    "compression.type",
    "delivery.timeout.ms",
    "enable.idempotence",
    "key.serializer",
    "linger.ms",
    "max.block.ms",
    "max.request.size",
    "retries",
    "transaction.timeout.ms",
    "transactional.id",
    "value.serializer",
}
CONSUMER_PROPERTIES = _CLIENT | {
    "allow.auto.create.topics",
    "auto.commit.interval.ms",
    "auto.offset.reset",
    "check.crcs",
    "enable.auto.commit",
    "fetch.max.bytes",
    "fetch.max.wait.ms",
    "fetch.min.bytes",
    "group.id",
    "group.instance.id",
    "heartbeat.interval.ms",
    "isolation.level",
    "key.deserializer",
    "max.partition.fetch.bytes",
    "max.poll.interval.ms",
    "max.poll.records",
    "partition.assignment.strategy",
    "session.timeout.ms",
    "value.deserializer",
}
IGNORED = frozenset(
    {
        "client.dns.lookup",
        "connections.max.idle.ms",
        "default.api.timeout.ms",
        "interceptor.classes",
        "max.in.flight.requests.per.connection",
        "metric.reporters",
        "partitioner.class",
        "receive.buffer.bytes",
        "reconnect.backoff.max.ms",
        "reconnect.backoff.ms",
        "retry.backoff.max.ms",
        "retry.backoff.ms",
        "send.buffer.bytes",
    }
)
_ACKS = {"all": -1, "-1": -1, "0": 0, "1": 1}
_YES_NO = {"true": True, "false": False}
_DEFAULT_REQUEST_MS = 30_000


class Properties:
    """Properties whose names were checked, read one at a time with their types."""

    def __init__(self, given: Mapping[str, Any], *, known: frozenset[str]) -> None:
        if not isinstance(given, Mapping):
            raise TypeError(
                f'properties are a mapping, such as {{"bootstrap.servers": "127.0.0.1:9092"}}, not {given!r}'
            )
        self._given = dict(given)
        for name in self._given:
            if name not in known and name not in IGNORED:
                raise ConfigError(f"{name} is not a known property{_suggestion(name, known)}")

    def get(self, name: str) -> Any:
        return self._given.get(name)

    def text(self, name: str, default: str | None = None) -> str | None:
        value = self._given.get(name, default)
        return None if value is None else str(value)

    def number(self, name: str, default: int, *, least: int = 0) -> int:
        value = self._given.get(name, default)
        try:
            number = int(value)
        except (TypeError, ValueError):
            number = least - 1
        if number < least or isinstance(value, bool):
            raise ConfigError(f"{name}: {value!r} is not a number of at least {least}")
        return number

    def seconds(self, name: str, default_ms: int, *, least_ms: int = 0) -> float:
        return self.number(name, default_ms, least=least_ms) / 1000

    def flag(self, name: str, *, default: bool) -> bool:
        return self.choice(name, str(default).lower(), _YES_NO)

    def choice(self, name: str, default: str, choices: Mapping[str, T]) -> T:
        value = str(self._given.get(name, default)).lower()
        if value not in choices:
            raise ConfigError(f"{name}: {value!r} is not one of {', '.join(choices)}")
        return choices[value]


def client_from(properties: Properties) -> KafkaClient:
    """A client as the properties describe it; must be called in its event loop."""
    servers = properties.get("bootstrap.servers")
    if not servers:
        raise ConfigError("bootstrap.servers is missing. Set it to host:port, for example 127.0.0.1:9092")
    return KafkaClient(
        servers if isinstance(servers, str) else ",".join(servers),
        client_id=properties.text("client.id") or "tailrace",
        request_timeout_s=properties.seconds("request.timeout.ms", _DEFAULT_REQUEST_MS, least_ms=1),
        connect_timeout_s=properties.seconds("socket.connection.setup.timeout.ms", 10_000, least_ms=1),
        credentials=_credentials(properties),
        tls=read_tls({name: properties.text(name) for name in SSL_PROPERTIES | {PROTOCOL}}),
    )


def _credentials(properties: Properties) -> AnyCredentials | None:
    """Who logs in; the token may be a function that gives one."""
    give_token = properties.get(TOKEN) if callable(properties.get(TOKEN)) else None
    names = SASL_PROPERTIES | {PROTOCOL}
    given = {name: properties.text(name) for name in names if give_token is None or name != TOKEN}
    return read_sasl(given, give_token=give_token)


def producer_config(properties: Properties) -> ProducerConfig:
    """How a producer sends. Idempotence is on unless acks or the property itself say otherwise."""
    acks = properties.choice("acks", "all", _ACKS)
    idempotent = properties.flag("enable.idempotence", default=acks == -1)
    if idempotent and acks != -1:
        raise ConfigError("enable.idempotence needs acks=all")
    transactional_id = properties.text("transactional.id")
    if transactional_id is not None and (not transactional_id or not idempotent):
        raise ConfigError("transactional.id is not empty, and needs acks=all and enable.idempotence=true")
    codecs = {codec.name.lower(): codec for codec in Compression}
    return ProducerConfig(
        acks=acks,
        idempotent=idempotent,
        compression=properties.choice("compression.type", "none", codecs),
        linger_s=properties.seconds("linger.ms", 0),
        batch_bytes=properties.number("batch.size", 16_384),
        buffer_bytes_max=properties.number("buffer.memory", 33_554_432, least=1),
        request_bytes_max=properties.number("max.request.size", 1_048_576, least=1),
        delivery_timeout_s=properties.seconds("delivery.timeout.ms", 120_000, least_ms=1),
        retries_max=properties.number("retries", 2**31 - 1),
        transactional_id=transactional_id,
        transaction_timeout_s=properties.seconds("transaction.timeout.ms", 60_000, least_ms=1),
        block_s=properties.seconds("max.block.ms", 60_000),
    )


def consumer_config(properties: Properties) -> ConsumerConfig:
    """How a consumer reads. A group without an offset starts at the earliest record: none is missed."""
    resets: Mapping[str, Reset] = {"earliest": "earliest", "latest": "latest", "none": "none"}
    group = properties.text("group.id")
    return ConsumerConfig(
        group=_group_config(properties, group) if group else None,
        fetch=FetchConfig(
            read_committed=properties.choice(
                "isolation.level", "read_uncommitted", {"read_uncommitted": False, "read_committed": True}
            ),
            check_crcs=properties.flag("check.crcs", default=True),
            wait_ms=properties.number("fetch.max.wait.ms", 500),
            bytes_min=properties.number("fetch.min.bytes", 1),
            bytes_max=properties.number("fetch.max.bytes", 52_428_800, least=1),
            partition_bytes_max=properties.number("max.partition.fetch.bytes", 1_048_576, least=1),
        ),
        reset=properties.choice("auto.offset.reset", "earliest", resets),
        auto_commit=properties.flag("enable.auto.commit", default=True),
        auto_commit_interval_s=properties.seconds("auto.commit.interval.ms", 5000),
        records_max=properties.number("max.poll.records", 500, least=1),
        metadata_age_max_s=properties.seconds("metadata.max.age.ms", 300_000, least_ms=1),
        create_topics=properties.flag("allow.auto.create.topics", default=True),
    )


def _group_config(properties: Properties, group: str) -> GroupConfig:
    return GroupConfig(
        group=group,
        instance_id=properties.text("group.instance.id"),
        session_timeout_s=properties.seconds("session.timeout.ms", 45_000, least_ms=1),
        heartbeat_interval_s=properties.seconds("heartbeat.interval.ms", 3000, least_ms=1),
        poll_interval_max_s=properties.seconds("max.poll.interval.ms", 300_000, least_ms=1),
        strategies=_strategies(properties.get("partition.assignment.strategy")),
    )


def _strategies(setting: object) -> tuple[str, ...]:
    """Names as the protocol has them; Java's class names mean the same."""
    if setting is None:
        return tuple(ASSIGNORS)
    listed = setting.split(",") if isinstance(setting, str) else list(setting)  # type: ignore[call-overload]
    names = []
    for each in listed:
        name = str(each).strip().rpartition(".")[2].removesuffix("Assignor").lower()
        if name not in ASSIGNORS:
            known = ", ".join(ASSIGNORS)
            raise ConfigError(f"partition.assignment.strategy: {each} is not one of {known}")
        names.append(name)
    return tuple(names)


def _suggestion(name: str, known: frozenset[str]) -> str:
    close = difflib.get_close_matches(name.replace("_", "."), known, n=1)
    return f". Did you mean {close[0]}?" if close else ""
