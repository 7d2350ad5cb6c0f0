"""A node with an HTTP listener that serves live streams, and readers of both kinds that speak to it."""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, cast

from tests import unhurried
from tests.unhurried import LoopClock
from tests.unit.http.conftest import partition_of
from tests.unit.http.rig import metrics_of
from websockets.asyncio.client import ClientConnection, connect

from tailrace.broker import NewTopic
from tailrace.broker.publishing import NewMessage, topic_mark
from tailrace.http import HttpApp, HttpConfig, HttpListener, HttpService, NodeFacts
from tailrace.http.live import OPERATIONS, Tails, routes
from tailrace.http.live.entry import Filter
from tailrace.http.live.tail import Tail
from tailrace.model.address import Address
from tailrace.model.operation import Operation
from tailrace.model.session import Principal, Session
from tailrace.native import NativeConfig, NativeListener
from tailrace.native.websocket import WebSocketConnection
from tailrace.native.websocket_transport import MessageSocket
from tailrace.net import RequestBudget
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node

TOPIC = "orders"
ALICE = Session(principal=Principal("User", "alice"), host="192.0.2.7", listener="http")
DEADLINE_S = 60.0


@dataclass
class Event:
    """One server-sent event."""

    kind: str = "message"
    id: str = ""
    data: Any = None

    @property
    def offset(self) -> int:
        return int(self.data["offset"])


@dataclass
class EventReader:
    """A tail by SSE: a plain socket, read event by event."""

    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    comments: list[str] = field(default_factory=list)
    last_id: str = ""
    _text: bytes = b""

    async def open(self, path: str, headers: Mapping[str, str], *, method: str = "GET") -> None:
        lines = [f"{method} {path} HTTP/1.1", "Host: 127.0.0.1"]
        lines += [f"{name}: {value}" for name, value in headers.items()]
        self.writer.write("\r\n".join([*lines, "", ""]).encode())
        head = await self.reader.readuntil(b"\r\n\r\n")
        first, *rest = head.decode().split("\r\n")[:-2]
        self.status = int(first.split()[1])
        self.headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in rest)}

    async def body(self) -> bytes:
        return await self.reader.readexactly(int(self.headers["content-length"]))

    async def next(self) -> Event:
        """The next event; EOFError when the stream has ended."""
        while True:
            while b"\n\n" not in self._text:
                self._text += await self._chunk()
            block, _, self._text = self._text.partition(b"\n\n")
            event = Event()
            for line in block.decode().split("\n"):
                name, _, value = line.partition(":")
                value = value.removeprefix(" ")
                if not name:
                    self.comments.append(value)
                elif name == "id":
                    event.id = self.last_id = value
                elif name == "event":
                    event.kind = value
                elif name == "data":
                    event.data = json.loads(value)
            if event.data is not None:
                return event

    async def take(self, count: int) -> list[Event]:
        return [await self.next() for _ in range(count)]

    async def until(self, total: int) -> tuple[list[Event], int]:
        """Records until, with those that were skipped, there were so many."""
        shown: list[Event] = []
        skipped = 0
        while len(shown) + skipped < total:
            event = await self.next()
            if event.kind == "skipped":
                skipped += event.data["count"]
            else:
                assert event.kind == "record"
                shown.append(event)
        return shown, skipped

    async def wait_comment(self, text: str) -> None:
        while text not in self.comments:
            self._text += await self._chunk()
            while b"\n\n" in self._text and self._text.startswith(b":"):
                block, _, self._text = self._text.partition(b"\n\n")
                self.comments.append(block.decode()[2:])

    async def _chunk(self) -> bytes:
        size = int(await self.reader.readline() or b"0", 16)
        data = await self.reader.readexactly(size + 2) if size else b""
        if not data:
            raise EOFError("the stream has ended")
        return data[:-2]

    def stop_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).pause_reading()

    def go_on_reading(self) -> None:
        cast(asyncio.Transport, self.writer.transport).resume_reading()

    def close(self) -> None:
        self.writer.transport.abort()


class Rig:
    """A node in memory and its listener."""

    def __init__(
        self, node: Node, listener: HttpListener, native: NativeListener, native_sessions: list[Session]
    ) -> None:
        self.native = native
        self.node = node
        self.broker = node.broker
        self.listener = listener
        self.native_sessions = native_sessions  # of the native clients that came by WebSocket
        self.opened: list[EventReader] = []

    @property
    def service(self) -> HttpService:
        return self.listener.service

    @property
    def tails(self) -> Tails:
        return self.service.tails

    def watch(
        self,
        topic: str = TOPIC,
        *,
        filter: Filter | None = None,
        positions: dict[int, int] | None = None,
        session: Session = ALICE,
    ) -> Tail:
        """A tail without a client."""
        access = self.broker.gate.access(session)
        found = access.topic(topic, Operation.READ)
        return self.tails.open(access, found, filter=filter or Filter(), positions=positions)

    async def create(self, partitions: int = 1, name: str = TOPIC, **configs: str) -> None:
        await self.broker.topics.create(NewTopic(name=name, partitions=partitions, configs=configs))

    def event_id(self, shown: str, topic: str = TOPIC) -> str:
        """The id of an event of a topic, as it is now."""
        return f"{topic_mark(partition_of(self.broker, topic, 0).id.topic_id)}/{shown}"

    def publish(self, *values: bytes | NewMessage, partition: int = 0, topic: str = TOPIC) -> None:
        """Store one batch."""
        messages = [each if isinstance(each, NewMessage) else NewMessage(None, each) for each in values]
        self.broker.publisher.publish(partition_of(self.broker, topic, partition), messages)

    async def tail(
        self, query: str = "", *, topic: str = TOPIC, receive_bytes: int = 0, **headers: str
    ) -> EventReader:
        """A tail that is answered with 200."""
        reader = await self.ask(f"/api/v1/topics/{topic}/tail{query}", receive_bytes=receive_bytes, **headers)
        assert reader.status == 200, await reader.body()
        return reader

    async def ask(
        self, path: str, *, method: str = "GET", receive_bytes: int = 0, **headers: str
    ) -> EventReader:
        """A connection that has asked; with `receive_bytes` the kernel keeps little of what is not read."""
        others = frozenset(self.listener.connections)
        sock = socket.socket()
        sock.setblocking(False)
        if receive_bytes:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", self.listener.port))
        if receive_bytes:
            await self.wait_until(lambda: len(self.listener.connections) > len(others))
            for each in frozenset(self.listener.connections) - others:
                taken = each.transport.get_extra_info("socket")
                taken.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, receive_bytes)
        reader, writer = await asyncio.open_connection(
            sock=sock, limit=1 << 24 if not receive_bytes else 4096
        )
        found = EventReader(reader, writer)
        self.opened.append(found)
        await found.open(
            path, {name.replace("_", "-"): value for name, value in headers.items()}, method=method
        )
        return found

    @asynccontextmanager
    async def socket(self, path: str, **options: Any) -> AsyncIterator[ClientConnection]:
        url = f"ws://127.0.0.1:{self.listener.port}{path}"
        async with connect(url, proxy=None, **options) as websocket:
            yield websocket

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - there is no event for whatever a test may ask
            await asyncio.sleep(0.001)


@asynccontextmanager
async def served(
    config: HttpConfig | None, native: NativeConfig | None, budget: RequestBudget | None
) -> AsyncIterator[Rig]:
    node = Node(ServerConfig(engine="memory", kafka_port=0, native_port=0, http_port=None), owns_loop=False)
    node._clock = LoopClock()
    await node.start()
    native_listener = NativeListener(node.broker.gate, addresses=[Address("127.0.0.1", 0)], config=native)
    await native_listener.start()
    native_service = native_listener.service
    sessions: list[Session] = []

    def open_shell(socket: MessageSocket, session: Session) -> WebSocketConnection:
        sessions.append(session)
        return native_listener.adopt(socket, session)

    facts = NodeFacts(
        version="0",
        engine="memory",
        fsync="os",
        data_dir="",
        native_shell=open_shell,
        native_budget=native_service.budget,
    )
    service = HttpService(node.broker.gate, config or HttpConfig(), facts, metrics_of(node), budget)
    listener = HttpListener(HttpApp(service, OPERATIONS, routes(service)), port=0)
    await listener.start()
    rig = Rig(node, listener, native_listener, sessions)
    try:
        yield rig
    finally:
        for reader in rig.opened:
            reader.close()
        await listener.close()
        await native_listener.close()
        await node.close()
    assert service.streams == 0 and len(service.tails) == 0 and not service.tails.rings, (
        "a stream was not given back"
    )
    assert native_service.budget.used == 0 == service.budget.used, "bytes of the budget were lost"


Scenario = Callable[[Rig], Awaitable[None]]


def play(
    scenario: Scenario,
    config: HttpConfig | None = None,
    *,
    native: NativeConfig | None = None,
    budget: RequestBudget | None = None,
) -> None:
    """Run a scenario with a node of its own."""

    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S), served(config, native, budget) as rig:
            await scenario(rig)

    unhurried.run(main())
