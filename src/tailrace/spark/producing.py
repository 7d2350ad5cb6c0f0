"""Rows into partitions: Arrow batches become record batches, and arrive in order and once each.

    send -> rows wait per partition until they fill a batch -> encode -> lane -> one Produce at a time -> end

Who calls encodes; the lanes run in the loop of the link, one per partition, many at once. A lane has one
batch in flight, so a retry never overtakes its successor. A batch is encoded once, with this producer's id
and the next sequence of its partition, and every retry sends the same bytes: the broker knows it again
(KIP-98). What the broker finds too large is cut in two, with the sequences that it had.

With an `attempt` every batch belongs to its transaction, which stays open: somebody else decides about it.

Anything that cannot be retried ends the producer: the error is raised by the next call, and nothing more is
sent. A new attempt is a new producer, with an id of its own.

Memory: at most `in_flight_bytes_max` bytes wait or travel; rows are encoded some batches at a time.
"""

from __future__ import annotations

import concurrent.futures
import threading
from types import TracebackType
from typing import TYPE_CHECKING, Self

import pyarrow as pa

from tailrace.client.error import ClientClosed, check
from tailrace.client.keys import INIT_PRODUCER_ID
from tailrace.client.offsets import LATEST
from tailrace.model import BrokerError, ErrorCode, TailraceError, TopicPartition
from tailrace.records import BatchError, Compression
from tailrace.spark.codec import encode
from tailrace.spark.lane import JOINED_BYTES_MAX, SEQUENCE_MASK, Batch, Lane, RowTooLarge, halves, slices
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest

if TYPE_CHECKING:
    from tailrace.client.kafka import KafkaClient
    from tailrace.spark.link import BrokerLink
    from tailrace.spark.transacting import Attempt

__all__ = ["BatchProducer", "ForeignWriter", "LostProducer", "RowTooLarge"]

BATCH_BYTES_MAX = 1024 * 1024
"""As much as a topic takes by default (max.message.bytes)."""
IN_FLIGHT_BYTES_MAX = 32 * 1024 * 1024
DELIVERY_TIMEOUT_S = 120.0

_SLICE_BATCHES = 4  # what is encoded in one go, in batches
_LOST = (
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.UNKNOWN_PRODUCER_ID,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.PRODUCER_FENCED,
)


class ForeignWriter(TailraceError):
    """Somebody else writes to a partition that was to be written by one only."""


class LostProducer(TailraceError):
    """The broker does not know this producer any more. What was sent stays; a new attempt may repeat some."""


class BatchProducer:
    """An idempotent producer of whole Arrow batches, to be used by one thread.

    `flush` before leaving it as a context: what has not arrived by then is not sent any more.
    """

    def __init__(
        self,
        link: BrokerLink,
        *,
        compression: Compression = Compression.NONE,
        batch_bytes_max: int = BATCH_BYTES_MAX,
        request_bytes_max: int | None = None,
        in_flight_bytes_max: int = IN_FLIGHT_BYTES_MAX,
        delivery_timeout_s: float = DELIVERY_TIMEOUT_S,
        attempt: Attempt | None = None,
    ) -> None:
        self._link = link
        self._attempt = attempt
        self._compression = compression
        self._batch_bytes_max = batch_bytes_max
        self._request_bytes_max = max(batch_bytes_max, request_bytes_max or 0)
        self._in_flight_bytes_max = in_flight_bytes_max
        self._delivery_timeout_s = delivery_timeout_s
        self._identity: tuple[int, int] | None = None
        self._lanes: dict[TopicPartition, Lane] = {}
        self._rows_bytes = 0  # of rows that are not encoded yet; the caller's thread alone knows
        # Below: shared with the link's loop, under this lock. Whoever takes it lets go at once.
        self._changed = threading.Condition()
        self._in_flight_bytes = 0
        self._error: BaseException | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    # ---- what callers use

    @property
    def bytes_in_flight(self) -> int:
        """Encoded, and not known to have arrived."""
        return self._in_flight_bytes

    def expect(self, partition: TopicPartition, offset: int) -> None:
        """The next row sent to a partition must get this offset: from here on nobody else may write there."""
        lane = self._lane(partition)
        if lane.rows or lane.batches:
            raise ValueError(f"rows for {partition} are under way: flush first")
        lane.expected = offset

    def send(self, topic: str, partition: int, rows: pa.RecordBatch) -> None:
        """Take rows for a partition; waits only for room. The columns are those of `codec.encode`."""
        self._check()
        if not rows.num_rows:
            return
        lane = self._lane(TopicPartition(topic, partition))
        if lane.rows and (lane.rows[0].schema != rows.schema or rows.nbytes > JOINED_BYTES_MAX):
            self._ship(lane)
        lane.rows.append(rows)
        lane.rows_bytes += rows.nbytes
        self._rows_bytes += rows.nbytes
        if lane.rows_bytes >= self._batch_bytes_max:
            self._ship(lane)
        elif self._rows_bytes > self._in_flight_bytes_max // 2:
            self._ship_all()

    def flush(self) -> dict[TopicPartition, int]:
        """Wait until everything has arrived; the next offset of each partition that was written to."""
        self._ship_all()
        with self._changed:
            while self._in_flight_bytes and self._error is None:
                self._changed.wait()
        self._check()
        return {
            lane.partition: lane.next_offset for lane in self._lanes.values() if lane.next_offset is not None
        }

    def close(self) -> None:
        """Send nothing more. What is in flight may still arrive."""
        self._end(ClientClosed("the producer is closed"))
        with self._changed:
            running = [lane.work for lane in self._lanes.values() if lane.work is not None]
        for work in running:
            work.cancel()

    # ---- from rows to lanes

    def _lane(self, partition: TopicPartition) -> Lane:
        lane = self._lanes.get(partition)
        if lane is None:
            lane = self._lanes[partition] = Lane(partition, self._batch_bytes_max)
        return lane

    def _ship_all(self) -> None:
        for lane in self._lanes.values():
            if lane.rows:
                self._ship(lane)

    def _ship(self, lane: Lane) -> None:
        """Encode the rows that wait, and put the batches on their way."""
        self._rows_bytes -= lane.rows_bytes
        rows = lane.take_rows()
        for part in slices(rows, bytes_max=_SLICE_BATCHES * lane.batch_bytes_max):
            try:
                batches = self._encode(lane, part)
            except TailraceError as error:
                self._end(error)  # these rows are gone, so none behind them may be sent
                raise
            lane.next_sequence = (lane.next_sequence + part.num_rows) & SEQUENCE_MASK
            for batch in batches:
                self._enqueue(lane, batch)

    def _encode(self, lane: Lane, rows: pa.RecordBatch) -> list[Batch]:
        limits = sorted({lane.batch_bytes_max, self._request_bytes_max})
        for bytes_max in limits:
            try:
                return self._encode_within(lane, rows, bytes_max)
            except BatchError as error:
                if error.code != ErrorCode.MESSAGE_TOO_LARGE:
                    raise
                # A row that is larger than a batch usually is may still travel, up to the last limit.
                cause = error
        raise RowTooLarge(
            f"among the rows for {lane.partition}, {cause}."
            " Raise kafka.max.request.size and the topic's max.message.bytes, or write smaller values"
        )

    def _encode_within(self, lane: Lane, rows: pa.RecordBatch, bytes_max: int) -> list[Batch]:
        producer_id, epoch = self._identify()
        batches = encode(
            rows,
            batch_bytes_max=bytes_max,
            compression=self._compression,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=lane.next_sequence,
            transactional=self._attempt is not None,
        )
        return [Batch(batch, bytes_max) for batch in batches]

    def _identify(self) -> tuple[int, int]:
        if self._identity is None:
            begin = _init_producer if self._attempt is None else self._attempt.begin
            self._identity = self._link.run(begin)
        return self._identity

    def _enqueue(self, lane: Lane, batch: Batch) -> None:
        with self._changed:
            while (
                self._error is None
                and self._in_flight_bytes
                and self._in_flight_bytes + self._rows_bytes + len(batch.data) > self._in_flight_bytes_max
            ):
                self._changed.wait()
            self._raise_error()
            self._in_flight_bytes += len(batch.data)
            lane.batches.append(batch)
            if lane.work is not None:
                return
            lane.work = work = self._link.start(lambda client: self._drain(client, lane))
        work.add_done_callback(self._drained)

    def _check(self) -> None:
        with self._changed:
            self._raise_error()

    def _raise_error(self) -> None:
        if self._error is not None:
            raise self._error

    # ---- in the link's loop

    async def _drain(self, client: KafkaClient, lane: Lane) -> None:
        """Deliver the batches of a lane, one after the other, until there are none."""
        while (batch := self._next(lane)) is not None:
            try:
                base = await self._deliver(client, lane, batch)
            except BrokerError as error:
                if error.code != ErrorCode.MESSAGE_TOO_LARGE:
                    raise
                self._replace(lane, halves(lane.partition, batch, error))
                continue
            self._arrived(lane, batch, base)

    async def _deliver(self, client: KafkaClient, lane: Lane, batch: Batch) -> int:
        """Produce a batch, however often it takes; its base offset."""
        topic, partition = lane.partition
        transactional_id = None
        if self._attempt is not None:
            await self._attempt.join(client, lane.partition)
            transactional_id = self._attempt.transactional_id
        try:
            done = await client.produce(
                topic,
                partition,
                batch.data,
                transactional_id=transactional_id,
                timeout_s=self._delivery_timeout_s,
            )
            base = done.base_offset
        except BrokerError as error:
            if error.code in _LOST:
                raise LostProducer(
                    f"the broker lost count of a producer of {lane.partition}: {error.code.name}. Write again"
                ) from error
            if error.code != ErrorCode.DUPLICATE_SEQUENCE_NUMBER:
                raise
            base = -1
        if base < 0:  # it is there since an earlier attempt, the last one of ours; the broker forgot where
            base = await _end_offset(client, lane.partition) - batch.row_count
        return base

    def _next(self, lane: Lane) -> Batch | None:
        with self._changed:
            if lane.batches and self._error is None:
                return lane.batches[0]
            lane.work = None
            return None

    def _arrived(self, lane: Lane, batch: Batch, base: int) -> None:
        if lane.expected is not None and base != lane.expected:
            raise ForeignWriter(
                f"somebody else writes to {lane.partition}: rows went to offset {base}, not {lane.expected}."
                " Stop the other writer, or choose a topic of its own"
            )
        with self._changed:
            lane.next_offset = base + batch.row_count
            if lane.expected is not None:
                lane.expected = lane.next_offset
            lane.batches.popleft()
            self._in_flight_bytes -= len(batch.data)
            self._changed.notify_all()

    def _replace(self, lane: Lane, parts: list[Batch]) -> None:
        """Let parts of the first batch take its place, and make the next ones as small."""
        with self._changed:
            whole = lane.batches.popleft()
            lane.batches.extendleft(reversed(parts))
            lane.batch_bytes_max = min(lane.batch_bytes_max, parts[0].bytes_max)
            self._in_flight_bytes += sum(len(part.data) for part in parts) - len(whole.data)

    def _drained(self, work: concurrent.futures.Future[None]) -> None:
        """Note why a lane ended, if it was not that it had nothing left."""
        error = ClientClosed("the link to the broker is closed") if work.cancelled() else work.exception()
        if error is not None:
            self._end(error)

    def _end(self, error: BaseException) -> None:
        """Send nothing more; the first error is the one that callers get."""
        with self._changed:
            if self._error is None:
                self._error = error
            self._changed.notify_all()


async def _init_producer(client: KafkaClient) -> tuple[int, int]:
    async def attempt() -> tuple[int, int]:
        reply = await client.request(INIT_PRODUCER_ID, InitProducerIdRequest())
        check(reply.error_code, "asking for a producer id")
        return reply.producer_id, reply.producer_epoch

    return await client.retrying("asking for a producer id", attempt)


async def _end_offset(client: KafkaClient, partition: TopicPartition) -> int:
    found = await client.list_offsets({partition: LATEST})
    return found[partition].offset
