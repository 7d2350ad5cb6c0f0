"""A listener of its own kind: real sockets, real HTTP, and operations that do what a test wants.

Time passes when the test says so: `late(connection, seconds)` is the acceptor's sweep, so much later.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import cast

from starlette.requests import ClientDisconnect
from starlette.responses import Response, StreamingResponse
from starlette.routing import BaseRoute, WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect
from tests.unit.http.conftest import wait_until

from tailrace.http import HttpApp, HttpConfig, HttpListener, HttpService, NodeFacts
from tailrace.http.app import json_response
from tailrace.http.body import pieces_of
from tailrace.http.connection import HttpConnection
from tailrace.http.operation import Call, Handler, NoBody, NoQuery, Operation
from tailrace.metrics.node_metrics import NodeMetrics
from tailrace.net import ListenerCounters
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node

Anything = Call[NoQuery, NoBody]


class Stage:
    """What the operations of a test share with it."""

    def __init__(self) -> None:
        self.go_on = asyncio.Event()  # lets /wait, /stream and /stubborn come to their end
        self.began: list[str] = []
        self.gone: list[str] = []  # who heard that the client went away
        self.cancelled: list[str] = []
        self.answer_bytes = 0  # of /large
        self.service: HttpService | None = None
        self.headers: dict[str, str] = {}  # of the last /echo

    async def hello(self, call: Anything) -> Response:
        return json_response({"hello": call.params["name"]})

    async def echo(self, call: Anything) -> Response:
        body = b"".join([each async for each in pieces_of(call.request, call.service.config)])
        self.headers = dict(call.request.headers)
        return json_response({"body": body.decode(), "client": call.request.scope["client"][0]})

    async def deaf(self, call: Anything) -> Response:
        """Answers, and reads no body."""
        return json_response({})

    async def wait(self, call: Anything) -> Response:
        """A long poll: until the test goes on, the client goes away or the listener stops."""
        self.began.append("wait")
        ways = [self.go_on.wait(), call.service.wait_stopping(), self._left(call, "wait")]
        tasks = [asyncio.ensure_future(each) for each in ways]
        try:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in tasks:
                task.cancel()
        return json_response({"waited": True})

    async def _left(self, call: Anything, who: str) -> None:
        while (await call.request.receive())["type"] != "http.disconnect":
            pass
        self.gone.append(who)

    async def stream(self, call: Anything) -> Response:
        async def lines() -> AsyncIterator[bytes]:
            self.began.append("stream")
            yield b"first\n"
            waiting = [
                asyncio.ensure_future(each) for each in (self.go_on.wait(), call.service.wait_stopping())
            ]
            try:
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for each in waiting:
                    each.cancel()
            yield b"last\n"

        return StreamingResponse(lines(), media_type="text/plain")

    async def endless(self, call: Anything) -> Response:
        """A stream that does not hear that the listener stops, and goes on as long as its client takes it."""

        async def pieces() -> AsyncIterator[bytes]:
            self.began.append("endless")
            try:
                while True:
                    yield b"x" * 65536
                    await asyncio.sleep(0)  # so that it hears that its client is gone
            finally:
                self.gone.append("endless")

        return StreamingResponse(pieces(), media_type="text/plain")

    async def stubborn(self, call: Anything) -> Response:
        """Ends when it is cancelled, and not before."""
        self.began.append("stubborn")
        try:
            await asyncio.get_running_loop().create_future()
        except asyncio.CancelledError:
            self.cancelled.append("stubborn")
            raise
        raise AssertionError("nobody sets it")

    async def large(self, call: Anything) -> Response:
        self.began.append("large")
        return Response(b"x" * self.answer_bytes)

    async def broken(self, call: Anything) -> Response:
        raise ZeroDivisionError("a secret")

    async def socket(self, websocket: WebSocket) -> None:
        """Says back what it hears."""
        await websocket.accept()
        try:
            while True:
                await websocket.send_text(await websocket.receive_text())
        except (WebSocketDisconnect, ClientDisconnect):
            self.gone.append("socket")

    async def goodbye(self, websocket: WebSocket) -> None:
        """Says goodbye when the listener stops."""
        await websocket.accept()
        assert self.service is not None
        await self.service.wait_stopping()
        await websocket.close(1001)

    def operations(self) -> list[Operation]:
        return [
            _operation("GET", "/hello/{name}", self.hello),
            _operation("POST", "/echo", self.echo),
            _operation("POST", "/deaf", self.deaf),
            _operation("GET", "/wait", self.wait),
            _operation("GET", "/stream", self.stream),
            _operation("GET", "/endless", self.endless),
            _operation("GET", "/stubborn", self.stubborn),
            _operation("GET", "/large", self.large),
            _operation("GET", "/broken", self.broken),
        ]

    def routes(self) -> Sequence[BaseRoute]:
        return [WebSocketRoute("/socket", self.socket), WebSocketRoute("/goodbye", self.goodbye)]


def _operation(method: str, path: str, handler: object) -> Operation:
    return Operation(
        method=method,
        path=path,
        name=path,
        tag="test",
        summary="",
        handler=cast(Handler, handler),
        answer=dict,
    )


def metrics_of(node: Node) -> NodeMetrics:
    """Metrics of a node for an HTTP service of a test, with counters of its own."""
    return NodeMetrics(replace(node.observed, listeners={"http": ListenerCounters()}))


def app_of(node: Node, stage: Stage, config: HttpConfig | None = None) -> HttpApp:
    facts = NodeFacts(version="0", engine="memory", fsync="commit", data_dir="")
    stage.service = HttpService(node.broker.gate, config or HttpConfig(), facts, metrics_of(node))
    return HttpApp(stage.service, stage.operations(), stage.routes())


@asynccontextmanager
async def listening(config: HttpConfig | None = None) -> AsyncIterator[tuple[HttpListener, Stage]]:
    stage = Stage()
    async with AsyncExitStack() as opened:
        node = Node(ServerConfig(engine="memory", kafka_port=0, native_port=0), owns_loop=False)
        await node.start()
        opened.push_async_callback(node.close)
        listener = HttpListener(app_of(node, stage, config), port=0)
        await listener.start()
        opened.push_async_callback(listener.close)
        yield listener, stage
        await listener.close()
        assert listener.service.counters.connections == 0


def get(path: str, *more: str, method: str = "GET") -> bytes:
    """A request without a body."""
    return "\r\n".join([f"{method} {path} HTTP/1.1", "host: localhost", *more, "", ""]).encode()


def post(path: str, body: bytes, *more: str) -> bytes:
    return get(path, f"content-length: {len(body)}", *more, method="POST") + body


async def only_connection(listener: HttpListener) -> HttpConnection:
    """The listener's end of the only connection there is."""
    await wait_until(lambda: len(listener.connections) == 1)
    (connection,) = listener.connections
    return connection


def late(connection: HttpConnection, seconds: float) -> bool:
    """Sweep as if so much time had passed; whether the connection survives it."""
    now = asyncio.get_running_loop().time()
    connection.sweep(now, idle_ticks_max=1)  # so that what went on since is known
    connection.sweep(now + seconds, idle_ticks_max=1)
    return not connection.transport.is_closing()
