"""The HTTP listener: its port, its bounds on connections, and a clean end with everything open."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest
import websockets
from tests.unit.http.conftest import Run, Wire, both_loops, wait_until
from tests.unit.http.rig import get, listening, only_connection

from tailrace.http import HttpConfig, HttpListener
from tailrace.model import ConfigError

PATIENT = HttpConfig(close_grace_s=20.0)
HASTY = HttpConfig(close_grace_s=0.0)


def test_a_port_that_is_taken_names_the_flag(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _):
            second = HttpListener(listener._app, port=listener.port)
            with pytest.raises(ConfigError) as refused:
                await second.start()
            assert f"port {listener.port} is in use" in str(refused.value)
            assert "--http-port" in str(refused.value)

    run(scenario())


def test_the_port_is_known_before_and_after(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _):
            port = listener.port
            assert port != 0 and repr(listener) == f"<HttpListener 127.0.0.1:{port} 0 connections>"
            await listener.close()
            assert listener.port == port
            await listener.close()  # twice is harmless

    run(scenario())


def test_connections_past_the_bound_are_closed_at_once(run: Run) -> None:
    async def scenario() -> None:
        async with listening(HttpConfig(connections_max=2)) as (listener, _):
            async with Wire.to(listener) as first, Wire.to(listener), Wire.to(listener) as third:
                assert await third.rest() == b""
                assert listener.service.counters.refused == 1
                await first.send(get("/hello/x"))
                assert (await first.answer())[0] == 200
            await wait_until(lambda: not listener.connections)
            async with Wire.to(listener) as again:
                await again.send(get("/hello/x"))
                assert (await again.answer())[0] == 200

    run(scenario())


def test_one_address_has_a_bound_of_its_own(run: Run) -> None:
    async def scenario() -> None:
        async with (
            listening(HttpConfig(connections_per_address_max=1)) as (listener, _),
            Wire.to(listener),
            Wire.to(listener) as second,
        ):
            assert await second.rest() == b""

    run(scenario())


def test_an_upgrade_needs_no_second_place(run: Run) -> None:
    async def scenario() -> None:
        async with (
            listening(HttpConfig(connections_max=1, connections_per_address_max=1)) as (listener, _),
            websockets.connect(f"ws://127.0.0.1:{listener.port}/socket") as client,
        ):
            await client.send("hello")
            assert await client.recv() == "hello"

    run(scenario())


# ---- the end


@both_loops
def test_a_long_poll_a_stream_and_a_silent_connection_end_with_the_listener(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with (
            listening(PATIENT) as (listener, stage),
            Wire.to(listener) as poll,
            Wire.to(listener) as stream,
            Wire.to(listener) as silent,
            Wire.to(listener) as half,
        ):
            await poll.send(get("/wait"))
            await stream.send(get("/stream"))
            await half.send(b"GET /hel")
            await wait_until(lambda: sorted(stage.began) == ["stream", "wait"])
            await wait_until(lambda: len(listener.connections) == 4)
            loop = asyncio.get_running_loop()
            began = loop.time()
            await listener.close()
            assert loop.time() - began < PATIENT.close_grace_s  # nobody had to be cut off
            status, _, body = await poll.answer()
            assert status == 200 and json.loads(body) == {"waited": True}
            assert (await stream.answer())[2] == b"first\nlast\n"
            for wire in (poll, stream, silent, half):
                assert await wire.rest() == b""

    run(scenario())
    assert [each.message for each in caplog.records if each.levelno > logging.INFO] == []


@both_loops
def test_who_does_not_end_is_cancelled_after_the_grace_and_quietly(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with listening(HASTY) as (listener, stage), Wire.to(listener) as wire:
            await wire.send(get("/stubborn"))
            await wait_until(lambda: stage.began == ["stubborn"])
            await listener.close()
            assert stage.cancelled == ["stubborn"]
            assert await wire.rest() == b""

    run(scenario())
    assert [each.message for each in caplog.records if each.levelno > logging.INFO] == []


@both_loops
def test_a_client_that_reads_nothing_does_not_keep_the_listener(run: Run) -> None:
    async def scenario() -> None:
        async with listening(HASTY) as (listener, stage), Wire.to(listener) as wire:
            stage.answer_bytes = 64 << 20
            await wire.send(get("/large") * 2)
            await wait_until(
                lambda: stage.began == ["large"] and any(c.untaken for c in listener.connections)
            )
            await listener.close()
            assert not listener._shared.state.tasks  # type: ignore[union-attr]

    run(scenario())


@both_loops
def test_a_stream_that_is_not_read_is_cut_off_and_an_answer_has_its_grace(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.http.listener._STALLED_S", 0.01)

    async def scenario() -> None:
        async with (
            listening(PATIENT) as (listener, stage),
            Wire.to(listener) as answer,
            Wire.to(listener) as stream,
        ):
            stage.answer_bytes = 64 << 20
            await answer.send(get("/large"))
            await stream.send(get("/endless"))
            await wait_until(lambda: sorted(stage.began) == ["endless", "large"])
            await wait_until(lambda: all(each.untaken for each in listener.connections))
            closing = asyncio.create_task(listener.close())
            await wait_until(lambda: len(listener.connections) == 1 and stage.gone != [])
            assert stage.gone == ["endless"]
            assert len((await answer.answer())[2]) == stage.answer_bytes
            await closing

    run(scenario())


@both_loops
def test_a_websocket_that_does_not_answer_a_goodbye_is_cut_off(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("tailrace.http.listener._STALLED_S", 0.01)

    async def scenario() -> None:
        async with listening(HttpConfig(close_grace_s=1_000.0)) as (listener, _), Wire.to(listener) as wire:
            upgrade = ["connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13"]
            await wire.send(get("/goodbye", *upgrade, "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA=="))
            connection = await only_connection(listener)
            await wait_until(lambda: connection.is_streaming)
            assert connection._socket is not None
            connection._socket.close_timeout = 1_000.0  # uvicorn's own, which comes too late
            await listener.close()
            assert b"101" in await wire.rest()

    run(scenario())


@both_loops
def test_a_websocket_that_does_not_end_is_cut_off(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with listening(HASTY) as (listener, stage):
            async with websockets.connect(f"ws://127.0.0.1:{listener.port}/socket") as client:
                await only_connection(listener)
                await listener.close()
                with pytest.raises(websockets.ConnectionClosed):
                    await client.recv()
            assert stage.gone in (["socket"], [])  # it heard, or was cancelled

    run(scenario())
    assert [each.message for each in caplog.records if each.levelno > logging.INFO] == []


def test_after_the_end_nobody_is_let_in(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _):
            await listener.close()
            with pytest.raises(OSError):  # noqa: PT011 - refused or reset, as the system likes
                await asyncio.open_connection("127.0.0.1", listener.port)

    run(scenario())
