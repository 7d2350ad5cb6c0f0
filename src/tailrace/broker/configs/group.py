"""The settings of a consumer group, by the names and bounds of Kafka (KIP-848).

Tools may set and read them. They are kept and have no effect: Kafka gives them to groups of the KIP-848
protocol, which do not exist here. A member of a classic group names its own session timeout when it joins.
"""

from __future__ import annotations

from collections.abc import Mapping

from tailrace.broker.configs.key import (
    ConfigEntry,
    ConfigKey,
    ConfigSource,
    ConfigSynonym,
    ConfigType,
    find_key,
    table_of,
)

_NO_EFFECT = "Accepted for compatibility, without effect: members of classic groups name their own."


def _milliseconds(name: str, default: int, *, at_least: int, at_most: int) -> ConfigKey:
    return ConfigKey(
        name=name,
        type=ConfigType.INT,
        default=str(default),
        doc=_NO_EFFECT,
        at_least=at_least,
        at_most=at_most,
    )


GROUP_CONFIGS: Mapping[str, ConfigKey] = table_of(
    _milliseconds("consumer.session.timeout.ms", 45_000, at_least=45_000, at_most=60_000),
    _milliseconds("consumer.heartbeat.interval.ms", 5_000, at_least=5_000, at_most=15_000),
)


def check_group_configs(configs: Mapping[str, str]) -> None:
    """INVALID_CONFIG for the first setting that is unknown or has a value that is not accepted."""
    for name, text in configs.items():
        find_key(GROUP_CONFIGS, name, kind="group").parse(text)


def describe_group(configs: Mapping[str, str]) -> list[ConfigEntry]:
    """Every setting of a group, by name; `configs` are those that clients gave it."""
    return [_describe(key, configs) for key in GROUP_CONFIGS.values()]


def _describe(key: ConfigKey, configs: Mapping[str, str]) -> ConfigEntry:
    synonyms = [ConfigSynonym(name=key.name, value=key.default, source=ConfigSource.DEFAULT)]
    if key.name in configs:
        synonyms.insert(0, ConfigSynonym(name=key.name, value=configs[key.name], source=ConfigSource.GROUP))
    return ConfigEntry(
        name=key.name,
        value=synonyms[0].value,
        source=synonyms[0].source,
        type=key.type,
        read_only=key.read_only,
        sensitive=key.sensitive,
        doc=key.doc,
        synonyms=tuple(synonyms),
    )
