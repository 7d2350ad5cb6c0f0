"""The bytes of WebSockets, counted until the app has them: the intake alone, and in the whole listener."""

from __future__ import annotations

import asyncio
import base64
import json
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from tests.unit.http.live.rig import TOPIC, Rig, play

from tailrace.http import HttpConfig
from tailrace.http.connection import HttpConnection
from tailrace.http.intake import Intake
from tailrace.net import RequestBudget

KIB = 1024
TAIL = f"/api/v1/topics/{TOPIC}/tail"
NATIVE = "/api/v1/ws"


def frame(data: bytes, *, opcode: int = 1, last: bool = True) -> bytes:
    """A frame of a client, with a mask of zeros."""
    size = struct.pack(">BBH", opcode | (0x80 if last else 0), 0x80 | 126, len(data))
    return size + bytes(4) + data


class Socket:
    """A WebSocket whose frames the test sends as it likes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, data: bytes) -> None:
        self.writer.write(data)

    async def text(self) -> dict[str, object]:
        """The next message, which is short."""
        _, size = await self.reader.readexactly(2)
        if size == 126:
            (size,) = struct.unpack(">H", await self.reader.readexactly(2))
        found: dict[str, object] = json.loads(await self.reader.readexactly(size))
        return found


@asynccontextmanager
async def opened(rig: Rig, path: str) -> AsyncIterator[Socket]:
    reader, writer = await asyncio.open_connection("127.0.0.1", rig.listener.port)
    key = base64.b64encode(bytes(16)).decode()
    lines = [f"GET {path} HTTP/1.1", "Host: 127.0.0.1", "Upgrade: websocket", "Connection: Upgrade"]
    lines += [f"Sec-WebSocket-Key: {key}", "Sec-WebSocket-Version: 13", "", ""]
    writer.write("\r\n".join(lines).encode())
    assert b" 101 " in await reader.readuntil(b"\r\n\r\n")
    try:
        yield Socket(reader, writer)
    finally:
        writer.transport.abort()
        await rig.wait_until(lambda: rig.service.streams == 0)


def only(rig: Rig) -> HttpConnection:
    (found,) = rig.listener.connections
    return found


def pause(*, padding: int = 0) -> bytes:
    return json.dumps({"pause": True}).encode() + b" " * padding


# ---- by itself


def test_data_is_admitted_or_kept_and_fed_in_order() -> None:
    async def main() -> None:
        budget = RequestBudget(100)
        fed: list[bytes] = []
        intake = Intake(budget, fed.append)
        other = Intake(budget, fed.append)
        assert other.admit(b"o" * 40) and intake.admit(b"x" * 60)
        assert other.admit(b"p"), "one request grows although there is no room"
        assert not intake.admit(b"y" * 20) and intake.is_waiting
        assert budget.used == 101 and intake.bytes == 60, "what is here is counted while it waits"
        assert not intake.admit(b"z" * 30)
        other.settle(21)
        await asyncio.sleep(0)
        assert fed == []
        other.settle(20)
        await asyncio.sleep(0)
        assert fed == [b"y" * 20] and intake.is_waiting, "for the last piece there is no room"
        other.close()
        await asyncio.sleep(0)
        assert fed[1:] == [b"z" * 30]
        assert [intake.is_waiting] == [False]
        assert budget.used == intake.bytes == 110
        intake.close()
        assert budget.used == 0

    asyncio.run(main())


def test_one_that_is_closed_while_it_waits_leaves_nothing() -> None:
    async def main() -> None:
        budget = RequestBudget(100)
        fed: list[bytes] = []
        intake = Intake(budget, fed.append)
        assert budget.take_nowait(100)
        assert not intake.admit(b"x")
        budget.give(100)
        intake.close()
        await asyncio.sleep(0)
        assert budget.used == 0 and fed == []
        assert intake.admit(b"x" * 10)
        intake.close()
        assert budget.used == 0

    asyncio.run(main())


# ---- through the listener


def test_a_message_counts_while_it_arrives() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        budget = rig.service.budget
        async with opened(rig, TAIL) as socket:
            message = pause(padding=KIB)
            first, rest = frame(message[:100], last=False), frame(message[100:], opcode=0)
            socket.send(first)
            await rig.wait_until(lambda: budget.used == 100)
            socket.send(rest[:50])
            await rig.wait_until(lambda: budget.used == 142)  # the head of the second frame is parsed
            socket.send(rest[50:])
            await rig.wait_until(lambda: budget.used == 0)
            socket.send(frame(message)[:200])
            await rig.wait_until(lambda: budget.used == 192)
        await rig.wait_until(lambda: budget.used == 0)

    play(scenario)


def test_without_room_a_socket_is_not_read() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        budget = rig.service.budget
        assert budget.take_nowait(8 * KIB)
        async with opened(rig, TAIL) as socket:
            await asyncio.sleep(0.01)
            socket.send(frame(pause(padding=KIB)))
            await rig.wait_until(lambda: budget.exhausted)
            assert not only(rig).transport.is_reading()
            rig.publish(b"while it waits")
            assert "record" in await socket.text(), "what is sent to it does not wait"
            budget.give(8 * KIB)
            await rig.wait_until(lambda: not budget.exhausted and budget.used == 0)
            assert budget.take_nowait(8 * KIB)
            socket.send(frame(b"nonsense")[:10])
            await rig.wait_until(lambda: budget.exhausted)
            budget.give(8 * KIB)
            await rig.wait_until(lambda: not budget.exhausted)
            socket.send(frame(b"nonsense")[10:])
            await socket.reader.readuntil(b"understands")

    play(scenario, budget=RequestBudget(8 * KIB))


def test_one_that_leaves_while_it_waits_leaves_nothing() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        budget = rig.service.budget
        assert budget.take_nowait(8 * KIB)
        async with opened(rig, TAIL) as socket:
            socket.send(frame(pause()))
            await rig.wait_until(lambda: budget.exhausted)
            only(rig).abort()
        assert not budget.exhausted
        budget.give(8 * KIB)

    play(scenario, budget=RequestBudget(8 * KIB))


def test_the_messages_of_a_native_session_are_the_native_listener_s() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        native, http = rig.native.budget, rig.service.budget
        body = json.dumps({"type": "publish", "sequence": 1, "topic": TOPIC, "body": "x" * KIB}).encode()
        async with opened(rig, NATIVE) as socket:
            socket.send(frame(body)[:500])
            await rig.wait_until(lambda: native.used > 400)
            assert http.used == 0
            socket.send(frame(body)[500:])
            assert (await socket.text())["type"] == "ack"
            await rig.wait_until(lambda: native.used == 0)

    play(scenario)


def test_a_message_that_does_not_come_to_its_end_costs_the_connection() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        async with opened(rig, TAIL) as socket:
            socket.send(frame(pause(), last=False))
            await rig.wait_until(lambda: rig.service.budget.used > 0)
            connection, now = only(rig), asyncio.get_running_loop().time()
            connection.sweep(now + 29, idle_ticks_max=1)
            assert not connection.transport.is_closing()
            connection.sweep(now + 31, idle_ticks_max=1)
            assert connection.transport.is_closing()

    play(scenario, HttpConfig(request_timeout_s=30))


def test_a_socket_between_two_messages_has_all_the_time() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        async with opened(rig, TAIL) as socket:
            socket.send(frame(pause()))
            socket.send(frame(b"", opcode=9))
            await rig.wait_until(lambda: rig.service.budget.used == 0)
            connection, now = only(rig), asyncio.get_running_loop().time()
            connection.sweep(now + 300, idle_ticks_max=1)
            assert not connection.transport.is_closing()

    play(scenario, HttpConfig(request_timeout_s=30))
