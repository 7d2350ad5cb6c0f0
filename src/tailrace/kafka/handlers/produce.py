"""Produce: batches into partitions, sequenced at once, answered when the partition acknowledges them.

v3   record batches of format 2; the first version served (0-2 are advertised: see wire/kafka/api.py)
v5   the log start offset in the answer
v8   an error message beside the code, and the records for which a batch was refused (KIP-467)
v9   flexible
v11  errors may be TRANSACTION_ABORTABLE (KIP-890)
v12  a write adds its partition to the transaction (KIP-890 part 2)

A batch is checked by its header and its CRC and is not decoded, but for a compacted topic, where every record
must have a key: a large or compressed batch is looked through beside everything else, and the next request of
its connection waits until it is sequenced. One partition's error leaves the others alone. acks 1 and -1 wait
as `Partition.acknowledged` says; acks 0 is not answered, and an error then closes the connection, which is
the only way to tell. The first batch of a transaction in a partition is verified by the coordinator of that
transaction, in the same turn. Batches leave the receive buffer by one copy each, and that copy is the log's.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import TYPE_CHECKING

from tailrace.broker.partition import ACKS_LEADER, check_keys
from tailrace.kafka.errors import ANSWERABLE, error_name, error_of
from tailrace.kafka.shape import ProduceShape, shape_of
from tailrace.kafka.transactions import TransactionalAppender
from tailrace.model import BrokerError, ErrorCode, InvalidRecords, ProtocolError, TopicPartition
from tailrace.records import TRANSACTIONAL_BIT, Batch, validate_batch
from tailrace.storage.opening import is_costly
from tailrace.wire.kafka import (
    PRODUCE,
    ProduceRequest,
    ProduceResult,
    read_produce_request,
    write_produce_response,
    write_response_head,
)

if TYPE_CHECKING:
    from tailrace.broker.gate import Access
    from tailrace.broker.partition import Appended, Partition
    from tailrace.kafka.connection import Connection
    from tailrace.kafka.replies import Reply
    from tailrace.kafka.service import KafkaService

KEY = 0

_KNOWN_ACKS = (-1, 0, 1)
_TIMEOUT_MS_MAX = 600_000
_SLACK_BYTES = 4096
_MEASURED_MASK = 15
"""Of sixteen requests that need not wait, as in memory, one is measured: they take about the same time."""
_CORRELATION_ID = struct.Struct(">i")
_CORRELATION_ID_AT = 4  # behind the size
_WITH_START_BYTES = 30  # of a result, from version 5 on

Results = list[tuple[str, list[ProduceResult]]]


def take(
    connection: Connection, version: int, correlation_id: int, body: memoryview, owned: bool
) -> Reply | None:
    """Append every batch; the answer, or something that becomes it when they are durable."""
    waits: list[Wait] = []
    service = connection.service
    is_measured = not service.produced.requests & _MEASURED_MASK or service.counters.trace is not None
    started = service.clock.monotonic() if is_measured else None
    frame_bytes = len(body) if owned else None
    access = connection.access
    request: ProduceRequest | ProduceShape
    shape = connection.produce_shape
    if shape is not None and (records := shape.match(version, body)) is not None:
        request = shape
        transaction = _transaction(access, shape.transactional_id, version)
        answer = _answer(access, shape.tp, records, waits, frame_bytes, shape.acks, transaction)
        results = [(shape.tp.topic, [answer])]
    else:
        request = read_produce_request(body, version)
        results = _append_all(access, request, waits, frame_bytes, version)
        if request.acks in _KNOWN_ACKS:
            connection.produce_shape = shape_of(version, body, request)
    is_late = False
    for wait in waits:
        wait.connection = connection
        if wait.is_late:
            is_late = True
    if request.acks == 0:
        _check_unanswered(results)
    if not waits:
        service.produced.requests += 1
        if started is not None:
            _measure(service, started, results)
        return None if request.acks == 0 else _write(results, version, correlation_id, service)
    reply = ProduceReply(results, waits, version, correlation_id, silent=request.acks == 0, service=service)
    reply.deadline = service.loop.time() + _timeout_ms(request) / 1000
    connection.expire_at(reply.deadline)
    if is_late:
        reply.holds = True
        late = [wait for wait in waits if isinstance(wait, LateWait)]
        service.start("kafka-check-keys", _append_checked(connection, late))
    return reply


async def _append_checked(connection: Connection, late: list[LateWait]) -> None:
    """Append batches that are costly to look through, in order; then the connection goes on."""
    try:
        for wait in late:
            try:
                await check_keys(wait.batch)
                wait.append()
            except ANSWERABLE as error:
                wait.set_exception(error)
                if wait.acks == 0:
                    connection.abort()  # which is the only way to tell
    except Exception as error:
        connection.failed(error)
    finally:
        connection.unhold()


def _measure(service: KafkaService, started: float, results: Results) -> None:
    """The answer to a request is known."""
    seconds = service.clock.monotonic() - started
    service.produce_ms.append(seconds * 1000)
    service.produced.duration.observe(seconds)
    if service.counters.trace is not None:
        code = _first_error(results)
        service.counters.trace("Produce", seconds, error=error_name(code) if code else "")


def _timeout_ms(request: ProduceRequest | ProduceShape) -> int:
    """How long durability may take. Kafka heeds the client's bound where replicas are waited for."""
    return min(max(request.timeout_ms, 0), _TIMEOUT_MS_MAX) if request.acks == -1 else _TIMEOUT_MS_MAX


class Wait:
    """One batch until it is durable; the log tells it (`storage.api.Waiter`)."""

    __slots__ = ("_error", "_result", "connection", "told")

    is_late = False

    def __init__(self, result: ProduceResult) -> None:
        self.connection: Connection | None = None  # whose reply waits for it
        self._result = result
        self._error: Exception | None = None
        self.told = False

    def done(self) -> bool:
        return self.told

    def set_result(self, _: None) -> None:
        """Durable."""
        self.told = True
        if self.connection is not None:
            self.connection.ready_soon()

    def set_exception(self, error: Exception) -> None:
        """Never durable."""
        self._error = error
        self.set_result(None)

    def conclude(self) -> None:
        """Once told: of what will never be durable, what was said of offsets is taken back."""
        if self._error is not None:
            self._result.base_offset = -1
            _fail(self._result, self._error)

    def give_up(self) -> None:
        """Answer without it."""
        self._result.base_offset, self._result.error_code = -1, ErrorCode.REQUEST_TIMED_OUT
        self._result.error_message = "not durable within the request's timeout; it may become so yet"


class LateWait(Wait):
    """A batch for a compacted partition that is appended when its keys were looked at."""

    __slots__ = ("_partition", "_transaction", "acks", "batch")

    is_late = True

    def __init__(
        self,
        partition: Partition,
        batch: Batch,
        result: ProduceResult,
        *,
        acks: int,
        transaction: TransactionalAppender | None,
    ) -> None:
        super().__init__(result)
        self._partition = partition
        self._transaction = transaction
        self.batch = batch
        self.acks = acks

    def append(self) -> None:
        """Sequence it, now that every record is known to have a key; raises BrokerError."""
        appended = _append(self._partition, self.batch, self._transaction, keys_checked=True)
        result = self._result
        if not result.error_code:  # else its time was over, and that was answered
            result.base_offset, result.log_append_time_ms = appended.base_offset, appended.log_append_time_ms
            result.log_start_offset = appended.log_start_offset
        self._partition.acknowledged(appended.end_offset, self.acks or ACKS_LEADER, self)


class ProduceReply:
    """An answer that waits for durability."""

    __slots__ = (
        "_correlation_id",
        "_results",
        "_service",
        "_silent",
        "_started",
        "_version",
        "_waits",
        "deadline",
        "holds",
        "request_bytes",
    )

    waits_for_others = False

    def __init__(
        self,
        results: Results,
        waits: list[Wait],
        version: int,
        correlation_id: int,
        *,
        silent: bool,
        service: KafkaService,
    ) -> None:
        self._service = service
        self._started = service.clock.monotonic()  # the loop's own clock counts milliseconds
        self._results = results
        self._waits = waits
        self._version = version
        self._correlation_id = correlation_id
        self._silent = silent
        self.holds = False  # until batches were looked through
        self.deadline = 0.0
        self.request_bytes = 0

    def is_known(self) -> bool:
        for wait in self._waits:  # noqa: SIM110 - asked for every request, and a generator is dear
            if not wait.told:
                return False
        return True

    def take(self) -> bytes | None:
        if not self.is_known():
            return None
        for wait in self._waits:
            wait.conclude()
        self._waits = []
        service = self._service
        service.produced.requests += 1
        _measure(service, self._started, self._results)
        return b"" if self._silent else _write(self._results, self._version, self._correlation_id, service)

    def expire(self, now: float) -> float | None:
        if now < self.deadline or self._silent:
            return None if self._silent else self.deadline
        for wait in self._waits:
            if not wait.done():
                wait.give_up()
        self._waits = [wait for wait in self._waits if wait.done()]
        return None

    def finish(self) -> None:
        """Durability comes by itself."""


def _append_all(
    access: Access, request: ProduceRequest, waits: list[Wait], frame_bytes: int | None, version: int
) -> Results:
    refusal = _refusal(request)
    transaction = _transaction(access, request.transactional_id, version)
    results: Results = []
    for topic in request.topics:
        if refusal is not None:
            answers = [_failure(partition.index, refusal) for partition in topic.partitions]
        else:
            answers = [
                _answer(
                    access,
                    TopicPartition(topic.name, partition.index),
                    partition.records,
                    waits,
                    frame_bytes,
                    request.acks,
                    transaction,
                )
                for partition in topic.partitions
            ]
        results.append((topic.name, answers))
    return results


def _answer(
    access: Access,
    tp: TopicPartition,
    records: memoryview | None,
    waits: list[Wait],
    frame_bytes: int | None,
    acks: int,
    transaction: TransactionalAppender | None,
) -> ProduceResult:
    """Append one batch; what is wrong with it, or with its partition, is that partition's answer."""
    try:
        partition = access.writable(tp)
        if not records:
            raise BrokerError("a batch is missing", code=ErrorCode.INVALID_RECORD)
        # A batch must not pin a buffer that is much larger than itself, nor one that is received into again.
        if frame_bytes is None or len(records) * 2 + _SLACK_BYTES < frame_bytes:
            records = memoryview(bytearray(records))
        batch = validate_batch(records, bytes_max=partition.settings.message_bytes_max)
        if partition.settings.compact and is_costly(batch):
            result = ProduceResult(tp.partition)
            waits.append(LateWait(partition, batch, result, acks=acks, transaction=transaction))
            return result
        appended = _append(partition, batch, transaction)
        result = ProduceResult(
            tp.partition, 0, appended.base_offset, appended.log_append_time_ms, appended.log_start_offset
        )
        wait = Wait(result)
        partition.acknowledged(appended.end_offset, acks or ACKS_LEADER, wait)
    except ANSWERABLE as error:
        return _failure(tp.partition, error)
    if wait.done():
        wait.conclude()
    else:
        waits.append(wait)
    return result


def _transaction(access: Access, transactional_id: str | None, version: int) -> TransactionalAppender | None:
    if transactional_id is None:
        return None
    return TransactionalAppender(access, transactional_id, version=version)


def _append(
    partition: Partition,
    batch: Batch,
    transaction: TransactionalAppender | None,
    *,
    keys_checked: bool = False,
) -> Appended:
    if not batch.attributes & TRANSACTIONAL_BIT:
        return partition.append(batch, keys_checked=keys_checked)
    if transaction is None:
        raise BrokerError(
            "the batch is part of a transaction, and the request names no transactional id",
            code=ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        )
    return transaction.append(partition, batch, keys_checked=keys_checked)


def _failure(index: int, error: Exception) -> ProduceResult:
    result = ProduceResult(index)
    _fail(result, error)
    return result


def _fail(result: ProduceResult, error: Exception) -> None:
    result.error_code, result.error_message = error_of(error)
    if isinstance(error, InvalidRecords):
        result.record_errors = [(number, error.reason) for number in error.numbers]


def _refusal(request: ProduceRequest) -> BrokerError | None:
    """What is wrong with the whole request, if anything is."""
    if request.acks not in _KNOWN_ACKS:
        return BrokerError(f"acks is {request.acks}, not -1, 0 or 1", code=ErrorCode.INVALID_REQUIRED_ACKS)
    return None


def _check_unanswered(results: Results) -> None:
    for topic, answers in results:
        for result in answers:
            if result.error_code:
                raise ProtocolError(
                    f"produce without acks to {topic}-{result.index} failed: {result.error_message}"
                )


def _write(results: Results, version: int, correlation_id: int, service: KafkaService) -> bytes:
    """The whole reply. Mostly it is one partition's success, and then only some numbers in it are new."""
    if len(results) == 1 and len(results[0][1]) == 1:
        topic, (result,) = results[0]
        if not result.error_code:
            return _fill(_template(version, topic), result, correlation_id)
    if first := _first_error(results):
        service.produced.fail(error_name(first))
    return _write_all(results, version, correlation_id)


def _first_error(results: Results) -> int:
    """0 if there is none."""
    return next((result.error_code for _, answers in results for result in answers if result.error_code), 0)


@lru_cache(maxsize=4096)
def _template(version: int, topic: str) -> tuple[bytes, struct.Struct, int]:
    """A reply with one success, how the numbers lie in it, and where."""
    layout = struct.Struct(">ihqqq" if version >= 5 else ">ihqq")
    mark = ProduceResult(0x1122_3344, 0, 0x5566_7788_99AA, 0x1357_9BDF_2468, 0x2468_ACE0_1357)
    frame = _write_all([(topic, [mark])], version, 0)
    return frame, layout, frame.index(layout.pack(*_numbers(mark, version)))


def _numbers(result: ProduceResult, version: int) -> tuple[int, ...]:
    numbers = result.index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
    return numbers if version >= 5 else numbers[:4]


def _fill(template: tuple[bytes, struct.Struct, int], result: ProduceResult, correlation_id: int) -> bytes:
    frame, layout, at = template
    reply = bytearray(frame)
    _CORRELATION_ID.pack_into(reply, _CORRELATION_ID_AT, correlation_id)
    if layout.size == _WITH_START_BYTES:
        layout.pack_into(
            reply, at, result.index, 0, result.base_offset, result.log_append_time_ms, result.log_start_offset
        )
    else:
        layout.pack_into(reply, at, result.index, 0, result.base_offset, result.log_append_time_ms)
    return bytes(reply)


def _write_all(results: Results, version: int, correlation_id: int) -> bytes:
    body = write_produce_response(version, results)
    return write_response_head(PRODUCE, version, correlation_id, len(body)) + body
