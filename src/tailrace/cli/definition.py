"""Topics and subscriptions as one file: its format, and what has to be done to make a broker like it.

    {
      "version": 1,
      "topics": [{"name": "orders", "partitions": 4, "configs": {"retention.ms": "86400000"}}],
      "subscriptions": [{"name": "workers", "topic": "orders", "configs": {"mode": "shared"}}]
    }

`configs` are what differs from the defaults: what is not there has its default. `settings` is their older
name in a subscription, and is read as well. A kind that the file leaves out is not touched. `plan_changes` is
pure; a change knows how it is shown and, if it cannot be made, why.
"""

from __future__ import annotations

import difflib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

from tailrace.model import BrokerError, ConfigError

VERSION = 1
_KINDS = ("topics", "subscriptions")
_TOPIC_KEYS = ("name", "partitions", "configs")
_SUBSCRIPTION_KEYS = ("name", "topic", "configs", "settings", "start")

Kind = Literal["topic", "subscription"]
Action = Literal["create", "change", "delete", "leave"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDefinition:
    """A topic; partitions None leaves their number to the broker."""

    name: str
    partitions: int | None = None
    configs: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class SubscriptionDefinition:
    """A subscription; `start` counts only when it is created."""

    name: str
    topic: str
    settings: Mapping[str, str] = field(default_factory=dict)
    start: str = "earliest"


@dataclass(frozen=True, slots=True, kw_only=True)
class Definitions:
    """What a file says, or a broker has. None: the file says nothing of that kind."""

    topics: Sequence[TopicDefinition] | None = None
    subscriptions: Sequence[SubscriptionDefinition] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Change:
    """One step; `wrong` says why it cannot be made."""

    action: Action
    kind: Kind
    name: str
    detail: str = ""
    wrong: str = ""
    topic: TopicDefinition | None = None
    subscription: SubscriptionDefinition | None = None
    partitions: int | None = None  # the new total
    sets: Mapping[str, str] = field(default_factory=dict)
    resets: tuple[str, ...] = ()


# ---- the file


def write_definitions(found: Definitions) -> str:
    """The file, in an order that does not change by itself."""
    topics = [
        {"name": each.name, "partitions": each.partitions, "configs": dict(sorted(each.configs.items()))}
        for each in sorted(found.topics or (), key=lambda each: each.name)
    ]
    subscriptions = [
        {"name": each.name, "topic": each.topic, "configs": dict(sorted(each.settings.items()))}
        for each in sorted(found.subscriptions or (), key=lambda each: each.name)
    ]
    return json.dumps({"version": VERSION, "topics": topics, "subscriptions": subscriptions}, indent=2) + "\n"


def read_definitions(text: str) -> Definitions:
    """What the file says; ConfigError names the place, and what was perhaps meant."""
    try:
        found = json.loads(text, object_pairs_hook=_without_repeats)
    except ValueError as error:
        raise ConfigError(f"it is not JSON: {error}") from error
    root = _object(found, "the file", ("version", *_KINDS))
    version = root.get("version")
    if version != VERSION or isinstance(version, bool):
        raise ConfigError(f"version is {json.dumps(version)}, and this program knows {VERSION}")
    return Definitions(
        topics=_list(root, "topics", _read_topic),
        subscriptions=_list(root, "subscriptions", _read_subscription),
    )


def _without_repeats(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"{next(name for name in names if names.count(name) > 1)!r} is there twice")
    return found


def _list(root: Mapping[str, Any], kind: str, read: Any) -> list[Any] | None:
    if kind not in root:
        return None
    if not isinstance(root[kind], list):
        raise ConfigError(f"{kind} is not a list")
    made = [read(each, f"{kind}[{place}]") for place, each in enumerate(root[kind])]
    names = [each.name for each in made]
    for name in names:
        if names.count(name) > 1:
            raise ConfigError(f"{kind} has {name!r} twice")
    return made


def _read_topic(value: Any, place: str) -> TopicDefinition:
    row = _object(value, place, _TOPIC_KEYS)
    partitions = row.get("partitions")
    if partitions is not None and (type(partitions) is not int or partitions < 1):
        raise ConfigError(f"{place}.partitions is not a number from 1 on")
    return TopicDefinition(
        name=_text(row, place, "name"), partitions=partitions, configs=_texts(row, place, "configs")
    )


def _read_subscription(value: Any, place: str) -> SubscriptionDefinition:
    from tailrace.broker.subscriptions.definition import SubscriptionConfig

    row = _object(value, place, _SUBSCRIPTION_KEYS)
    name, topic = _text(row, place, "name"), _text(row, place, "topic")
    if "configs" in row and "settings" in row:
        raise ConfigError(f"{place}: settings is the older name of configs. Give configs alone")
    key = "settings" if "settings" in row else "configs"
    try:  # a setting with its default's value is none
        settings = SubscriptionConfig.read(name, topic, _texts(row, place, key)).settings()
    except BrokerError as error:
        raise ConfigError(f"{place}: {error}") from error
    start = _text(row, place, "start") if "start" in row else "earliest"
    return SubscriptionDefinition(name=name, topic=topic, settings=settings, start=start)


def _object(value: Any, place: str, keys: Sequence[str]) -> Mapping[str, Any]:
    if not isinstance(value, dict):
        raise ConfigError(f"{place} is not an object")
    for key in value:
        if key not in keys:
            near = difflib.get_close_matches(key, keys, n=1)
            hint = f"Did you mean {near[0]}?" if near else f"It may have {', '.join(keys)}"
            raise ConfigError(f"{place} has no key {key!r}. {hint}")
    return value


def _text(row: Mapping[str, Any], place: str, key: str) -> str:
    value = row.get(key)
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{place}.{key} is missing, or no text")
    return value


def _texts(row: Mapping[str, Any], place: str, key: str) -> dict[str, str]:
    """Settings travel as texts; numbers and booleans of JSON are written as such."""
    values = row.get(key, {})
    if not isinstance(values, dict):
        raise ConfigError(f"{place}.{key} is not an object")
    texts: dict[str, str] = {}
    for name, value in values.items():
        if isinstance(value, bool):
            texts[name] = "true" if value else "false"
        elif isinstance(value, str | int):
            texts[name] = str(value)
        else:
            raise ConfigError(f"{place}.{key}.{name} is neither text nor a whole number")
    return texts


# ---- what has to be done


def plan_changes(wanted: Definitions, found: Definitions, *, prune: bool) -> list[Change]:
    """Topics before the subscriptions of them; what is not wanted goes last, subscriptions first."""
    topics = _plan_topics(wanted.topics, found.topics or ())
    subscriptions = _plan_subscriptions(wanted.subscriptions, found.subscriptions or ())
    rest = _plan_rest("subscription", wanted.subscriptions, found.subscriptions or (), prune=prune)
    # A dead-letter topic stands in no file. It stays, because its subscription may still use it.
    letters = {dead_letter_topic(each) for each in found.subscriptions or ()}
    others = [each for each in found.topics or () if each.name not in letters]
    rest += _plan_rest("topic", wanted.topics, others, prune=prune)
    return [*topics, *subscriptions, *rest]


def dead_letter_topic(subscription: SubscriptionDefinition) -> str:
    return subscription.settings.get("dead_letter_topic") or f"{subscription.name}.dlq"


def _plan_topics(wanted: Sequence[TopicDefinition] | None, found: Sequence[TopicDefinition]) -> list[Change]:
    known = {each.name: each for each in found}
    changes = []
    for each in wanted or ():
        now = known.get(each.name)
        if now is None:
            count = "" if each.partitions is None else f"{each.partitions} partitions"
            detail = ", ".join(filter(None, (count, *(f"{k}={v}" for k, v in sorted(each.configs.items())))))
            changes.append(Change(action="create", kind="topic", name=each.name, detail=detail, topic=each))
        elif (change := _plan_topic(each, now)) is not None:
            changes.append(change)
    return changes


def _plan_topic(wanted: TopicDefinition, now: TopicDefinition) -> Change | None:
    sets = {key: value for key, value in sorted(wanted.configs.items()) if now.configs.get(key) != value}
    resets = tuple(sorted(key for key in now.configs if key not in wanted.configs))
    parts = [f"{key}: {now.configs.get(key, 'default')} -> {value}" for key, value in sets.items()]
    parts += [f"{key}: {now.configs[key]} -> default" for key in resets]
    grown, wrong = None, ""
    assert now.partitions is not None
    if wanted.partitions is not None and wanted.partitions != now.partitions:
        parts.insert(0, f"partitions: {now.partitions} -> {wanted.partitions}")
        grown = wanted.partitions
        if wanted.partitions < now.partitions:
            grown, wrong = None, "a topic cannot have fewer partitions than it has; nothing of it is changed"
    if not parts:
        return None
    return Change(
        action="change",
        kind="topic",
        name=wanted.name,
        detail=", ".join(parts),
        wrong=wrong,
        partitions=grown,
        sets=sets,
        resets=resets,
    )


def _plan_subscriptions(
    wanted: Sequence[SubscriptionDefinition] | None, found: Sequence[SubscriptionDefinition]
) -> list[Change]:
    known = {each.name: each for each in found}
    changes = []
    for each in wanted or ():
        now = known.get(each.name)
        if now is None:
            texts = (
                f"of {each.topic}",
                f"from {each.start}",
                *(f"{k}={v}" for k, v in sorted(each.settings.items())),
            )
            changes.append(
                Change(
                    action="create",
                    kind="subscription",
                    name=each.name,
                    detail=", ".join(texts),
                    subscription=each,
                )
            )
        elif (now.topic, dict(now.settings)) != (each.topic, dict(each.settings)):
            changes.append(
                Change(
                    action="change",
                    kind="subscription",
                    name=each.name,
                    detail=f"of {now.topic} {dict(now.settings)} -> of {each.topic} {dict(each.settings)}",
                    wrong="a subscription keeps its topic and settings. Delete it, then apply again",
                )
            )
    return changes


def _plan_rest(
    kind: Kind,
    wanted: Sequence[TopicDefinition] | Sequence[SubscriptionDefinition] | None,
    found: Sequence[TopicDefinition] | Sequence[SubscriptionDefinition],
    *,
    prune: bool,
) -> list[Change]:
    """What the broker has and the file does not; of a kind that the file leaves out, nothing is said."""
    if wanted is None:
        return []
    names = {each.name for each in wanted}
    action: Action = "delete" if prune else "leave"
    return [Change(action=action, kind=kind, name=each.name) for each in found if each.name not in names]
