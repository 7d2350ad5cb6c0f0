"""Settings of topics, nodes and groups: the tables, their checks, and how they are described to a client.

`TOPIC_CONFIGS`, `BROKER_CONFIGS`, `GROUP_CONFIGS`   the rows, by name
`check_topic_configs(configs)`      refuses unknown keys and bad values with INVALID_CONFIG
`topic_settings(configs, defaults)` what a partition goes by; `log_config` is the part that storage gets
`plan_topic_configs(current, ...)`  what changes that a client sent make of a topic's overrides
`plan_node_configs(current, ...)`   and of a node's; `plan_group_configs` of a group's
`NodeSettings`                      the node's settings: as it started, and as clients changed them since
`describe_topic`, `describe_broker`, `describe_group`   every setting with its value, source and meaning

`configs` are a topic's own overrides; `defaults` and `values` are the node's settings, under node-wide names
(`log.retention.ms`). Values are texts, as on the wire.
"""

from tailrace.broker.configs.change import (
    ConfigChange,
    ConfigOperation,
    plan_group_configs,
    plan_node_configs,
    plan_topic_configs,
)
from tailrace.broker.configs.group import GROUP_CONFIGS, check_group_configs, describe_group
from tailrace.broker.configs.key import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    ConfigValue,
)
from tailrace.broker.configs.node import (
    BROKER_CONFIGS,
    check_broker_configs,
    check_changed_configs,
    describe_all_brokers,
    describe_broker,
)
from tailrace.broker.configs.settings import NodeSettings
from tailrace.broker.configs.topic import (
    TOPIC_CONFIGS,
    TopicSettings,
    check_topic_configs,
    describe_topic,
    log_config,
    topic_settings,
)

__all__ = [
    "BROKER_CONFIGS",
    "GROUP_CONFIGS",
    "TOPIC_CONFIGS",
    "ConfigChange",
    "ConfigEntry",
    "ConfigKey",
    "ConfigOperation",
    "ConfigSource",
    "ConfigSynonym",
    "ConfigType",
    "ConfigValue",
    "NodeSettings",
    "TopicSettings",
    "check_broker_configs",
    "check_changed_configs",
    "check_group_configs",
    "check_topic_configs",
    "describe_all_brokers",
    "describe_broker",
    "describe_group",
    "describe_topic",
    "log_config",
    "plan_group_configs",
    "plan_node_configs",
    "plan_topic_configs",
    "topic_settings",
]
