"""Spans of requests, kept until they are sent.

By HTTP every request has one: part of the caller's trace if it says so (W3C `traceparent`), else one of its
own. Whoever says that a trace is not sampled is not traced here either. Probes and scrapes, which come all
day, have a span only if their caller asks for it.

By the other listeners there are too many requests for that: of each so many one has a span, made when its
answer is known out of what was measured anyway.

Nothing is traced that clients send: no keys, no values, no query.
"""

from __future__ import annotations

import random
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

from opentelemetry.context import Context
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanLimits, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_ON, ParentBased
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from tailrace.telemetry.destination import SCOPE

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
App = Callable[[Scope, Receive, Send], Awaitable[None]]

_TEXT_MAX = 256
_METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_OTHER = "_OTHER"  # what the conventions call a method that nobody knows
_CARRIERS = (b"traceparent", b"tracestate")
_UNASKED = ("/metrics", "/health", "/assets")
_ENDLESS = b"text/event-stream"
_NS_PER_S = 1_000_000_000


class SpanBuffer(SpanProcessor):
    """Spans that ended and wait to be sent; bounded, and those that find no room are counted."""

    def __init__(self, spans_max: int, on_half_full: Callable[[], None]) -> None:
        self.dropped = 0
        self._spans: deque[ReadableSpan] = deque()
        self._spans_max = spans_max
        self._on_half_full = on_half_full

    def __len__(self) -> int:
        return len(self._spans)

    def on_end(self, span: ReadableSpan) -> None:
        if len(self._spans) >= self._spans_max:
            self.dropped += 1
            return
        self._spans.append(span)
        if len(self._spans) * 2 >= self._spans_max:
            self._on_half_full()

    def take(self) -> list[ReadableSpan]:
        """All of them; the next ones start from nothing."""
        spans, self._spans = list(self._spans), deque()
        return spans


def create_tracer(buffer: SpanBuffer, *, resource: Resource, version: str) -> Tracer:
    """A tracer of this node alone: nothing global is set, nothing is left to the end of the process."""
    provider = TracerProvider(
        sampler=ParentBased(ALWAYS_ON),
        resource=resource,
        shutdown_on_exit=False,
        span_limits=SpanLimits(max_attribute_length=_TEXT_MAX),
    )
    provider.add_span_processor(buffer)
    return provider.get_tracer(SCOPE, version)


class HttpTrace:
    """Puts a span around every request of an ASGI app."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer
        self._propagator = TraceContextTextMapPropagator()

    async def __call__(self, app: App, scope: Scope, receive: Receive, send: Send) -> None:
        carrier = read_carrier(scope["headers"])
        if not carrier and scope["path"].removeprefix(scope.get("root_path", "")).startswith(_UNASKED):
            await app(scope, receive, send)
            return
        span = self._tracer.start_span(
            _method(scope),
            context=self._propagator.extract(carrier, Context()),
            kind=SpanKind.SERVER,
            attributes=_attributes(scope),
        )
        if span.is_recording():
            await _follow(span, app, scope, receive, send)
        else:
            await app(scope, receive, send)


async def _follow(span: Span, app: App, scope: Scope, receive: Receive, send: Send) -> None:
    """Serve a request, and end its span with the answer; that of an endless one when the answer begins."""

    async def pass_on(message: Message) -> None:
        if message["type"] == "http.response.start":
            _note_status(span, message["status"])
            if any(
                name == b"content-type" and value.startswith(_ENDLESS)
                for name, value in message.get("headers", ())
            ):
                _name(span, scope)
                span.end()
        await send(message)

    try:
        await app(scope, receive, pass_on)
    except BaseException as error:
        if span.is_recording():
            span.set_attribute("error.type", type(error).__qualname__)
            span.set_status(Status(StatusCode.ERROR))
        raise
    finally:
        if span.is_recording():
            _name(span, scope)
            span.end()


class RequestTrace:
    """Makes spans of some of the requests of a listener that is not HTTP (`tailrace.net.Trace`)."""

    __slots__ = ("_listener", "_one_in", "_tracer")

    def __init__(self, tracer: Tracer, *, listener: str, one_in: int) -> None:
        self._tracer = tracer
        self._listener = listener
        self._one_in = one_in

    def __call__(self, api: str, seconds: float, *, count: int = 1, error: str = "") -> None:
        # By chance and not in turn: clients have a beat, and might always be met on the same foot.
        if self._one_in > 1 and random.random() * self._one_in >= 1:
            return
        end_ns = time.time_ns()
        span = self._tracer.start_span(
            f"{self._listener} {api}",
            context=Context(),
            kind=SpanKind.SERVER,
            start_time=end_ns - int(seconds * _NS_PER_S),
            attributes={"tailrace.listener": self._listener, "tailrace.api": api, "tailrace.requests": count},
        )
        if error:
            span.set_attribute("error.type", error)
            span.set_status(Status(StatusCode.ERROR))
        span.end(end_ns)


# ---- what HTTP says


def read_carrier(headers: list[tuple[bytes, bytes]]) -> Mapping[str, str]:
    """The headers of a trace. Two of `traceparent` are none (W3C Trace Context section 3.2)."""
    found: dict[str, str] = {}
    for name, value in headers:
        if name not in _CARRIERS:
            continue
        text = name.decode()
        if text in found and name == _CARRIERS[0]:
            return {}
        found[text] = f"{found[text]},{value.decode('latin-1')}" if text in found else value.decode("latin-1")
    return found if "traceparent" in found else {}


def _attributes(scope: Scope) -> dict[str, str | int]:
    """By the semantic conventions for HTTP servers; of the query nothing, which may hold keys of records."""
    found: dict[str, str | int] = {
        "http.request.method": _method(scope),
        "url.path": scope["path"],
        "url.scheme": scope.get("scheme", "http"),
        "network.protocol.version": scope.get("http_version", "1.1"),
        "tailrace.listener": "http",
    }
    if scope.get("client"):
        found["client.address"] = scope["client"][0]
    if scope.get("server"):
        found["server.address"], found["server.port"] = scope["server"][0], scope["server"][1] or 0
    for name, value in scope["headers"]:
        if name == b"user-agent":
            found["user_agent.original"] = value.decode("latin-1")
    return found


def _method(scope: Scope) -> str:
    method: str = scope["method"]
    return method if method in _METHODS else _OTHER


def _note_status(span: Span, status: int) -> None:
    span.set_attribute("http.response.status_code", status)
    if status >= 400:
        span.set_attribute("error.type", str(status))
    if status >= 500:  # what a client did wrong is no error of the server
        span.set_status(Status(StatusCode.ERROR))


def _name(span: Span, scope: Scope) -> None:
    """By the route, of which there are few, and not by the path, which has names of clients in it."""
    path = getattr(scope.get("route"), "path", "")
    if path:
        route = f"{scope.get('root_path', '')}{path}"
        span.set_attribute("http.route", route)
        span.update_name(f"{_method(scope)} {route}")
