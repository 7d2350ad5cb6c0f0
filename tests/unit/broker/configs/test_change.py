"""Changes of a topic's settings, one operation at a time; pure, so plain calls."""

from __future__ import annotations

import pytest

from tailrace.broker.configs import ConfigChange, ConfigOperation, plan_topic_configs
from tailrace.model import BrokerError, ErrorCode


def plan(current: dict[str, str], *changes: ConfigChange, **defaults: str) -> dict[str, str]:
    node = {name.replace("_", "."): value for name, value in defaults.items()}
    return plan_topic_configs(current, changes, defaults=node)


def refusal(current: dict[str, str], *changes: ConfigChange) -> BrokerError:
    with pytest.raises(BrokerError) as caught:
        plan(current, *changes)
    return caught.value


def test_set_replaces_one_and_leaves_the_others() -> None:
    current = {"retention.ms": "1", "segment.ms": "2"}
    assert plan(current, ConfigChange("retention.ms", "5")) == {"retention.ms": "5", "segment.ms": "2"}
    assert current == {"retention.ms": "1", "segment.ms": "2"}


def test_delete_takes_an_override_away() -> None:
    change = ConfigChange("retention.ms", None, ConfigOperation.DELETE)
    assert plan({"retention.ms": "1", "segment.ms": "2"}, change) == {"segment.ms": "2"}


def test_delete_of_what_is_not_overridden_changes_nothing() -> None:
    assert plan({}, ConfigChange("retention.ms", None, ConfigOperation.DELETE)) == {}


def test_delete_of_an_unknown_setting_is_refused_unless_it_is_there() -> None:
    change = ConfigChange("some.thing", None, ConfigOperation.DELETE)
    assert refusal({}, change).code == ErrorCode.INVALID_CONFIG
    assert plan({"some.thing": "from an older time"}, change) == {}


def test_append_adds_to_the_override() -> None:
    change = ConfigChange("cleanup.policy", "delete", ConfigOperation.APPEND)
    assert plan({"cleanup.policy": "compact"}, change) == {"cleanup.policy": "compact,delete"}


def test_append_starts_from_the_default_and_adds_nothing_twice() -> None:
    change = ConfigChange("cleanup.policy", "compact,delete", ConfigOperation.APPEND)
    assert plan({}, change) == {"cleanup.policy": "delete,compact"}


def test_append_starts_from_the_nodes_default() -> None:
    change = ConfigChange("cleanup.policy", "delete", ConfigOperation.APPEND)
    assert plan({}, change, log_cleanup_policy="compact") == {"cleanup.policy": "compact,delete"}


def test_subtract_removes_items() -> None:
    change = ConfigChange("cleanup.policy", "delete", ConfigOperation.SUBTRACT)
    assert plan({"cleanup.policy": "compact,delete"}, change) == {"cleanup.policy": "compact"}


@pytest.mark.parametrize("operation", [ConfigOperation.APPEND, ConfigOperation.SUBTRACT])
def test_only_lists_grow_and_shrink(operation: ConfigOperation) -> None:
    error = refusal({}, ConfigChange("retention.ms", "5", operation))
    assert error.code == ErrorCode.INVALID_REQUEST
    assert "not a list" in str(error)


def test_an_unknown_list_is_refused() -> None:
    assert refusal({}, ConfigChange("x.y", "5", ConfigOperation.APPEND)).code == ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize("operation", [0, 2, 3])
def test_a_change_without_a_value_is_refused(operation: int) -> None:
    assert refusal({}, ConfigChange("cleanup.policy", None, operation)).code == ErrorCode.INVALID_REQUEST


@pytest.mark.parametrize("operation", [-1, 4, 127])
def test_an_unknown_operation_is_refused(operation: int) -> None:
    assert refusal({}, ConfigChange("cleanup.policy", "delete", operation)).code == ErrorCode.INVALID_REQUEST


def test_one_setting_is_changed_once() -> None:
    changes = ConfigChange("retention.ms", "5"), ConfigChange("retention.ms", None, ConfigOperation.DELETE)
    assert refusal({}, *changes).code == ErrorCode.INVALID_REQUEST
