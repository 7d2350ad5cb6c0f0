"""What a setting may be: how its text is read, and what is said when it is wrong.

A value comes out of TOML with a type or out of the environment as text; both are read by the same kind, so
that `TAILRACE_SERVER__KAFKA_PORT=9092` and `kafka_port = 9092` cannot mean two things. A kind that cannot
take a value raises ValueError with what it must be, in words that end the sentence "KEY = VALUE must be ...";
the broker's own tables have whole sentences for that, which come as `Refused`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tailrace.model import BrokerError, ConfigError

if TYPE_CHECKING:
    from tailrace.broker.configs import ConfigKey

Value = str | int | bool

_TRUE = frozenset({"true", "yes", "on", "1"})
_FALSE = frozenset({"false", "no", "off", "0"})
INT_MAX = (1 << 63) - 1
_USER = "User:"


class Refused(ValueError):
    """A value that will not do, and the whole sentence that says why."""


class Kind(Protocol):
    """One type of setting."""

    @property
    def name(self) -> str:
        """What `tailrace config explain` calls it."""

    def read(self, given: object) -> Value:
        """The value, or ValueError that says what it must be."""


@dataclass(frozen=True, slots=True)
class Text:
    """Any text but the empty one."""

    name: str = "text"

    def read(self, given: object) -> str:
        if not isinstance(given, str) or not given.strip():
            raise ValueError("a text that is not empty")
        return given.strip()


@dataclass(frozen=True, slots=True)
class Names:
    """Names of hosts, with commas between them; there may be none."""

    name: str = "names, with commas"

    def read(self, given: object) -> str:
        names = given.replace(",", " ").split() if isinstance(given, str) else given
        if not isinstance(names, list) or not all(_is_host(each) for each in names):
            raise ValueError("names of hosts without their ports, with commas between them")
        return ",".join(names)


def _is_host(given: object) -> bool:
    return isinstance(given, str) and given != "" and given.replace("-", "a").replace(".", "a").isalnum()


@dataclass(frozen=True, slots=True)
class Principals:
    """Principals as access control lists name them; semicolons between them, as in Kafka's super.users.

    A name may have commas, which those of certificates have.
    """

    name: str = "principals, with semicolons"

    def read(self, given: object) -> str:
        parts = given.split(";") if isinstance(given, str) else given
        if not isinstance(parts, list) or not all(isinstance(each, str) for each in parts):
            raise ValueError('a list of principals, such as ["User:admin"]')
        principals = [each.strip() for each in parts if each.strip()]
        for each in principals:
            if not each.startswith(_USER) or each in (_USER, f"{_USER}*") or ";" in each:
                raise ValueError('a list of principals, such as ["User:admin"]; User:* is none')
        return ";".join(dict.fromkeys(principals))


def read_principals(text: str) -> tuple[str, ...]:
    """The principals that `Principals` has read."""
    return tuple(each for each in text.split(";") if each)


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A whole number between two bounds, which both belong to it."""

    low: int = 0
    high: int = INT_MAX
    name: str = "number"

    def read(self, given: object) -> int:
        if isinstance(given, str) and given.strip().removeprefix("-").isdecimal():
            given = int(given)
        if isinstance(given, bool) or not isinstance(given, int) or not self.low <= given <= self.high:
            bounds = f"at least {self.low}" if self.high == INT_MAX else f"from {self.low} to {self.high}"
            raise ValueError(f"a whole number {bounds}")
        return given


@dataclass(frozen=True, slots=True)
class Truth:
    """Yes or no."""

    name: str = "true or false"

    def read(self, given: object) -> bool:
        if isinstance(given, bool):
            return given
        word = given.strip().lower() if isinstance(given, str) else ""
        if word not in _TRUE | _FALSE:
            raise ValueError("true or false")
        return word in _TRUE


@dataclass(frozen=True, slots=True)
class Choice:
    """One of a few words."""

    words: tuple[str, ...]

    @property
    def name(self) -> str:
        return " or ".join(self.words)

    def read(self, given: object) -> str:
        word = given.strip().lower() if isinstance(given, str) else ""
        if word not in self.words:
            raise ValueError(self.name)
        return word


@dataclass(frozen=True, slots=True)
class Checked:
    """Text that somebody else knows how to check."""

    name: str
    check: Callable[[str], object]  # ValueError if it will not do
    shape: str  # what it must be, in words

    def read(self, given: object) -> str:
        text = as_text(given)
        try:
            self.check(text)
        except ValueError as error:
            raise ValueError(self.shape) from error
        return text


@dataclass(frozen=True, slots=True)
class Hidden:
    """A text that is a secret: neither its value nor what is wrong with it is ever shown with its text."""

    name: str
    key: str
    check: Callable[[str], object]  # ConfigError, a whole sentence without the text, if it will not do

    def read(self, given: object) -> str:
        if not isinstance(given, str):
            raise Refused(f"{self.key} must be a text")
        try:
            self.check(given.strip())
        except ConfigError as error:
            raise Refused(str(error)) from None
        return given.strip()


@dataclass(frozen=True, slots=True)
class Kafka:
    """A setting with Kafka's own name: the broker's table says what it accepts."""

    key: ConfigKey

    @property
    def name(self) -> str:
        return " or ".join(self.key.choices) or self.key.type.name.lower()

    def read(self, given: object) -> str:
        text = as_text(given)
        try:
            self.key.parse(text)
        except BrokerError as error:
            raise Refused(str(error)) from error
        return text


def as_text(given: object) -> str:
    """A TOML value as one would have written it into the environment; lists are Kafka's comma lists."""
    match given:
        case bool():
            return "true" if given else "false"
        case str():
            return given.strip()
        case int() | float():
            return str(given)
        case list():
            return ",".join(as_text(item) for item in given)
        case _:
            raise ValueError("a text, a number, true or false, or a list of those")
