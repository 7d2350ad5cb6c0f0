"""PUBLISH and PUBLISH_BATCH: the messages that arrive in one read are stored as one batch.

Requests of one read are gathered per partition, as long as they come from one producer and its sequences
follow each other. `flush` hands every group to the broker in one call: before any other request is applied,
and at the end of the read. Each request has its own reply, written when the group is durable.

- A topic that does not exist is made. That takes a while, and the requests behind it wait, so that what a
  client sends is stored in that order.
- A message that cannot be stored by itself (too large, no key in a compacted topic) is refused before it
  joins a group: it must not cost the others theirs.
- A delayed message is put aside with its due time instead. It has no place yet, so its order does not matter,
  and nobody waits for it.
- What belongs to a transaction (`transacting`) has groups of its own. A refusal costs the transaction.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from tailrace.broker.partition import ACKS_ALL
from tailrace.broker.publishing import NewMessage, Published, check_message, id_prefix, published_topic
from tailrace.model import NO_PRODUCER, BrokerError, ErrorCode, TopicPartition
from tailrace.native.errors import ANSWERABLE, write_refusal
from tailrace.native.property import LONG_MAX, Properties, number_of, partition_of, refusal, text_of
from tailrace.wire.native import (
    Entry,
    Frame,
    MessageType,
    read_entries,
    read_properties,
    record_of_properties,
    write_frame,
)

if TYPE_CHECKING:
    from tailrace.broker.partition import Partition
    from tailrace.broker.topic import Topic
    from tailrace.native.counting import RequestCounts
    from tailrace.native.protocol import NativeProtocol
    from tailrace.native.transacting import OpenTransaction

PUBLISH = int(MessageType.PUBLISH)
PUBLISH_BATCH = int(MessageType.PUBLISH_BATCH)
_ACK = int(MessageType.ACK)

_DELAYS = ("deliver_at", "delay_ms")
_NO_SEQUENCE = -1
_SEQUENCE_MAX = (1 << 31) - 1
_COUNT_MAX = 1_000_000
_BATCH_BYTES = 256
"""More than what a batch adds to its only message."""
_NOT_STORED = BrokerError("not stored, by a mistake of the broker", code=ErrorCode.UNKNOWN_SERVER_ERROR)


class PublishRequest:
    """One PUBLISH or PUBLISH_BATCH, read."""

    __slots__ = (
        "bytes",
        "count",
        "messages",
        "partition",
        "producer_id",
        "producer_sequence",
        "sequence",
        "transaction",
    )

    def __init__(self, frame: Frame, messages: list[NewMessage], *, count: int, size: int) -> None:
        properties = frame.properties
        self.sequence = frame.sequence
        self.messages = messages
        self.count = count  # of a batch; 0: a message by itself
        self.bytes = size
        self.partition = partition_of(properties) if "_partition" in properties else None
        self.transaction: OpenTransaction | None = None
        self.producer_id, self.producer_sequence = NO_PRODUCER, _NO_SEQUENCE
        if "_producer" in properties or "_sequence" in properties:
            self.producer_id = number_of(properties, "_producer", least=0, most=LONG_MAX)
            self.producer_sequence = number_of(properties, "_sequence", least=0, most=_SEQUENCE_MAX)


class Group:
    """Requests of one read for one partition: stored together, durable together (`waits.Wait`)."""

    __slots__ = (
        "_batches",
        "_bytes_max",
        "_error",
        "_next_sequence",
        "_protocol",
        "_published",
        "_requests",
        "deadline",
        "first_sequence",
        "messages",
        "partition",
        "producer_id",
        "request_bytes",
        "taken_at",
        "told",
        "transaction",
    )

    def __init__(self, protocol: NativeProtocol, partition: Partition, first: PublishRequest) -> None:
        self._protocol = protocol
        self._bytes_max = partition.settings.message_bytes_max
        self._requests: list[tuple[int, int]] = []  # sequence, and count or 0
        self._batches = 0  # how many of them have a count
        self._published: Published | None = None
        self._error: Exception | None = None
        self.partition = partition
        self.transaction = first.transaction
        self.producer_id = first.producer_id
        self.first_sequence = self._next_sequence = first.producer_sequence
        self.messages: list[NewMessage] = []
        self.request_bytes = 0
        self.deadline = self.taken_at = 0.0
        self.told = False

    @property
    def requests(self) -> int:
        return len(self._requests)

    def takes(self, request: PublishRequest) -> bool:
        """Whether a request may be stored together with those that are here."""
        return (
            request.producer_id == self.producer_id
            and request.transaction is self.transaction
            and (self.producer_id == NO_PRODUCER or request.producer_sequence == self._next_sequence)
            and self.request_bytes + request.bytes <= self._bytes_max
        )

    def add(self, request: PublishRequest) -> None:
        self._requests.append((request.sequence, request.count))
        self._batches += request.count > 0
        self.messages += request.messages
        self.request_bytes += request.bytes
        if self.producer_id != NO_PRODUCER:
            self._next_sequence = (self._next_sequence + len(request.messages)) & _SEQUENCE_MAX

    def publish(self) -> None:
        """Have it stored; durability, or the reason why there is none, is told later or at once."""
        messages, self.messages = self.messages, []
        try:
            self._published = published = self._sequence(messages)
            self.partition.acknowledged(published.end_offset, ACKS_ALL, self)
        except ANSWERABLE as error:
            self.set_exception(error)
        except Exception:
            self.set_exception(_NOT_STORED)
            raise

    def _sequence(self, messages: Sequence[NewMessage]) -> Published:
        publisher = self._protocol.service.publisher
        if self.transaction is not None:
            return self.transaction.publish(publisher, self.partition, messages)
        return publisher.publish(
            self.partition, messages, producer_id=self.producer_id, sequence=self.first_sequence
        )

    def done(self) -> bool:
        return self.told

    def set_result(self, _: None) -> None:
        """Durable."""
        if not self.told:
            self.told = True
            self._protocol.told(self)

    def set_exception(self, error: Exception) -> None:
        if not self.told:
            self._error = error
            if self.transaction is not None:
                self.transaction.fail(error)
            self.set_result(None)

    def write_replies(self, out: list[bytes]) -> None:
        if self._error is not None:
            for sequence, _ in self._requests:
                if sequence:
                    out.append(write_refusal(sequence, self._error))
            return
        published = self._published
        assert published is not None
        index = self.partition.index
        place = b"_partition=%d\0_offset=" % index
        prefix = id_prefix(self.partition.id.topic_id, index).encode()
        time_ms = max(published.timestamp_ms, 0)
        at = 0
        for sequence, count in self._requests:
            if sequence:
                offset = published.offset_of(at)
                properties = b"%b%d\0" % (place, offset)
                if offset >= 0:
                    properties += b"_id=%b%d\0" % (prefix, offset)
                if count:
                    properties += b"_count=%d\0" % count
                out.append(write_frame(_ACK, sequence=sequence, timestamp=time_ms, properties=properties))
            at += count or 1

    def count(self, requests: RequestCounts, seconds: float) -> None:
        singles = len(self._requests) - self._batches
        if singles:
            requests.published.note(seconds, singles)
        if self._batches:
            requests.published_batches.note(seconds, self._batches)
        if self._error is not None:
            requests.fail(requests.published, self._error, singles)
            requests.fail(requests.published_batches, self._error, self._batches)
        if requests.trace is not None:
            requests.trace_published(
                requests.trace, singles=singles, batches=self._batches, seconds=seconds, error=self._error
            )
        self._protocol.service.gate.counters.produce_ms.append(seconds * 1000)


class Publishing:
    """What one client publishes."""

    __slots__ = ("_groups", "_protocol")

    def __init__(self, protocol: NativeProtocol) -> None:
        self._protocol = protocol
        self._groups: dict[Partition, Group] = {}

    def take(self, frame: Frame, size: int) -> None:
        """Gather a request; its `size` bytes of the node's budget go back when it is answered."""
        protocol = self._protocol
        try:
            name = frame.properties.get("_topic") or text_of(frame.properties, "_topic")
            request = _read_one(frame, size) if frame.type == PUBLISH else _read_batch(frame, size)
            if "_transaction" in frame.properties:
                self._join(frame, request)
            due_ms = self._due_ms(frame, request)
            topic = protocol.access.writable_topic_nowait(name)
            if due_ms is not None:
                protocol.run("delay", request.sequence, self._delay(name, request, due_ms), size=size)
            elif topic is None:
                self._wait_for_topic(name, request)
            else:
                self._put(topic, request)
        except ANSWERABLE as error:
            protocol.outlet.give(size)
            protocol.count(frame.type, error)
            protocol.refuse(frame.sequence, error)
            transaction = protocol.transactions.get(frame.properties.get("_transaction", ""))
            if transaction is not None:
                transaction.fail(error)
        except BaseException:
            protocol.outlet.give(size)
            raise

    def flush(self) -> None:
        """Store what was gathered."""
        groups = self._groups
        while groups:
            groups.pop(next(iter(groups))).publish()

    def abandon(self) -> None:
        """The connection met a bug: what was gathered is not stored."""
        for group in self._groups.values():
            group.set_exception(_NOT_STORED)
        self._groups.clear()

    # ---- inside

    def _put(self, topic: Topic, request: PublishRequest) -> None:
        """Add a request to the group of its partition; the group of another producer is stored first."""
        if request.partition is None:
            place = self._choose(topic, request.messages)
        else:
            place = TopicPartition(topic.name, request.partition)
        partition = self._protocol.access.writable(place)
        settings = partition.settings
        if settings.compact or request.bytes + _BATCH_BYTES > settings.message_bytes_max:
            for message in request.messages:
                check_message(message, settings)
        group = self._groups.get(partition)
        if group is not None and not group.takes(request):
            del self._groups[partition]
            group.publish()
            group = None
        if group is None:
            group = self._groups[partition] = Group(self._protocol, partition, request)
            self._protocol.wait_for(group)
        group.add(request)
        self._protocol.asked(request.bytes)

    def _choose(self, topic: Topic, messages: Sequence[NewMessage]) -> TopicPartition:
        if len(topic.partitions) == 1:
            return topic.partitions[0].name
        choose = self._protocol.service.publisher.choose
        chosen = choose(topic, messages[0].key)
        if any(each.key != messages[0].key and choose(topic, each.key) != chosen for each in messages):
            raise refusal(
                f"the keys of this batch belong to several partitions of {topic.name}. Send _partition, or a "
                "batch for each"
            )
        return topic.partitions[chosen].name

    def _wait_for_topic(self, name: str, request: PublishRequest) -> None:
        self._protocol.hold()
        self._protocol.service.start(f"publish to {name[:249]}", self._put_later(name, request))

    async def _put_later(self, name: str, request: PublishRequest) -> None:
        """Make the topic, then go on as if it had been there."""
        protocol = self._protocol
        try:
            topic = await protocol.in_time(protocol.access.writable_topic(published_topic(name)))
            self._put(topic, request)
        except BaseException as error:
            if request.transaction is not None and isinstance(error, Exception):
                request.transaction.fail(error)
            protocol.outlet.give(request.bytes)
            protocol.count(PUBLISH_BATCH if request.count else PUBLISH, error)
            protocol.report(request.sequence, error)
        finally:
            protocol.unhold()

    def _join(self, frame: Frame, request: PublishRequest) -> None:
        """A request belongs to an open transaction."""
        if request.producer_id != NO_PRODUCER:
            raise refusal(
                "_producer and _sequence do not go with _transaction: the broker numbers its messages"
            )
        request.transaction = self._protocol.transactions.find(frame.properties["_transaction"])
        for message in request.messages:
            if _says_when(message) or any(name in frame.properties for name in _DELAYS):
                raise refusal("a message of a transaction cannot be delayed. Publish it without _transaction")

    def _due_ms(self, frame: Frame, request: PublishRequest) -> int | None:
        """When a message is due, if that lies ahead."""
        properties, protocol = frame.properties, self._protocol
        if frame.type != PUBLISH:
            for message in request.messages:
                if message.headers and _says_when(message):
                    raise refusal("a message of a batch cannot be delayed. Send it by itself, with PUBLISH")
            return None
        if not ("_headers" in properties or "delay_ms" in properties or "deliver_at" in properties):
            return None
        (message,) = request.messages
        asked = [(name, properties[name].encode()) for name in _DELAYS if name in properties]
        if asked:  # with _headers they are not stored, and hold all the same
            message = message._replace(headers=asked)
        now_ms = protocol.service.clock.now_ms()
        due_ms = protocol.access.due_ms(message, now_ms)
        if due_ms is None and request.producer_id != NO_PRODUCER and _says_when(message):
            return now_ms  # sent again perhaps, and early enough the first time: its number is known there
        return due_ms

    async def _delay(self, name: str, request: PublishRequest, due_ms: int) -> bytes:
        protocol = self._protocol
        message_id = await protocol.access.delay(
            await protocol.access.writable_topic(published_topic(name)),
            request.partition,
            request.messages[0],
            due_ms,
            producer_id=request.producer_id,
            sequence=request.producer_sequence,
        )
        properties = {"_partition": "-1", "_offset": "-1", **({"_id": message_id} if message_id else {})}
        return write_frame(
            _ACK, sequence=request.sequence, timestamp=protocol.service.clock.now_ms(), properties=properties
        )


def _says_when(message: NewMessage) -> bool:
    return any(name in _DELAYS for name, _ in message.headers)


def _read_one(frame: Frame, size: int) -> PublishRequest:
    message = _message(frame.properties, frame.body, frame.timestamp)
    return PublishRequest(frame, [message], count=0, size=size)


def _read_batch(frame: Frame, size: int) -> PublishRequest:
    count = number_of(frame.properties, "_count", least=1, most=_COUNT_MAX)
    timestamp = frame.timestamp
    messages = [_entry_message(entry, timestamp) for entry in read_entries(frame.body, count)]
    return PublishRequest(frame, messages, count=count, size=size)


def _entry_message(entry: Entry, timestamp: int) -> NewMessage:
    properties, body = entry
    if not properties and not timestamp:
        return NewMessage(None, bytes(body))
    return _message(read_properties(properties), body, timestamp)


def _message(properties: Properties, body: bytes | memoryview, timestamp: int) -> NewMessage:
    """The message, with a value of its own: the buffer behind the body is received into again."""
    key, value, headers = record_of_properties(properties, body)
    if timestamp and "_headers" not in properties and "created_at" not in properties:
        headers.append(("created_at", b"%d" % timestamp))
    return NewMessage(key, None if value is None else bytes(value), headers)
