"""The options of a read, checked. Names, defaults and meanings are those of Spark's Kafka source.

What differs: `isolation.level` may be given with and without `kafka.`; `maxBytesPerTrigger`,
`publishGroup`, `waitForTopics` and those of value_option.py are additions; a name that is not known is an
error. As in Spark, and in Kafka's own consumer, records of open and of aborted transactions are read unless
isolation.level is read_committed.

Limits of a trigger mean nothing to a batch read and are passed over there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from tailrace.model import ConfigError, TopicPartition
from tailrace.spark.encryption import OPTIONS as ENCRYPTION_OPTIONS
from tailrace.spark.encryption import SparkEncryption, encryption_settings
from tailrace.spark.options import KAFKA_LINK, LinkSettings, Options, link_settings
from tailrace.spark.source.java_pattern import compile_java
from tailrace.spark.source.place import Place, check_batch, end_place, read_assignment, start_place
from tailrace.spark.source.value_option import OPTIONS as VALUE_OPTIONS
from tailrace.spark.source.value_option import ValueSettings, value_settings

TRIGGER_DELAY_MS_MAX = 15 * 60 * 1000
FETCH_BYTES_MAX = 100 * 1024 * 1024
"""A reply above 128 MiB would be refused, and one batch may exceed what was asked for."""

_SUBSCRIPTIONS = ("subscribe", "subscribePattern", "assign")
_ENDINGS = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
# Spark's source has them for its Java consumers; here they have nothing to act on.
_NO_EFFECT = frozenset(
    {
        "kafkaConsumer.pollTimeoutMs",
        "fetchOffset.numRetries",
        "fetchOffset.retryIntervalMs",
        "groupIdPrefix",
        "kafka.group.id",
        "kafka.group.instance.id",
        "kafka.group.protocol",
        "kafka.group.remote.assignor",
        "kafka.fetch.min.bytes",
        "kafka.fetch.max.wait.ms",
        "kafka.heartbeat.interval.ms",
        "kafka.max.poll.interval.ms",
        "kafka.max.poll.records",
        "kafka.partition.assignment.strategy",
        "kafka.session.timeout.ms",
    }
)
KNOWN = (
    KAFKA_LINK
    | _NO_EFFECT
    | {*_SUBSCRIPTIONS, *_ENDINGS, *VALUE_OPTIONS, *ENCRYPTION_OPTIONS}
    | {
        "startingOffsets",
        "startingTimestamp",
        "startingOffsetsByTimestamp",
        "startingOffsetsByTimestampStrategy",
        "failOnDataLoss",
        "minOffsetsPerTrigger",
        "maxOffsetsPerTrigger",
        "maxBytesPerTrigger",
        "maxTriggerDelay",
        "minPartitions",
        "maxRecordsPerPartition",
        "parallelism",
        "includeHeaders",
        "isolation.level",
        "publishGroup",
        "waitForTopics",
        "kafka.exclude.internal.topics",
        "kafka.isolation.level",
        "kafka.fetch.max.bytes",
        "kafka.max.partition.fetch.bytes",
    }
)
_REFUSED = {
    "kafka.auto.offset.reset": (
        "the query itself keeps its offsets. Set startingOffsets to earliest or latest instead"
    ),
    "kafka.enable.auto.commit": (
        "the query itself keeps its offsets. To show its progress as a consumer group set publishGroup"
    ),
    "kafka.auto.commit.interval.ms": "the query itself keeps its offsets",
    "kafka.key.deserializer": "keys are binary. Use DataFrame operations to decode them: CAST(key AS STRING)",
    "kafka.value.deserializer": (
        "values are binary. Use DataFrame operations to decode them: CAST(value AS STRING)"
    ),
    "kafka.interceptor.classes": "interceptors may change what is read, which a replayed batch cannot bear",
    "topic": "it is for writing. To read set subscribe",
}
_ISOLATION = {"read_uncommitted": False, "read_committed": True}


@dataclass(frozen=True, slots=True, kw_only=True)
class Topics:
    """What is read: topics by name, by pattern, or single partitions."""

    names: tuple[str, ...] = ()
    pattern: re.Pattern[str] | None = None
    internal: bool = False
    """Whether the pattern may match internal topics."""
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """One read, described. Picklable: it goes to the workers."""

    link: LinkSettings
    topics: Topics
    start: Place
    end: Place
    """Of a batch read; a stream has none."""
    read_committed: bool
    fail_on_data_loss: bool
    include_headers: bool
    partitions_min: int | None
    partition_records_max: int | None
    parallelism: int | None
    """How many tasks Spark runs side by side; None where it is not known."""
    trigger_offsets_min: int | None
    trigger_offsets_max: int | None
    trigger_bytes_max: int | None
    trigger_delay_ms_max: int
    fetch_bytes: int | None  # None: a size that suits reading
    publish_group: str | None
    waits_for_topics: bool
    """Whether a stream may begin before its topics exist."""
    value: ValueSettings | None
    """None where values are not decoded."""
    encryption: SparkEncryption | None = None
    """None where records are handed out as they are."""


def batch_settings(given: Mapping[str, str]) -> SourceSettings:
    """The settings of a batch read; ConfigError names the option, its value and the fix."""
    settings = _settings(Options(given, known=KNOWN, refused=_REFUSED), start="earliest")
    check_batch(settings.start, settings.end)
    return settings


def stream_settings(given: Mapping[str, str]) -> SourceSettings:
    """The settings of a streaming read."""
    options = Options(given, known=KNOWN, refused=_REFUSED)
    for name in _ENDINGS:
        if name in options:
            raise ConfigError(f"option {name} is for batch reads: a stream has no end. Leave it out")
    return _settings(options, start="latest")


def includes_headers(given: Mapping[str, str]) -> bool:
    """Whether there is a column of headers; also the first look at the options of any read."""
    options = Options(given, known=KNOWN, refused=_REFUSED)
    link_settings(options)
    _topics(options)
    return options.flag("includeHeaders", default=False)


def decodes_values(given: Mapping[str, str]) -> tuple[ValueSettings | None, str | None]:
    """How values are decoded, and the topic if it is one; None if they are not."""
    options = Options(given, known=KNOWN, refused=_REFUSED)
    topics = _topics(options)
    names = set(topics.names) | {tp.topic for tp in topics.assigned}
    return value_settings(options), names.pop() if len(names) == 1 else None


def _settings(options: Options, *, start: str) -> SourceSettings:
    offsets_min = options.number("minOffsetsPerTrigger")
    offsets_max = options.number("maxOffsetsPerTrigger")
    if offsets_min is not None and offsets_max is not None and offsets_min > offsets_max:
        raise ConfigError(
            f"option minOffsetsPerTrigger={offsets_min} is more than maxOffsetsPerTrigger={offsets_max}."
            " Lower the one or raise the other"
        )
    return SourceSettings(
        link=link_settings(options),
        topics=_topics(options),
        start=start_place(options, default=start),
        end=end_place(options),
        read_committed=_read_committed(options),
        fail_on_data_loss=options.flag("failOnDataLoss", default=True),
        include_headers=options.flag("includeHeaders", default=False),
        partitions_min=options.number("minPartitions"),
        partition_records_max=options.number("maxRecordsPerPartition"),
        parallelism=options.number("parallelism"),
        trigger_offsets_min=offsets_min,
        trigger_offsets_max=offsets_max,
        trigger_bytes_max=options.number("maxBytesPerTrigger"),
        trigger_delay_ms_max=options.duration_ms("maxTriggerDelay", default_ms=TRIGGER_DELAY_MS_MAX),
        fetch_bytes=_fetch_bytes(options),
        publish_group=_publish_group(options),
        waits_for_topics=options.flag("waitForTopics", default=False),
        value=value_settings(options),
        encryption=encryption_settings(options),
    )


def _topics(options: Options) -> Topics:
    given = [name for name in _SUBSCRIPTIONS if name in options]
    if len(given) != 1:
        what = f"has {' and '.join(given)}" if given else "has none of them"
        raise ConfigError(f"a read needs one of the options {', '.join(_SUBSCRIPTIONS)}, and this one {what}")
    name, text = given[0], options.text(given[0]) or ""
    if name == "assign":
        return Topics(assigned=read_assignment(name, text))
    if name == "subscribePattern":
        internal = not options.flag("kafka.exclude.internal.topics", default=True)
        return Topics(pattern=_pattern(name, text), internal=internal)
    names = tuple(sorted({each.strip() for each in text.split(",")} - {""}))
    if not names:
        raise ConfigError(
            f"option {name}={text!r} names no topic. Use for example orders, or orders,payments"
        )
    return Topics(names=names)


def _pattern(name: str, text: str) -> re.Pattern[str]:
    if not text:
        raise ConfigError(f"option {name} is empty. Use a regular expression, for example orders-.*")
    return compile_java(name, text)


def _read_committed(options: Options) -> bool:
    own = options.choice("isolation.level", "read_uncommitted", _ISOLATION)
    kafkas = options.choice("kafka.isolation.level", "read_uncommitted", _ISOLATION)
    if "isolation.level" in options and "kafka.isolation.level" in options and own != kafkas:
        raise ConfigError("options isolation.level and kafka.isolation.level differ. Leave one out")
    return own or kafkas


def _fetch_bytes(options: Options) -> int | None:
    """The smaller of Kafka's two limits: a fetch here is always of one partition."""
    names = ("kafka.fetch.max.bytes", "kafka.max.partition.fetch.bytes")
    given = [number for name in names if (number := options.number(name)) is not None]
    return min([*given, FETCH_BYTES_MAX]) if given else None


def _publish_group(options: Options) -> str | None:
    if "publishGroup" not in options:
        return None
    group = options.text("publishGroup")
    if not group:
        raise ConfigError(
            "option publishGroup is empty. Set it to the name of a consumer group, or leave it out"
        )
    return group
