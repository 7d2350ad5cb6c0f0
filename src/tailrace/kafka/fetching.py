"""One fetch request at work: read what is there, wait for more if that is too little, answer.

A fetch is answered at once when it has enough bytes, when a partition has an error, when there is nothing to
wait for or no time to wait. Else it leaves a callback with every partition it reads, and is woken when one of
them moves; nobody polls, and no task is made for it. Only where records must come from the disk to be found
does a task look for them.

With read_committed a partition is read up to its last stable offset, and the answer lists the aborted
transactions that the client is to leave out (KIP-98). Bytes at or above that offset count for nothing.

`max_bytes` is soft: the first partition that has records yields at least one batch, however large. Those
after it get what is left, or nothing.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from tailrace.kafka.errors import ANSWERABLE, error_name, error_of
from tailrace.kafka.held import HeldReply
from tailrace.model import BrokerError, ErrorCode, Offset, TopicPartition
from tailrace.model.operation import Operation
from tailrace.storage.api import Extent, Slice
from tailrace.wire.kafka import (
    FETCH,
    FetchRequest,
    FetchResult,
    TopicRef,
    fetch_response_size,
    write_fetch_response,
    write_response_head,
)

if TYPE_CHECKING:
    from tailrace.broker.counters import TopicCounters
    from tailrace.broker.partition import Partition
    from tailrace.kafka.connection import Connection
    from tailrace.kafka.fetch_session import Answer, FetchContext, Wanted
    from tailrace.kafka.replies import Pieces
    from tailrace.kafka.service import KafkaService

_READ_COMMITTED = 1
_SUSPECTS_MAX = 10_000
_CAREFUL_BYTES = 256 * 1024


class Records:
    """What a partition contributes to a reply: extents that are loaded as the socket drains."""

    __slots__ = ("_service", "_tp", "counters", "extents", "is_sampled", "next_offset", "size")

    def __init__(
        self, found: Slice, tp: TopicPartition, service: KafkaService, counters: TopicCounters
    ) -> None:
        self.counters = counters  # of its topic
        self.extents: Sequence[Extent] = found.extents
        self.size = found.size
        self.next_offset = found.next_offset
        self._tp = tp
        self._service = service
        self.is_sampled = False  # the age of the records is to be noted

    def sending(self, data: memoryview) -> None:
        """An extent is about to be sent; the first one tells how old the records are."""
        if self.is_sampled:
            self.is_sampled = False
            self._service.note_fetch_age(data)

    def failed(self, error: Exception) -> None:  # noqa: ARG002
        """The reply was cut off: next time look before promising, so that the client hears of the error."""
        suspects = self._service.suspects
        if len(suspects) >= _SUSPECTS_MAX:
            suspects.clear()
        suspects.add(self._tp)


class _LoadedExtent:
    """Bytes that were looked at before they were promised."""

    __slots__ = ("_view", "size")

    def __init__(self, data: bytes) -> None:
        self._view = memoryview(data)
        self.size = len(data)

    def load_nowait(self) -> memoryview:
        return self._view

    async def load(self) -> memoryview:
        return self._view

    def release(self) -> None:
        """It has its own memory."""


class Fetch(HeldReply):
    """A request and what is known of its answer."""

    __slots__ = (
        "_available",
        "_bytes_max",
        "_committed",
        "_connection",
        "_context",
        "_correlation_id",
        "_failed",
        "_found_bytes",
        "_hurried",
        "_min_bytes",
        "_moved",
        "_readable",
        "_started",
        "_timer",
        "_version",
        "_watched",
    )

    def __init__(
        self,
        connection: Connection,
        request: FetchRequest,
        context: FetchContext,
        *,
        version: int,
        correlation_id: int,
    ) -> None:
        super().__init__(connection.unhold, waits_for_others=True)
        self._connection = connection
        self._started = connection.service.clock.monotonic()
        self._context = context
        self._version = version
        self._correlation_id = correlation_id
        access = connection.access
        self._readable = access.readable if request.replica_id < 0 else access.readable_by_replica
        self._committed = request.isolation_level == _READ_COMMITTED
        self._min_bytes = request.min_bytes
        self._bytes_max = min(request.max_bytes, connection.fetch_bytes_max)
        self._found_bytes = 0  # by the last pass over all partitions
        self._failed = False  # whether that pass met an error
        self._hurried = False  # nobody should be waited for any more
        # While it waits:
        self._watched: list[tuple[Partition, partial[None]]] = []
        self._available: dict[Wanted, int] = {}  # bytes, by partition
        self._moved: set[Wanted] = set()  # since they were looked at last
        self._timer: asyncio.TimerHandle | None = None

    def start(self, wait_ms: int) -> Pieces | Fetch:
        """The answer, or this object if it comes later."""
        answers = self._read_nowait()
        if answers is None:
            self._connection.service.start("kafka-Fetch", self._read_cold(wait_ms))
            return self
        if wait_ms <= 0 or self._is_enough():
            return self._encode(answers)
        self._wait(answers, wait_ms)
        return self

    # ---- reading

    def _is_enough(self) -> bool:
        return self._failed or self._found_bytes >= self._min_bytes or not self._context.wanted

    def _read_nowait(self) -> list[Answer] | None:
        """One pass over all partitions, in order; None if one of them needs the disk."""
        self._found_bytes, self._failed = 0, False
        suspects = self._connection.service.suspects
        readable = self._readable
        answers: list[Answer] = []
        for wanted in self._context.wanted:
            try:
                if suspects and wanted.tp in suspects:
                    return None
                partition = readable(wanted.tp) if wanted.topic_id is None else self._find_by_id(wanted)
                partition.check_epoch(wanted.leader_epoch)
                limit = self._limit(wanted)
                up_to = partition.last_stable_offset if self._committed else None
                found = partition.read_nowait(Offset(wanted.offset), bytes_max=max(limit, 1), up_to=up_to)
                if found is None:
                    return None
                aborted = self._aborted(wanted, partition, found.next_offset) if self._committed else None
                answers.append((wanted, self._result(wanted, partition, found, limit, aborted)))
            except ANSWERABLE as error:
                answers.append((wanted, self._failure(wanted, error)))
        return answers

    async def _read_cold(self, wait_ms: int) -> None:
        """The same with the disk. What takes a disk long to find is answered without waiting for more."""
        try:
            answers = await self._read_each()
            if wait_ms > 0 and not self._hurried and not self._is_enough():
                self._wait(answers, wait_ms)
                self._catch_up(answers)
            else:
                self.complete(self._encode(answers))
        except BaseException as error:
            self._give_up(error)

    async def _read_each(self) -> list[Answer]:
        self._found_bytes, self._failed = 0, False
        answers: list[Answer] = []
        for wanted in self._context.wanted:
            try:
                answers.append((wanted, await self._read_one(wanted)))
            except ANSWERABLE as error:
                answers.append((wanted, self._failure(wanted, error)))
        return answers

    async def _read_one(self, wanted: Wanted) -> FetchResult[Records]:
        partition = self._find(wanted)
        partition.check_epoch(wanted.leader_epoch)
        limit = self._limit(wanted)
        up_to, aborted = None, None
        if self._committed:
            up_to = partition.last_stable_offset
            # Before the wait: compaction may remove the last trace of a transaction that is being read.
            aborted = self._aborted(wanted, partition, up_to)
        is_suspect = wanted.tp in self._connection.service.suspects
        if is_suspect:
            limit = min(limit, _CAREFUL_BYTES)
        found = await partition.read(Offset(wanted.offset), bytes_max=max(limit, 1), up_to=up_to)
        if is_suspect:
            found = await _load_sound(found)
        if aborted:
            aborted = [each for each in aborted if each[1] < found.next_offset]
        return self._result(wanted, partition, found, limit, aborted)

    def _aborted(self, wanted: Wanted, partition: Partition, end: Offset) -> list[tuple[int, int]]:
        """The aborted transactions from the offset that is wanted up to `end`."""
        return list(partition.aborted(Offset(wanted.offset), end))

    def _find(self, wanted: Wanted) -> Partition:
        if wanted.topic_id is None:
            return self._readable(wanted.tp)
        return self._find_by_id(wanted)

    def _find_by_id(self, wanted: Wanted) -> Partition:
        """The partition of a topic named by its id. UNKNOWN_TOPIC_ID where no topic has it.

        INCONSISTENT_TOPIC_ID where a session has found the topic before, and its name is another topic's now.
        """
        access, topic_id = self._connection.access, wanted.topic_id
        assert topic_id is not None
        if wanted.tp.topic:
            try:
                partition = self._readable(wanted.tp)
            except ANSWERABLE:
                access.topic_by_id(topic_id, Operation.READ)  # says so if the topic is gone
                raise
            if partition.id.topic_id is topic_id:  # the topic's own object since the first look
                return partition
            raise BrokerError(
                f"{wanted.tp.topic} has another id than {topic_id} now", code=ErrorCode.INCONSISTENT_TOPIC_ID
            )
        topic = access.topic_by_id(topic_id, Operation.READ)
        wanted.tp, wanted.topic_id = TopicPartition(topic.name, wanted.tp.partition), topic.id
        return self._readable(wanted.tp)

    def _limit(self, wanted: Wanted) -> int:
        return min(wanted.bytes_max, self._bytes_max - self._found_bytes)

    def _result(
        self,
        wanted: Wanted,
        partition: Partition,
        found: Slice,
        limit: int,
        aborted: list[tuple[int, int]] | None,
    ) -> FetchResult[Records]:
        records = None
        if found.size and (found.size <= limit or not self._found_bytes):
            service = self._connection.service
            records = Records(found, wanted.tp, service, partition.counters)
            self._found_bytes += found.size
        return FetchResult(
            wanted.tp.partition,
            0,
            partition.high_watermark,
            partition.last_stable_offset,
            partition.start_offset,
            [] if aborted and records is None else aborted,
            -1,
            records,
        )

    def _failure(self, wanted: Wanted, error: Exception) -> FetchResult[Records]:
        self._failed = True
        return FetchResult(wanted.tp.partition, error_code=error_of(error)[0])

    # ---- waiting

    def _wait(self, answers: list[Answer], wait_ms: int) -> None:
        loop = self._connection.service.loop
        for wanted, result in answers:
            self._available[wanted] = 0 if result.records is None else result.records.size
            try:
                partition = self._find(wanted)
            except ANSWERABLE:
                self._moved.add(wanted)  # it went while another one came from the disk
                continue
            callback = partial(self._wake, wanted)
            partition.waiters.add(callback)
            self._watched.append((partition, callback))
        self._timer = loop.call_later(wait_ms / 1000, self.finish)
        if self._moved:
            loop.call_soon(self._look_again)

    def _catch_up(self, answers: list[Answer]) -> None:
        """Look again at partitions that moved while another one came from the disk, and nobody watched."""
        seen = {wanted.tp: result.high_watermark for wanted, result in answers}
        for partition, callback in self._watched:
            if partition.high_watermark != seen[partition.name]:
                callback()

    def _wake(self, wanted: Wanted) -> None:
        """A partition moved. Looked at in a moment, when whoever moved it is done."""
        if not self._moved:
            self._connection.service.loop.call_soon(self._look_again)
        self._moved.add(wanted)

    def _look_again(self) -> None:
        try:
            self._look_at_moved()
        except Exception as error:
            self._give_up(error)

    def _look_at_moved(self) -> None:
        if self._timer is None:
            return
        moved, self._moved = self._moved, set()
        try:
            for wanted in moved:
                partition = self._find(wanted)
                partition.check_epoch(wanted.leader_epoch)
                most = max(min(wanted.bytes_max, self._bytes_max), 1)
                up_to = partition.last_stable_offset if self._committed else None
                found = partition.read_nowait(Offset(wanted.offset), bytes_max=most, up_to=up_to)
                if found is None:
                    self.finish()
                    return
                self._available[wanted] = found.size
        except ANSWERABLE:
            self.finish()
            return
        if sum(self._available.values()) >= self._min_bytes:
            self.finish()

    def finish(self) -> None:
        """Answer with what there is: enough came, the time is up, or the connection ends."""
        self._hurried = True
        if self._timer is None:
            return
        self._stop_waiting()
        try:
            self._answer_now()
        except Exception as error:
            self._give_up(error)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for partition, callback in self._watched:
            partition.waiters.discard(callback)
        self._watched.clear()

    def _give_up(self, error: BaseException) -> None:
        """A bug, or the end of the listener, while the client waited: it costs the client its connection."""
        self._stop_waiting()
        if isinstance(error, Exception):
            self._connection.failed(error)
        else:
            self._connection.abort()
        self.complete(b"")
        if not isinstance(error, Exception):
            raise error

    def _answer_now(self) -> None:
        answers = self._read_nowait()
        if answers is None:
            self._connection.service.start("kafka-Fetch", self._read_cold(0))
        else:
            self.complete(self._encode(answers))

    # ---- answering

    def _encode(self, answers: list[Answer]) -> Pieces:
        service = self._connection.service
        now = service.clock.monotonic()
        is_sampled = now >= service.next_age_at
        topics: list[tuple[TopicRef, list[FetchResult[Records]]]] = []
        for wanted, result in self._context.choose(answers):
            topic = wanted.key[0]
            if not topics or topics[-1][0] != topic:
                topics.append((topic, []))
            topics[-1][1].append(result)
            records = result.records
            if records is not None:
                records.is_sampled = is_sampled
                counters = records.counters
                counters.bytes_out += records.size
                counters.records_out += records.next_offset - wanted.offset
        self._count(answers, now - self._started)
        pieces = write_fetch_response(self._version, session_id=self._context.session_id, topics=topics)
        return framed(pieces, version=self._version, correlation_id=self._correlation_id)

    def _count(self, answers: list[Answer], seconds: float) -> None:
        """The answer is known. Its time is also that for which it waited for records."""
        service = self._connection.service
        service.fetched.note(seconds)
        error = ""
        if self._failed:
            error = error_name(next((each.error_code for _, each in answers if each.error_code), 0))
            service.fetched.fail(error)
        if service.counters.trace is not None:
            service.counters.trace("Fetch", seconds, error=error)


def framed(pieces: list[bytes | Records], *, version: int, correlation_id: int) -> Pieces:
    """The body of a fetch response with its head."""
    head = write_response_head(FETCH, version, correlation_id, fetch_response_size(pieces))
    first = pieces[0]
    assert isinstance(first, bytes)
    return [head + first, *pieces[1:]]


async def _load_sound(found: Slice) -> Slice:
    """The sound extents at the front of a slice, loaded; raises what is wrong with the first one."""
    loaded: list[Extent] = []
    for extent in found.extents:
        try:
            data = bytes(await extent.load())
        except ANSWERABLE:
            if not loaded:
                raise
            break
        extent.release()
        loaded.append(_LoadedExtent(data))
    return Slice(found.next_offset, loaded, sum(extent.size for extent in loaded))
