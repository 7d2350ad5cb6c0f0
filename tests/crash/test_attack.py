"""All listeners attacked at once by clients that cost memory: honest ones are served, and memory is bounded.

A real broker process with its defaults. The attackers use every way that a client has to make a broker hold
bytes: frames and bodies that do not end, answers and messages that are not read, subscriptions that their
members left, producer ids that were invented. They come from 127.0.0.2, the honest clients from 127.0.0.1.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import re
import socket
import struct
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import cast

import pytest
from tests.interop.raw import request as kafka_request

from tailrace.client import AsyncClient
from tailrace.metrics.percentile import percentile
from tailrace.records import build_batch
from tailrace.testing.chaos import BrokerProcess
from tailrace.wire.native import MessageType, write_frame

_OPERATIONS = Path(__file__).parents[2] / "docs" / "operations.md"
_ATTACK_S = 25.0
_HONEST_S_MAX = 10.0
_MIB = 1 << 20
_ATTACKER = ("127.0.0.2", 0)
_PRODUCE, _FETCH = 0, 1


@pytest.fixture
def broker(tmp_path: Path) -> Iterator[BrokerProcess]:
    with BrokerProcess(tmp_path) as running:
        yield running


def stated_limit_bytes() -> int:
    """The limit that the documentation states."""
    found = re.search(r"stays under \*\*(\d+) MiB\*\*", _OPERATIONS.read_text())
    assert found is not None, "docs/operations.md states no limit"
    return int(found[1]) * _MIB


def http_port(broker: BrokerProcess) -> int:
    return int(json.loads((broker.data_dir / "tailrace.ports.json").read_text())["http"])


# ---- attackers


class Sockets:
    """Connections of the attackers to one port."""

    def __init__(self, port: int, *, receive_bytes: int = 0) -> None:
        self._port = port
        self._receive_bytes = receive_bytes
        self._open: list[asyncio.StreamWriter] = []

    async def open(self) -> asyncio.StreamWriter:
        plain = socket.socket()
        plain.setblocking(False)
        if self._receive_bytes:
            plain.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, self._receive_bytes)
        try:
            plain.bind(_ATTACKER)
            await asyncio.get_running_loop().sock_connect(plain, ("127.0.0.1", self._port))
            _, writer = await asyncio.open_connection(sock=plain, limit=1024)
        except BaseException:
            plain.close()
            raise
        self._open.append(writer)
        cast(asyncio.Transport, writer.transport).pause_reading()
        return writer

    def close(self) -> None:
        for writer in self._open:
            writer.transport.abort()


async def hold(sockets: Sockets, count: int, *messages: bytes, trickle: bytes = b"x") -> None:
    """Keep `count` connections that send the messages, and then a byte a second; closed ones come again."""

    async def keep_one() -> None:
        while True:
            with contextlib.suppress(ConnectionError):
                writer = await sockets.open()
                for message in messages:
                    writer.write(message)
                    with contextlib.suppress(TimeoutError):
                        await asyncio.wait_for(writer.drain(), 5)
                while not writer.transport.is_closing():
                    if trickle:
                        writer.write(trickle)
                    await asyncio.sleep(1)
            await asyncio.sleep(0.5)

    try:
        await asyncio.gather(*(keep_one() for _ in range(count)))
    finally:
        sockets.close()


def post(path: str, kind: str, length: str) -> bytes:
    return f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: {kind}\r\n{length}\r\n\r\n".encode()


def slow_frames(broker: BrokerProcess) -> Iterator[Awaitable[None]]:
    head = struct.pack(">ihhi", 60 * _MIB, _PRODUCE, 7, 1)
    yield hold(Sockets(broker.kafka_port), 60, head)
    yield hold(Sockets(broker.kafka_port), 30, head, bytes(3 * _MIB))
    yield hold(Sockets(broker.kafka_port), 20, b"\0\0", trickle=b"")
    yield hold(Sockets(broker.native_port), 30, struct.pack(">i", 7 * _MIB), bytes(_MIB))


def slow_bodies(port: int) -> Iterator[Awaitable[None]]:
    path = "/api/v1/topics/t/records"
    announced = post(path, "application/octet-stream", f"content-length: {_MIB}")
    yield hold(Sockets(port), 150, announced, bytes(_MIB - 50_000))
    chunked = post(path, "application/octet-stream", "transfer-encoding: chunked")
    yield hold(Sockets(port), 100, chunked + b"%x\r\n" % _MIB, bytes(_MIB - 50_000))
    lines = post(path, "application/x-ndjson", "transfer-encoding: chunked")
    yield hold(Sockets(port), 50, lines + b"%x\r\n" % (900 * 1024), b"y" * (900 * 1024 - 50))


def unread(broker: BrokerProcess, port: int) -> Iterator[Awaitable[None]]:
    ask = b"GET /api/v1/topics/backlog/records?limit=10000&partition=0 HTTP/1.1\r\nhost: localhost\r\n\r\n"
    yield hold(Sockets(port, receive_bytes=8192), 60, ask * 2, trickle=b"")
    for number in range(15):
        subscribe = {"_subscription": f"unread-{number}", "_topic": "backlog", "_credit": "10000"}
        message = write_frame(MessageType.SUBSCRIBE, sequence=1, properties=subscribe)
        yield hold(Sockets(broker.native_port, receive_bytes=8192), 1, message, trickle=b"")


async def left_subscriptions(broker: BrokerProcess) -> None:
    """Subscriptions whose only member takes 10 MB and leaves, one after the other."""
    async with AsyncClient(port=broker.native_port) as client:
        for number in range(25):
            subscription = await client.subscribe(
                "backlog", name=f"left-{number}", start="earliest", auto_ack=False, prefetch=2_500
            )
            for _ in range(50):
                await asyncio.wait_for(anext(subscription), 30)
            await subscription.close()


async def invented_producers(broker: BrokerProcess) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", broker.kafka_port, local_addr=_ATTACKER)
    try:
        await invent(reader, writer)
    finally:
        writer.transport.abort()


async def invent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    for first in range(1 << 40, (1 << 40) + 400 * 50, 50):
        batches = [
            bytes(build_batch([(0, None, b"", ())], producer_id=first + n, producer_epoch=0, base_sequence=0))
            for n in range(50)
        ]
        writer.write(kafka_request(_PRODUCE, 7, produce_body("wide", dict(enumerate(batches)))))
        await read_reply(reader)


# ---- honest clients


def produce_body(topic: str, batches: dict[int, bytes]) -> bytes:
    head = struct.pack(">hhi", -1, -1, 30_000)  # no transaction, all replicas
    parts = [struct.pack(">ii", index, len(data)) + data for index, data in batches.items()]
    name = struct.pack(">h", len(topic)) + topic.encode()
    return head + struct.pack(">i", 1) + name + struct.pack(">i", len(parts)) + b"".join(parts)


async def read_reply(reader: asyncio.StreamReader) -> bytes:
    return await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])


class Honest:
    """Honest clients, each request of which is timed."""

    def __init__(self) -> None:
        self.took_s: dict[str, list[float]] = {}

    async def repeat(self, name: str, ask: Callable[[], Awaitable[None]]) -> None:
        while True:
            began = time.monotonic()
            async with asyncio.timeout(3 * _HONEST_S_MAX):
                await ask()
            self.took_s.setdefault(name, []).append(time.monotonic() - began)
            await asyncio.sleep(0.05)

    def report(self) -> str:
        return ", ".join(
            f"{name}: {len(took)} answered, p99 {percentile(took, 0.99) or 0:.2f} s, max {max(took):.2f} s"
            for name, took in sorted(self.took_s.items())
        )


@contextlib.asynccontextmanager
async def kafka_client(port: int) -> AsyncIterator[Callable[[bytes], Awaitable[bytes]]]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)

    async def ask(message: bytes) -> bytes:
        writer.write(message)
        return await read_reply(reader)

    try:
        yield ask
    finally:
        writer.transport.abort()


async def honest_clients(broker: BrokerProcess, port: int, honest: Honest) -> None:
    async with (
        kafka_client(broker.kafka_port) as produce,
        kafka_client(broker.kafka_port) as fetch,
        AsyncClient(port=broker.native_port) as native,
    ):

        def batch(size: int) -> bytes:
            return bytes(build_batch([(0, None, b"v" * size, ())]))

        small = kafka_request(_PRODUCE, 7, produce_body("t", {0: batch(100)}))
        large = kafka_request(_PRODUCE, 7, produce_body("t", {0: batch(500_000)}))
        fetch_topic = (
            struct.pack(">i", 1) + struct.pack(">h1s", 1, b"t") + struct.pack(">iiqi", 1, 0, 0, 100_000)
        )
        fetched = kafka_request(_FETCH, 4, struct.pack(">iiiib", -1, 100, 1, 100_000, 0) + fetch_topic)

        async def ask_kafka(ask: Callable[[bytes], Awaitable[bytes]], message: bytes) -> None:
            assert await ask(message)

        async def rest(method: str, path: str, body: bytes = b"") -> None:
            reader, writer = await asyncio.open_connection("127.0.0.1", port)
            head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
            head += f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
            try:
                writer.write(head.encode() + body)
                answer = await reader.read()
            finally:
                writer.transport.abort()
            assert answer.startswith(b"HTTP/1.1 200"), answer[:300]

        async def publish() -> None:
            await native.publish("t", b"v" * 1000)

        async def produce_large() -> None:
            async with kafka_client(broker.kafka_port) as ask:
                await ask_kafka(ask, large)

        record = json.dumps({"records": [{"value": "v" * 1000}]}).encode()
        await asyncio.gather(
            honest.repeat("produce", lambda: ask_kafka(produce, small)),
            honest.repeat("large produce", produce_large),
            honest.repeat("fetch", lambda: ask_kafka(fetch, fetched)),
            honest.repeat("native publish", publish),
            honest.repeat("REST produce", lambda: rest("POST", "/api/v1/topics/t/records", record)),
            honest.repeat(
                "REST read", lambda: rest("GET", "/api/v1/topics/t/records?limit=5&max_bytes=10000")
            ),
        )


# ---- the test


async def make_topics(broker: BrokerProcess) -> None:
    async with AsyncClient(port=broker.native_port) as client:
        await client.create_topic("t", partitions=1)
        await client.create_topic("wide", partitions=50)
        await client.create_topic("backlog", partitions=1)
        for _ in range(10):
            await asyncio.gather(*(client.publish("backlog", b"x" * 4_000) for _ in range(1_000)))


async def attack(broker: BrokerProcess, honest: Honest) -> int:
    """Run everything at once; returns the largest memory that the broker had."""
    port, most = http_port(broker), 0
    await make_topics(broker)

    async def sample() -> None:
        nonlocal most
        while True:
            broker.check()
            most = max(most, broker.memory_bytes())
            await asyncio.sleep(0.05)

    attackers = [*slow_frames(broker), *slow_bodies(port), *unread(broker, port)]
    tasks = [asyncio.ensure_future(each) for each in attackers]
    tasks += [
        asyncio.create_task(left_subscriptions(broker)),
        asyncio.create_task(invented_producers(broker)),
    ]
    serving = [asyncio.create_task(sample()), asyncio.create_task(honest_clients(broker, port, honest))]
    await asyncio.wait(serving, timeout=_ATTACK_S, return_when=asyncio.FIRST_EXCEPTION)
    failed = [task.exception() for task in serving if task.done()]
    for task in (*tasks, *serving):
        task.cancel()
    await asyncio.gather(*tasks, *serving, return_exceptions=True)
    assert not failed, failed
    return most


def test_attacked_on_all_listeners_a_broker_keeps_to_its_memory_and_serves(broker: BrokerProcess) -> None:
    honest = Honest()
    most = 0
    try:
        most = asyncio.run(attack(broker, honest))
    finally:
        print(f"\nhonest: {honest.report()}; memory {most / _MIB:.0f} MiB")
    slowest = max(max(took) for took in honest.took_s.values())
    assert len(honest.took_s) == 6
    assert most <= stated_limit_bytes()
    assert slowest <= _HONEST_S_MAX, honest.report()
