"""Producers and a reader by raw frames over one loop: cheap enough that the server is the limit.

A producer sends Produce 12 with one batch, waits, sends EndTxn 5, waits, and goes on with the epoch that it
was told. Where the transaction before is not complete yet (CONCURRENT_TRANSACTIONS, Kafka only) it repeats.
"""

from __future__ import annotations

import asyncio
import struct
import time
from typing import Any

from tailrace.records import build_batch, iter_batches, read_batch
from tailrace.wire.kafka import (
    FETCH,
    PRODUCE,
    FetchPartition,
    decode,
    encode,
    read_fetch_response,
    read_produce_response,
    read_response_head,
    write_fetch_request,
    write_produce_request,
    write_request,
)
from tailrace.wire.kafka.messages.end_txn import EndTxnRequest, EndTxnResponse
from tailrace.wire.kafka.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse

_INIT, _END = 22, 26
_PRODUCE_VERSION, _FETCH_VERSION, _INIT_VERSION, _END_VERSION = 12, 11, 4, 5
_TIMEOUT_MS = 60_000
_NOT_YET = (14, 15, 16, 51)  # coordinator errors, and a transaction that is not complete
_PAUSE_S = 0.002
_STARTS_MAX = 3_000
_STAMP = struct.Struct(">d")


class Refused(Exception):
    """The broker answered an error."""


class Connection(asyncio.Protocol):
    """One request at a time."""

    def __init__(self) -> None:
        self._transport: Any = None
        self._received = bytearray()
        self._answer: asyncio.Future[memoryview] | None = None
        self._correlation_id = 0
        self._closed = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def connection_lost(self, exc: Exception | None) -> None:
        self._closed.set()
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(Refused(f"the connection was closed: {exc}"))

    def data_received(self, data: bytes) -> None:
        self._received += data
        if len(self._received) < 4:
            return
        size = int.from_bytes(self._received[:4], "big")
        if len(self._received) >= 4 + size and self._answer is not None:
            frame = memoryview(bytes(self._received[4 : 4 + size]))
            del self._received[: 4 + size]
            self._answer.set_result(frame)

    async def call(self, key: int, version: int, body: bytes) -> memoryview:
        self._correlation_id += 1
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(write_request(key, version, self._correlation_id, "bench", body))
        return read_response_head(key, version, await self._answer)[1]

    async def close(self) -> None:
        self._transport.abort()
        await self._closed.wait()


async def connect(port: int) -> Connection:
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_connection(Connection, "127.0.0.1", port)
    return connection


class Producer:
    """A producer of one transactional id, or of none."""

    def __init__(self, connection: Connection, name: str | None, topic: str, partition: int) -> None:
        self._connection = connection
        self._name = name
        self._topic = topic
        self._partition = partition
        self._identity = (-1, -1)
        self.repeats = 0

    async def init(self) -> None:
        request = InitProducerIdRequest(transactional_id=self._name, transaction_timeout_ms=_TIMEOUT_MS)
        for _ in range(_STARTS_MAX):
            body = await self._connection.call(_INIT, _INIT_VERSION, encode(request, _INIT_VERSION))
            answer = decode(InitProducerIdResponse, _INIT_VERSION, body)
            if answer.error_code not in _NOT_YET:
                break
            await asyncio.sleep(_PAUSE_S * 5)
        _check(answer.error_code, "InitProducerId")
        self._identity = (answer.producer_id, answer.producer_epoch)

    async def transact(self, value: bytes) -> None:
        await self.write(value)
        producer_id, epoch = self._identity
        request = EndTxnRequest(self._name or "", producer_id, epoch, committed=True)
        body = encode(request, _END_VERSION)
        while True:
            answer = decode(
                EndTxnResponse, _END_VERSION, await self._connection.call(_END, _END_VERSION, body)
            )
            if answer.error_code not in _NOT_YET:
                break
            self.repeats += 1
            await asyncio.sleep(_PAUSE_S)
        _check(answer.error_code, "EndTxn")
        self._identity = (answer.producer_id, answer.producer_epoch)

    async def write(self, value: bytes) -> None:
        producer_id, epoch = self._identity
        batch = build_batch(
            [(time.time_ns() // 1_000_000, None, value, ())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0 if self._name is not None else -1,
            transactional=self._name is not None,
        )
        pieces = write_produce_request(
            _PRODUCE_VERSION,
            transactional_id=self._name,
            acks=-1,
            timeout_ms=_TIMEOUT_MS,
            topics={self._topic: {self._partition: batch}},
        )
        body = b"".join(pieces)
        while True:
            answer = await self._connection.call(PRODUCE, _PRODUCE_VERSION, body)
            ((_, (result,)),) = read_produce_response(answer, _PRODUCE_VERSION).topics
            if result.error_code not in _NOT_YET:
                break
            self.repeats += 1
            await asyncio.sleep(_PAUSE_S)
        _check(result.error_code, "Produce")


async def run_producers(
    port: int, topic: str, *, producers: int, partitions: int, warm_s: float, for_s: float
) -> dict[str, Any]:
    """Transactions as fast as they are answered; how long each took."""
    took: list[float] = []
    connections = [await connect(port) for _ in range(producers)]
    made = [
        Producer(connection, f"{topic}-{number}", topic, number % partitions)
        for number, connection in enumerate(connections)
    ]
    await asyncio.gather(*(each.init() for each in made))
    began = time.perf_counter() + warm_s
    ends = began + for_s

    async def produce(producer: Producer) -> None:
        while (sent := time.perf_counter()) < ends:
            await producer.transact(b"x" * 100)
            if sent >= began:
                took.append(time.perf_counter() - sent)

    await asyncio.gather(*(produce(each) for each in made))
    seconds = time.perf_counter() - began
    for connection in connections:
        await connection.close()
    return {"took": took, "seconds": seconds, "repeats": sum(each.repeats for each in made)}


async def run_lag(
    port: int, topic: str, *, transactional: bool, isolation: int, per_s: float, seconds: float
) -> list[float]:
    """From the call that sends a record until a reader that waits at the end has it."""
    reading, writing = await connect(port), await connect(port)
    producer = Producer(writing, f"{topic}-lag" if transactional else None, topic, 0)
    if transactional:
        await producer.init()
    count, lags = int(seconds * per_s), list[float]()

    async def write() -> None:
        for _ in range(count):
            began = time.perf_counter()
            value = _STAMP.pack(began) + b"x" * 92
            await (producer.transact(value) if transactional else producer.write(value))
            await asyncio.sleep(max(0.0, 1 / per_s - (time.perf_counter() - began)))

    async def read() -> None:
        offset = 0
        while len(lags) < count:
            body = write_fetch_request(
                _FETCH_VERSION,
                topics={topic: [FetchPartition(0, -1, offset, -1, -1, 1 << 20)]},
                isolation_level=isolation,
            )
            answer = read_fetch_response(await reading.call(FETCH, _FETCH_VERSION, body), _FETCH_VERSION)
            now = time.perf_counter()
            ((_, (result,)),) = answer.topics
            _check(result.error_code, "Fetch")
            for batch in iter_batches(result.records or b""):
                offset = batch.next_offset
                if not batch.is_control:
                    (record,) = read_batch(bytes(batch.data)).records()
                    lags.append(now - _STAMP.unpack_from(record.value or b"")[0])

    await asyncio.gather(write(), read())
    for connection in (reading, writing):
        await connection.close()
    return lags[len(lags) // 10 :]  # the first ones find caches cold


def _check(code: int, what: str) -> None:
    if code:
        raise Refused(f"{what} was answered with error {code}")
