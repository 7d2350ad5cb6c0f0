"""A real node with its HTTP listener on a free port, and clients of it.

`node`, `client` and `run` are for most tests: the node lives in a loop that turns while `run(...)` waits.

    def test_x(run: Run, node: Node, client: httpx.AsyncClient) -> None:
        async def scenario() -> None:
            assert (await client.get("/health")).status_code == 200

        run(scenario())

One that needs bounds of its own takes `serve`, which starts a node with them:

    def test_y(run: Run, serve: Serve) -> None:
        node, client = serve(HttpConfig(body_bytes_max=10))

A test that speaks bytes opens `Wire`, which is a plain connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, Protocol, TypeVar

import httpx
import pytest
from tests.unhurried import LoopClock, UnhurriedLoop

from tailrace.broker import Broker, Partition
from tailrace.http import HttpConfig, HttpListener
from tailrace.http.error import Code
from tailrace.model import TopicPartition
from tailrace.model.session import INTERNAL
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node

DEADLINE_S = 120.0

_T = TypeVar("_T")


class Run(Protocol):
    """Turns the loop until something is done; what takes over two minutes is a failure."""

    def __call__(self, work: Coroutine[Any, Any, _T], *, deadline_s: float = DEADLINE_S) -> _T: ...


class Serve(Protocol):
    """Starts a node with bounds of its own, and a client of it; both are closed after the test."""

    def __call__(
        self, http: HttpConfig | None = None, *, broker: Mapping[str, str] | None = None
    ) -> tuple[Node, httpx.AsyncClient]: ...


@pytest.fixture
def run(request: pytest.FixtureRequest) -> Iterator[Run]:
    """The loop of a test; on both kinds of loop with `both_loops`."""
    uv = getattr(request, "param", "") == "uvloop"
    factory = pytest.importorskip("uvloop").new_event_loop if uv else UnhurriedLoop
    with asyncio.Runner(loop_factory=factory) as runner:

        def play(work: Coroutine[Any, Any, _T], *, deadline_s: float = DEADLINE_S) -> _T:
            return runner.run(in_time(work, deadline_s=deadline_s))

        yield play


both_loops = pytest.mark.parametrize("run", ["asyncio", "uvloop"], indirect=True)


@pytest.fixture
def serve(run: Run) -> Iterator[Serve]:
    opened = AsyncExitStack()

    def start(
        http: HttpConfig | None = None, *, broker: Mapping[str, str] | None = None
    ) -> tuple[Node, httpx.AsyncClient]:
        return run(opened.enter_async_context(_served(http, broker or {})))

    yield start
    run(opened.aclose())


@pytest.fixture
def served(serve: Serve) -> tuple[Node, httpx.AsyncClient]:
    return serve()


@pytest.fixture
def node(served: tuple[Node, httpx.AsyncClient]) -> Node:
    """A node in memory, started."""
    return served[0]


@pytest.fixture
def client(served: tuple[Node, httpx.AsyncClient]) -> httpx.AsyncClient:
    """A client of `node`'s HTTP listener: paths are enough."""
    return served[1]


@asynccontextmanager
async def _served(
    http: HttpConfig | None, broker: Mapping[str, str]
) -> AsyncIterator[tuple[Node, httpx.AsyncClient]]:
    config = ServerConfig(engine="memory", kafka_port=0, native_port=0, http_port=0, broker=broker)
    node = Node(config, owns_loop=False)
    if isinstance(asyncio.get_running_loop(), UnhurriedLoop):
        node._clock = LoopClock()
    with pytest.MonkeyPatch.context() as patch:
        if http is not None:
            patch.setattr("tailrace.server.node.http_config", lambda _: http)
        await node.start()
    try:
        base = f"http://{node.http_address}"
        async with httpx.AsyncClient(base_url=base, timeout=DEADLINE_S, trust_env=False) as client:
            yield node, client
    finally:
        await node.close()


async def in_time(work: Awaitable[_T], *, deadline_s: float = DEADLINE_S) -> _T:
    """What `work` gives; TimeoutError if that takes too long."""
    async with asyncio.timeout(deadline_s):
        return await work


async def wait_until(condition: Callable[[], bool]) -> None:
    """Let the loop turn until something is so; the test's deadline ends a hopeless wait."""
    while not condition():  # noqa: ASYNC110 - there is no event for whatever a test may ask
        await asyncio.sleep(0.001)


def partition_of(broker: Broker, topic: str, index: int) -> Partition:
    """A partition of a topic that exists."""
    return broker.gate.access(INTERNAL).readable(TopicPartition(topic, index))


def check_error(answer: httpx.Response, code: Code, *words: str, status: int | None = None) -> dict[str, Any]:
    """An answer is an error as all are; its details."""
    from tailrace.http.error import STATUS

    assert answer.status_code == (STATUS[code] if status is None else status), answer.text
    assert answer.headers["content-type"] == "application/json"
    body = answer.json()
    assert body.keys() == {"error"}
    error = body["error"]
    assert error.keys() == {"code", "message", "details"}
    assert error["code"] == code
    for word in words:
        assert word in error["message"]
    details: dict[str, Any] = error["details"]
    return details


class Wire:
    """One connection to a node's HTTP listener, spoken to in bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    @asynccontextmanager
    async def to(cls, where: Node | HttpListener) -> AsyncIterator[Wire]:
        port = where.ports.http if isinstance(where, Node) else where.port
        wire = cls(*await asyncio.open_connection("127.0.0.1", port))
        try:
            yield wire
        finally:
            wire.writer.transport.abort()
            await asyncio.sleep(0)

    async def send(self, *pieces: bytes) -> None:
        """Each piece alone, as far as a socket lets anybody say that."""
        for piece in pieces:
            self.writer.write(piece)
            await self.writer.drain()
            await asyncio.sleep(0)

    async def answer(self) -> tuple[int, dict[str, str], bytes]:
        """The next answer: status, headers with small names, body."""
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")[:-2]
        headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines)}
        if headers.get("transfer-encoding") == "chunked":
            return int(first.split()[1]), headers, await self._chunks()
        return (
            int(first.split()[1]),
            headers,
            await self.reader.readexactly(int(headers.get("content-length", 0))),
        )

    async def _chunks(self) -> bytes:
        body = b""
        while size := int(await self.reader.readline(), 16):
            body += await self.reader.readexactly(size)
            await self.reader.readexactly(2)
        await self.reader.readline()
        return body

    async def rest(self) -> bytes:
        """Everything until the node closes the connection."""
        try:
            return await self.reader.read()
        except ConnectionResetError:
            return b""
