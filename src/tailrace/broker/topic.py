"""A topic: what somebody wants, what exists, and which names are possible."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from tailrace.broker.configs import TopicSettings
from tailrace.broker.counters import TopicCounters
from tailrace.broker.partition import Partition
from tailrace.broker.placement import Assignment
from tailrace.broker.ports import TopicRecord
from tailrace.model import BrokerError, ErrorCode

_LEGAL_NAME = re.compile(r"[A-Za-z0-9._-]{1,249}")
_RESERVED = frozenset({"__consumer_offsets", "__transaction_state"})
_OWN_PREFIX = "__tailrace_"

CLIENT_WRITTEN = frozenset({"__tailrace_pipelines"})
"""Internal topics that clients make and write: what pipelines tell of themselves, wherever they run.

They have one partition and are compacted; patterns and listings pass them over as they do the broker's own.
Nothing of the broker is in them, so they can be deleted.
"""

DEFAULT = -1
"""For a number of partitions or replicas: what the broker is set to."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NewTopic:
    """A topic that somebody wants."""

    name: str
    partitions: int = DEFAULT
    replication_factor: int = DEFAULT
    configs: Mapping[str, str] = field(default_factory=dict)
    assignments: Assignment | None = None
    internal: bool = False


class Topic:
    """A topic that exists."""

    __slots__ = ("configs", "counters", "id", "internal", "name", "partitions", "quarantine", "settings")

    def __init__(
        self,
        record: TopicRecord,
        settings: TopicSettings,
        partitions: list[Partition],
        counters: TopicCounters,
    ) -> None:
        self.id = record.id
        self.name = record.name
        self.internal = record.internal
        self.configs: Mapping[str, str] = record.configs  # what differs from the defaults
        self.settings = settings
        self.partitions = partitions
        self.counters = counters  # shared with them
        self.quarantine = ""  # why it is not served, expired, compacted or deleted; "" if it is served

    def __repr__(self) -> str:
        return f"<Topic {self.name} {self.id} with {len(self.partitions)} partitions>"

    @property
    def replication_factor(self) -> int:
        return len(self.partitions[0].replicas)


def check_name(name: str) -> None:
    """Whether a topic may have this name."""
    if not _LEGAL_NAME.fullmatch(name) or name in (".", ".."):
        raise BrokerError(
            f"{name!r} is not a legal topic name: up to 249 of A-Z a-z 0-9 . _ -, and not . or ..",
            code=ErrorCode.INVALID_TOPIC_EXCEPTION,
        )


def is_reserved(name: str) -> bool:
    """Whether a topic of this name belongs to the broker, which alone creates and writes it."""
    return name in _RESERVED or (name.startswith(_OWN_PREFIX) and name not in CLIENT_WRITTEN)


def check_not_reserved(name: str) -> None:
    """Raise INVALID_REQUEST for a topic that a client may not create."""
    if is_reserved(name):
        raise BrokerError(
            f"{name} belongs to the broker, which creates it when it needs it", code=ErrorCode.INVALID_REQUEST
        )


def check_client_writable(name: str) -> None:
    """Raise INVALID_TOPIC_EXCEPTION for a topic that a client may not write, on whichever listener."""
    if is_reserved(name):
        raise BrokerError(
            f"{name} belongs to the broker: clients may read it", code=ErrorCode.INVALID_TOPIC_EXCEPTION
        )


def check_client_written(new: NewTopic) -> None:
    """Whether a topic that clients write for all to see is wanted in its one shape."""
    count = len(new.assignments) if new.assignments is not None else new.partitions
    if count != 1 or new.configs.get("cleanup.policy") != "compact":
        raise BrokerError(
            f"{new.name} has one partition and is compacted: ask for 1 partition and cleanup.policy=compact",
            code=ErrorCode.INVALID_REQUEST,
        )


def check_records_deletable(topic: Topic) -> None:
    """Whether a client may delete the oldest records of a topic."""
    if topic.internal:
        raise BrokerError(
            f"{topic.name} is internal and keeps its records", code=ErrorCode.INVALID_TOPIC_EXCEPTION
        )
    if topic.settings.compact and not topic.settings.log.delete:
        raise BrokerError(
            f"{topic.name} is compacted and never deletes. Send a record with the key and a null value, or "
            "set cleanup.policy to compact,delete",
            code=ErrorCode.POLICY_VIOLATION,
        )


def unknown_topic(name: str) -> BrokerError:
    return BrokerError(f"topic {name!r} does not exist", code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def unknown_topic_id(topic_id: UUID) -> BrokerError:
    return BrokerError(f"no topic has the id {topic_id}", code=ErrorCode.UNKNOWN_TOPIC_ID)


def unknown_partition(topic: Topic, index: int) -> BrokerError:
    count = len(topic.partitions)
    return BrokerError(
        f"{topic.name} has {count} partition{'' if count == 1 else 's'}; there is no {index}",
        code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    )
