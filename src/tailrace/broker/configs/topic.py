"""The settings of a topic, under Kafka's own names, and what the broker makes of them.

A value is looked for in three places: the topic's own overrides, the node's setting that `server_default`
names, the default of the table. What Kafka has and has no effect here stands in `without_effect`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import cast

from tailrace.broker.configs.key import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
    Layers,
    find_key,
    node_synonyms,
    table_of,
)
from tailrace.broker.configs.settings import NodeSettings
from tailrace.broker.configs.without_effect import WITHOUT_EFFECT
from tailrace.model import ConfigError
from tailrace.model.duration import parse_duration_ms
from tailrace.storage.api import COMMIT, NO_LIMIT, Fsync, LogConfig
from tailrace.storage.memory.option import OPTIONS as MEMORY_OPTIONS

_DAY_MS = 24 * 3600 * 1000
_LONG_MAX = (1 << 63) - 1

PRODUCER_IDLE = ConfigKey(
    name="producer.id.expiration.ms",
    type=ConfigType.INT,
    default=str(_DAY_MS),
    doc="How long the state of an idempotent producer is kept after its last write. A partition keeps the "
    "state of 10,000 producers, the node that of 50,000; beyond, those that were quiet for longest go first.",
    at_least=1,
    read_only=True,
)
"""A setting of the node alone, which storage gets with those of the topic."""

_CLEANUP = ConfigKey(
    name="cleanup.policy",
    type=ConfigType.LIST,
    default="delete",
    doc="What becomes of old records: `delete` removes what is past retention, `compact` keeps the newest "
    "record of every key; both may be given. Empty: every record is kept for ever.",
    choices=("compact", "delete"),
    server_default="log.cleanup.policy",
)
_RETENTION_MS = ConfigKey(
    name="retention.ms",
    type=ConfigType.LONG,
    default=str(31 * _DAY_MS),
    doc="How long a record is kept at least, where cleanup.policy has delete; -1 is for ever.",
    at_least=-1,
    server_default="log.retention.ms",
)
_RETENTION_BYTES = ConfigKey(
    name="retention.bytes",
    type=ConfigType.LONG,
    default="-1",
    doc="How large a partition may grow before its oldest segments go, where cleanup.policy has delete; -1 "
    "is without bound.",
    at_least=-1,
    server_default="log.retention.bytes",
)
_ARCHIVE_WAIT = ConfigKey(
    name="retention.archive.wait",
    type=ConfigType.STRING,
    default="0",
    doc="How long records that are past retention.ms or retention.bytes wait until every archive of the "
    "topic has them, as 36h, 90m or milliseconds; 0: they do not wait. Archives tell how far they are by the "
    "consumer groups whose names begin with tailrace-archive; without any, nothing counts as archived.",
    check=lambda text: _archive_wait_ms(text),
    server_default="log.retention.archive.wait",
)
_ARCHIVE_WAIT_BYTES = ConfigKey(
    name="retention.archive.wait.bytes",
    type=ConfigType.LONG,
    default="-1",
    doc="How many bytes of a partition wait for archives at most (retention.archive.wait); beyond, the "
    "oldest segments go. -1 is without bound, so that the wait alone bounds them.",
    at_least=-1,
    server_default="log.retention.archive.wait.bytes",
)
_SEGMENT_BYTES = ConfigKey(
    name="segment.bytes",
    type=ConfigType.INT,
    default=str(1 << 30),
    doc="Size at which a segment file is sealed and the next one begun. Retention and compaction work on "
    "sealed segments only.",
    at_least=14,
    server_default="log.segment.bytes",
)
_SEGMENT_MS = ConfigKey(
    name="segment.ms",
    type=ConfigType.LONG,
    default=str(7 * _DAY_MS),
    doc="Age at which a segment is sealed even if it is not full.",
    at_least=1,
    server_default="log.roll.ms",
)
_INDEX_INTERVAL = ConfigKey(
    name="index.interval.bytes",
    type=ConfigType.INT,
    default="4096",
    doc="How many bytes of log lie between two entries of the offset index.",
    at_least=0,
    server_default="log.index.interval.bytes",
)
_MESSAGE_BYTES = ConfigKey(
    name="max.message.bytes",
    type=ConfigType.INT,
    default="1048588",
    doc="The largest record batch, as sent, that is taken.",
    at_least=0,
    server_default="message.max.bytes",
)
_TIMESTAMP_TYPE = ConfigKey(
    name="message.timestamp.type",
    type=ConfigType.STRING,
    default="CreateTime",
    doc="Whether a record's time is the producer's (CreateTime) or that of its arrival (LogAppendTime).",
    choices=("CreateTime", "LogAppendTime"),
    server_default="log.message.timestamp.type",
)
_FLUSH_MESSAGES = ConfigKey(
    name="flush.messages",
    type=ConfigType.LONG,
    default=str(_LONG_MAX),
    doc="1: a write is acknowledged once it is synced to the disk. Any larger number leaves that to flush.ms "
    "and then to the node's fsync.",
    at_least=1,
    server_default="log.flush.interval.messages",
)
_FLUSH_MS = ConfigKey(
    name="flush.ms",
    type=ConfigType.LONG,
    default=str(_LONG_MAX),
    doc="A write is acknowledged at once, and synced to the disk within this time; 0 is the same as "
    "flush.messages=1. Left alone, the node's fsync decides.",
    at_least=0,
    server_default="log.flush.interval.ms",
)
_DELETE_RETENTION = ConfigKey(
    name="delete.retention.ms",
    type=ConfigType.LONG,
    default=str(_DAY_MS),
    doc="How long a tombstone stays readable in a compacted topic.",
    at_least=0,
    server_default="log.cleaner.delete.retention.ms",
)
_COMPACTION_LAG = ConfigKey(
    name="min.compaction.lag.ms",
    type=ConfigType.LONG,
    default="0",
    doc="How long a record of a compacted topic stays even if a newer one has its key.",
    at_least=0,
    server_default="log.cleaner.min.compaction.lag.ms",
)
_MAX_COMPACTION_LAG = ConfigKey(
    name="max.compaction.lag.ms",
    type=ConfigType.LONG,
    default=str(_LONG_MAX),
    doc="Age at which a segment of a compacted topic is sealed even if it is younger than segment.ms, and, "
    "counted from its newest record, compacted even if min.cleanable.dirty.ratio is not reached.",
    at_least=1,
    server_default="log.cleaner.max.compaction.lag.ms",
)
_DIRTY_RATIO = ConfigKey(
    name="min.cleanable.dirty.ratio",
    type=ConfigType.DOUBLE,
    default="0.5",
    doc="How much of what compaction would go through must be new before it does, by bytes.",
    at_least=0,
    at_most=1,
    server_default="log.cleaner.min.cleanable.ratio",
)
_MIN_INSYNC = ConfigKey(
    name="min.insync.replicas",
    type=ConfigType.INT,
    default="1",
    doc="How many replicas must have a write before a producer with acks=all hears of it; with fewer in sync "
    "its writes are refused.",
    at_least=1,
    server_default="min.insync.replicas",
)
_ENGINE_OPTIONS = tuple(
    ConfigKey(
        name=option.name,
        type=ConfigType.LONG,
        default=str(option.default),
        doc=option.doc,
        at_least=option.at_least,
        server_default=option.name,
    )
    for option in MEMORY_OPTIONS
)
"""What only one engine obeys; a topic keeps it whichever engine runs."""

TOPIC_CONFIGS: Mapping[str, ConfigKey] = table_of(
    _CLEANUP,
    _RETENTION_MS,
    _RETENTION_BYTES,
    _ARCHIVE_WAIT,
    _ARCHIVE_WAIT_BYTES,
    _SEGMENT_BYTES,
    _SEGMENT_MS,
    _INDEX_INTERVAL,
    _MESSAGE_BYTES,
    _TIMESTAMP_TYPE,
    _FLUSH_MESSAGES,
    _FLUSH_MS,
    _DELETE_RETENTION,
    _COMPACTION_LAG,
    _MAX_COMPACTION_LAG,
    _DIRTY_RATIO,
    _MIN_INSYNC,
    *_ENGINE_OPTIONS,
    *WITHOUT_EFFECT,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSettings:
    """What a partition goes by."""

    message_bytes_max: int
    append_time: bool  # the broker's time replaces the producer's
    compact: bool
    min_insync_replicas: int
    log: LogConfig


def check_topic_configs(configs: Mapping[str, str]) -> None:
    """INVALID_CONFIG for the first override that is unknown or has a value that is not accepted."""
    for name, text in configs.items():
        find_key(TOPIC_CONFIGS, name, kind="topic").parse(text)


def topic_settings(configs: Mapping[str, str], defaults: Mapping[str, str]) -> TopicSettings:
    """What a partition goes by; `defaults` holds the node's settings under their node-wide names."""
    return TopicSettings(
        message_bytes_max=_int(_MESSAGE_BYTES, configs, defaults),
        append_time=_value(_TIMESTAMP_TYPE, configs, defaults) == "LogAppendTime",
        compact="compact" in cast(tuple[str, ...], _value(_CLEANUP, configs, defaults)),
        min_insync_replicas=_int(_MIN_INSYNC, configs, defaults),
        log=log_config(configs, defaults),
    )


def log_config(configs: Mapping[str, str], defaults: Mapping[str, str]) -> LogConfig:
    """The part of a topic's settings that storage goes by."""
    cleanup = cast(tuple[str, ...], _value(_CLEANUP, configs, defaults))
    return LogConfig(
        fsync=_fsync(configs, defaults),
        segment_bytes=_int(_SEGMENT_BYTES, configs, defaults),
        segment_ms=_int(_SEGMENT_MS, configs, defaults),
        index_interval_bytes=_int(_INDEX_INTERVAL, configs, defaults),
        retention_ms=_int(_RETENTION_MS, configs, defaults),
        retention_bytes=_int(_RETENTION_BYTES, configs, defaults),
        archive_wait_ms=_archive_wait_ms(cast(str, _value(_ARCHIVE_WAIT, configs, defaults))),
        archive_wait_bytes=_int(_ARCHIVE_WAIT_BYTES, configs, defaults),
        compact="compact" in cleanup,
        delete="delete" in cleanup,
        delete_retention_ms=_int(_DELETE_RETENTION, configs, defaults),
        min_compaction_lag_ms=_int(_COMPACTION_LAG, configs, defaults),
        max_compaction_lag_ms=_max_compaction_lag_ms(configs, defaults),
        dirty_ratio_min=cast(float, _value(_DIRTY_RATIO, configs, defaults)),
        producer_idle_ms=int(defaults.get(PRODUCER_IDLE.name, PRODUCER_IDLE.default)),
        options=_engine_options(configs, defaults),
    )


def describe_topic(configs: Mapping[str, str], defaults: NodeSettings) -> list[ConfigEntry]:
    """Every setting of a topic with the value in force and where it comes from, by name."""
    return [_describe(key, configs, defaults.layers) for key in TOPIC_CONFIGS.values()]


def _describe(key: ConfigKey, configs: Mapping[str, str], layers: Layers) -> ConfigEntry:
    synonyms = []
    if key.name in configs:
        synonyms.append(ConfigSynonym(name=key.name, value=configs[key.name], source=ConfigSource.TOPIC))
    if key.server_default is not None:
        synonyms += node_synonyms(key, key.server_default, layers)
    return ConfigEntry(
        name=key.name,
        value=synonyms[0].value if synonyms else key.default,
        source=synonyms[0].source if synonyms else ConfigSource.DEFAULT,
        type=key.type,
        read_only=False,
        sensitive=key.sensitive,
        doc=key.doc,
        synonyms=tuple(synonyms),
    )


def _fsync(configs: Mapping[str, str], defaults: Mapping[str, str]) -> Fsync | None:
    if _int(_FLUSH_MESSAGES, configs, defaults) == 1:
        return COMMIT
    interval_ms = _int(_FLUSH_MS, configs, defaults)
    return None if interval_ms == _LONG_MAX else Fsync(interval_ms)


def _engine_options(configs: Mapping[str, str], defaults: Mapping[str, str]) -> Mapping[str, int]:
    """What was set; an engine has the defaults of the rest."""
    return {
        key.name: _int(key, configs, defaults)
        for key in _ENGINE_OPTIONS
        if key.name in configs or key.server_default in defaults
    }


def _archive_wait_ms(text: str) -> int:
    try:
        return parse_duration_ms(text)
    except ConfigError as error:
        raise ConfigError(f"retention.archive.wait: {error}") from error


def _max_compaction_lag_ms(configs: Mapping[str, str], defaults: Mapping[str, str]) -> int:
    lag_ms = _int(_MAX_COMPACTION_LAG, configs, defaults)
    return NO_LIMIT if lag_ms == _LONG_MAX else lag_ms


def _int(key: ConfigKey, configs: Mapping[str, str], defaults: Mapping[str, str]) -> int:
    return cast(int, _value(key, configs, defaults))


def _value(key: ConfigKey, configs: Mapping[str, str], defaults: Mapping[str, str]) -> ConfigValue:
    text = configs.get(key.name)
    if text is None and key.server_default is not None:
        text = defaults.get(key.server_default)
    return key.parse(key.default if text is None else text)
