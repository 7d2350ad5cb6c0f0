"""Changes of settings (KIP-339): what the overrides become. Pure; nothing is checked for its value.

`set` gives a setting a value, `delete` takes its override away, `append` and `subtract` add to a list and
remove from it, starting from the value in force.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from tailrace.broker.configs.group import GROUP_CONFIGS
from tailrace.broker.configs.key import ConfigKey, ConfigType, find_key, split_list
from tailrace.broker.configs.node import BROKER_CONFIGS, check_changeable
from tailrace.broker.configs.topic import TOPIC_CONFIGS
from tailrace.model import BrokerError, ErrorCode


class ConfigOperation(enum.IntEnum):
    """What is done to a setting, by Kafka's numbers."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class ConfigChange(NamedTuple):
    """One change, as a client sent it."""

    name: str
    value: str | None
    operation: int = ConfigOperation.SET


def plan_topic_configs(
    current: Mapping[str, str], changes: Sequence[ConfigChange], *, defaults: Mapping[str, str]
) -> dict[str, str]:
    """A topic's overrides after the changes; INVALID_REQUEST or INVALID_CONFIG if they make no sense."""

    def in_force(key: ConfigKey) -> str:
        return current.get(key.name, defaults.get(key.server_default or "", key.default))

    return _plan(current, changes, TOPIC_CONFIGS, kind="topic", in_force=in_force)


def plan_node_configs(
    current: Mapping[str, str], changes: Sequence[ConfigChange], *, settings: Mapping[str, str]
) -> dict[str, str]:
    """The same for what clients have changed of a node; `settings` are those in force."""

    def in_force(key: ConfigKey) -> str:
        return current.get(key.name, settings.get(key.name, key.default))

    for change in changes:
        check_changeable(change.name)
    return _plan(current, changes, BROKER_CONFIGS, kind="broker", in_force=in_force)


def plan_group_configs(current: Mapping[str, str], changes: Sequence[ConfigChange]) -> dict[str, str]:
    """The same for the settings that clients gave a group."""

    def in_force(key: ConfigKey) -> str:
        return current.get(key.name, key.default)

    return _plan(current, changes, GROUP_CONFIGS, kind="group", in_force=in_force)


def _plan(
    current: Mapping[str, str],
    changes: Sequence[ConfigChange],
    table: Mapping[str, ConfigKey],
    *,
    kind: str,
    in_force: Callable[[ConfigKey], str],
) -> dict[str, str]:
    if len({change.name for change in changes}) < len(changes):
        raise _refused("a setting is named more than once")
    wanted = dict(current)
    for change in changes:
        if change.operation == ConfigOperation.DELETE:
            if wanted.pop(change.name, None) is None:
                find_key(table, change.name, kind=kind)
        elif change.value is None:
            raise _refused(f"{change.name} has no value. To go back to the default, delete the setting")
        elif change.operation == ConfigOperation.SET:
            wanted[change.name] = change.value
        else:
            key = find_key(table, change.name, kind=kind)
            wanted[change.name] = _changed_list(change, change.value, key, in_force(key))
    return wanted


def _changed_list(change: ConfigChange, value: str, key: ConfigKey, in_force: str) -> str:
    if change.operation not in (ConfigOperation.APPEND, ConfigOperation.SUBTRACT):
        raise _refused(f"{change.operation} is no operation on a setting: 0 to 3 are")
    if key.type != ConfigType.LIST:
        raise _refused(f"{change.name} is not a list: it can be set or deleted")
    items, named = split_list(in_force), split_list(value)
    if change.operation == ConfigOperation.SUBTRACT:
        return ",".join(item for item in items if item not in named)
    return ",".join(dict.fromkeys((*items, *named)))


def _refused(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_REQUEST)
