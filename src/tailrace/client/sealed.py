"""Encryption in the clients of the Kafka protocol: records decrypted, and what becomes of refused ones.

    fail           the consumer hands out what is before it, then raises, and stays there: seek past it
    skip           it is counted and passed
    dead-letter    it is written to a dead-letter topic as it is, with the headers of the broker's dead
                   letters, before anything behind it is handed out

A letter may be written twice: if the consumer is stopped, or the write fails half way, records are read
again. What does this imports a library of ciphers, and is loaded where a client was handed an encryption.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.model import ConfigError, TailraceError, TopicPartition
from tailrace.security.decryption import DecryptionFailed

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient
    from tailrace.client.producer import Producer
    from tailrace.records import Record
    from tailrace.security.messages import Encryption, Opener, ReadCounts, Sealer

_ORIGIN = ("_dlq_topic", "_dlq_partition", "_dlq_offset")
_REASON_BYTES_MAX = 1024
_ADVICE = "Seek past it to go on, or set on_failure to dead-letter or skip"


def begin_sealing(encryption: Encryption | None) -> Sealer | None:
    """A writer's session; ConfigError if no key is there to encrypt with."""
    if encryption is None:
        return None
    from tailrace.security.messages import Sealer

    return Sealer(encryption)


def begin_opening(encryption: Encryption | None) -> Opener | None:
    """What a reader decrypts with."""
    if encryption is None:
        return None
    from tailrace.security.messages import Opener

    return Opener(encryption)


def begin_reading(encryption: Encryption | None, client: KafkaClient, *, group: str | None) -> Opening | None:
    """The same for a consumer, with its dead letters."""
    opener = begin_opening(encryption)
    return None if opener is None else Opening(opener, Letters(client, opener, group=group))


class Opened(NamedTuple):
    """Records of one partition."""

    records: list[Record]
    failure: DecryptionFailed | None = None
    """Why the consumer stops,"""
    next_offset: int = -1
    """and in front of which record."""


class Opening:
    """Decrypts for one consumer."""

    def __init__(self, opener: Opener, letters: Letters) -> None:
        self._opener = opener
        self.letters = letters
        """What was refused and is to be written to a dead-letter topic."""

    @property
    def counts(self) -> ReadCounts:
        return self._opener.counts

    def open_all(self, target: TopicPartition, taken: Sequence[Record]) -> Opened:
        """The records as they were before they were encrypted, without those that are refused."""
        opened: list[Record] = []
        policy = self._opener.encryption.on_failure
        for record in taken:
            try:
                value, headers = self._opener.open(target.topic, record.key, record.value, record.headers)
            except DecryptionFailed as error:
                if policy == "fail":
                    failure = error.at(f"{target} offset {record.offset}", advice=_ADVICE)
                    return Opened(opened, failure, record.offset)
                if policy == "skip":
                    self.counts.skipped += 1
                else:
                    self.letters.add(target, record, error)
            else:
                opened.append(record._replace(value=value, headers=headers))
        return Opened(opened)


class Letters:
    """Refused records of one consumer on their way to a dead-letter topic."""

    def __init__(self, client: KafkaClient, opener: Opener, *, group: str | None) -> None:
        self._client = client
        self._opener = opener
        self._group = group
        self._waiting: list[tuple[TopicPartition, Record, DecryptionFailed]] = []
        self._producer: Producer | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, target: TopicPartition, record: Record, error: DecryptionFailed) -> None:
        """Have a record written with the others of this poll."""
        self._waiting.append((target, record, error))

    def firsts(self) -> dict[TopicPartition, int]:
        """The offset of the first one of each partition."""
        return {target: record.offset for target, record, _ in reversed(self._waiting)}

    async def write(self) -> None:
        """Write them, and return when they are safe. If that fails none of them waits any more."""
        from tailrace.client.producer import Producer

        waiting, self._waiting = self._waiting, []
        if self._producer is None:
            self._producer = Producer(self._client)
        futures = []
        for target, record, error in waiting:
            futures.append(
                await self._producer.send(
                    self._topic_for(target.topic),
                    record.value,
                    key=record.key,
                    headers=self._headers(target, record, error),
                )
            )
        for future in futures:
            await future
        self._opener.counts.dead_letters += len(waiting)

    async def close(self) -> None:
        """Let go of the producer; everything that was to be written is."""
        if self._producer is not None:
            await self._producer.close()

    def _topic_for(self, topic: str) -> str:
        chosen = self._opener.encryption.dead_letter_topic or f"{topic}.dlq"
        if chosen == topic:
            raise ConfigError(
                f"a record of {topic} is refused, and {topic} is the dead-letter topic itself: it would come"
                " back for ever. Read it with on_failure fail or skip"
            )
        return chosen

    def _headers(
        self, target: TopicPartition, record: Record, error: TailraceError
    ) -> list[tuple[str, bytes | None]]:
        """Those of the record, and the ones that the broker gives a dead letter."""
        kept = [header for header in record.headers if not header[0].startswith("_dlq_")]
        origin: list[tuple[str, bytes | None]] = [each for each in record.headers if each[0] in _ORIGIN]
        if not origin:
            place = target.topic.encode(), b"%d" % target.partition, b"%d" % record.offset
            origin = list(zip(_ORIGIN, place, strict=True))
        group: list[tuple[str, bytes | None]] = []
        if self._group is not None:
            group = [("_dlq_subscription", self._group.encode())]
        return [
            *kept,
            *group,
            *origin,
            ("_dlq_reason", str(error).encode(errors="replace")[:_REASON_BYTES_MAX]),
            ("_dlq_deliveries", b"1"),
            ("_dlq_time", b"%d" % (time.time_ns() // 1_000_000)),
        ]
