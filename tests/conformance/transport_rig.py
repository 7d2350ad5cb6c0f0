"""The real native listener by TCP, by TLS, on a Unix socket and behind the HTTP listener's WebSocket, and
one client that speaks through each of them, byte by byte if a test wants it.

The three kinds of clients differ in two functions: how frames become the bytes of the wire, and back.
"""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from tests.certificates import certificates, client_context
from tests.unhurried import UnhurriedLoop
from tests.unit.native.rig import TOPIC, HeldLog, HeldStorage
from websockets.client import ClientProtocol
from websockets.frames import Frame as WebSocketFrame
from websockets.http11 import Response
from websockets.protocol import State
from websockets.uri import parse_uri

from tailrace.broker import Broker, BrokerConfig, Node
from tailrace.broker.topic import NewTopic
from tailrace.cluster import MemoryStore, StoredMetadata
from tailrace.http import HttpConfig, HttpListener, NodeFacts, create_app
from tailrace.metrics.node_metrics import NodeMetrics
from tailrace.metrics.observed import Observed
from tailrace.model import BrokerId, Offset, TopicPartition
from tailrace.model.address import Address, unix_address
from tailrace.model.session import INTERNAL, Session
from tailrace.native import NativeConfig, NativeListener
from tailrace.native.connection import Connection
from tailrace.native.websocket import WebSocketConnection
from tailrace.native.websocket_transport import MessageSocket
from tailrace.net import ConnectionFacts, ListenerCounters, NodeBudget
from tailrace.net.tls import ServerTls
from tailrace.records import iter_batches
from tailrace.runtime import SystemClock
from tailrace.wire.native import Frame, FrameReader, MessageType, write_frame

DEADLINE_S = 120.0
_NARROW_BYTES = 16 * 1024
WEB_SOCKETS = ("websocket", "wss")
ENCRYPTED = ("tls", "wss")


class Refused(Exception):
    """The listener ended the connection before it was one."""


class Client:
    """A client by TCP or by a Unix socket; frames are the bytes of the wire."""

    half_closes = True  # it can end its own side and still read

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.sequences = itertools.count(1)
        self.received: deque[Frame] = deque()
        self._frames = FrameReader(1 << 26)

    @property
    def transport(self) -> asyncio.Transport:
        return cast(asyncio.Transport, self.writer.transport)

    # ---- what differs

    async def shake_hands(self) -> None:
        """Make the connection one; Refused if the listener will not."""

    def encode(self, frames: bytes) -> bytes:
        """The bytes that carry whole frames."""
        return frames

    def decode(self, data: bytes) -> Iterable[bytes]:
        """What the bytes of the wire carry."""
        return [data]

    # ---- asking

    def frame(self, kind: int, body: bytes = b"", /, **properties: object) -> tuple[int, bytes]:
        sequence = next(self.sequences)
        texts = {key: str(value) for key, value in properties.items()}
        return sequence, write_frame(kind, sequence=sequence, properties=texts, body=body)

    def send(self, kind: int, body: bytes = b"", /, **properties: object) -> int:
        sequence, frame = self.frame(kind, body, **properties)
        self.writer.write(self.encode(frame))
        return sequence

    def publish(self, body: bytes) -> int:
        return self.send(MessageType.PUBLISH, body, _topic=TOPIC)

    # ---- hearing

    async def receive(self) -> Frame:
        """The next frame; EOFError at the end of the connection."""
        while not self.received:
            try:
                data = await self.reader.read(1 << 16)
            except ConnectionError as error:
                raise EOFError from error
            if not data:
                raise EOFError
            for piece in self.decode(data):
                self._frames.feed(piece)
                while (frame := self._frames.next_frame()) is not None:
                    self.received.append(frame)
        return self.received.popleft()

    async def reply(self) -> Frame:
        """The next frame that is no heartbeat."""
        while (frame := await self.receive()).type == MessageType.HEARTBEAT:
            pass
        return frame

    async def rest(self) -> list[Frame]:
        """Everything that still comes until the connection ends."""
        frames = []
        try:
            while True:
                frames.append(await self.reply())
        except EOFError:
            return frames

    def stop_reading(self) -> None:
        self.transport.pause_reading()

    def go_on_reading(self) -> None:
        self.transport.resume_reading()

    def vanish(self) -> None:
        """Go without a word."""
        self.transport.abort()


class TlsClient(Client):
    """A client by TCP with TLS."""

    half_closes = False  # neither Python nor RFC 8446 in practice has such a thing


class WebSocketClient(Client):
    """A client by WebSocket, whose frames travel in binary messages."""

    half_closes = False  # RFC 6455 has no such thing

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        host, port = writer.get_extra_info("peername")
        self._protocol = ClientProtocol(parse_uri(f"ws://{host}:{port}/api/v1/ws"), max_size=None)

    async def shake_hands(self) -> None:
        protocol = self._protocol
        protocol.send_request(protocol.connect())
        self._flush()
        while protocol.state is State.CONNECTING:
            try:
                data = await self.reader.read(1 << 16)
            except ConnectionError as error:
                raise Refused from error
            if not data or protocol.handshake_exc is not None:
                raise Refused
            protocol.receive_data(data)
        assert all(isinstance(event, Response) for event in protocol.events_received())

    def encode(self, frames: bytes) -> bytes:
        self._protocol.send_binary(frames)
        return b"".join(self._protocol.data_to_send())

    def decode(self, data: bytes) -> Iterable[bytes]:
        self._protocol.receive_data(data)
        self._flush()  # answers to pings and to the goodbye
        for event in self._protocol.events_received():
            if isinstance(event, WebSocketFrame) and event.opcode in (0, 2):
                yield bytes(event.data)

    def _flush(self) -> None:
        self.writer.write(b"".join(self._protocol.data_to_send()))


class Rig:
    """One broker, its native listener on two addresses, and its HTTP listener."""

    def __init__(self, kind: str, broker: Broker, native: NativeListener) -> None:
        self.kind = kind
        self.broker = broker
        self.native = native
        self.http: HttpListener
        self.trust: ssl.SSLContext | None = None  # of clients with TLS
        self.clients: list[Client] = []
        self._by_socket: list[WebSocketConnection] = []

    async def connect(self, *, narrow: bool = False, kind: str = "") -> Client:
        """A client of the kind under test; a narrow one takes little that it does not read."""
        client = await self._open(kind or self.kind, narrow=narrow)
        self.clients.append(client)
        await client.shake_hands()
        return client

    async def _open(self, kind: str, *, narrow: bool) -> Client:
        family = socket.AF_UNIX if kind == "unix" else socket.AF_INET
        sock = socket.socket(family, proto=0 if kind == "unix" else socket.IPPROTO_TCP)
        sock.setblocking(False)
        if narrow:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, _NARROW_BYTES)
        port = self.http.port if kind in WEB_SOCKETS else self.native.port
        place = self.native.addresses[1].path if kind == "unix" else ("127.0.0.1", port)
        try:
            await asyncio.get_running_loop().sock_connect(sock, place)
        except OSError:
            sock.close()
            raise
        if kind == "unix":
            return Client(*await asyncio.open_unix_connection(sock=sock))
        secured: dict[str, Any] = {}
        if kind in ENCRYPTED:
            secured = {"ssl": self.trust, "server_hostname": "localhost"}
        try:
            ends = await asyncio.open_connection(sock=sock, **secured)
        except ConnectionError as error:
            raise Refused from error
        make = {"tls": TlsClient, "websocket": WebSocketClient, "wss": WebSocketClient}.get(kind, Client)
        return make(*ends)

    def adopt(self, socket: MessageSocket, session: Session) -> WebSocketConnection:
        found = self.native.adopt(socket, session)
        self._by_socket.append(found)
        return found

    @property
    def ends(self) -> list[Connection]:
        """The listener's ends of the kind under test, newest last."""
        return [*self._by_socket] if self.kind in WEB_SOCKETS else [*self.native.connections]

    @property
    def ends_open(self) -> list[Connection]:
        """Those of them that are not over."""
        return [each for each in self.ends if not each.protocol.is_closed]

    @property
    def connections(self) -> int:
        """How many clients of the kind under test are connected."""
        listener = self.http if self.kind in WEB_SOCKETS else self.native
        return len(listener.connections)

    @property
    def address(self) -> Address:
        return self.native.addresses[1]

    @property
    def log(self) -> HeldLog:
        found = self.broker.gate.access(INTERNAL).readable(TopicPartition(TOPIC, 0)).log
        assert isinstance(found, HeldLog)
        return found

    async def values(self) -> list[bytes | None]:
        """The values of all messages that were published."""
        found = await self.log.read(Offset(0), bytes_max=1 << 26, up_to=self.log.end_offset)
        return [record.value for batch in iter_batches(await found.load()) for record in batch.records()]

    async def wait_until(self, condition: Callable[[], bool]) -> None:
        while not condition():  # noqa: ASYNC110 - there is no event for whatever a test may ask
            await asyncio.sleep(0.001)

    async def wait_still(self, value: Callable[[], int]) -> None:
        """Let the loop turn until a number has begun to grow and has come to rest."""
        before = 0
        while not value() or value() != before:
            before = value()
            for _ in range(100):
                await asyncio.sleep(0)

    async def close(self) -> None:
        """The end of a node: the HTTP listener first."""
        await self.http.close()
        await self.native.close()


def play(
    scenario: Callable[[Rig], Awaitable[None]],
    kind: str,
    directory: Path,
    *,
    config: NativeConfig | None = None,
    http: HttpConfig | None = None,
    uv: bool = False,
) -> None:
    """Run a scenario; whatever it did, no byte of the budget and no file may be left behind."""

    async def main() -> None:
        clock, storage, metadata = (
            SystemClock(),
            HeldStorage(clock=SystemClock()),
            StoredMetadata(MemoryStore()),
        )
        node, budget = BrokerId(1), NodeBudget()
        broker = Broker(
            node_id=node,
            nodes={node: Node(node_id=node)},
            storage=storage,
            metadata=metadata,
            config=BrokerConfig.read(None),
            clock=clock,
        )
        await broker.start()
        await broker.subscriptions.wait_loaded()
        await broker.topics.create(NewTopic(name=TOPIC, partitions=1))
        addresses = [Address("127.0.0.1", 0), unix_address(str(directory / "native.sock"))]
        made = certificates(Path(scratch)) if kind in ENCRYPTED else None
        tls = None if made is None else ServerTls(made.config())
        native = NativeListener(
            broker.gate,
            addresses=addresses,
            config=config,
            budget=budget.share("native"),
            tls=tls if kind == "tls" else None,
        )
        rig = Rig(kind, broker, native)
        if made is not None:
            rig.trust = client_context(made.ca)
        facts = NodeFacts(
            version="0",
            engine="memory",
            fsync="os",
            data_dir="",
            native_shell=rig.adopt,
            native_budget=budget.share("native"),
        )
        metrics = NodeMetrics(Observed(broker=broker, listeners={"http": ListenerCounters()}))
        app = create_app(broker.gate, config=http, facts=facts, metrics=metrics, budget=budget.share("http"))
        rig.http = HttpListener(app, port=0, tls=tls if kind == "wss" else None)
        try:
            await native.start()
            await rig.http.start()
            await scenario(rig)
        finally:
            for client in rig.clients:
                client.vanish()
            await rig.close()
            await broker.close()
            await storage.close()
            await metadata.close()
        assert {name: share.used for name, share in budget.shares.items()} == dict.fromkeys(budget.shares, 0)

    factory = pytest.importorskip("uvloop").new_event_loop if uv else UnhurriedLoop
    with TemporaryDirectory() as scratch, asyncio.Runner(loop_factory=factory) as runner:
        runner.run(asyncio.wait_for(main(), DEADLINE_S))
    assert not list(directory.iterdir()), "a socket was left behind"


def facts_of_end(rig: Rig) -> ConnectionFacts:
    """What the listener knows of its newest client."""
    return rig.ends[-1].facts
