"""The options of the sink. `kafka.*` are settings of Kafka's producer, by its names.

    topic                       where all rows go; without it, a column `topic` says so row by row
    delivery                    at-least-once (default), or exactly-once: the broker needs transactions
    failOnDataLoss              of exactly-once: whether rows that were decided, and that a broker without
                                two-phase commit has aborted since, fail the query; true by default
    kafka.transaction.timeout.ms  of exactly-once: from a task's first row to the commit; 15 minutes
    encryption.keys, encryption.active   values are encrypted (tailrace.spark.encryption)
    kafka.bootstrap.servers     required
    kafka.compression.type      none (default), gzip, snappy, lz4 or zstd
    kafka.batch.size            bytes of a batch, 1 MiB by default: rows come by the thousands, so batches are
                                larger than a producer of single records makes them
    kafka.max.request.size      bytes of a batch at most, 1 MiB by default; a larger row is refused
    kafka.buffer.memory         bytes that wait or travel at most, per task; 32 MiB by default
    kafka.delivery.timeout.ms   how long a batch is retried; 2 minutes by default
    kafka.acks                  all, or -1 which is the same; 0 and 1 are taken, and the sink waits for all
                                then too: less would not be at least once

A task ends when its rows have arrived, so nothing is gained by waiting for more: kafka.linger.ms is taken and
has no meaning. So have the settings in _MEANINGLESS, which only tune the Java producer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.model import ConfigError
from tailrace.records import Compression
from tailrace.spark.encryption import SparkEncryption, encryption_settings
from tailrace.spark.options import KAFKA_LINK, LinkSettings, Options, link_settings
from tailrace.spark.producing import BATCH_BYTES_MAX, DELIVERY_TIMEOUT_S, IN_FLIGHT_BYTES_MAX

_REQUEST_BYTES_MAX = 1024 * 1024
_BYTES_LIMIT = 1 << 30
"""No size beyond this is believed: a batch has to fit into a request, and a request into memory."""

_MEANING = (
    "topic",
    "delivery",
    "encryption.active",
    "encryption.keys",
    "failOnDataLoss",
    "kafka.acks",
    "kafka.batch.size",
    "kafka.buffer.memory",
    "kafka.compression.type",
    "kafka.delivery.timeout.ms",
    "kafka.max.request.size",
    "kafka.transaction.timeout.ms",
)
_MEANINGLESS = (
    "includeHeaders",  # headers are written where there is a column of them
    "kafka.compression.gzip.level",
    "kafka.compression.lz4.level",
    "kafka.compression.zstd.level",
    "kafka.enable.idempotence",  # always
    "kafka.linger.ms",
    "kafka.max.block.ms",
    "kafka.max.in.flight.requests.per.connection",
    "kafka.metadata.max.idle.ms",
    "kafka.partitioner.adaptive.partitioning.enable",
    "kafka.partitioner.availability.timeout.ms",
    "kafka.transaction.two.phase.commit.enable",
)
# Spark passes on what was set on the query itself.
_QUERYS_OWN = ("checkpointLocation", "queryName")
_REFUSED = {
    "kafka.key.serializer": "keys are written as they are. Cast the column key to binary or string",
    "kafka.value.serializer": "values are written as they are. Cast the column value to binary or string",
    "kafka.interceptor.classes": "interceptors are Java. Change the rows with DataFrame operations",
    "kafka.partitioner.ignore.keys": "rows go by key, or where a column partition says. Add that column",
    "kafka.partitioner.class": "rows go by key, or where a column partition says. Add that column",
    "kafka.transactional.id": "query and task name it. Leave it out, and set delivery=exactly-once",
}
_CODECS = {each.name.lower(): each for each in Compression}
_DELIVERIES = {"at-least-once": False, "exactly-once": True}
_TRANSACTION_TIMEOUT_MS = 15 * 60 * 1000
"""The longest that a broker takes unless it is configured otherwise (transaction.max.timeout.ms)."""
_ACKS = ("all", "-1", "0", "1")


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducingSettings:
    """How rows leave; picklable."""

    compression: Compression = Compression.NONE
    batch_bytes_max: int = BATCH_BYTES_MAX
    request_bytes_max: int = _REQUEST_BYTES_MAX
    in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX
    delivery_timeout_s: float = DELIVERY_TIMEOUT_S


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkSettings:
    """All options, read."""

    link: LinkSettings
    topic: str | None
    producing: ProducingSettings
    exactly_once: bool
    transaction_timeout_ms: int
    fails_on_loss: bool
    encryption: SparkEncryption | None
    checkpoint: str | None  # of a query, where it was set on the query itself


def read_settings(given: Mapping[str, str]) -> SinkSettings:
    """The options of a sink; ConfigError names the one that is wrong, its value and the fix."""
    options = Options(given, known=(*_MEANING, *KAFKA_LINK, *_MEANINGLESS, *_QUERYS_OWN), refused=_REFUSED)
    exactly_once = options.choice("delivery", "at-least-once", _DELIVERIES)
    _check_acks(options)
    topic = options.text("topic")
    if topic == "":
        raise ConfigError("option topic is empty. Name a topic, or leave it out and have a column 'topic'")
    return SinkSettings(
        link=link_settings(options),
        topic=topic,
        producing=_producing(options),
        exactly_once=exactly_once,
        transaction_timeout_ms=options.number("kafka.transaction.timeout.ms") or _TRANSACTION_TIMEOUT_MS,
        fails_on_loss=options.flag("failOnDataLoss", default=True),
        encryption=encryption_settings(options),
        checkpoint=options.text("checkpointLocation"),
    )


def _producing(options: Options) -> ProducingSettings:
    request_bytes_max = _bytes(options, "kafka.max.request.size", _REQUEST_BYTES_MAX)
    timeout_ms = options.number("kafka.delivery.timeout.ms")
    return ProducingSettings(
        compression=options.choice("kafka.compression.type", "none", _CODECS),
        batch_bytes_max=min(_bytes(options, "kafka.batch.size", BATCH_BYTES_MAX), request_bytes_max),
        request_bytes_max=request_bytes_max,
        in_flight_bytes_max=_bytes(options, "kafka.buffer.memory", IN_FLIGHT_BYTES_MAX),
        delivery_timeout_s=DELIVERY_TIMEOUT_S if timeout_ms is None else timeout_ms / 1000,
    )


def _bytes(options: Options, name: str, default: int) -> int:
    number = options.number(name)
    if number is None:
        return default
    if number > _BYTES_LIMIT:
        raise ConfigError(f"option {name}={number} is too large. Use {_BYTES_LIMIT} bytes at most")
    return number


def _check_acks(options: Options) -> None:
    acks = options.text("kafka.acks", "all") or ""
    if acks.lower() not in _ACKS:
        raise ConfigError(
            f"option kafka.acks={acks!r} is not possible. Use all, or leave it out: the sink always waits"
            " for all in-sync replicas"
        )
