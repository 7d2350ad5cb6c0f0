"""What a scenario may ask of any Kafka client, and how it says so.

One scenario runs unchanged with every client, so this is the vocabulary they share. A client that cannot do
something says so in `lacks`, with the reason; a test names what it needs with `@needs(...)` and is skipped
with that reason. Errors arrive as ClientError with the Kafka code that the client itself reported: what the
client made of our answer is what is tested, and not the answer.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, Protocol, TypeAlias

import pytest

CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


class Feature(enum.StrEnum):
    """What not every client can do."""

    PLACED = "say where a record went"
    TIMESTAMPS = "set timestamps"
    NULL_HEADERS = "send a header without a value"
    PARTITIONER = "choose the partition by key"
    IDEMPOTENCE = "produce idempotently"
    ACKS_NONE = "produce without an answer"
    PACE = "wait between two messages"
    GROUPS = "join a group"
    COMMIT = "commit given offsets"
    STATIC = "join as a static member"
    COOPERATIVE = "rebalance cooperatively"
    PATTERN = "subscribe to a pattern"
    REVOKED = "say what a rebalance took away"
    OFFSETS = "look up offsets by time"
    TOPICS = "create and list topics"
    DELETE_TOPICS = "delete topics"
    PARTITIONS = "add partitions"
    CONFIGS = "read and change configs"
    GROUP_ADMIN = "list and describe groups"
    DELETE_GROUPS = "delete groups"
    DELETE_RECORDS = "delete records"
    FENCED = "say that another member took its name"
    NEW_TOPICS = "find topics that are made after it subscribed"


def needs(*features: Feature) -> pytest.MarkDecorator:
    """Marks a test with what its client must be able to do."""
    return pytest.mark.needs(*features)  # not before it is called: the marker is registered by then


class ClientError(Exception):
    """The client reported an error; `code` is Kafka's number, or None where it is the client's own."""

    def __init__(self, code: int | None, text: str) -> None:
        """Keep what the client said, word for word: it is what a failing test shows."""
        super().__init__(f"{text} (code {code})")
        self.code = code


class TopicPartition(NamedTuple):
    """One partition of one topic."""

    topic: str
    partition: int


class Placed(NamedTuple):
    """Where the client says that a record went."""

    partition: int
    offset: int


Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """What is sent. Without a partition the client's own partitioner chooses."""

    value: bytes | None
    key: bytes | None = None
    headers: Headers = ()
    timestamp_ms: int | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What came back."""

    topic: str
    partition: int
    offset: int
    value: bytes | None
    key: bytes | None
    headers: Headers
    timestamp_ms: int

    @property
    def message(self) -> Message:
        """The part of it that its sender chose."""
        return Message(
            value=self.value,
            key=self.key,
            headers=self.headers,
            timestamp_ms=self.timestamp_ms,
            partition=self.partition,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Producing:
    """How to produce. A client keeps one producer per value of this, as a program would."""

    codec: str = "none"
    acks: int = -1
    idempotent: bool = False
    every_ms: int = 0  # the pause after each message: a producer that is busy for a known time
    linger_ms: int = 5
    bytes_max: int = 4_000_000  # the client's own limit, above the broker's so that the broker's is met
    timeout_ms: int = 15_000


PLAIN = Producing()


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What a consumer reads: partitions it assigns to itself, or topics (or a pattern) with its group."""

    assign: Mapping[TopicPartition, int | str] | None = None  # to an offset, "earliest" or "latest"
    topics: Sequence[str] = ()
    pattern: str | None = None
    group: str | None = None
    instance_id: str | None = None
    strategy: str = "range"
    reset: str = "earliest"
    session_ms: int = 10_000
    fetch_bytes_max: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """A group as the client's admin describes it."""

    state: str
    protocol: str
    members: int


class Consumer(Protocol):
    """One consumer, reading in the background from the moment it is opened."""

    def take(self, count: int, *, within_s: float = 60) -> list[Record]:
        """The next records in the order of arrival; TimeoutError tells how many came."""

    def take_all(self, *, within_s: float) -> list[Record]:
        """Whatever came until then."""

    def assignment(self) -> set[TopicPartition]:
        """What it reads now."""

    def revoked(self) -> list[TopicPartition]:
        """Every partition that a rebalance took away so far."""

    def commit(self, offsets: Mapping[TopicPartition, int], *, metadata: str = "") -> None:
        """Commit exactly these, and wait for the answer."""

    def close(self) -> None:
        """Leave the group, and end."""


class Client(Protocol):
    """One client library or program, in a process of its own."""

    name: str
    lacks: Mapping[Feature, str]

    def partition_of(self, key: bytes, *, partitions: int) -> int:
        """Where this client's default partitioner puts a key."""

    def produce(self, topic: str, messages: Sequence[Message], how: Producing = ...) -> list[Placed]:
        """Send them in order and wait for every answer. The result is empty without Feature.PLACED."""

    def open(self, reading: Reading) -> Consumer:
        """Start a consumer; an assigned one has its positions when this returns."""

    def another(self) -> Client:
        """A second one in a process of its own."""

    def kill(self) -> None:
        """kill -9, with every consumer in it."""

    def close(self) -> None:
        """End it, and all that it started."""

    @property
    def admin(self) -> Admin:
        """Its administrative half."""


class Admin(Protocol):
    """What an administrator does."""

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int = 1,
        replication_factor: int = 1,
        configs: Mapping[str, str] | None = None,
    ) -> None: ...
    def delete_topic(self, topic: str) -> None: ...
    def topics(self) -> dict[str, int]:
        """Every topic and its number of partitions."""

    def add_partitions(self, topic: str, *, total: int) -> None: ...
    def configs(self, topic: str) -> dict[str, str]: ...
    def set_config(self, topic: str, *, name: str, value: str) -> None: ...
    def offset_at(self, where: TopicPartition, at: int | str) -> int:
        """The first offset at or after a time in ms, or of "earliest" or "latest"; -1 for none."""

    def delete_records(self, where: TopicPartition, *, before: int) -> int: ...
    def groups(self) -> set[str]: ...
    def describe_group(self, group: str) -> Group: ...
    def group_offsets(self, group: str) -> dict[TopicPartition, tuple[int, str]]:
        """Committed offset and metadata."""

    def delete_group(self, group: str) -> None: ...
