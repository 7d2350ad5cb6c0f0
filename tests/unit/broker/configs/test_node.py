"""The settings of a node: checked, described, and which of them change while it runs."""

from __future__ import annotations

import pytest

from tailrace.broker.configs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigChange,
    ConfigOperation,
    ConfigSource,
    NodeSettings,
    check_broker_configs,
    check_changed_configs,
    describe_all_brokers,
    describe_broker,
    plan_node_configs,
)
from tailrace.model import BrokerError, ErrorCode

DELETE = ConfigOperation.DELETE


@pytest.mark.parametrize("name", BROKER_CONFIGS)
def test_every_default_is_accepted_by_its_own_key(name: str) -> None:
    key = BROKER_CONFIGS[name]
    key.parse(key.default)
    assert key.doc


def test_every_default_of_a_topic_setting_is_a_setting_of_the_node() -> None:
    for key in TOPIC_CONFIGS.values():
        if key.server_default is not None:
            node = BROKER_CONFIGS[key.server_default]
            assert (node.type, node.default, node.at_least) == (key.type, key.default, key.at_least)
            assert key.name in node.doc


@pytest.mark.parametrize(
    ("name", "value"),
    [("num.partitions", "0"), ("fsync", "sometimes"), ("log.retention.ms", "-2"), ("num.partition", "4")],
)
def test_wrong_settings_are_refused(name: str, value: str) -> None:
    with pytest.raises(BrokerError) as caught:
        check_broker_configs({name: value})
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_right_settings_are_accepted() -> None:
    check_broker_configs({"num.partitions": "12", "fsync": "interval:200", "log.dirs": "/data"})


def test_what_was_given_is_described_as_given_and_the_rest_as_default() -> None:
    entries = {
        entry.name: entry
        for entry in describe_broker(NodeSettings({"num.partitions": "12", "group.max.size": "7"}))
    }
    assert list(entries) == sorted(BROKER_CONFIGS)
    given, default = entries["num.partitions"], entries["fsync"]
    assert (given.value, given.source) == ("12", ConfigSource.STATIC_BROKER)
    assert [each.value for each in given.synonyms] == ["12", "4"]
    assert (default.value, default.source) == ("commit", ConfigSource.DEFAULT)
    assert given.read_only and default.read_only


def test_a_value_that_equals_the_default_is_described_as_default() -> None:
    entries = {entry.name: entry for entry in describe_broker(NodeSettings({"num.partitions": "4"}))}
    assert entries["num.partitions"].source == ConfigSource.DEFAULT


def test_a_change_of_what_is_read_at_the_start_is_refused_with_the_way_out() -> None:
    for refuse in (
        lambda: check_changed_configs({"num.partitions": "12"}),
        lambda: plan_node_configs({}, [ConfigChange("num.partitions", "12")], settings={}),
        lambda: plan_node_configs({}, [ConfigChange("num.partitions", None, DELETE)], settings={}),
    ):
        with pytest.raises(BrokerError, match="start the node again") as caught:
            refuse()
        assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_a_change_of_an_unknown_setting_is_refused_with_a_guess() -> None:
    with pytest.raises(BrokerError, match=r"Did you mean num\.partitions\?"):
        check_changed_configs({"num.partitons": "12"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("log.retention.ms", "5"),
        ("log.cleaner.backoff.ms", "100"),
        ("leader.replication.throttled.rate", "1000"),
        ("follower.replication.throttled.rate", "1000"),
        ("replica.alter.log.dirs.io.max.bytes.per.second", "1000"),
    ],
)
def test_what_may_change_while_the_node_runs_takes_the_values_of_its_key(name: str, value: str) -> None:
    check_changed_configs({name: value})
    with pytest.raises(BrokerError, match="is not a whole number"):
        check_changed_configs({name: "much"})
    with pytest.raises(BrokerError, match="is below the least"):
        check_changed_configs({name: "-2"})


def test_changes_lie_over_what_the_node_started_with() -> None:
    settings = NodeSettings({"log.retention.ms": "1", "num.partitions": "12"})
    settings.change(ConfigSource.DYNAMIC_DEFAULT_BROKER, {"log.retention.ms": "2", "log.segment.bytes": "20"})
    settings.change(ConfigSource.DYNAMIC_BROKER, {"log.retention.ms": "3"})
    assert dict(settings) == {"log.retention.ms": "3", "num.partitions": "12", "log.segment.bytes": "20"}
    assert len(settings) == 3 and settings.get("fsync") is None
    (entry,) = [each for each in describe_broker(settings) if each.name == "log.retention.ms"]
    assert (entry.value, entry.source, entry.read_only) == ("3", ConfigSource.DYNAMIC_BROKER, False)
    assert [(each.value, each.source) for each in entry.synonyms] == [
        ("3", ConfigSource.DYNAMIC_BROKER),
        ("2", ConfigSource.DYNAMIC_DEFAULT_BROKER),
        ("1", ConfigSource.STATIC_BROKER),
        (BROKER_CONFIGS["log.retention.ms"].default, ConfigSource.DEFAULT),
    ]
    assert [(each.name, each.value) for each in describe_all_brokers(settings)] == [
        ("log.retention.ms", "2"),
        ("log.segment.bytes", "20"),
    ]
    settings.change(ConfigSource.DYNAMIC_BROKER, {})
    assert settings["log.retention.ms"] == "2"


def test_lists_are_appended_to_from_the_value_in_force() -> None:
    append = ConfigChange("log.cleanup.policy", "compact", ConfigOperation.APPEND)
    assert plan_node_configs({}, [append], settings={}) == {"log.cleanup.policy": "delete,compact"}
    given = {"log.cleanup.policy": ""}
    assert plan_node_configs({}, [append], settings=given) == {"log.cleanup.policy": "compact"}
