"""A native listener that does as the test says: real sockets and real frames, answers from a script."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from types import TracebackType
from typing import Any, Self, TypeAlias, TypeVar

from tests import unhurried

from tailrace.client.async_client import AsyncClient
from tailrace.client.loop_thread import LoopThread
from tailrace.client.native.reconnect import Reconnect
from tailrace.model import ErrorCode
from tailrace.wire.native import (
    FRAME_BYTES_MAX,
    Frame,
    FrameReader,
    MessageType,
    read_entries,
    read_properties,
    write_data,
    write_data_prefix,
    write_error,
    write_frame,
)

T = TypeVar("T")

PATIENCE_S = 60.0  # with what must come; nobody waits for so long unless it hangs
QUICK = Reconnect(delay_s_min=0.001, delay_s_max=0.01)
M = MessageType


class Peer(asyncio.Protocol):
    """One connection, as the listener sees it."""

    def __init__(self, listener: FakeListener) -> None:
        self.listener = listener
        self.frames: list[Frame] = []
        self.reader = FrameReader(FRAME_BYTES_MAX)
        self.lost = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)
        self.transport = transport
        self.listener.peers.append(self)

    def data_received(self, data: bytes) -> None:
        self.reader.feed(data)
        while (frame := self.reader.next_frame()) is not None:
            self.frames.append(frame)
            self.listener.take(self, frame)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()
        self.listener.changed()

    def send(self, data: bytes) -> None:
        self.transport.write(data)

    def reply(self, frame: Frame, properties: dict[str, str] | None = None, *, body: bytes = b"") -> None:
        kind = M.HEARTBEAT if frame.type == M.HEARTBEAT else M.ACK
        timestamp = 1_000 if frame.type in (M.PUBLISH, M.PUBLISH_BATCH) else 0
        self.send(
            write_frame(
                kind, sequence=frame.sequence, timestamp=timestamp, properties=properties or {}, body=body
            )
        )

    def refuse(self, frame: Frame, code: ErrorCode, message: str = "no", *, retriable: bool = False) -> None:
        self.send(write_error(frame.sequence, code=code, message=message, retriable=retriable))

    def drop(self) -> None:
        self.transport.abort()

    def deliver(
        self,
        offset: int,
        value: bytes | None = b"v",
        *,
        subscription: str = "s",
        topic: str = "t",
        partition: int = 0,
        epoch: int = 3,
        count: int = 1,
        key: bytes | None = None,
        headers: list[tuple[str, bytes | None]] | None = None,
        pull: int | None = None,
    ) -> None:
        prefix = write_data_prefix(subscription=subscription, topic=topic, partition=partition, epoch=epoch)
        self.send(
            write_data(
                prefix,
                offset=offset,
                timestamp=1_000 + offset,
                count=count,
                id_prefix=f"cafe-{partition}-",
                key=key,
                value=value,
                headers=headers or [],
                pull=pull,
            )
        )


Script: TypeAlias = Callable[[Peer, Frame], None]


class FakeListener:
    """Answers by type with `on`; `frames` holds all it was sent but for heartbeats that ask nothing."""

    def __init__(self) -> None:
        self.peers: list[Peer] = []
        self.frames: list[Frame] = []
        self.topics: dict[str, int] = {"t": 1}
        self.log: dict[tuple[str, int], list[bytes]] = {}
        self.properties: dict[tuple[str, int], list[dict[str, str]]] = {}
        self.sequences: dict[tuple[str, int, str], int] = {}  # the next one of a producer
        self.producers = 0
        self.hello = {"_version": "1", "_heartbeat_ms": "30000", "_dead_after_ms": "90000"}
        self.on: dict[int, Script] = {
            M.HEARTBEAT: self.heartbeat,
            M.DESCRIBE: self.describe,
            M.CREATE_TOPIC: self.create_topic,
            M.PUBLISH: self.publish,
            M.PUBLISH_BATCH: self.publish,
        }
        self._waiting: list[tuple[Callable[[], bool], asyncio.Future[None]]] = []
        self._server: asyncio.Server | None = None
        self.port = 0

    async def open(self) -> None:
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(lambda: Peer(self), "127.0.0.1", self.port)
        self.port = self._server.sockets[0].getsockname()[1]

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        for peer in self.peers:
            peer.drop()
        for peer in self.peers:
            await peer.lost.wait()
        self.peers.clear()

    async def __aenter__(self) -> Self:
        await self.open()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    def client(self, **settings: Any) -> AsyncClient:
        return AsyncClient(
            "127.0.0.1", self.port, **{"reconnect": QUICK, "request_timeout_s": PATIENCE_S, **settings}
        )

    @property
    def peer(self) -> Peer:
        """The newest connection."""
        return self.peers[-1]

    def of(self, *types: int) -> list[Frame]:
        return [frame for frame in self.frames if frame.type in types]

    async def until(self, condition: Callable[[], bool], timeout_s: float = PATIENCE_S) -> None:
        """Wait until something that a frame or a lost connection may change is so."""
        if condition():
            return
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.append((condition, future))
        async with asyncio.timeout(timeout_s):
            await future

    async def got(self, type: int, count: int = 1) -> list[Frame]:
        """The frames of a type, once there are so many."""
        await self.until(lambda: len(self.of(type)) >= count)
        return self.of(type)

    def changed(self) -> None:
        for condition, future in self._waiting:
            if not future.done() and condition():
                future.set_result(None)

    def take(self, peer: Peer, frame: Frame) -> None:
        if frame.type != M.HEARTBEAT or frame.sequence:
            self.frames.append(frame)
        script = self.on.get(frame.type)
        if script is not None:
            script(peer, frame)
        elif frame.sequence:
            peer.reply(frame, {"_count": "1"})
        self.changed()

    # ---- what it answers unless the test says otherwise

    def heartbeat(self, peer: Peer, frame: Frame) -> None:
        if not frame.sequence:
            return
        properties = dict(self.hello)
        if frame.properties.get("_producer") == "new":
            self.producers += 1
            properties["_producer"] = str(self.producers)
        peer.reply(frame, properties)

    def describe(self, peer: Peer, frame: Frame) -> None:
        name = frame.properties.get("_name", "")
        if frame.properties["_what"] == "topic" and name not in self.topics:
            peer.refuse(frame, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"no topic {name}")
        else:
            body = {"what": frame.properties["_what"], "partitions": self.topics.get(name)}
            peer.reply(frame, body=json.dumps(body).encode())

    def create_topic(self, peer: Peer, frame: Frame) -> None:
        count = frame.properties["_partitions"]
        self.topics[frame.properties["_topic"]] = int(count)
        peer.reply(frame, {"_topic_id": "cafe", "_partitions": count})

    def publish(self, peer: Peer, frame: Frame) -> None:
        """Store without holes and without duplicates, as the broker does."""
        stored = self.store(peer, frame)
        if stored is not None:
            peer.reply(frame, stored)

    def store(self, peer: Peer, frame: Frame) -> dict[str, str] | None:
        named = frame.properties
        topic, partition = named["_topic"], int(named.get("_partition", "0"))
        self.topics.setdefault(topic, 1)
        log = self.log.setdefault((topic, partition), [])
        messages = entries_of(frame)
        producer = (topic, partition, named.get("_producer", ""))
        sequence, expected = int(named.get("_sequence", "-1")), self.sequences.get(producer)
        offset = len(log)
        if sequence >= 0 and expected is not None and sequence > expected:
            peer.refuse(frame, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, f"{sequence} after {expected}")
            return None
        if sequence < 0 or expected is None or sequence == expected:
            log.extend(body for _, body in messages)
            self.properties.setdefault((topic, partition), []).extend(own for own, _ in messages)
            self.sequences[producer] = sequence + len(messages)
        return {
            "_partition": str(partition),
            "_offset": str(offset),
            "_id": f"cafe-{partition}-{offset}",
            "_count": str(len(messages)),
        }


def entries_of(frame: Frame) -> list[tuple[dict[str, str], bytes]]:
    """The messages of a PUBLISH or PUBLISH_BATCH: properties of their own, and body."""
    if frame.type == M.PUBLISH:
        own = {name: value for name, value in frame.properties.items() if name not in BATCH_NAMES}
        return [(own, bytes(frame.body))]
    return [
        (read_properties(properties), bytes(body))
        for properties, body in read_entries(frame.body, int(frame.properties["_count"]))
    ]


BATCH_NAMES = {"_topic", "_partition", "_producer", "_sequence", "_count"}


def run(test: Callable[[FakeListener], Coroutine[Any, Any, T]]) -> T:
    """Run a test against a listener of its own."""

    async def main() -> T:
        async with asyncio.timeout(PATIENCE_S):
            async with FakeListener() as listener:
                return await test(listener)

    return unhurried.run(main())


@contextmanager
def listener_in_thread() -> Iterator[tuple[FakeListener, LoopThread]]:
    """A listener for clients that block, in a loop of its own."""
    thread = LoopThread("fake-listener")
    listener = FakeListener()
    try:

        async def open_listener() -> None:
            await listener.open()

        thread.call(open_listener())
        yield listener, thread
        thread.call(listener.close())
    finally:
        thread.close()
