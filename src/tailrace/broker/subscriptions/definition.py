"""What a subscription is: its settings, their checks, and where it starts to read.

Settings travel as texts, as on the wire and in the durable definition; `SubscriptionConfig.read` turns them
into values, and `settings` back into texts. What is refused says which setting, why, and what is accepted.
"""

from __future__ import annotations

import enum
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, cast

from tailrace.broker.configs.key import ConfigKey, ConfigType, find_key, table_of
from tailrace.broker.topic import check_name
from tailrace.model import BrokerError, ConfigError, ErrorCode

DEAD_LETTER_SUFFIX = ".dlq"
NAME_LENGTH_MAX = 249 - len(DEAD_LETTER_SUFFIX)
"""The dead-letter topic is named after the subscription, and a topic's name has 249 characters at most."""

_DAY_MS = 24 * 3600 * 1000
_OFFSET_MAX = (1 << 63) - 1
_START = re.compile(r"(earliest|latest)|(offset|time):([0-9]{1,19})", re.ASCII)


class Mode(enum.StrEnum):
    """Which member gets a message."""

    SHARED = "shared"
    """Whoever has room, in turn."""
    EXCLUSIVE = "exclusive"
    """The only member there may be."""
    FAILOVER = "failover"
    """The member that joined first; when it leaves, the next."""
    KEY_SHARED = "key_shared"
    """Messages of one key go to one member, one at a time."""


class Guarantee(enum.StrEnum):
    """What becomes of a message whose delivery fails."""

    AT_LEAST_ONCE = "at_least_once"
    """It is delivered again until somebody acknowledges it, or it is dead."""
    AT_MOST_ONCE = "at_most_once"
    """It is not delivered again: the cursor has passed it before it left."""


class Order(enum.StrEnum):
    """How the messages of several partitions follow each other."""

    PARTITION = "partition"
    """In order within a partition, in any order between them."""
    TIMESTAMP = "timestamp"
    """Merged by time."""


class StartKind(enum.StrEnum):
    """What a start is measured by."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIME = "time"


@dataclass(frozen=True, slots=True)
class Start:
    """Where a subscription begins, or is moved to: `earliest`, `latest`, `offset:N` or `time:MS`."""

    kind: StartKind
    value: int = 0  # the offset, or milliseconds since 1970; 0 for the others

    def __str__(self) -> str:
        return f"{self.kind}:{self.value}" if self.kind in (StartKind.OFFSET, StartKind.TIME) else self.kind

    @classmethod
    def parse(cls, text: str) -> Start:
        """The start that `text` stands for; INVALID_REQUEST if it stands for none."""
        found = _START.fullmatch(text)
        if found is None or int(found[3] or 0) > _OFFSET_MAX:
            raise BrokerError(
                f"{_clip(text)!r} is no place to start. Try: earliest, latest, offset:N, or time:MS "
                "with milliseconds since 1970",
                code=ErrorCode.INVALID_REQUEST,
            )
        return cls(StartKind(found[1] or found[2]), int(found[3] or 0))


EARLIEST: Final = Start(StartKind.EARLIEST)
LATEST: Final = Start(StartKind.LATEST)


def _check_dead_letter_topic(name: str) -> None:
    if not name:
        return  # the default: named after the subscription
    if name.startswith("__"):
        raise ConfigError(
            f"dead_letter_topic = {_clip(name)!r}: names with __ in front are for internal topics"
        )
    try:
        check_name(name)
    except BrokerError as error:
        raise ConfigError(f"dead_letter_topic = {_clip(name)!r}: {_LEGAL_TOPIC}") from error


_LEGAL_TOPIC = "a topic's name has 1 to 249 of A-Z a-z 0-9 . _ -, and is not . or .."

_MODE = ConfigKey(
    name="mode",
    type=ConfigType.STRING,
    default=Mode.SHARED,
    choices=tuple(Mode),
    doc="Which member gets a message: any with room, the only one, the first, or the one of its key.",
)
_DELIVERY = ConfigKey(
    name="delivery",
    type=ConfigType.STRING,
    default=Guarantee.AT_LEAST_ONCE,
    choices=tuple(Guarantee),
    doc="Whether the cursor passes a message when it is acknowledged, or before it is sent.",
)
_ACK_TIMEOUT = ConfigKey(
    name="ack_timeout_ms",
    type=ConfigType.LONG,
    default="30000",
    at_least=1,
    at_most=7 * _DAY_MS,
    advice="A handler that needs longer extends the lock of its message",
    doc="How long a member may hold a message before it is delivered again.",
)
_MAX_DELIVERIES = ConfigKey(
    name="max_deliveries",
    type=ConfigType.INT,
    default="5",
    at_least=0,
    at_most=1_000_000,
    advice="0 delivers for ever",
    doc="How often a message is delivered before it goes to the dead-letter topic; 0: it never does.",
)
_BACKOFF = ConfigKey(
    name="backoff_ms",
    type=ConfigType.LONG,
    default="1000",
    at_least=0,
    at_most=7 * _DAY_MS,
    doc="How long a refused or timed-out message waits for its second delivery; doubled each time after.",
)
_BACKOFF_MAX = ConfigKey(
    name="backoff_ms_max",
    type=ConfigType.LONG,
    default="60000",
    at_least=0,
    at_most=7 * _DAY_MS,
    doc="The longest that a message waits for its next delivery.",
)
_UNACKED_MAX = ConfigKey(
    name="unacked_max",
    type=ConfigType.INT,
    default="10000",
    at_least=1,
    at_most=100_000,
    advice="It bounds the memory of the subscription: a longer backlog stays in the log and costs nothing",
    doc="How many messages may be delivered and not settled yet; at the bound new deliveries pause.",
)
_PRIORITY = ConfigKey(
    name="priority",
    type=ConfigType.BOOLEAN,
    default="false",
    doc="Whether messages with a higher property priority (0 to 9) go before others that are ready.",
)
_ORDER = ConfigKey(
    name="order",
    type=ConfigType.STRING,
    default=Order.PARTITION,
    choices=tuple(Order),
    doc="Whether the partitions are delivered side by side, or merged by time.",
)
_DEAD_LETTER_TOPIC = ConfigKey(
    name="dead_letter_topic",
    type=ConfigType.STRING,
    default="",
    check=_check_dead_letter_topic,
    doc="Where dead messages go; empty: the subscription's name with .dlq behind it.",
)

SUBSCRIPTION_CONFIGS: Final[Mapping[str, ConfigKey]] = table_of(
    _MODE,
    _DELIVERY,
    _ACK_TIMEOUT,
    _MAX_DELIVERIES,
    _BACKOFF,
    _BACKOFF_MAX,
    _UNACKED_MAX,
    _PRIORITY,
    _ORDER,
    _DEAD_LETTER_TOPIC,
)
"""Every setting of a subscription, by name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionConfig:
    """A subscription as somebody defined it; two that are equal are the same definition."""

    name: str
    topic: str
    mode: Mode
    delivery: Guarantee
    ack_timeout_ms: int
    max_deliveries: int  # 0: a message is never dead
    backoff_ms: int
    backoff_ms_max: int
    unacked_max: int
    priority: bool
    order: Order
    dead_letter_topic: str

    @classmethod
    def read(cls, name: str, topic: str, settings: Mapping[str, str]) -> SubscriptionConfig:
        """The subscription that these texts define; INVALID_CONFIG names the one that is wrong."""
        _check_subscription_name(name)
        check_name(topic)
        for given in settings:
            find_key(SUBSCRIPTION_CONFIGS, given, kind="subscription")
        config = cls(
            name=name,
            topic=topic,
            mode=Mode(_text(_MODE, settings)),
            delivery=Guarantee(_text(_DELIVERY, settings)),
            ack_timeout_ms=_number(_ACK_TIMEOUT, settings),
            max_deliveries=_number(_MAX_DELIVERIES, settings),
            backoff_ms=_number(_BACKOFF, settings),
            backoff_ms_max=_number(_BACKOFF_MAX, settings),
            unacked_max=_number(_UNACKED_MAX, settings),
            priority=_PRIORITY.parse(settings.get(_PRIORITY.name, _PRIORITY.default)) is True,
            order=Order(_text(_ORDER, settings)),
            dead_letter_topic=_text(_DEAD_LETTER_TOPIC, settings) or name + DEAD_LETTER_SUFFIX,
        )
        config._check_together()
        return config

    def settings(self) -> dict[str, str]:
        """What differs from the defaults, as texts that `read` understands."""
        own_topic = self.dead_letter_topic == self.name + DEAD_LETTER_SUFFIX
        texts = {
            _MODE.name: str(self.mode),
            _DELIVERY.name: str(self.delivery),
            _ACK_TIMEOUT.name: str(self.ack_timeout_ms),
            _MAX_DELIVERIES.name: str(self.max_deliveries),
            _BACKOFF.name: str(self.backoff_ms),
            _BACKOFF_MAX.name: str(self.backoff_ms_max),
            _UNACKED_MAX.name: str(self.unacked_max),
            _PRIORITY.name: "true" if self.priority else "false",
            _ORDER.name: str(self.order),
            _DEAD_LETTER_TOPIC.name: "" if own_topic else self.dead_letter_topic,
        }
        return {name: text for name, text in texts.items() if text != SUBSCRIPTION_CONFIGS[name].default}

    def _check_together(self) -> None:
        """Refuse settings that are right each for itself and make no sense with each other."""
        if self.backoff_ms > self.backoff_ms_max:
            raise _refused(
                f"backoff_ms = {self.backoff_ms} is above backoff_ms_max = {self.backoff_ms_max}. "
                f"Try: backoff_ms_max={self.backoff_ms}"
            )
        if self.dead_letter_topic == self.topic:
            raise _refused(
                f"dead_letter_topic = {self.topic!r} is the topic itself: dead messages would come back for "
                "ever. Choose another one"
            )
        if self.priority and self.mode is Mode.KEY_SHARED:
            raise _refused(
                "priority would break the order that mode = key_shared keeps. Leave one of them out"
            )
        if self.priority and self.order is Order.TIMESTAMP:
            raise _refused("priority would break order = timestamp. Leave one of them out")


def _check_subscription_name(name: str) -> None:
    try:
        check_name(name)
        legal = len(name) <= NAME_LENGTH_MAX
    except BrokerError:
        legal = False
    if not legal:
        raise _refused(
            f"{_clip(name)!r} is not a legal name of a subscription: 1 to {NAME_LENGTH_MAX} of "
            "A-Z a-z 0-9 . _ -, and not . or .."
        )


def _text(key: ConfigKey, settings: Mapping[str, str]) -> str:
    return cast(str, key.parse(settings.get(key.name, key.default)))


def _number(key: ConfigKey, settings: Mapping[str, str]) -> int:
    return cast(int, key.parse(settings.get(key.name, key.default)))


def _refused(message: str) -> BrokerError:
    return BrokerError(message, code=ErrorCode.INVALID_CONFIG)


def _clip(text: str) -> str:
    return text if len(text) <= 100 else text[:100] + "..."
