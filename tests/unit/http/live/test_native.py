"""The native session by WebSocket, through the whole HTTP listener, with websockets' own client."""

from __future__ import annotations

import asyncio
import json
import re
import socket
from pathlib import Path
from typing import Any

import pytest
from tests.unit.http.live.rig import Rig, play
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tailrace.http import HttpConfig
from tailrace.model.session import Session
from tailrace.native import NativeConfig
from tailrace.wire.native import FrameReader, MessageType, write_frame

PATH = "/api/v1/ws"
KIB = 1024
DOCUMENT = Path(__file__).parents[4] / "docs" / "protocol" / "native.md"


def example(name: str) -> list[dict[str, Any]]:
    text = DOCUMENT.read_text(encoding="utf-8")
    (found,) = re.findall(rf"<!-- example: {name} -->\n```json\n(.*?)```", text, re.DOTALL)
    return [json.loads(line) for line in found.splitlines()]


async def receive(websocket: ClientConnection) -> Any:
    text = await websocket.recv()
    assert isinstance(text, str)
    return json.loads(text)


def test_the_documented_conversation_is_what_happens() -> None:
    async def scenario(rig: Rig) -> None:
        answers = []
        async with rig.socket(PATH) as websocket:
            for message, count in zip(example("websocket"), (1, 2, 1), strict=True):
                await websocket.send(json.dumps(message))
                answers += [await receive(websocket) for _ in range(count)]
        expected = example("websocket answers")
        for answer in (*answers, *expected):  # what differs each time
            for name in ("timestamp", "id"):
                if name in answer:
                    answer[name] = "any"
        assert answers == expected

    play(scenario)


def test_a_native_client_has_the_session_of_its_request() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.socket(PATH):
            await rig.wait_until(lambda: bool(rig.native_sessions))
        assert rig.native_sessions == [Session(host="127.0.0.1", listener="http")]

    play(scenario)


def test_frames_in_binary_messages_are_answered_in_binary() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.socket(PATH) as websocket:
            frames = [
                write_frame(MessageType.PUBLISH, sequence=each, properties={"_topic": "t"}, body=b"\xff")
                for each in (1, 2)
            ]
            await websocket.send(b"".join(frames))
            reader = FrameReader(1 << 20)
            sequences: list[int] = []
            while len(sequences) < 2:
                message = await websocket.recv()
                assert isinstance(message, bytes)
                reader.feed(message)
                while (frame := reader.next_frame()) is not None:
                    sequences.append(frame.sequence)
            assert sequences == [1, 2]

    play(scenario)


def test_a_broken_message_closes_with_a_reason() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.socket(PATH) as websocket:
            await websocket.send("nonsense")
            assert (await receive(websocket))["type"] == "error"
            with pytest.raises(ConnectionClosed) as error:
                await websocket.recv()
            assert error.value.rcvd is not None
            assert error.value.rcvd.code == 1002
            assert "JSON" in error.value.rcvd.reason
        await rig.wait_until(lambda: rig.service.streams == 0)

    play(scenario)


def test_a_message_over_the_bound_of_the_listener_is_not_taken() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.socket(PATH) as websocket:
            await websocket.send("x" * 3 * KIB)
            with pytest.raises(ConnectionClosed) as error:
                await websocket.recv()
            assert error.value.rcvd is not None and error.value.rcvd.code == 1009

    play(scenario, HttpConfig(body_bytes_max=2 * KIB))


def test_the_end_of_the_node_is_told() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.socket(PATH) as websocket:
            await websocket.send('{"type": "heartbeat", "sequence": 1}')
            await receive(websocket)
            closing = asyncio.ensure_future(rig.listener.close())
            with pytest.raises(ConnectionClosed) as error:
                await websocket.recv()
            assert error.value.rcvd is not None and error.value.rcvd.code == 1001
            await closing

    play(scenario)


def test_a_member_that_does_not_read_costs_a_bounded_amount_and_goes_on() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(name="t")
        with socket.create_connection(("127.0.0.1", rig.listener.port)) as narrow:
            narrow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 32 * KIB)  # else the kernel takes it all
            await read_slowly(rig, narrow)

    async def read_slowly(rig: Rig, narrow: socket.socket) -> None:
        async with rig.socket(PATH, max_queue=1, sock=narrow, close_timeout=0.1) as slow:
            wanted = {"subscription": "s", "topic": "t", "credit": 9000}
            patient = {"ack_timeout_ms": 600_000}
            await slow.send(json.dumps({"type": "subscribe", "sequence": 1, **wanted, "properties": patient}))
            assert await receive(slow) == {"type": "ack", "sequence": 1, **patient}
            for _ in range(30):  # less than the memory engine keeps of what is not acknowledged
                rig.publish(*[b"x" * 4 * KIB] * 50, topic="t")
                await asyncio.sleep(0)
            await rig.wait_until(lambda: rig.broker.subscriptions.get("s") is not None)
            assert all(
                each.transport.get_write_buffer_size() <= 256 * KIB for each in rig.listener.connections
            )
            offsets = [(await receive(slow))["sequence"] for _ in range(1500)]
            assert offsets == list(range(1500))

    play(scenario, native=NativeConfig(out_buffer_bytes_max=64 * KIB))


def test_more_streams_than_allowed_are_refused() -> None:
    async def scenario(rig: Rig) -> None:
        async with rig.socket(PATH):
            with pytest.raises(InvalidStatus) as error:
                async with rig.socket(PATH):
                    pass
            assert error.value.response.status_code == 503

    play(scenario, HttpConfig(streams_max=1))


def test_a_node_without_a_native_listener_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        monkeypatch.setattr(type(rig.service.facts), "native_shell", None)
        with pytest.raises(InvalidStatus) as error:
            async with rig.socket(PATH):
                pass
        assert error.value.response.status_code == 503
        assert rig.service.streams == 0

    play(scenario)
