"""`MessageConsumer`: a consumer for plain threads, configured with Kafka's property names.

    props = {"bootstrap.servers": "localhost:9092", "group.id": "test-group",
             "value.deserializer": "StringDeserializer"}
    with MessageConsumer(props) as consumer:
        consumer.subscribe(["test-topic"])
        while True:
            for record in consumer.poll(timedelta(milliseconds=100)):
                print(f"Received: {record.value}")

The work is done by consumer.py in a loop of another thread; heartbeats therefore go on while a caller works
on its records. One difference to Kafka's own consumer: a group without a committed offset starts at the
earliest record and not at the latest, so that what was sent before is not missed (auto.offset.reset).
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeAlias

from tailrace.client.consumer import Consumer, Listener
from tailrace.client.fetcher import Records
from tailrace.client.kafka import KafkaClient
from tailrace.client.loop_thread import LoopThread
from tailrace.client.properties import CONSUMER_PROPERTIES, Properties, client_from, consumer_config
from tailrace.client.serialization import SerializationError, find_deserializer
from tailrace.client.transaction import GroupMetadata
from tailrace.model import TopicPartition

if TYPE_CHECKING:
    from tailrace.security.messages import Encryption, ReadCounts

PlainListener: TypeAlias = Callable[[Sequence[TopicPartition]], object]


class ConsumerRecord(NamedTuple):
    """A record as it was read, key and value deserialized."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    """Milliseconds since 1970."""
    key: Any
    value: Any
    headers: tuple[tuple[str, bytes | None], ...]


class ConsumerRecords(Sequence[ConsumerRecord]):
    """What one poll returned, in the order of each partition."""

    __slots__ = ("_records",)

    def __init__(self, records: Sequence[ConsumerRecord]) -> None:
        self._records = records

    def __iter__(self) -> Iterator[ConsumerRecord]:
        return iter(self._records)

    def __len__(self) -> int:
        return len(self._records)

    def __getitem__(self, index: Any) -> Any:
        return self._records[index]

    def __repr__(self) -> str:
        return f"<ConsumerRecords {len(self)} of {', '.join(map(str, sorted(self.partitions())))}>"

    def is_empty(self) -> bool:
        return not self._records

    def count(self, value: object = None) -> int:
        """How many records there are; with a value, how often it is among them."""
        return len(self._records) if value is None else self._records.count(value)

    def partitions(self) -> set[TopicPartition]:
        return {TopicPartition(record.topic, record.partition) for record in self._records}

    def records(self, where: TopicPartition | str) -> list[ConsumerRecord]:
        """Those of one partition, or of one topic."""
        if isinstance(where, str):
            return [record for record in self._records if record.topic == where]
        return [record for record in self._records if record[:2] == where]


class MessageConsumer:
    """Reads records. One thread at a time; close it, or use it in a `with` block."""

    def __init__(self, properties: Mapping[str, Any], *, encryption: Encryption | None = None) -> None:
        """With `encryption` records are decrypted, and refused ones are dealt with as it says."""
        checked = Properties(properties, known=CONSUMER_PROPERTIES)
        self._encryption = encryption
        self._read_key = find_deserializer(checked.get("key.deserializer"), name="key.deserializer")
        self._read_value = find_deserializer(checked.get("value.deserializer"), name="value.deserializer")
        self._config = consumer_config(checked)
        self._closed = False
        self._thread = LoopThread("tailrace-consumer")
        try:
            self._client, self._consumer = self._thread.call(self._open(checked))
        except BaseException:
            self._thread.close()
            raise

    async def _open(self, properties: Properties) -> tuple[KafkaClient, Consumer]:
        client = client_from(properties)
        try:
            await client.connect()
        except BaseException:
            await client.close()
            raise
        return client, Consumer(client, self._config, encryption=self._encryption)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- what to read

    def subscribe(
        self,
        topics: Iterable[str] | str | re.Pattern[str],
        *,
        on_assigned: PlainListener | None = None,
        on_revoked: PlainListener | None = None,
    ) -> None:
        """Share topics with the group: names, one name, a pattern, or text that begins with ^ as a pattern.

        The listeners run in another thread while `poll` waits, and may use this consumer.
        """
        if isinstance(topics, str):
            topics = re.compile(topics) if topics.startswith("^") else [topics]
        wanted = topics if isinstance(topics, re.Pattern) else list(topics)

        async def subscribe() -> None:
            self._consumer.subscribe(
                wanted, on_assigned=self._listener(on_assigned), on_revoked=self._listener(on_revoked)
            )

        self._thread.call(subscribe())

    def unsubscribe(self) -> None:
        """Leave the group and read nothing."""
        self._thread.call(self._consumer.unsubscribe())

    def assign(self, partitions: Iterable[TopicPartition | tuple[str, int]]) -> None:
        """Read exactly these partitions."""
        wanted = [TopicPartition(*each) for each in partitions]
        self._do(lambda: self._consumer.assign(wanted))

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        return self._consumer.assignment

    @property
    def subscription(self) -> frozenset[str]:
        return self._consumer.subscription

    # ---- reading

    def poll(self, timeout_ms: float | timedelta = 0, *, max_records: int | None = None) -> ConsumerRecords:
        """The next records; empty if none came in that time."""
        seconds = _seconds(timeout_ms)
        found = self._thread.call(self._consumer.poll(seconds, records_max=max_records))
        return ConsumerRecords(self._deserialized(found))

    def _deserialized(self, found: Records) -> list[ConsumerRecord]:
        read_key, read_value = self._read_key, self._read_value
        records = []
        for target, batch in found.items():
            topic, partition = target
            for offset, timestamp, key, value, headers in batch:
                try:
                    record = ConsumerRecord(
                        topic, partition, offset, timestamp, read_key(key), read_value(value), headers
                    )
                except SerializationError as error:
                    # The position goes back, so that the caller can decide: fix it, or seek past it.
                    self._rewind(found)
                    raise SerializationError(f"{target} offset {offset}: {error}") from error
                records.append(record)
        return records

    def _rewind(self, found: Records) -> None:
        for target, batch in found.items():
            self.seek(target, batch[0].offset)

    @property
    def read_counts(self) -> ReadCounts | None:
        """What was decrypted and refused; None without encryption."""
        return self._consumer.read_counts

    def seek(self, partition: TopicPartition | tuple[str, int], offset: int) -> None:
        """Read on from an offset."""
        self._do(lambda: self._consumer.seek(TopicPartition(*partition), offset))

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read from the first record that is left, of some partitions or of all."""
        self._thread.call(self._consumer.seek_to_beginning(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read what comes from now on, of some partitions or of all."""
        self._thread.call(self._consumer.seek_to_end(partitions))

    def position(self, partition: TopicPartition | tuple[str, int]) -> int:
        """The offset of the next record that poll will return."""
        return self._thread.call(self._consumer.position(TopicPartition(*partition)))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return nothing from these partitions until they are resumed."""
        self._do(lambda: self._consumer.pause(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        """Read from these partitions again."""
        self._do(lambda: self._consumer.resume(partitions))

    def offsets_for_times(
        self, times: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, tuple[int, int] | None]:
        """(offset, timestamp) of the first record at or after a time in ms; None if all are older."""
        read_committed = self._config.fetch.read_committed
        found = self._thread.call(self._client.list_offsets(times, read_committed=read_committed))
        return {
            target: None if each.offset < 0 else (each.offset, each.timestamp_ms)
            for target, each in found.items()
        }

    # ---- committing

    def commit(self, offsets: Mapping[TopicPartition, int] | None = None) -> None:
        """Commit these offsets, or everything that poll has returned; waits for the broker."""
        self._thread.call(self._consumer.commit(offsets))

    def committed(self, partition: TopicPartition | tuple[str, int]) -> int | None:
        """The group's committed offset, if it has one."""
        target = TopicPartition(*partition)
        return self._thread.call(self._consumer.committed([target])).get(target)

    def group_metadata(self) -> GroupMetadata:
        """What `MessageProducer.send_offsets_to_transaction` needs to know of this member of the group."""
        return self._consumer.group_metadata

    def close(self) -> None:
        """Commit if that is automatic, leave the group, and let go of everything."""
        if self._closed or self._thread.is_elsewhere:
            return
        self._closed = True
        try:
            self._thread.call(self._close())
        finally:
            self._thread.close()

    async def _close(self) -> None:
        await self._consumer.close()
        await self._client.close()

    # ---- between the threads

    def _do(self, action: Callable[[], None]) -> None:
        async def act() -> None:
            action()

        self._thread.call(act())

    def _listener(self, listener: PlainListener | None) -> Listener | None:
        """In a thread of its own, so that it may call this consumer, which needs the loop."""
        if listener is None:
            return None

        async def call(partitions: Sequence[TopicPartition]) -> None:
            await asyncio.get_running_loop().run_in_executor(None, listener, partitions)

        return call


def _seconds(timeout_ms: float | timedelta) -> float:
    seconds = timeout_ms.total_seconds() if isinstance(timeout_ms, timedelta) else timeout_ms / 1000
    return max(seconds, 0.0)
