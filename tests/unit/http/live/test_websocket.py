"""Tails by WebSocket, with websockets' own client: messages, pausing, nonsense, slow readers, ends."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from typing import Any

import pytest
from tests.poison import undecodable
from tests.unit.http.conftest import partition_of
from tests.unit.http.live.rig import TOPIC, Rig, play
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosedError, InvalidStatus

from tailrace.http import HttpConfig
from tailrace.records import read_batch

KIB = 1024
PATH = f"/api/v1/topics/{TOPIC}/tail"


async def receive(websocket: ClientConnection) -> Any:
    text = await websocket.recv()
    assert isinstance(text, str)
    return json.loads(text)


async def until(websocket: ClientConnection, total: int) -> tuple[list[int], int]:
    """Offsets until, with those that were skipped, there were so many."""
    offsets: list[int] = []
    skipped = 0
    while len(offsets) + skipped < total:
        message = await receive(websocket)
        if "skipped" in message:
            skipped += message["skipped"]
        else:
            offsets.append(message["record"]["offset"])
    return offsets, skipped


async def end_of(websocket: ClientConnection) -> tuple[int, str]:
    """The code and reason with which a socket was closed, whatever came before."""
    with suppress(ConnectionClosedError):
        async for _ in websocket:
            pass
    assert websocket.close_code is not None
    return websocket.close_code, websocket.close_reason or ""


def test_records_come_as_objects() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(b"old")
        async with rig.socket(PATH) as live, rig.socket(PATH + "?offset=earliest") as old:
            rig.publish(b"new")
            assert (await receive(live))["record"]["value"] == "new"
            assert [(await receive(old))["record"]["value"] for _ in range(2)] == ["old", "new"]

    play(scenario)


def test_what_was_sent_is_traffic_of_its_topic() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        rig.publish(b"old")
        async with rig.socket(PATH) as live, rig.socket(PATH + "?offset=earliest") as old:
            rig.publish(b"newer")
            await receive(live)
            assert await until(old, 2) == ([0, 1], 0)
            await rig.wait_until(lambda: rig.broker.counters.records_out == 3)
            assert rig.broker.counters.bytes_out == 3 + 2 * 5

    play(scenario)


def test_what_passes_while_paused_is_counted_and_not_shown() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(2)
        async with (
            rig.socket(PATH) as paused,
            rig.socket(PATH + "?partition=0") as one,
            rig.socket(PATH) as watch,
        ):
            for websocket in (paused, one):
                await websocket.send('{"pause": true}')
                await (await websocket.ping())  # what was sent before it was taken
            rig.publish(*[b"x"] * 30)
            rig.publish(b"other", partition=1)
            await until(watch, 31)
            for websocket, skipped in ((paused, 31), (one, 30)):
                await websocket.send('{"pause": false}')
                assert await receive(websocket) == {"skipped": skipped}
            rig.publish(b"after")
            for websocket in (paused, one):
                assert (await receive(websocket))["record"]["value"] == "after"

    play(scenario, HttpConfig(ring_records_max=10))  # also where the ring has dropped them meanwhile


def test_what_the_ring_has_not_taken_yet_when_a_pause_ends_was_passed_too() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create(2)
        async with rig.socket(PATH) as paused, rig.socket(PATH + "?partition=0") as one:
            for _ in range(3):
                for websocket in (paused, one):
                    await websocket.send('{"pause": true}')
                    await (await websocket.ping())
                (ring,) = rig.tails.rings
                with pytest.MonkeyPatch.context() as patch:
                    patch.setattr(rig.tails, "_turn", lambda: None)
                    rig.publish(*[b"x"] * 30)
                    rig.publish(b"other", partition=1)
                    before = ring.end
                    for websocket in (paused, one):
                        await websocket.send('{"pause": false}')
                        await (await websocket.ping())
                    assert ring.end == before, "the ring was to take them later"
                rig.tails._timer = None
                rig.tails._schedule(ring)
                rig.publish(b"after")
                for websocket, skipped in ((paused, 31), (one, 30)):
                    assert await receive(websocket) == {"skipped": skipped}
                    assert (await receive(websocket))["record"]["value"] == "after"

    play(scenario)


def test_history_does_not_pass_while_paused() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        for _ in range(50):
            rig.publish(*[b"x" * KIB] * 20)
        async with rig.socket(PATH + "?offset=earliest", max_queue=1) as websocket:
            first = [(await receive(websocket))["record"]["offset"] for _ in range(10)]
            await websocket.send('{"pause": true}')
            await websocket.send('{"pause": false}')
            offsets, skipped = await until(websocket, 990)
            assert skipped == 0
            assert first + offsets == list(range(1000))

    play(scenario, HttpConfig(stream_buffer_bytes_max=16 * KIB))


@pytest.mark.parametrize(
    "message", ["", "x", "[]", "{}", '{"pause": 1}', '{"pause": true, "x": 1}', "[" * 5000, b"{}", b"\xff"]
)
def test_a_message_that_makes_no_sense_ends_the_tail(message: str | bytes) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        async with rig.socket(PATH) as websocket:
            await websocket.send(message)
            code, reason = await end_of(websocket)
            assert code == 1008
            assert "pause" in reason
        await rig.wait_until(lambda: rig.service.streams == 0)

    play(scenario)


@pytest.mark.parametrize(("query", "status"), [("?offset=5", 400), ("?x=1", 400), ("?partition=4", 404)])
def test_a_handshake_that_makes_no_sense_is_answered_as_a_request_is(query: str, status: int) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with pytest.raises(InvalidStatus) as error:
            async with rig.socket(PATH + query):
                pass
        assert error.value.response.status_code == status
        assert json.loads(error.value.response.body)["error"]["message"]

    play(scenario)


def test_a_topic_that_does_not_exist_is_not_tailed() -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(InvalidStatus) as error:
            async with rig.socket(PATH):
                pass
        assert error.value.response.status_code == 404

    play(scenario)


def test_deleting_the_topic_ends_its_tails() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        async with rig.socket(PATH) as websocket:
            await rig.broker.delete_topic(TOPIC)
            assert "deleted" in (await receive(websocket))["end"]
            code, reason = await end_of(websocket)
            assert code == 1000 and "deleted" in reason

    play(scenario)


def test_a_mistake_of_ours_has_a_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        async with rig.socket(PATH) as websocket:
            monkeypatch.setattr("tailrace.http.live.ring.record_entry", lambda *_, **__: 1 / 0)
            rig.publish(b"x")
            assert "mistake" in (await receive(websocket))["end"]
            assert (await end_of(websocket))[0] == 1011

    play(scenario)


def test_the_end_of_the_node_ends_every_tail() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        async with rig.socket(PATH) as websocket:
            closing = asyncio.ensure_future(rig.listener.close())
            assert "stopping" in (await receive(websocket))["end"]
            assert (await end_of(websocket))[0] == 1001
            await closing

    play(scenario)


def test_a_client_that_leaves_is_noticed() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        async with rig.socket(PATH):
            assert rig.service.streams == 1
        await rig.wait_until(lambda: rig.service.streams == 0)
        assert rig.tails.rings == []

    play(scenario)


def test_a_reader_that_does_not_read_misses_records_and_is_told_how_many() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        watch = await rig.tail()
        async with rig.socket(PATH, max_queue=1) as slow:
            total = 0
            for _ in range(100):
                rig.publish(*[b"x" * 300] * 200)
                total += 200
                await watch.until(200)
            assert all(
                each.transport.get_write_buffer_size() <= 128 * KIB for each in rig.listener.connections
            )
            offsets, skipped = await until(slow, total)
            assert skipped > 0
            assert offsets == sorted(set(offsets))
            assert offsets[-1] == total - 1

    play(
        scenario, HttpConfig(ring_records_max=500, ring_bytes_max=256 * KIB, stream_buffer_bytes_max=64 * KIB)
    )


def test_a_foreign_page_is_not_let_in() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        with pytest.raises(InvalidStatus) as error:
            async with rig.socket(PATH, origin="http://evil.example"):
                pass
        assert error.value.response.status_code == 403

    play(scenario)


def test_a_tail_goes_on_over_what_cannot_be_decoded() -> None:
    async def scenario(rig: Rig) -> None:
        await rig.create()
        async with rig.socket(PATH) as websocket:
            rig.publish(b"a")
            data = undecodable(3, time_ms=rig.broker.clock.now_ms())
            partition_of(rig.broker, TOPIC, 0).append(read_batch(data))
            rig.publish(b"b")
            assert await until(websocket, 5) == ([0, 4], 3)

    play(scenario)
