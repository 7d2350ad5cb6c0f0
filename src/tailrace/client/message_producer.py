"""`MessageProducer`: a producer for plain threads, configured with Kafka's property names.

    props = {"bootstrap.servers": "localhost:9092"}
    with MessageProducer(props) as producer:
        producer.send(ProducerRecord("test-topic", "key1", "Hello World!"))

With transactional.id, records and the offsets of a consumer are committed together, or not at all:

    producer.init_transactions()
    producer.begin_transaction()
    producer.send(ProducerRecord("out", "key1", "done"))
    producer.send_offsets_to_transaction({TopicPartition("in", 0): 8}, consumer.group_metadata())
    producer.commit_transaction()

`send` never waits for a broker. It hands the record to a loop in another thread (producer.py does the work
there) and waits only while more than buffer.memory is under way, for max.block.ms at most. Leaving the
`with` block waits until everything has arrived.
"""

from __future__ import annotations

import atexit
import concurrent.futures
import threading
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeAlias, overload

from tailrace.client.accumulator import RecordMetadata, record_bytes
from tailrace.client.error import BufferFull, ClientClosed
from tailrace.client.kafka import KafkaClient
from tailrace.client.loop_thread import LoopThread
from tailrace.client.producer import Producer
from tailrace.client.properties import PRODUCER_PROPERTIES, Properties, client_from, producer_config
from tailrace.client.serialization import find_serializer
from tailrace.client.transaction import GroupMetadata
from tailrace.model import TailraceError, TopicPartition

if TYPE_CHECKING:
    from tailrace.security.messages import Encryption

Callback: TypeAlias = Callable[[RecordMetadata | None, BaseException | None], object]
"""Called in the producer's thread with where the record went, or with why it did not."""

_HANDED_OVER_AT_ONCE = 1000
_NO_BOUND = 2**62  # this side keeps to buffer.memory already


class ProducerRecord:
    """A record to be sent: ProducerRecord(topic, value), (topic, key, value), (topic, partition, key, value)
    or (topic, partition, timestamp, key, value), each with headers if wanted; or by keyword.
    """

    __slots__ = ("headers", "key", "partition", "timestamp", "topic", "value")

    @overload
    def __init__(self, topic: str, value: Any, /, *, headers: _Headers = ...) -> None: ...
    @overload
    def __init__(self, topic: str, key: Any, value: Any, /, *, headers: _Headers = ...) -> None: ...
    @overload
    def __init__(
        self, topic: str, partition: int | None, key: Any, value: Any, /, *, headers: _Headers = ...
    ) -> None: ...
    @overload
    def __init__(
        self,
        topic: str,
        partition: int | None,
        timestamp: int | None,
        key: Any,
        value: Any,
        /,
        *,
        headers: _Headers = ...,
    ) -> None: ...
    @overload
    def __init__(
        self,
        topic: str,
        *,
        value: Any,
        key: Any = ...,
        partition: int | None = ...,
        timestamp: int | None = ...,
        headers: _Headers = ...,
    ) -> None: ...

    def __init__(self, topic: str, *args: Any, headers: _Headers = (), **named: Any) -> None:
        if len(args) > len(_ORDER):
            raise TypeError(f"ProducerRecord takes a topic and up to {len(_ORDER)} more, not {len(args)}")
        # Java's order: the fewer there are, the further to the right they begin, except for the partition.
        names = _ORDER if len(args) == len(_ORDER) else [name for name in _ORDER if name != "timestamp"]
        given = dict(zip(names[len(names) - len(args) :], args, strict=True))
        if twice := given.keys() & named.keys():
            raise TypeError(f"ProducerRecord got {', '.join(sorted(twice))} twice")
        if unknown := named.keys() - set(_ORDER):
            raise TypeError(f"ProducerRecord has no {', '.join(sorted(unknown))}")
        given |= named
        if "value" not in given:
            raise TypeError("ProducerRecord needs a value; None is a tombstone")
        self.topic = topic
        self.partition: int | None = given.get("partition")
        self.timestamp: int | None = given.get("timestamp")
        """Milliseconds since 1970; None: the time of sending."""
        self.key: Any = given.get("key")
        self.value: Any = given["value"]
        self.headers: Sequence[tuple[str, bytes | None]] = tuple(headers)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}={getattr(self, name)!r}" for name in ("topic", *_ORDER, "headers"))
        return f"ProducerRecord({fields})"


_Headers: TypeAlias = "Sequence[tuple[str, bytes | None]]"
_ORDER = ("partition", "timestamp", "key", "value")


@dataclass(slots=True)
class _Handed:
    """A record on its way from the caller's thread to the producer's."""

    record: ProducerRecord
    key: bytes | None
    value: bytes | None
    size: int
    future: concurrent.futures.Future[RecordMetadata]


class MessageProducer:
    """Sends records; safe to use from several threads. Close it, or use it in a `with` block."""

    def __init__(self, properties: Mapping[str, Any], *, encryption: Encryption | None = None) -> None:
        """With `encryption` every record is encrypted under a data key of this producer."""
        checked = Properties(properties, known=PRODUCER_PROPERTIES)
        self._encryption = encryption
        self._key_serializer = find_serializer(checked.get("key.serializer"), name="key.serializer")
        self._value_serializer = find_serializer(checked.get("value.serializer"), name="value.serializer")
        self._config = producer_config(checked)
        self._inbox: deque[_Handed] = deque()
        self._handing_over = False
        # Two counters that grow, each written by one side, so that the loop takes no lock per record.
        self._bytes_taken = 0  # by senders, under the lock
        self._bytes_done = 0  # by the producer's thread alone
        self._room = threading.Condition()
        self._waiting_for_room = 0
        self._closed = False
        self._thread = LoopThread("tailrace-producer")
        try:
            self._client, self._producer = self._thread.call(self._open(checked))
        except BaseException:
            self._thread.close()
            raise
        atexit.register(self.close)

    async def _open(self, properties: Properties) -> tuple[KafkaClient, Producer]:
        client = client_from(properties)
        try:
            await client.connect()
        except BaseException:
            await client.close()
            raise
        config = replace(self._config, buffer_bytes_max=_NO_BOUND)
        try:
            return client, Producer(client, config, encryption=self._encryption)
        except BaseException:
            await client.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def send(
        self, record: ProducerRecord, callback: Callback | None = None
    ) -> concurrent.futures.Future[RecordMetadata]:
        """Send a record; the future, and the callback, tell where it went or why it did not."""
        if not isinstance(record, ProducerRecord):
            raise TypeError("send takes a record. Try: send(tailrace.client.ProducerRecord(topic, value))")
        if self._config.transactional_id is not None:
            self._producer.check_open()
        key, value = self._key_serializer(record.key), self._value_serializer(record.value)
        size = record_bytes(key, value, record.headers) + self._overhead(record.topic)
        handed = _Handed(record, key, value, size, concurrent.futures.Future())

        def done(future: concurrent.futures.Future[RecordMetadata]) -> None:
            error: BaseException | None
            if future.cancelled():  # by some thread; the bytes are free when the producer's comes to it
                error = concurrent.futures.CancelledError()
            else:
                self._release(size)
                error = future.exception()
            if callback is not None:
                callback(None if error else future.result(), error)

        handed.future.add_done_callback(done)
        self._hand(handed)
        return handed.future

    def flush(self) -> None:
        """Wait until everything sent so far has arrived or failed."""
        self._thread.call(self._flush())

    # ---- transactions

    def init_transactions(self) -> None:
        """Take over the transactional id; once, before the first transaction.

        A transaction that an earlier producer of this id left open is aborted, and that producer is refused
        from now on.
        """
        self._thread.call(self._producer.init_transactions())

    def begin_transaction(self) -> None:
        """From here on, what is sent belongs to one transaction."""

        async def begin() -> None:
            self._producer.begin_transaction()

        self._thread.call(begin())

    def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata | str
    ) -> None:
        """Commit offsets of a group with the transaction; `group` is the consumer's `group_metadata()`."""
        self._thread.call(self._producer.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self) -> None:
        """Wait until everything sent has arrived, and commit; TransactionFailed if that cannot be.

        After TimedOut it may have committed: call it again.
        """
        self._thread.call(self._commit())

    def abort_transaction(self) -> None:
        """End the transaction so that consumers which read committed records see none of it."""
        self._thread.call(self._abort())

    async def _commit(self) -> None:
        self._take_all()
        await self._producer.commit_transaction()

    async def _abort(self) -> None:
        self._take_all()
        await self._producer.abort_transaction()

    # ---- and the rest

    def partitions_for(self, topic: str) -> list[int]:
        """The partitions of a topic, which is created if the broker does that."""

        async def ask() -> list[int]:
            return list((await self._client.topic(topic, create=True)).partitions)

        return self._thread.call(ask())

    def close(self, timeout_ms: int | None = None) -> None:
        """Flush, for so long at most, and let go of everything. A second call does nothing."""
        if self._thread.is_elsewhere:
            return  # it is not this process's to close
        self._thread.check_caller()
        with self._room:
            if self._closed:
                return
            self._closed = True
            self._room.notify_all()
        atexit.unregister(self.close)
        try:
            self._thread.call(self._close(None if timeout_ms is None else timeout_ms / 1000))
        finally:
            self._thread.close()

    # ---- between the threads

    def _overhead(self, topic: str) -> int:
        sealer = self._producer.sealer
        return 0 if sealer is None else sealer.overhead_bytes(topic)

    def _hand(self, handed: _Handed) -> None:
        """Wait for room, and give a record to the producer's thread. What is in before a close is sent."""
        if self._thread.is_elsewhere:
            self._thread.check_caller()  # which says what is wrong
        with self._room:
            self._wait_room(handed.size)
            self._bytes_taken += handed.size
            self._inbox.append(handed)
            if self._handing_over:
                return
            self._handing_over = True
        self._thread.post(self._hand_over)

    def _wait_room(self, size: int) -> None:
        limit = self._config.buffer_bytes_max

        def fits() -> bool:
            buffered = self._bytes_taken - self._bytes_done
            return self._closed or not buffered or buffered + size <= limit

        if not fits():
            self._waiting_for_room += 1
            self._room.wait_for(fits, self._config.block_s)
            self._waiting_for_room -= 1
        if self._closed:
            raise ClientClosed("the producer is closed")
        if not fits():
            raise BufferFull(
                f"{self._bytes_taken - self._bytes_done} bytes still wait after max.block.ms, and"
                f" buffer.memory is {limit}. Is the broker slow or gone?"
            )

    def _release(self, size: int) -> None:
        """In the producer's thread: so much less is under way."""
        self._bytes_done += size
        if self._waiting_for_room:
            with self._room:
                self._room.notify_all()

    def _hand_over(self) -> None:
        """In the producer's thread: take what the other threads sent, a bounded number at a time."""
        self._handing_over = False
        for _ in range(_HANDED_OVER_AT_ONCE):
            if not self._inbox:
                return
            self._take(self._inbox.popleft())
        self._handing_over = True
        self._thread.loop.call_soon(self._hand_over)

    def _take(self, handed: _Handed) -> None:
        if not handed.future.set_running_or_notify_cancel():
            self._release(handed.size)
            return
        record = handed.record
        try:
            self._producer.send_nowait(
                record.topic,
                handed.value,
                key=handed.key,
                partition=record.partition,
                headers=record.headers,
                timestamp_ms=record.timestamp,
                future=handed.future,
            )
        except TailraceError as error:
            handed.future.set_exception(error)

    async def _flush(self) -> None:
        self._take_all()
        await self._producer.flush()

    def _take_all(self) -> None:
        while self._inbox:
            self._take(self._inbox.popleft())

    async def _close(self, timeout_s: float | None) -> None:
        self._take_all()
        await self._producer.close(timeout_s=timeout_s)
        await self._client.close()
