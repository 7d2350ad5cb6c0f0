"""GET /api/v1/topics/{topic}/tail: records as they come, as server-sent events.

    id: c53e3dad062d/0:41
    event: record
    data: {"topic": "orders", "partition": 0, "offset": 41, ...}

    event: skipped
    data: {"count": 1200}

    event: end
    data: {"reason": "topic 'orders' was deleted"}

`curl -N` shows it, EventSource reads it. Nothing is buffered for a client that does not read: `send` waits,
and what passes meanwhile is counted. A client that comes back with `Last-Event-ID` goes on where it was.
"""

from __future__ import annotations

import asyncio

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from tailrace.http.disconnect import wait_disconnect
from tailrace.http.error import Code
from tailrace.http.live.entry import Entry
from tailrace.http.live.ring import Run
from tailrace.http.live.start import TailQuery, open_tail
from tailrace.http.live.tail import Portion, Tail, TailEnded
from tailrace.http.operation import EVENT_STREAM, Call, NoBody, Operation
from tailrace.http.service import HttpService, Stream

_KEEP_ALIVE = b": keep-alive\n\n"
_HEADERS = {"cache-control": "no-store", "x-accel-buffering": "no"}


async def tail_topic(call: Call[TailQuery, NoBody]) -> Response:
    name = call.params["topic"]
    last_event_id = call.request.headers.get("last-event-id")
    stream, tail = await open_tail(call.service, call.access, name, call.query, last_event_id=last_event_id)
    return EventStream(call.service, stream, tail, name=name)


class EventStream(Response):
    """One tail as an answer that does not end by itself."""

    media_type = EVENT_STREAM

    def __init__(self, service: HttpService, stream: Stream, tail: Tail, *, name: str) -> None:
        super().__init__(headers=_HEADERS)
        del self.headers["content-length"]
        self._keepalive_s = service.config.keepalive_s
        self._stream = stream
        self._tail = tail
        self._mark = tail.mark.encode()
        self._name = name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        with self._stream, self._tail:
            start = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
            await send(start)
            if scope["method"] == "HEAD":
                await send({"type": "http.response.body"})
                return
            watching = asyncio.create_task(self._watch(receive), name=f"client of a tail of {self._name}")
            try:
                await self._send_all(send)
            finally:
                watching.cancel()
                await asyncio.gather(watching, return_exceptions=True)

    async def _watch(self, receive: Receive) -> None:
        """Notice a client that leaves: it says nothing else."""
        await wait_disconnect(receive)
        self._tail.stop("")

    async def _send_all(self, send: Send) -> None:
        async def write(data: bytes, *, more: bool = True) -> None:
            await send({"type": "http.response.body", "body": data, "more_body": more})

        loop = asyncio.get_running_loop()
        await write(f": tail of {self._name}\n\n".encode())
        sent_at = loop.time()
        try:
            while True:
                portion = await self._tail.wait_portion(self._keepalive_s)
                data = b"" if portion is None else write_events(portion, mark=self._mark)
                if data or loop.time() - sent_at >= self._keepalive_s:
                    await write(data or _KEEP_ALIVE)
                    sent_at = loop.time()
                if portion is not None:
                    await self._tail.rest(portion, messages=1)
        except TailEnded as end:
            await write(write_end(str(end)) if str(end) else b"", more=False)


def write_events(portion: Portion, *, mark: bytes) -> bytes:
    """What a client is told next, of a topic with this mark; what all tails show alike is written once."""
    run = portion.run
    if run.events is None:
        run.events = b"".join([_event(run, entry, mark) for entry in run.entries])
    return _skipped(portion.skipped) + run.events if portion.skipped else run.events


def write_end(reason: str) -> bytes:
    return b"event: end\ndata: %b\n\n" % msgspec.json.encode({"reason": reason})


def _event(run: Run, entry: Entry, mark: bytes) -> bytes:
    if entry.json is None:
        return _skipped(entry.weight)
    shown = b"%d:%d" % (entry.partition, entry.offset) if run.plain else entry.shown
    head = b"id: %b/%b\n" % (mark, shown) if shown else b""
    return b"%bevent: record\ndata: %b\n\n" % (head, entry.json)


def _skipped(count: int) -> bytes:
    return b'event: skipped\ndata: {"count":%d}\n\n' % count


OPERATIONS = (
    Operation(
        method="GET",
        path="/api/v1/topics/{topic}/tail",
        name="tailTopic",
        tag="records",
        summary="Records of a topic as they come, without end",
        doc=(
            "Server-sent events: `record` with a record as in a read, `skipped` with how many a slow client "
            "missed, `end` with the reason. Begins with the newest unless `offset` or `ts` say otherwise; "
            "`Last-Event-ID` goes on where a client was. As a WebSocket the same path sends "
            '`{"record": {...}}`, `{"skipped": 12}` and `{"end": "reason"}`, and takes `{"pause": true}`.'
        ),
        handler=tail_topic,
        query=TailQuery,
        answer=None,
        gives={EVENT_STREAM: "events without end"},
        fails=(Code.TOPIC_NOT_FOUND, Code.OFFSET_OUT_OF_RANGE, Code.BROKER_NOT_AVAILABLE),
    ),
)
