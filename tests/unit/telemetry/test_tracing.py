"""What a trace says by HTTP, apps that fail, and streams: with an app of a few lines and no network."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

pytest.importorskip("opentelemetry.sdk", reason="pip install 'tailrace[otel]'")

from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.trace import StatusCode

from tailrace.telemetry.tracing import (
    App,
    HttpTrace,
    RequestTrace,
    SpanBuffer,
    create_tracer,
    read_carrier,
)

PARENT = b"00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
Headers = Sequence[tuple[bytes, bytes]]


def tracer_of(buffer: SpanBuffer) -> Any:
    return create_tracer(buffer, resource=Resource.create({}), version="0")


class Rig:
    """One request after the other, and the spans that are there whenever something was sent."""

    def __init__(self) -> None:
        self.buffer = SpanBuffer(100, lambda: None)
        self.sent: list[int] = []  # so many spans had ended by then
        self._trace = HttpTrace(tracer_of(self.buffer))

    def ask(self, app: App, *, headers: Headers = (), **scope: Any) -> list[ReadableSpan]:
        whole = {"method": "GET", "path": "/x", "headers": list(headers), **scope}
        try:
            asyncio.run(self._ask(app, whole))
        finally:
            self.spans = self.buffer.take()
        return self.spans

    async def _ask(self, app: App, scope: Any) -> None:
        async def receive() -> Any:
            raise AssertionError("nobody reads")

        async def send(_: Any) -> None:
            self.sent.append(len(self.buffer))

        await self._trace(app, scope, receive, send)


def answering(status: int = 200, media: bytes = b"application/json") -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        headers = [(b"content-type", media)]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"1", "more_body": True})
        await send({"type": "http.response.body", "body": b"2"})

    return app


def failing(error: BaseException) -> App:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        raise error

    return app


def test_a_span_ends_with_the_whole_answer() -> None:
    rig = Rig()
    (span,) = rig.ask(answering())
    assert rig.sent == [0, 0, 0]
    assert span.attributes is not None
    assert span.attributes["http.response.status_code"] == 200


def test_the_span_of_an_endless_answer_ends_when_it_begins() -> None:
    rig = Rig()
    assert len(rig.ask(answering(media=b"text/event-stream; charset=utf-8"))) == 1
    assert rig.sent == [1, 1, 1]


def test_an_answer_without_headers_is_one() -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        await send({"type": "http.response.start", "status": 204})

    assert len(Rig().ask(app)) == 1


def test_an_app_that_fails_is_an_error_and_fails_for_its_caller_too() -> None:
    rig = Rig()
    with pytest.raises(ZeroDivisionError):
        rig.ask(failing(ZeroDivisionError("a secret")))
    (span,) = rig.spans
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "ZeroDivisionError"
    assert "a secret" not in span.to_json()


def test_a_request_that_is_cancelled_has_a_span() -> None:
    rig = Rig()
    with pytest.raises(asyncio.CancelledError):
        rig.ask(failing(asyncio.CancelledError()))
    assert len(rig.spans) == 1


def test_nothing_of_the_query_is_told() -> None:
    (span,) = Rig().ask(answering(), query_string=b"key=a-secret")
    assert "a-secret" not in span.to_json()


def test_what_a_client_says_of_itself_is_cut() -> None:
    (span,) = Rig().ask(answering(), path="/" + "x" * 5000, headers=[(b"user-agent", b"y" * 5000)])
    assert span.attributes is not None
    assert len(str(span.attributes["url.path"])) == len(str(span.attributes["user_agent.original"])) == 256


def test_a_mounted_app_leaves_out_probes_as_well() -> None:
    assert Rig().ask(answering(), path="/broker/health", root_path="/broker") == []


@pytest.mark.parametrize(
    ("headers", "found"),
    [
        ([], {}),
        ([(b"traceparent", PARENT)], {"traceparent": PARENT.decode()}),
        ([(b"traceparent", PARENT), (b"traceparent", PARENT)], {}),
        ([(b"tracestate", b"a=1")], {}),
        (
            [(b"tracestate", b"a=1"), (b"traceparent", PARENT), (b"tracestate", b"b=2")],
            {"traceparent": PARENT.decode(), "tracestate": "a=1,b=2"},
        ),
        ([(b"traceparent", b"\xff")], {"traceparent": "\xff"}),
        ([(b"x-traceparent", PARENT)], {}),
    ],
)
def test_headers_of_a_trace(headers: Headers, found: dict[str, str]) -> None:
    assert read_carrier(list(headers)) == found


def test_a_trace_carries_on_what_else_its_caller_knows() -> None:
    (span,) = Rig().ask(answering(), headers=[(b"traceparent", PARENT), (b"tracestate", b"a=1")])
    assert span.context is not None
    assert span.context.trace_state.get("a") == "1"


# ---- the other listeners


def test_a_span_of_another_listener_lies_where_the_request_was() -> None:
    buffer = SpanBuffer(100, lambda: None)
    RequestTrace(tracer_of(buffer), listener="kafka", one_in=1)("Fetch", 2.5, error="NOT_LEADER_OR_FOLLOWER")
    (span,) = buffer.take()
    assert span.name == "kafka Fetch"
    assert span.start_time is not None and span.end_time is not None
    assert span.end_time - span.start_time == 2_500_000_000
    assert span.status.status_code is StatusCode.ERROR
    assert span.attributes is not None
    assert span.attributes["error.type"] == "NOT_LEADER_OR_FOLLOWER"


def test_one_of_so_many_has_a_span(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = SpanBuffer(1000, lambda: None)
    trace = RequestTrace(tracer_of(buffer), listener="kafka", one_in=10)
    drawn = iter([place / 100 for place in range(100)])
    monkeypatch.setattr("tailrace.telemetry.tracing.random.random", lambda: next(drawn))
    for _ in range(100):
        trace("Produce", 0.001)
    assert len(buffer) == 10
