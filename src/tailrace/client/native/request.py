"""The properties of requests, out of what a caller gives: where to begin, and settings."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from tailrace.client.native.outgoing import Text, ms_of, text_of
from tailrace.model import ConfigError

_WORDS = frozenset({"earliest", "latest"})


def start_of(start: str | int | datetime) -> str:
    """Where to read from, as the protocol says it: `earliest`, `latest`, `offset:N` or `time:MS`.

    A number is an offset and a datetime a time; text is taken as it is, once it makes sense.
    """
    if isinstance(start, datetime):
        return f"time:{ms_of(start)}"
    if isinstance(start, int):
        if start < 0:
            raise ConfigError(f"start = {start} is below 0. Say latest to begin with what comes from now on")
        # The oldest message may not be number 0 any more; whoever says 0 wants to begin at the beginning.
        return f"offset:{start}" if start else "earliest"
    kind, _, value = start.partition(":")
    is_number = value.isascii() and value.isdigit()
    if start in _WORDS or (kind in ("offset", "time") and is_number):
        return start
    raise ConfigError(f'start = "{start}" is none of earliest, latest, offset:N and time:MS')


def making_properties(
    topic: str, start: str | int | datetime, settings: Mapping[str, Text]
) -> dict[str, str]:
    """What makes a subscription, beside its name."""
    return {"_topic": topic, "_start": start_of(start), **setting_properties(settings)}


def config_properties(configs: Mapping[str, Text]) -> dict[str, str]:
    """Topic settings as unreserved properties. Kafka's names have dots where Python's have underscores."""
    return {name.replace("_", "."): value for name, value in setting_properties(configs).items()}


def setting_properties(settings: Mapping[str, Text]) -> dict[str, str]:
    """Settings as unreserved properties."""
    for name in settings:
        if name.startswith("_"):
            raise ConfigError(f'the setting "{name}" begins with "_", which the protocol keeps for itself')
    return {name: text_of(value) for name, value in settings.items()}
