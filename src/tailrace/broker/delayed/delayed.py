"""Messages that are not due yet: kept in an internal topic, moved into their own when their time has come.

They get their place in the topic when they are due, so none pins a cursor, dies of retention or stands before
one that is due. `moving` tells how each is moved exactly once.

Times are the machine's time of day, for that is what `deliver_at` means; waiting is by the steady clock. A
clock that somebody sets ahead is noticed within a minute, and what is due by it then is delivered: early, if
the clock was wrong. One that is set back delays by as much.
"""

from __future__ import annotations

import asyncio
import enum
import logging
from collections.abc import Callable

from tailrace.broker.delayed.due import read_due_ms, without_delay
from tailrace.broker.delayed.loading import load_delayed
from tailrace.broker.delayed.log import DELAYED_TOPIC, DelayedLog
from tailrace.broker.delayed.moving import Mover, delivered
from tailrace.broker.delayed.stored import CHOSEN_WHEN_DUE, StoredMessage, write_message
from tailrace.broker.partition import ACKS_ALL, Partition
from tailrace.broker.publishing import (
    NewMessage,
    Publisher,
    check_message,
    check_producer,
    count_known,
)
from tailrace.broker.sequence import NO_SEQUENCE
from tailrace.broker.topic import unknown_partition, unknown_topic
from tailrace.broker.topics import Topics
from tailrace.model import NO_PRODUCER, BrokerError, ErrorCode, Offset, PartitionId
from tailrace.runtime import Clock, Supervisor
from tailrace.runtime.tasks import wait_at_most

_logger = logging.getLogger(__name__)

_WAIT_MS_MAX = 60_000  # so that a clock that somebody sets is noticed
_RETRY_MS = 1000
_CLOSE_TIMEOUT_S = 5.0
_ID_LONGEST = "f" * 12 + "-0-" + "9" * 19


class Status(enum.Enum):
    """Whether messages are moved."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"


class Delayed:
    """The messages of this node that wait for their time. Construct, `start` and use it inside one loop."""

    def __init__(
        self,
        topics: Topics,
        publisher: Publisher,
        *,
        clock: Clock,
        on_failure: Callable[[BaseException], None],
        messages_max: int = 1_000_000,
        bytes_max: int | None = None,  # for storage that keeps everything in memory
    ) -> None:
        self._topics = topics
        self._clock = clock
        self._messages_max = messages_max
        self._bytes_max = bytes_max
        self._log = DelayedLog(topics)
        self._mover = Mover(self._log, topics=topics, publisher=publisher, clock=clock)
        self._tasks = Supervisor(on_failure)
        self._task: asyncio.Task[None] | None = None
        self._woken = asyncio.Event()
        self._loaded = asyncio.Event()
        self._status = Status.LOADING
        self._arriving = 0  # appended, not durable yet

    def __repr__(self) -> str:
        return f"<Delayed {self._status.value}, {self.pending} messages wait>"

    @property
    def pending(self) -> int:
        """How many messages wait, or are on their way."""
        return self._mover.pending + self._arriving

    # ---- life

    def start(self) -> None:
        """Begin to read the topic, if there is one; messages are moved once that is done."""
        partition = self._log.partition
        end = Offset(0)
        if partition is not None:
            try:
                partition.check_led()  # without its log it must not pass for an empty topic
            except BrokerError as error:
                self._fail(error)
                self._loaded.set()
                return
            end = partition.high_watermark  # from here on a message comes by `put`, and not out of the log
        self._task = self._tasks.start("delayed messages", self._run(end))

    def read_again(self) -> None:
        """The topic is served again: begin to read it, unless it was read before."""
        if self._status is Status.FAILED and not self._mover.is_stopping:
            self._status = Status.LOADING
            self._loaded.clear()
            self.start()

    async def wait_loaded(self) -> None:
        """Return when the reading ended, however it did."""
        await self._loaded.wait()

    async def close(self) -> None:
        """Let the round that is under way come to its end, and let go."""
        self._mover.is_stopping = True
        self._woken.set()
        if self._task is not None:
            await asyncio.wait({self._task}, timeout=_CLOSE_TIMEOUT_S)
        await self._tasks.stop()

    def tick(self) -> None:
        """Look at the clock now. The timer of this part calls it by itself."""
        self._woken.set()

    def describe(self) -> dict[str, object]:
        """For people: how many wait, until when the first one does, and what became of the others."""
        mover = self._mover
        return {
            "status": self._status.value,
            "pending": self.pending,
            "held": mover.held,
            "next_due_ms": mover.index.next_due_ms(),
            "moved": mover.moved,
            "dropped": mover.dropped,
            "lost": mover.lost,
        }

    # ---- messages

    def is_delayed(self, message: NewMessage, now_ms: int) -> int | None:
        """When a message is due, if that lies ahead; INVALID_REQUEST for nonsense."""
        return read_due_ms(message.headers, now_ms=now_ms) if message.headers else None

    async def put(
        self,
        topic: str,
        partition: int | None,
        message: NewMessage,
        due_ms: int,
        *,
        producer_id: int = NO_PRODUCER,
        sequence: int = NO_SEQUENCE,
    ) -> str:
        """Keep a message until it is due; its id, once it is durable. Without a partition the key chooses.

        A producer may number what it puts, apart from what it publishes: then what it sends again is kept
        once. The id of a message sent again is "" where it is not known any more.
        """
        if producer_id != NO_PRODUCER:
            check_producer(producer_id=producer_id, sequence=sequence)
        self._check_ready()
        target, message = self._check(topic, partition, message)
        place = await self._log.ensure()
        if producer_id != NO_PRODUCER and count_known(place, producer_id=producer_id, sequence=sequence):
            return await self._known_id(place, producer_id=producer_id, sequence=sequence)
        self._check_room(place)
        # No await from here to the append: the message is stored under the offset that it gets.
        offset = place.end_offset
        stored = StoredMessage(due_ms, target, message)
        record = write_message(offset, stored, time_ms=self._clock.now_ms())
        end = self._log.put(record, producer_id=producer_id, base_sequence=sequence)
        assert end == offset + 1
        arrival = _Arrival(self, due_ms, offset)
        place.acknowledged(end, ACKS_ALL, arrival)
        await arrival.future
        return f"{self._log.id_prefix}{offset}"

    # ---- inside

    async def _run(self, end: Offset) -> None:
        if not await self._load(end):
            return
        while not self._mover.is_stopping:
            self._woken.clear()
            try:
                await self._mover.move_due()
                wait_ms = self._mover.wait_ms()
            except BrokerError as error:
                _logger.warning("delayed messages are not moved now: %s", error)
                wait_ms = _RETRY_MS
            if wait_ms is None:
                await self._woken.wait()
            else:
                await wait_at_most(self._woken, min(wait_ms, _WAIT_MS_MAX) / 1000)

    async def _load(self, end: Offset) -> bool:
        try:
            if end:
                await self._mover.take_over(await load_delayed(self._log, end=end))
            self._status = Status.READY
        except BrokerError as error:
            self._fail(error)
        finally:
            self._loaded.set()
        return self._status is Status.READY

    def _fail(self, error: BrokerError) -> None:
        self._status = Status.FAILED
        _logger.critical("%s cannot be read, no delayed message is moved: %s", DELAYED_TOPIC, error)

    def _check_ready(self) -> None:
        if self._status is Status.FAILED:
            raise BrokerError(
                f"{DELAYED_TOPIC} could not be read, so nothing can be delayed: see this node's log",
                code=ErrorCode.KAFKA_STORAGE_ERROR,
            )

    def _check(self, name: str, partition: int | None, message: NewMessage) -> tuple[PartitionId, NewMessage]:
        """Where a message goes, and how it is kept; BrokerError for what could not be delivered later."""
        topic = self._topics.get(name)
        if topic is None:
            raise unknown_topic(name)
        if partition is not None and not 0 <= partition < len(topic.partitions):
            raise unknown_partition(topic, partition)
        kept = message._replace(headers=without_delay(message.headers))
        check_message(delivered(kept, _ID_LONGEST), topic.settings)
        return PartitionId(topic.id, CHOSEN_WHEN_DUE if partition is None else partition), kept

    def _check_room(self, place: Partition) -> None:
        if self.pending >= self._messages_max:
            raise BrokerError(
                f"{self.pending} messages wait for their time already, and no more may. Try again when some "
                "are due, or publish without a delay",
                code=ErrorCode.POLICY_VIOLATION,
            )
        if self._bytes_max is not None and place.size_bytes >= self._bytes_max:
            raise BrokerError(
                f"{place.size_bytes} bytes of delayed messages are in memory, and no more may be. Try again "
                "when some are due, or keep them on a disk",
                code=ErrorCode.POLICY_VIOLATION,
            )

    async def _known_id(self, place: Partition, *, producer_id: int, sequence: int) -> str:
        """The id of a message that was put before, once it is durable."""
        sent = place.producers.find_sequence(producer_id, sequence)
        standing = place.producers.standing(producer_id)
        assert standing is not None
        await place.wait_acknowledged(standing.end_offset if sent is None else Offset(sent.offset + 1))
        return "" if sent is None else f"{self._log.id_prefix}{sent.offset}"

    def _arrived(self, due_ms: int, offset: int) -> None:
        self._arriving -= 1
        next_ms = self._mover.index.next_ms()
        self._mover.index.add(due_ms, offset)
        if next_ms is None or due_ms < next_ms:
            self._woken.set()


class _Arrival:
    """A message until it is durable (`storage.api.Waiter`): it counts then, also if nobody waits any more."""

    __slots__ = ("_delayed", "_due_ms", "_offset", "_told", "future")

    def __init__(self, delayed: Delayed, due_ms: int, offset: int) -> None:
        delayed._arriving += 1
        self._delayed = delayed
        self._due_ms = due_ms
        self._offset = offset
        self._told = False
        self.future: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def done(self) -> bool:
        return self._told

    def set_result(self, _: None) -> None:
        """Durable."""
        self._told = True
        self._delayed._arrived(self._due_ms, self._offset)
        if not self.future.done():
            self.future.set_result(None)

    def set_exception(self, error: Exception) -> None:
        """Never durable."""
        self._told = True
        self._delayed._arriving -= 1
        if not self.future.done():
            self.future.set_exception(error)
