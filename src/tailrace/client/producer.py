"""An asyncio producer: collects records into batches, sends them to their leaders, and retries in order.

    send -> (topic unknown: wait for metadata) -> partition -> lane -> batch -> request per leader -> futures

One task, `_run`, decides what may leave; it sleeps until a record, a reply, a linger or a back-off gives it
something to decide. Every request runs in a task of its own. With idempotence, which is the default, a retry
never writes a record twice and never changes the order within a partition.

A batch that failed for good leaves a hole in its lane's sequence that nobody may fill, so the lane goes on
under a new producer id. The same is done once for a batch that the broker finds out of order: with one batch
in flight per lane it cannot have been appended before.

With a transactional id every record belongs to a transaction (transaction.py): it is sent between
`begin_transaction` and `commit_transaction` or `abort_transaction`. A record that failed fails its
transaction.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Coroutine, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from tailrace.client.accumulator import (
    Headers,
    Identity,
    Lane,
    PendingBatch,
    RecordMetadata,
    SendError,
    SendFuture,
    fail_all,
    record_bytes,
)
from tailrace.client.error import (
    BufferFull,
    ClientClosed,
    ClientError,
    TimedOut,
    TransactionFailed,
    broker_error,
    check,
    is_retriable,
)
from tailrace.client.kafka import KafkaClient
from tailrace.client.keys import INIT_PRODUCER_ID, PRODUCE
from tailrace.client.metadata import TopicInfo
from tailrace.client.pool import back_off_s
from tailrace.client.sealed import begin_sealing
from tailrace.client.transaction import GroupMetadata, State, Transactions
from tailrace.client.transfer import Produced, produce_to
from tailrace.model import BrokerError, ConfigError, ErrorCode, ProtocolError, TopicPartition
from tailrace.records import BytesLike, Compression, NewRecord
from tailrace.runtime import Clock, SystemClock
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest
from tailrace.wire.kafka.partitioner import StickyPartitioner, partition_of_key

if TYPE_CHECKING:  # programs without encryption do not import what it needs
    from tailrace.security.messages import Encryption, Sealer

_log = logging.getLogger(__name__)

# The broker has lost or never had the state that this sequence continues.
_LOST_SEQUENCE = (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, ErrorCode.UNKNOWN_PRODUCER_ID)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerConfig:
    """How records leave; the property names of Kafka's clients stand beside each."""

    acks: int = -1  # acks: -1 all, 1 leader, 0 nobody
    idempotent: bool = True  # enable.idempotence
    compression: Compression = Compression.NONE  # compression.type
    compression_level: int | None = None
    linger_s: float = 0.0  # linger.ms
    batch_bytes: int = 16 * 1024  # batch.size
    buffer_bytes_max: int = 32 * 1024 * 1024  # buffer.memory
    request_bytes_max: int = 1024 * 1024  # max.request.size
    delivery_timeout_s: float = 120.0  # delivery.timeout.ms
    retries_max: int = 2**31 - 1  # retries
    transactional_id: str | None = None  # transactional.id
    transaction_timeout_s: float = 60.0  # transaction.timeout.ms
    block_s: float = 60.0  # max.block.ms: for what waits for the coordinator of the transactions


class _Outgoing(NamedTuple):
    """A record that has no partition yet."""

    record: NewRecord
    size: int
    partition: int | None
    future: SendFuture


class Producer:
    """Sends records through a client. Use it as an async context manager; leaving it flushes."""

    def __init__(
        self,
        client: KafkaClient,
        config: ProducerConfig | None = None,
        *,
        clock: Clock | None = None,
        encryption: Encryption | None = None,
    ) -> None:
        """With `encryption` every record is encrypted under a data key of this producer."""
        self.sealer = begin_sealing(encryption)
        if self.sealer is not None:
            self.sealer.check_key()
        self.config = config or ProducerConfig()
        self.bytes_buffered = 0
        self._client = client
        self._clock = clock or SystemClock()
        self._lanes: dict[TopicPartition, Lane] = {}
        self._active: dict[Lane, None] = {}  # those that have batches
        self._parked: dict[str, deque[_Outgoing]] = {}
        self._sticky: dict[str, StickyPartitioner] = {}
        self._transactions: Transactions | None = None
        if self.config.transactional_id is not None:
            self._transactions = _transactions(client, self.config, self.config.transactional_id)
        self._ending = asyncio.Lock()  # one commit or abort at a time
        self._identity: Identity | None = None
        self._identifying: asyncio.Lock = asyncio.Lock()
        self._wake = asyncio.Event()
        self._room = asyncio.Event()
        self._tasks: set[asyncio.Task[None]] = set()
        self._closed = False
        self._loop = asyncio.get_running_loop()
        self._runner = self._loop.create_task(self._run(), name="producer")

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    # ---- what users call

    async def send(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        key: BytesLike | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> asyncio.Future[RecordMetadata]:
        """Take a record; waits only for room. The future it returns completes when the record arrived."""
        size = record_bytes(key, value, headers) + self._overhead(topic)
        while self.bytes_buffered and self.bytes_buffered + size > self.config.buffer_bytes_max:
            self._room.clear()
            await self._room.wait()
        future: asyncio.Future[RecordMetadata] = self._loop.create_future()
        self.send_nowait(
            topic,
            value,
            key=key,
            partition=partition,
            headers=headers,
            timestamp_ms=timestamp_ms,
            future=future,
        )
        if self._wake.is_set():  # something may leave: let it, however tight the caller's loop is
            await asyncio.sleep(0)
        return future

    def send_nowait(
        self,
        topic: str,
        value: BytesLike | None,
        *,
        future: SendFuture,
        key: BytesLike | None = None,
        partition: int | None = None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> None:
        """Take a record at once, or raise BufferFull; `future` tells what became of it."""
        self.check_open()
        if self.sealer is not None:
            value, headers = self._seal(self.sealer, topic, key, value, headers)
        size = record_bytes(key, value, headers)
        if size > self.config.request_bytes_max:
            error = broker_error(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"record for {topic}",
                f"{size} bytes are over max.request.size, {self.config.request_bytes_max}",
            )
            self._fail_transaction(error)
            raise error
        if self.bytes_buffered and self.bytes_buffered + size > self.config.buffer_bytes_max:
            raise BufferFull(
                f"{self.bytes_buffered} bytes wait to be sent, and buffer.memory is"
                f" {self.config.buffer_bytes_max}. Send slower, or raise it"
            )
        time_ms = self._clock.now_ms() if timestamp_ms is None else timestamp_ms
        self.bytes_buffered += size
        self._take(topic, _Outgoing((time_ms, key, value, headers), size, partition, future))

    def _seal(
        self, sealer: Sealer, topic: str, key: BytesLike | None, value: BytesLike | None, headers: Headers
    ) -> tuple[BytesLike | None, Headers]:
        try:
            sealer.check_names(topic, (name for name, _ in headers))
            sealed, added = sealer.seal(topic, key, value)
        except ConfigError as error:
            refused = ClientError(str(error))
            self._fail_transaction(refused)
            raise refused from error
        return sealed, [*headers, *added]

    def _overhead(self, topic: str) -> int:
        return 0 if self.sealer is None else self.sealer.overhead_bytes(topic)

    async def flush(self) -> None:
        """Wait until everything sent so far has arrived or failed."""
        while self._parked:
            await asyncio.wait([task for task in self._tasks if task.get_name().startswith(_FINDING)])
        batches = [batch for lane in self._active for batch in lane.batches]
        for batch in batches:
            batch.linger_until = 0.0
        self._wake.set()
        if batches:
            await asyncio.wait([batch.finished for batch in batches])

    def check_open(self) -> None:
        """Raise unless a record may be sent: the producer is closed, or no transaction is open."""
        if self._closed:
            raise ClientClosed("the producer is closed")
        if self._transactions is not None:
            self._transactions.check_open()

    async def close(self, *, timeout_s: float | None = None) -> None:
        """Flush, for so long at most, and stop; what has not arrived by then fails.

        A transaction that is open is aborted.
        """
        if self._closed:
            return
        self._closed = True
        try:
            async with asyncio.timeout(timeout_s):
                await self._abort_open()
                await self.flush()
        except TimeoutError:
            _log.warning("producer closed before everything had arrived")
        finally:
            await self._stop()

    # ---- transactions

    async def init_transactions(self) -> None:
        """Take over the transactional id; once, before the first transaction.

        A transaction that an earlier producer of this id left open is aborted, and that producer is refused
        from now on.
        """
        await self._transactional().init()

    def begin_transaction(self) -> None:
        """From here on, what is sent belongs to one transaction."""
        self._transactional().begin()

    async def send_offsets_to_transaction(
        self, offsets: Mapping[TopicPartition, int], group: GroupMetadata | str
    ) -> None:
        """Commit the offsets of a group with the transaction: the next records to read, as `Consumer.commit`.

        `group` is the `group_metadata` of the consumer that has read them. With the name of a group alone, a
        member that has lost its partitions meanwhile is not refused.
        """
        whom = GroupMetadata(group) if isinstance(group, str) else group
        await self._transactional().add_offsets(offsets, whom)

    async def commit_transaction(self) -> None:
        """Wait until everything sent has arrived, and commit; TransactionFailed if that cannot be.

        After TimedOut it may have committed: call it again.
        """
        transactions = self._transactional()
        async with self._ending:
            transactions.begin_commit()
            await self.flush()
            await transactions.commit()

    async def abort_transaction(self) -> None:
        """End the transaction so that consumers which read committed records see none of it."""
        transactions = self._transactional()
        async with self._ending:
            transactions.begin_abort()
            await self._drop(TransactionFailed("the transaction was aborted before this record had arrived"))
            await transactions.abort()

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise ClientError("this producer has no transactions: set transactional.id (transactional_id)")
        return self._transactions

    async def _abort_open(self) -> None:
        """Abort what is open, as far as that succeeds: else the coordinator does it when its time is over."""
        transactions = self._transactions
        if transactions is None or transactions.state not in (State.OPEN, State.FAILED):
            return
        try:
            await self.abort_transaction()
        except (ClientError, BrokerError, ProtocolError) as error:
            _log.warning("open transaction not aborted: id=%s %s", transactions.transactional_id, error)

    async def _drop(self, error: SendError) -> None:
        """Fail every record that is not on its way, and wait until those that are have arrived or failed."""
        for queue in self._parked.values():
            self._forget(sum(each.size for each in queue))
            fail_all([each.future for each in queue], error)
            queue.clear()
        flying = []
        for lane in list(self._active):
            if lane.busy:
                flying.append(lane.batches[0].finished)
            while len(lane.batches) > lane.busy:
                self._drop_last(lane, error)
        if flying:
            await asyncio.wait(flying)

    def _drop_last(self, lane: Lane, error: SendError) -> None:
        batch = lane.batches.pop()
        if not lane.batches:
            self._active.pop(lane, None)
        self._forget(batch.bytes_max)
        self._fail_transaction(error, needs_epoch=batch.encoded is not None)
        batch.fail(error)

    def _fail_transaction(self, error: SendError, *, needs_epoch: bool = False) -> None:
        if self._transactions is not None:
            self._transactions.fail(error, needs_epoch=needs_epoch)

    async def _stop(self) -> None:
        tasks = [self._runner, *self._tasks]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        error = ClientClosed("the producer was closed before this record had arrived")
        for queue in self._parked.values():
            fail_all([each.future for each in queue], error)
        for lane in self._active:
            for batch in lane.batches:
                if not batch.finished.done():
                    batch.fail(error)
        self._parked.clear()
        self._active.clear()
        self._forget(self.bytes_buffered)  # who waits for room is told that there will be none

    # ---- from records to lanes

    def _take(self, topic: str, outgoing: _Outgoing) -> None:
        info = self._client.cluster.topics.get(topic)
        if info is not None and topic not in self._parked:
            self._place(info, outgoing)
            return
        queue = self._parked.get(topic)
        if queue is None:
            queue = self._parked[topic] = deque()
            self._start(self._find_topic(topic), f"{_FINDING} {topic}")
        queue.append(outgoing)

    async def _find_topic(self, topic: str) -> None:
        """Learn how many partitions a topic has, then place what waited for that."""
        try:
            info = await self._client.topic(topic, create=True)
        except (ClientError, BrokerError, ProtocolError) as error:
            queue = self._parked.pop(topic)
            self._forget(sum(each.size for each in queue))
            if queue:
                self._fail_transaction(error)
            fail_all([each.future for each in queue], error)
            return
        for outgoing in self._parked.pop(topic):
            self._place(info, outgoing)

    def _place(self, info: TopicInfo, outgoing: _Outgoing) -> None:
        record, size, partition, future = outgoing
        chosen = self._choose(info, record[1], size) if partition is None else partition
        if chosen not in info.partitions:
            self._forget(size)
            self._fail_transaction(_no_partition(info, chosen))
            fail_all([future], _no_partition(info, chosen))
            return
        target = TopicPartition(info.name, chosen)
        lane = self._lanes.get(target)
        if lane is None:
            lane = self._lanes[target] = Lane(target)
        batch = lane.batches[-1] if lane.batches else None
        # A batch that has been encoded is closed: its bytes may be on their way.
        if batch is None or batch.encoded is not None or batch.bytes_max + size > self.config.batch_bytes:
            now = self._loop.time()
            batch = PendingBatch(
                linger_until=now + self.config.linger_s, deadline=now + self.config.delivery_timeout_s
            )
            lane.batches.append(batch)
            self._active[lane] = None
            self._wake.set()
        batch.append(record, future, size=size)
        if batch.bytes_max >= self.config.batch_bytes:
            self._wake.set()

    def _choose(self, info: TopicInfo, key: BytesLike | None, size: int) -> int:
        if key is not None:
            return partition_of_key(key, partitions=len(info.partitions))
        sticky = self._sticky.get(info.name)
        if sticky is None:
            sticky = self._sticky[info.name] = StickyPartitioner(bytes_per_partition=self.config.batch_bytes)
        return sticky.choose(lambda: self._led(info), record_bytes=size)

    def _led(self, info: TopicInfo) -> list[int]:
        nodes = self._client.cluster.nodes
        led = [each.partition for each in info.partitions.values() if each.leader in nodes]
        return led or list(info.partitions)

    # ---- from lanes to brokers

    async def _run(self) -> None:
        while True:
            self._wake.clear()
            wait_s = self._send_ready()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                continue  # a linger or a back-off is over

    def _send_ready(self) -> float | None:
        """Start a request for every batch that may leave; the seconds until the next one may."""
        now = self._loop.time()
        waits: list[float] = []
        by_leader: dict[int, list[Lane]] = {}
        for lane in list(self._active):
            if lane.busy:
                continue
            if (wait_s := self._due_in(lane, now)) > 0:
                waits.append(wait_s)
            elif (info := self._client.cluster.leader_of(lane.partition)) is not None:
                by_leader.setdefault(info.leader, []).append(lane)
            else:
                lane.busy = True
                self._start(self._find_leader(lane), "finding a leader")
        for leader, lanes in by_leader.items():
            for group in self._grouped(lanes):
                self._start(self._deliver(leader, group), "producing")
        return min(waits) if waits else None

    def _due_in(self, lane: Lane, now: float) -> float:
        batch = lane.batches[0]
        if batch.attempts:
            return lane.not_before - now
        if len(lane.batches) > 1 or batch.bytes_max >= self.config.batch_bytes:
            return 0.0
        return batch.linger_until - now

    def _grouped(self, lanes: Sequence[Lane]) -> list[list[Lane]]:
        """Lanes that share a request, so that none of them is over request_bytes_max if it can be helped."""
        groups: list[list[Lane]] = []
        room = 0
        for lane in lanes:
            lane.busy = True
            size = lane.batches[0].bytes_max
            if not groups or size > room:
                groups.append([])
                room = self.config.request_bytes_max
            groups[-1].append(lane)
            room -= size
        return groups

    async def _find_leader(self, lane: Lane) -> None:
        try:
            await self._client.leader(lane.partition)
        except (ClientError, BrokerError, ProtocolError) as error:
            lane.batches[0].attempts += 1
            self._try_again(lane, error)
        finally:
            lane.busy = False
            self._wake.set()

    async def _deliver(self, leader: int, lanes: Sequence[Lane]) -> None:
        """Send the first batch of each lane in one request, and deal with every answer."""
        for lane in lanes:
            lane.batches[0].attempts += 1
        try:
            if self._transactions is not None:
                await self._transactions.add([lane.partition for lane in self._active])
            batches = await self._encoded(lanes)
            done = await produce_to(
                self._client,
                leader,
                batches,
                acks=self.config.acks,
                timeout_s=self._client.request_timeout_s,
                transactional_id=self.config.transactional_id,
                newest=None if self._transactions is None else self._transactions.newest_of(PRODUCE),
            )
            for lane in lanes:
                self._settle(lane, done[lane.partition])
        except (ClientError, BrokerError, ProtocolError) as error:
            self._client.forget(error)
            for lane in lanes:
                self._try_again(lane, error)
        finally:
            for lane in lanes:
                lane.busy = False
            self._wake.set()

    async def _encoded(self, lanes: Sequence[Lane]) -> Mapping[TopicPartition, BytesLike]:
        transactions = self._transactions
        if transactions is not None:
            identity = transactions.identity
        else:
            identity = await self._identify() if self.config.idempotent else None
        return {
            lane.partition: lane.encode(
                lane.batches[0],
                identity if transactions is not None else lane.identity or identity,
                self.config.compression,
                self.config.compression_level,
                transactional=transactions is not None,
            )
            for lane in lanes
        }

    async def _identify(self) -> Identity:
        async with self._identifying:
            if self._identity is None:
                reply = await self._client.request(INIT_PRODUCER_ID, InitProducerIdRequest())
                check(reply.error_code, "asking for a producer id")
                self._identity = Identity(reply.producer_id, reply.producer_epoch)
            return self._identity

    # ---- what came of it

    def _settle(self, lane: Lane, result: Produced) -> None:
        batch = lane.batches[0]
        code = result.error_code
        if code in (ErrorCode.NONE, ErrorCode.DUPLICATE_SEQUENCE_NUMBER):
            self._finish(lane)
            batch.complete(
                lane.partition, base_offset=result.base_offset, append_time_ms=result.log_append_time_ms
            )
        elif code == ErrorCode.MESSAGE_TOO_LARGE and len(batch.records) > 1:
            self._split(lane)
        elif code in _LOST_SEQUENCE and not batch.renewed and self._may_renew:
            self._renew(lane)
        else:
            error = broker_error(code, f"producing to {lane.partition}", result.error_message)
            self._client.forget(error)
            self._try_again(lane, error)

    def _try_again(self, lane: Lane, error: SendError) -> None:
        """Let the first batch wait for another attempt, or give it up."""
        batch = lane.batches[0]
        now = self._loop.time()
        wait_s = back_off_s(batch.attempts - 1)
        if not is_retriable(error) or batch.attempts > self.config.retries_max or self._is_aborting:
            self._give_up(lane, error)
        elif now + wait_s >= batch.deadline:
            seconds = self.config.delivery_timeout_s
            late = TimedOut(f"records for {lane.partition} did not arrive within {seconds:g} s: {error}")
            self._give_up(lane, late)
        else:
            lane.not_before = now + wait_s

    def _give_up(self, lane: Lane, error: SendError) -> None:
        batch = lane.batches[0]
        if not self._is_aborting:
            _log.warning("records lost: topic=%s partition=%d count=%d", *lane.partition, len(batch.records))
        self._finish(lane)
        if self._transactions is not None:
            self._transactions.fail(error, needs_epoch=batch.identity is not None)
        elif batch.identity is not None:
            self._change_identity(lane)
        batch.fail(error)

    @property
    def _may_renew(self) -> bool:
        """Whether a lane may go on under another producer id; a transaction has one alone."""
        return self.config.idempotent and self._transactions is None

    @property
    def _is_aborting(self) -> bool:
        return self._transactions is not None and self._transactions.state is State.ABORTING

    def _renew(self, lane: Lane) -> None:
        """Number the batch anew under another producer id: the broker lost what this sequence continues."""
        batch = lane.batches[0]
        batch.renewed = True
        batch.encoded = None
        self._change_identity(lane)
        lane.not_before = 0.0

    def _change_identity(self, lane: Lane) -> None:
        """Never again use the producer id under which this lane has lost its count."""
        if self._identity == lane.identity:
            self._identity = None
        lane.identity = None

    def _split(self, lane: Lane) -> None:
        """Send a batch that is too large in two halves; their records get the sequences it had."""
        batch = lane.batches.popleft()
        if batch.identity is not None:
            lane.next_sequence = batch.base_sequence
        lane.batches.extendleft(reversed(batch.split()))
        lane.not_before = 0.0

    def _finish(self, lane: Lane) -> None:
        batch = lane.batches.popleft()
        lane.not_before = 0.0
        if not lane.batches:
            self._active.pop(lane, None)
        self._forget(batch.bytes_max)

    def _forget(self, size: int) -> None:
        self.bytes_buffered -= size
        self._room.set()

    def _start(self, work: Coroutine[Any, Any, None], name: str) -> None:
        task = self._loop.create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


_FINDING = "finding topic"


def _transactions(client: KafkaClient, config: ProducerConfig, transactional_id: str) -> Transactions:
    if not transactional_id or config.acks != -1 or not config.idempotent:
        raise ConfigError("a transactional id is not empty, and needs acks=all and idempotence")
    return Transactions(
        client, transactional_id, timeout_s=config.transaction_timeout_s, block_s=config.block_s
    )


def _no_partition(info: TopicInfo, partition: int) -> BrokerError:
    return broker_error(
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        f"topic {info.name} has no partition {partition}",
        f"it has {len(info.partitions)}, from 0 on",
    )
