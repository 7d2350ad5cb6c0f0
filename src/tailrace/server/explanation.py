"""What `tailrace config` tells about settings: the value in force, where it came from, what it means."""

from __future__ import annotations

from collections.abc import Iterator

from tailrace.server.alias import aliases_of
from tailrace.server.configuration import DEFAULT, Configuration
from tailrace.server.listener import LISTENER_KEYS, ListenerConfig
from tailrace.server.setting import Setting, settings

_KAFKA_TABLES = ("broker", "topic_defaults")


def list_values(configuration: Configuration, *, changed_only: bool = False) -> Iterator[dict[str, object]]:
    """Key, value and source of everything that this version obeys."""
    for key, setting in settings().items():
        given = configuration.values[key]
        if not (changed_only and given.source == DEFAULT):
            yield {"key": key, "value": setting.shown(given.value), "source": given.source}
    for listener in configuration.listeners:
        for name, value in (
            ("protocol", listener.protocol),
            ("address", str(listener.address)),
            ("sasl", ", ".join(listener.sasl)),
        ):
            yield {
                "key": f"listeners.{listener.name}.{name}",
                "value": value,
                "source": str(configuration.file),
            }


def find_setting(key: str) -> Setting | None:
    """A setting by its key, or by Kafka's name alone: `retention.ms` is topic_defaults.retention.ms."""
    table = settings()
    for candidate in (key, *(f"{each}.{key}" for each in _KAFKA_TABLES)):
        if setting := table.get(candidate):
            return setting
    return None


def explain_listener_key(key: str, configuration: Configuration) -> dict[str, object] | None:
    """Everything about a key of [[listeners]]; None if it is none."""
    found = LISTENER_KEYS.get(key)
    if found is None:
        return None
    kind, default, meaning = found
    name = key.partition(".")[2]
    values = [_listener_value(each, name) for each in configuration.listeners]
    return {
        "key": key,
        "meaning": meaning,
        "type": kind,
        "default": default,
        "value": "; ".join(values),
        "source": str(configuration.file) if values else DEFAULT,
        "flag": None,
        "environment": None,
        "aliases": [],
    }


def _listener_value(listener: ListenerConfig, name: str) -> str:
    value = getattr(listener, name)
    return f"{listener.name}: {', '.join(value) if name == 'sasl' else value}"


def explain(setting: Setting, configuration: Configuration) -> dict[str, object]:
    """Everything about one setting."""
    given = configuration.values[setting.key]
    return {
        "key": setting.key,
        "meaning": setting.doc,
        "type": setting.kind.name,
        "default": setting.default,
        "value": setting.shown(given.value),
        "source": given.source,
        "flag": setting.flag or None,
        "environment": setting.environment,
        "aliases": [*filter(None, [setting.flag_environment]), *aliases_of(setting.key)],
    }
