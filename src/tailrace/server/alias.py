"""Other names for settings: what older configuration files and environments call them.

`QB_SERVER_PORT` and `server.port` are the port of the native listener, intervals are in seconds, and
`storage.fsync_on_write` is a yes or no. An alias gives way to the setting's own name in the same place.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tailrace.server.kind import INT_MAX, Number, Truth


@dataclass(frozen=True, slots=True)
class Alias:
    """Another name of the setting `key`; `convert` turns what it was given into what the setting reads."""

    name: str
    key: str
    convert: Callable[[object], object]


def _same(given: object) -> object:
    return given


def _seconds(given: object) -> int:
    return 1000 * Number(low=1, high=INT_MAX // 1000).read(given)


def _fsync_on_write(given: object) -> str:
    return "commit" if Truth().read(given) else "os"


_IN_FILES = (
    Alias("server.port", "native.port", _same),
    Alias("server.heartbeat_interval", "native.heartbeat_interval_ms", _seconds),
    Alias("storage.fsync_on_write", "storage.fsync", _fsync_on_write),
    Alias("client.request_timeout", "client.request_timeout_ms", _seconds),
    Alias("client.heartbeat_interval", "client.heartbeat_interval_ms", _seconds),
)

_IN_ENVIRONMENTS = (
    Alias("QB_SERVER_HOST", "server.host", _same),
    Alias("QB_SERVER_PORT", "native.port", _same),
    Alias("QB_DATA_DIR", "storage.data_dir", _same),
    Alias("QB_LOG_LEVEL", "log.level", _same),
)

FILE_ALIASES: Mapping[str, Alias] = {alias.name: alias for alias in _IN_FILES}
ENVIRONMENT_ALIASES: Mapping[str, Alias] = {alias.name: alias for alias in _IN_ENVIRONMENTS}


def aliases_of(key: str) -> list[str]:
    """Every other name of a setting."""
    return [alias.name for alias in (*_IN_FILES, *_IN_ENVIRONMENTS) if alias.key == key]
