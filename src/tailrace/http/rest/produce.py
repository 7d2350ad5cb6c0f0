"""POST /api/v1/topics/{topic}/records: records into a topic, as JSON, as lines of JSON, or as plain bytes.

    application/json          {"records": [{"key", "value", "headers", "partition", "timestamp", "encoding"}]}
                              -> {"offsets": [{"partition", "offset"}]}, one for each, in their order
    application/x-ndjson      a record per line, for as long as the client likes
                              -> {"lines", "offsets": [{"partition", "offset", "count"}]} per stored batch
    application/octet-stream  one record, whose value is the body
                              -> as for JSON

With `"atomic": true` the records of a JSON body are one transaction: readers see all of them or none, and a
refusal leaves none. A body of bytes is one record, and lines have no end to wait for.

?key= and ?partition= are for records that have none of their own, which a body of bytes never has.

What is answered is durable. Of lines no more is read than what is stored next, so a client that sends faster
than the disk writes is slowed down by its own socket. The answer to lines begins when the first of them are
durable: what is wrong with those has a status of its own, and what comes later is a last line with the error,
whose `line` is the first that is not stored. A node that refuses (it is full, busy or slow) may do so when
part of a batch is stored, or will be: then some of the lines from there on may be found in the topic.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterator, Sequence
from contextlib import aclosing
from typing import Annotated, Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tailrace.broker.appending import Gathering, Stored, append_together
from tailrace.broker.topic import NewTopic
from tailrace.http.app import LongAnswer, failure_of, media_type
from tailrace.http.body import read_lines, read_whole
from tailrace.http.error import Code, HttpError, answer_to, invalid
from tailrace.http.operation import NDJSON, Call
from tailrace.wire.json.record_json import BadRecord, ParsedRecord, RecordInput, parse_record, read_input

BINARY = "application/octet-stream"


class ProduceBody(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Records to be stored."""

    records: Annotated[list[RecordInput], msgspec.Meta(min_length=1)]
    atomic: bool = False  # all of them become visible together, or none is stored


class ProduceQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Of records that have none of their own."""

    key: str | None = None
    partition: Annotated[int, msgspec.Meta(ge=0, le=2**31 - 1)] | None = None


class Place(msgspec.Struct, frozen=True):
    """Where a record is."""

    partition: int
    offset: int


class Produced(msgspec.Struct, frozen=True):
    """Where the records are, in the order in which they were sent."""

    offsets: list[Place]


class PlaceRun(msgspec.Struct, frozen=True):
    """Where records are that follow each other."""

    partition: int
    offset: int
    count: int


class StoredLines(msgspec.Struct, frozen=True):
    """One line of the answer to lines: so many are durable in all, and where the newest went."""

    lines: int
    offsets: list[PlaceRun]


async def produce(call: Call[ProduceQuery, ProduceBody | None]) -> Produced | Response:
    media = media_type(call.request)
    if media == BINARY:
        return await _produce_binary(call)
    if media == NDJSON:
        return await _produce_lines(call)
    assert call.body is not None
    records = read_inputs(call.body.records)
    if not call.body.atomic:
        return await _produce_all(call, records)
    gathering = await gather(call, call.params["topic"], records, call.query)
    (stored,) = await store_together(call, [gathering])
    return Produced(offsets=places_of(stored))


async def _produce_binary(call: Call[ProduceQuery, Any]) -> Produced:
    value = await read_whole(call.request, call.service.config, call.held)
    return await _produce_all(call, [ParsedRecord(value=value)])


async def _produce_all(call: Call[ProduceQuery, Any], records: Sequence[ParsedRecord]) -> Produced:
    return Produced(offsets=places_of(await _store(call, records)))


def places_of(stored: Stored) -> list[Place]:
    """Where the records of a gathering are."""
    return [Place(partition, offset) for partition, offset in stored.offsets()]


def read_inputs(rows: Sequence[RecordInput], *, where: str = "records", **details: str) -> list[ParsedRecord]:
    """The records of a body; INVALID_REQUEST says which one of `where` is none."""
    records = []
    for number, row in enumerate(rows):
        try:
            records.append(read_input(row))
        except BadRecord as error:
            raise invalid(f"{where}[{number}]: {error}", record=number, **details) from error
    return records


async def store_together(call: Call[Any, Any], gatherings: Sequence[Gathering]) -> list[Stored]:
    """Append gatherings, all or nothing, and return when they are durable."""
    clock, counters = call.service.gate.clock, call.service.gate.counters
    started = clock.monotonic()
    stored = await call.service.in_time(append_together(call.access, gatherings))
    counters.produce_ms.append((clock.monotonic() - started) * 1000)
    return stored


async def _store(call: Call[ProduceQuery, Any], records: Sequence[ParsedRecord]) -> Stored:
    """Append records and return when they are durable."""
    service, gate = call.service, call.service.gate
    gathering = await gather(call, call.params["topic"], records, call.query)
    started = gate.clock.monotonic()
    stored = gathering.append()
    await service.in_time(stored.wait_acknowledged())
    gate.counters.produce_ms.append((gate.clock.monotonic() - started) * 1000)
    return stored


async def gather(
    call: Call[Any, Any], topic_name: str, records: Sequence[ParsedRecord], query: ProduceQuery
) -> Gathering:
    """The records by partition of a topic, which is created where the node does that."""
    usual_key = None if query.key is None else query.key.encode("utf-8", "replace")
    topic = await call.service.in_time(call.access.writable_topic(NewTopic(name=topic_name)))
    gathering = Gathering(call.access, topic, call.service.gate.publisher)
    for each in records:
        gathering.add(
            usual_key if each.key is None else each.key,
            each.value,
            headers=each.headers,
            partition=query.partition if each.partition is None else each.partition,
            timestamp_ms=each.timestamp,
        )
    return gathering


# ---- lines


async def _produce_lines(call: Call[Any, Any]) -> Response:
    storing = _Storing(call)
    rows = storing.run()
    try:
        first = await anext(rows, None)
    except Exception as error:
        await rows.aclose()
        if answer_to(error) is None:
            raise
        raise _told_with(error, line=1) from None
    if first is None:
        raise invalid("the body has no line. Send a record on each")
    return _LinesAnswer(call, storing, first, rows)


def _told_with(error: Exception, *, line: int) -> HttpError:
    """What a client is told of an error that is no bug, with the first line that is not stored."""
    known = answer_to(error)
    assert known is not None
    known.details.setdefault("line", line)
    return known


class _Storing:
    """Lines as they arrive, a batch at a time."""

    def __init__(self, call: Call[Any, Any]) -> None:
        self._call = call
        self.lines = 0  # that are durable

    async def run(self) -> AsyncGenerator[StoredLines, None]:
        """What was stored, again and again; raises at what cannot be."""
        bytes_max = self._call.service.config.batch_bytes
        async with aclosing(_lines_until_stopping(self._call)) as pieces:
            async for piece in pieces:
                for lines in cut_lines(piece, bytes_max=bytes_max):
                    records, wrong = _parse_lines(lines)
                    if records:
                        yield await self._store(records)
                    if wrong is not None:
                        raise invalid(f"line {self.lines + 1}: {wrong}", line=self.lines + 1) from wrong

    async def _store(self, records: list[ParsedRecord]) -> StoredLines:
        stored = await _store(self._call, records)
        self.lines += len(records)
        return StoredLines(
            self.lines, [PlaceRun(span.partition, span.offset, span.count) for span in stored.spans]
        )


def cut_lines(lines: list[bytes], *, bytes_max: int) -> Iterator[list[bytes]]:
    """The lines in runs of about so many bytes, of which each has one line at least."""
    run: list[bytes] = []
    size = 0
    for line in lines:
        if run and size + len(line) > bytes_max:
            yield run
            run, size = [], 0
        run.append(line)
        size += len(line)
    if run:
        yield run


def _parse_lines(lines: list[bytes]) -> tuple[list[ParsedRecord], BadRecord | None]:
    """The records up to a line that is none, and what is wrong with that one."""
    records: list[ParsedRecord] = []
    for line in lines:
        try:
            records.append(parse_record(line))
        except BadRecord as error:
            return records, error
    return records, None


async def _lines_until_stopping(call: Call[Any, Any]) -> AsyncGenerator[list[bytes], None]:
    """The lines of the body as they arrive; a node that stops does not wait for more."""
    lines = read_lines(call.request, call.service.config, call.service.budget)

    async def read() -> list[bytes] | None:
        return await anext(lines, None)

    stopping = asyncio.ensure_future(call.service.wait_stopping())
    reading = None
    try:
        while True:
            reading = asyncio.ensure_future(read())
            await asyncio.wait({reading, stopping}, return_when=asyncio.FIRST_COMPLETED)
            if not reading.done():
                raise HttpError(Code.BROKER_NOT_AVAILABLE, "the node is stopping. Send the rest later")
            found = reading.result()
            if found is None:
                return
            yield found
    finally:
        stopping.cancel()
        if reading is not None:
            reading.cancel()
            await asyncio.wait({reading})
        await lines.aclose()  # which gives back what its lines counted for


class _LinesAnswer(LongAnswer):
    """Lines about lines. It reads and writes in turns, which is why it is no StreamingResponse: that one
    would read the body away while it looks for the end of the connection."""

    media_type = NDJSON

    def __init__(
        self,
        call: Call[Any, Any],
        storing: _Storing,
        first: StoredLines,
        rows: AsyncGenerator[StoredLines, None],
    ) -> None:
        super().__init__()
        del self.headers["content-length"]
        self._call = call
        self._storing = storing
        self._first = first
        self._rows = rows
        self._failure: Code | None = None  # what the last line says

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:  # noqa: ARG002
        try:
            await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
            await self._send_all(send)
        except _NotRead:
            return  # the connection is closed for it
        finally:
            self.note_end(self._failure)
        await send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _send_all(self, send: Send) -> None:
        try:
            async with aclosing(self._rows) as rows:
                await self._send(send, msgspec.json.encode(self._first))
                async for row in rows:
                    await self._send(send, msgspec.json.encode(row))
        except _NotRead:
            self._failure = Code.INVALID_REQUEST  # as of a body that comes too slowly
            raise
        except Exception as error:
            await self._send(send, self._error_line(error))

    async def _send(self, send: Send, line: bytes) -> None:
        """One line; a client that reads none for long is given up, or both sides would wait for ever."""
        try:
            async with asyncio.timeout(self._call.service.config.body_timeout_s):
                await send({"type": "http.response.body", "body": line + b"\n", "more_body": True})
        except TimeoutError as error:
            raise _NotRead from error

    def _error_line(self, error: Exception) -> bytes:
        if answer_to(error) is None:
            request = self._call.request
            known = failure_of(error, self._call.service, what=f"{request.method} {request.url.path}")
        else:
            known = _told_with(error, line=self._storing.lines + 1)
        self._failure = known.code
        return msgspec.json.encode(known.body())


class _NotRead(Exception):
    """A client sends and sends, and does not read what is answered."""
