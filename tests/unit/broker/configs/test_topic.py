"""The settings of a topic: what becomes of them in the broker, and how they are described."""

from __future__ import annotations

import pytest

from tailrace.broker.configs import (
    TOPIC_CONFIGS,
    ConfigEntry,
    ConfigSource,
    NodeSettings,
    check_topic_configs,
    describe_topic,
    log_config,
    topic_settings,
)
from tailrace.model import BrokerError, ErrorCode
from tailrace.storage.api import COMMIT, Fsync, LogConfig

_DAY_MS = 24 * 3600 * 1000
_LONG_MAX = str(2**63 - 1)


def entry(
    name: str, configs: dict[str, str] | None = None, defaults: dict[str, str] | None = None
) -> ConfigEntry:
    (found,) = [
        each for each in describe_topic(configs or {}, NodeSettings(defaults or {})) if each.name == name
    ]
    return found


def test_a_topic_without_settings_goes_by_what_storage_has_as_defaults() -> None:
    assert log_config({}, {}) == LogConfig()


def test_retention_is_a_month_by_default() -> None:
    assert log_config({}, {}).retention_ms == 31 * _DAY_MS


@pytest.mark.parametrize("name", TOPIC_CONFIGS)
def test_every_default_is_accepted_by_its_own_key(name: str) -> None:
    key = TOPIC_CONFIGS[name]
    key.parse(key.default)
    assert key.doc


def test_settings_reach_storage() -> None:
    configs = {
        "segment.bytes": "1000",
        "segment.ms": "2000",
        "index.interval.bytes": "3000",
        "retention.ms": "-1",
        "retention.bytes": "5000",
        "retention.archive.wait": "36h",
        "retention.archive.wait.bytes": "5500",
        "cleanup.policy": "compact",
        "delete.retention.ms": "6000",
        "min.compaction.lag.ms": "7000",
        "max.compaction.lag.ms": "7500",
        "min.cleanable.dirty.ratio": "0.25",
        "memory.max.bytes": "8000",
        "memory.max.messages": "9000",
        "memory.ttl.ms": "10000",
    }
    assert log_config(configs, {}) == LogConfig(
        segment_bytes=1000,
        segment_ms=2000,
        index_interval_bytes=3000,
        retention_ms=-1,
        retention_bytes=5000,
        archive_wait_ms=36 * 3_600_000,
        archive_wait_bytes=5500,
        compact=True,
        delete=False,
        delete_retention_ms=6000,
        min_compaction_lag_ms=7000,
        max_compaction_lag_ms=7500,
        dirty_ratio_min=0.25,
        options={"memory.max.bytes": 8000, "memory.max.messages": 9000, "memory.ttl.ms": 10000},
    )


def test_settings_reach_the_partition() -> None:
    settings = topic_settings(
        {
            "max.message.bytes": "99",
            "message.timestamp.type": "LogAppendTime",
            "cleanup.policy": "compact,delete",
            "min.insync.replicas": "2",
        },
        {},
    )
    assert settings.message_bytes_max == 99
    assert settings.append_time
    assert settings.compact
    assert settings.min_insync_replicas == 2
    assert settings.log.compact and settings.log.delete


def test_without_settings_the_producers_time_counts_and_nothing_is_compacted() -> None:
    settings = topic_settings({}, {})
    assert settings.message_bytes_max == 1048588
    assert not settings.append_time
    assert not settings.compact
    assert settings.min_insync_replicas == 1


@pytest.mark.parametrize(
    ("configs", "fsync"),
    [
        ({}, None),
        ({"flush.messages": "1"}, COMMIT),
        ({"flush.messages": "1", "flush.ms": "500"}, COMMIT),
        ({"flush.ms": "500"}, Fsync(500)),
        ({"flush.ms": "0"}, COMMIT),
        ({"flush.messages": "1000"}, None),
        ({"flush.messages": "1000", "flush.ms": "500"}, Fsync(500)),
        ({"flush.messages": _LONG_MAX, "flush.ms": _LONG_MAX}, None),
    ],
)
def test_flush_settings_say_when_a_write_is_durable(configs: dict[str, str], fsync: Fsync | None) -> None:
    assert log_config(configs, {}).fsync == fsync


def test_the_node_gives_defaults_under_its_own_names() -> None:
    defaults = {"log.retention.ms": "77", "message.max.bytes": "88", "log.flush.interval.ms": "99"}
    settings = topic_settings({}, defaults)
    assert settings.log.retention_ms == 77
    assert settings.message_bytes_max == 88
    assert settings.log.fsync == Fsync(99)


def test_the_topic_wins_over_the_node() -> None:
    assert topic_settings({"retention.ms": "5"}, {"log.retention.ms": "77"}).log.retention_ms == 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "a week"),
        ("retention.archive.wait", "a week"),
        ("retention.archive.wait", "-1"),
        ("retention.archive.wait", ""),
        ("retention.archive.wait.bytes", "-2"),
        ("segment.bytes", "13"),
        ("segment.bytes", str(2**31)),
        ("segment.ms", "0"),
        ("max.message.bytes", "-1"),
        ("cleanup.policy", "delete,shrink"),
        ("message.timestamp.type", "createtime"),
        ("flush.messages", "0"),
        ("flush.ms", "-1"),
        ("min.insync.replicas", "0"),
        ("unclean.leader.election.enable", "maybe"),
        ("min.cleanable.dirty.ratio", "1.1"),
        ("memory.max.bytes", "-2"),
        ("compression.type", "rar"),
        ("compression.type", "none"),
        ("compression.gzip.level", "0"),
        ("compression.gzip.level", "-2"),
        ("compression.gzip.level", "10"),
        ("compression.lz4.level", "0"),
        ("compression.lz4.level", "18"),
        ("compression.zstd.level", "23"),
        ("compression.zstd.level", "-131073"),
        ("local.retention.ms", "-3"),
        ("local.retention.bytes", "-3"),
        ("remote.storage.enable", "perhaps"),
        ("remote.copy.lag.ms", "-2"),
    ],
)
def test_values_outside_of_what_a_key_accepts_are_refused(name: str, value: str) -> None:
    with pytest.raises(BrokerError, match=name) as caught:
        check_topic_configs({"segment.ms": "1000", name: value})
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_a_topic_may_neither_delete_nor_compact() -> None:
    check_topic_configs({"cleanup.policy": ""})
    settings = topic_settings({"cleanup.policy": ""}, {})
    assert not (settings.compact or settings.log.compact or settings.log.delete)
    assert entry("cleanup.policy", {"cleanup.policy": ""}).value == ""


KAFKA_4 = [
    "cleanup.policy",
    "compression.gzip.level",
    "compression.lz4.level",
    "compression.type",
    "compression.zstd.level",
    "delete.retention.ms",
    "file.delete.delay.ms",
    "flush.messages",
    "flush.ms",
    "follower.replication.throttled.replicas",
    "index.interval.bytes",
    "leader.replication.throttled.replicas",
    "local.retention.bytes",
    "local.retention.ms",
    "max.compaction.lag.ms",
    "max.message.bytes",
    "message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms",
    "message.timestamp.type",
    "min.cleanable.dirty.ratio",
    "min.compaction.lag.ms",
    "min.insync.replicas",
    "preallocate",
    "remote.copy.lag.bytes",
    "remote.copy.lag.ms",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.index.bytes",
    "segment.jitter.ms",
    "segment.ms",
    "unclean.leader.election.enable",
]


def test_every_topic_setting_of_kafka_4_is_known() -> None:
    assert set(KAFKA_4) <= set(TOPIC_CONFIGS)


def test_an_unknown_setting_is_refused_with_what_was_probably_meant() -> None:
    with pytest.raises(BrokerError, match=r"Did you mean cleanup\.policy\?") as caught:
        check_topic_configs({"cleanup.polizy": "compact"})
    assert caught.value.code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("message.format.version", "2.8-IV1"),
        ("preallocate", "true"),
        ("segment.jitter.ms", "5"),
        ("file.delete.delay.ms", "5"),
        ("follower.replication.throttled.replicas", "0:1,1:2"),
        ("leader.replication.throttled.replicas", "*"),
        ("message.timestamp.difference.max.ms", "5"),
        ("message.downconversion.enable", "false"),
        ("segment.index.bytes", "5000"),
        ("compression.type", "uncompressed"),
        ("compression.type", "zstd"),
        ("compression.type", "lz4"),
        ("compression.type", "snappy"),
        ("compression.type", "gzip"),
        ("compression.gzip.level", "9"),
        ("compression.lz4.level", "1"),
        ("compression.zstd.level", "-7"),
        ("local.retention.ms", "1000"),
        ("local.retention.bytes", "-1"),
        ("remote.storage.enable", "true"),
        ("remote.log.copy.disable", "true"),
        ("remote.log.delete.on.disable", "true"),
        ("remote.copy.lag.ms", "-1"),
        ("remote.copy.lag.bytes", "5"),
    ],
)
def test_settings_without_effect_are_accepted_and_say_so(name: str, value: str) -> None:
    check_topic_configs({name: value})
    assert topic_settings({name: value}, {}) == topic_settings({}, {})
    assert entry(name, {name: value}).value == value
    assert "without effect" in entry(name).doc


def test_every_setting_is_described_by_name() -> None:
    names = [each.name for each in describe_topic({}, NodeSettings({}))]
    assert names == sorted(TOPIC_CONFIGS)


def test_a_default_is_described_as_one() -> None:
    found = entry("retention.ms")
    assert (found.value, found.source) == (str(31 * _DAY_MS), ConfigSource.DEFAULT)
    assert not found.read_only and not found.sensitive
    assert [each.name for each in found.synonyms] == ["log.retention.ms"]


def test_the_nodes_value_is_described_as_the_nodes() -> None:
    found = entry("retention.ms", {}, {"log.retention.ms": "77"})
    assert (found.value, found.source) == ("77", ConfigSource.STATIC_BROKER)


def test_an_override_is_described_before_what_it_overrides() -> None:
    found = entry("retention.ms", {"retention.ms": "5"}, {"log.retention.ms": "77"})
    assert (found.value, found.source) == ("5", ConfigSource.TOPIC)
    assert [(each.name, each.value, each.source) for each in found.synonyms] == [
        ("retention.ms", "5", ConfigSource.TOPIC),
        ("log.retention.ms", "77", ConfigSource.STATIC_BROKER),
        ("log.retention.ms", str(31 * _DAY_MS), ConfigSource.DEFAULT),
    ]


def test_a_setting_that_no_node_has_is_described_without_synonyms() -> None:
    found = entry("leader.replication.throttled.replicas")
    assert (found.value, found.source, found.synonyms) == ("", ConfigSource.DEFAULT, ())
