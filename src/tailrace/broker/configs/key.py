"""One setting: its name, its type as Kafka has types, its default, what it accepts and what it means.

Values travel as text, for that is how clients send and read them; `ConfigKey.parse` turns a text into a value
and refuses, with INVALID_CONFIG and the way out, what the key does not accept. A key that is in no table is
refused with the name that was probably meant.
"""

from __future__ import annotations

import difflib
import enum
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from tailrace.model import BrokerError, ConfigError, ErrorCode

ConfigValue = bool | int | float | str | tuple[str, ...]

_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]{1,19}", re.ASCII)


class ConfigType(enum.IntEnum):
    """Kafka's types of settings, by their numbers in DescribeConfigs."""

    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7


class ConfigSource(enum.IntEnum):
    """Where a value comes from, by Kafka's numbers."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    GROUP = 8


Layers = Mapping[ConfigSource, Mapping[str, str]]
"""The settings of a node by where they come from, those that win first."""

_BITS = {ConfigType.SHORT: 16, ConfigType.INT: 32, ConfigType.LONG: 64}


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigKey:
    """A row of a table of settings."""

    name: str
    type: ConfigType
    default: str
    doc: str
    at_least: int | None = None
    at_most: int | None = None
    choices: tuple[str, ...] = ()  # of the whole value, or of each item of a list
    advice: str = ""  # said when a value is refused
    check: Callable[[str], object] | None = None  # raises ConfigError, for what neither range nor choices say
    read_only: bool = False
    sensitive: bool = False
    server_default: str | None = None  # the node-wide setting that gives a topic's default

    def parse(self, text: str) -> ConfigValue:
        """The value that `text` stands for; INVALID_CONFIG if it stands for none that is accepted."""
        text = text.strip()
        if self.check is not None:
            try:
                self.check(text)
            except ConfigError as error:
                raise BrokerError(str(error), code=ErrorCode.INVALID_CONFIG) from error
        match self.type:
            case ConfigType.BOOLEAN:
                return self._boolean(text)
            case ConfigType.DOUBLE:
                return self._double(text)
            case ConfigType.LIST:
                return self._list(text)
            case ConfigType.STRING:
                return self._choice(text)
            case _:
                return self._number(text)

    def _boolean(self, text: str) -> bool:
        if text.lower() not in ("true", "false"):
            raise self._refused(text, "is neither true nor false")
        return text.lower() == "true"

    def _number(self, text: str) -> int:
        if not _WHOLE_NUMBER.fullmatch(text):
            raise self._refused(text, "is not a whole number")
        number = int(text)
        bound = 1 << (_BITS[self.type] - 1)
        if not -bound <= number < bound:
            raise self._refused(text, f"does not fit into {_BITS[self.type]} bits")
        self._in_range(text, number)
        return number

    def _double(self, text: str) -> float:
        try:
            number = float(text)
        except ValueError as error:
            raise self._refused(text, "is not a number") from error
        if not math.isfinite(number):
            raise self._refused(text, "is not a number")
        self._in_range(text, number)
        return number

    def _in_range(self, text: str, number: float) -> None:
        if self.at_least is not None and number < self.at_least:
            raise self._refused(text, f"is below the least that is accepted, {self.at_least}")
        if self.at_most is not None and number > self.at_most:
            raise self._refused(text, f"is above the most that is accepted, {self.at_most}")

    def _list(self, text: str) -> tuple[str, ...]:
        items = split_list(text)
        for item in items:
            self._choice(item)
        return items

    def _choice(self, text: str) -> str:
        if self.choices and text not in self.choices:
            raise self._refused(text, f"is not one of: {', '.join(self.choices)}")
        return text

    def _refused(self, text: str, why: str) -> BrokerError:
        shown = text if len(text) <= 100 else text[:100] + "..."
        message = f"{self.name} = {shown!r} {why}" + (f". {self.advice}" if self.advice else "")
        return BrokerError(message, code=ErrorCode.INVALID_CONFIG)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigSynonym:
    """One of the places that a value could come from."""

    name: str
    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigEntry:
    """A setting as it is described to a client."""

    name: str
    value: str
    source: ConfigSource
    type: ConfigType
    read_only: bool
    sensitive: bool
    doc: str
    synonyms: tuple[ConfigSynonym, ...]  # the one in force first


def node_synonyms(key: ConfigKey, name: str, layers: Layers) -> list[ConfigSynonym]:
    """What a node says of a setting under `name`: the values it was given, and the default.

    A value in its configuration counts only if it differs from the default.
    """
    synonyms = [
        ConfigSynonym(name=name, value=layer[name], source=source)
        for source, layer in layers.items()
        if name in layer and not (source is ConfigSource.STATIC_BROKER and layer[name] == key.default)
    ]
    synonyms.append(ConfigSynonym(name=name, value=key.default, source=ConfigSource.DEFAULT))
    return synonyms


def split_list(text: str) -> tuple[str, ...]:
    """The items of a comma-separated value; empty ones do not count."""
    return tuple(item for item in (part.strip() for part in text.split(",")) if item)


def find_key(table: Mapping[str, ConfigKey], name: str, *, kind: str) -> ConfigKey:
    """The row of `name`; INVALID_CONFIG, with the name that was probably meant, if there is none."""
    key = table.get(name)
    if key is None:
        near = difflib.get_close_matches(name[:100], table, n=1)
        hint = f". Did you mean {near[0]}?" if near else ""
        raise BrokerError(f"there is no {kind} setting {name[:100]!r}{hint}", code=ErrorCode.INVALID_CONFIG)
    return key


def table_of(*keys: ConfigKey) -> dict[str, ConfigKey]:
    """Rows by name, in the order of their names."""
    return {key.name: key for key in sorted(keys, key=lambda key: key.name)}
