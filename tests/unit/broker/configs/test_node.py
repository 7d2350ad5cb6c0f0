"""The settings of a node: checked, described, and not to be changed while it runs."""

from __future__ import annotations

import pytest

from tailrace.broker.configs import (
    BROKER_CONFIGS,
    TOPIC_CONFIGS,
    ConfigKey,
    ConfigSource,
    check_broker_change,
    check_broker_configs,
    describe_broker,
)
from tailrace.broker.configs import node as node_module
from tailrace.broker.configs.key import ConfigType
from tailrace.model import BrokerError, ErrorCode


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
        entry.name: entry for entry in describe_broker({"num.partitions": "12", "group.max.size": "7"})
    }
    assert list(entries) == sorted(BROKER_CONFIGS)
    given, default = entries["num.partitions"], entries["fsync"]
    assert (given.value, given.source) == ("12", ConfigSource.STATIC_BROKER)
    assert [each.value for each in given.synonyms] == ["12", "4"]
    assert (default.value, default.source) == ("commit", ConfigSource.DEFAULT)
    assert all(entry.read_only for entry in entries.values())


def test_a_value_that_equals_the_default_is_described_as_default() -> None:
    entries = {entry.name: entry for entry in describe_broker({"num.partitions": "4"})}
    assert entries["num.partitions"].source == ConfigSource.DEFAULT


def test_a_change_while_the_node_runs_is_refused_with_the_way_out() -> None:
    with pytest.raises(BrokerError, match="start it again") as caught:
        check_broker_change("num.partitions", "12")
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_a_change_of_an_unknown_setting_is_refused_with_a_guess() -> None:
    with pytest.raises(BrokerError, match=r"Did you mean num\.partitions\?"):
        check_broker_change("num.partitons", "12")


def test_a_key_that_is_not_read_only_may_be_changed_to_what_it_accepts(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    key = ConfigKey(name="a.limit", type=ConfigType.INT, default="1", doc="", at_least=1)
    monkeypatch.setattr(node_module, "BROKER_CONFIGS", {"a.limit": key})
    check_broker_change("a.limit", "2")
    check_broker_change("a.limit", None)
    with pytest.raises(BrokerError, match="below the least"):
        check_broker_change("a.limit", "0")
