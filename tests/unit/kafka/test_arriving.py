"""Frames that arrive slowly, over real sockets: what they cost, and when they are refused."""

from __future__ import annotations

import asyncio
import struct

import pytest
from tests.unit.kafka.rig import Client, Rig, batch, play, produce_body

from tailrace.kafka import KafkaConfig
from tailrace.net import NodeBudget, RequestBudget
from tailrace.wire.kafka import PRODUCE, write_request

KIB = 1024
MIB = 1024 * KIB
both_loops = pytest.mark.parametrize("uv", [False, True], ids=["asyncio", "uvloop"])


def frame(size: int, *, partition: int = 0) -> bytes:
    """A Produce request with a record of about `size` bytes."""
    body = produce_body({partition: batch(b"v" * size)})
    return write_request(PRODUCE, 9, 1, "tests", body)


async def begin(rig: Rig, announced: int) -> Client:
    """A client that announces a produce request and sends its first bytes."""
    client = await rig.connect()
    client.writer.write(struct.pack(">ihh", announced, PRODUCE, 9) + b"x")
    await client.writer.drain()
    return client


@both_loops
def test_what_clients_announce_costs_nothing(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        slow = [rig.connection_of(await begin(rig, 90 * MIB)) for _ in range(8)]
        await rig.wait_until(lambda: all(each._splitter.has_rest or each.held_bytes for each in slow))
        budget = rig.listener.budget
        assert 0 < budget.used <= 8 * 64 * KIB and not budget.exhausted
        honest = await rig.connect()
        assert (await honest.produce(batch(b"v" * 3 * MIB))).error_code == 0
        assert budget.used <= 8 * 64 * KIB
        assert len(rig.listener.connections) == 9, "no frame had to be refused for it"

    play(scenario, uv=uv, budget=NodeBudget(24 * MIB).share("kafka"), values={"message.max.bytes": "8000000"})


@both_loops
def test_large_frames_that_grow_at_once_all_complete(uv: bool) -> None:
    """With a budget that holds less than one of them."""

    async def scenario(rig: Rig) -> None:
        clients = [await rig.connect() for _ in range(6)]
        data = frame(2 * MIB)
        piece = 20 * KIB

        async def send(client: Client) -> None:
            for place in range(0, len(data), piece):
                client.writer.write(data[place : place + piece])
                await client.writer.drain()
                await asyncio.sleep(0)

        await asyncio.gather(*map(send, clients))
        for client in clients:
            await client.receive(PRODUCE, 9)
        assert rig.log(0).end_offset == 6
        budget = rig.listener.budget
        assert budget.used == 0 and not budget.exhausted
        assert not budget._shared.arriving and budget._shared.passed is None

    play(
        scenario,
        uv=uv,
        budget=RequestBudget(300 * KIB, reserve_bytes=100 * KIB, small_bytes=64 * KIB),
        values={"message.max.bytes": "8000000"},
    )


@both_loops
def test_slow_frames_are_refused_while_an_honest_one_waits(uv: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tailrace.net.budget.GRACE_S", 0.2)

    async def scenario(rig: Rig) -> None:
        slow = [await begin(rig, 90 * MIB) for _ in range(20)]
        await rig.wait_until(lambda: rig.listener.budget.exhausted)
        assert len(rig.listener.connections) == 20, "they are served while no other request needs the memory"
        honest = await rig.connect()
        assert (await honest.produce(batch(b"v" * MIB))).error_code == 0
        left = len(rig.listener.connections)
        assert left < 20, "those that held memory and sent nothing are gone"
        for client in slow:
            client.writer.transport.abort()

    play(
        scenario,
        uv=uv,
        budget=RequestBudget(MIB, reserve_bytes=MIB, small_bytes=64 * KIB),
        values={"message.max.bytes": "8000000"},
    )


def test_small_requests_do_not_wait_for_large_frames_that_begin() -> None:
    async def scenario(rig: Rig) -> None:
        for _ in range(50):
            await begin(rig, 90 * MIB)
        await rig.wait_until(lambda: rig.listener.budget.exhausted)
        honest = await rig.connect()
        assert (await honest.produce(batch(b"v" * 30_000))).error_code == 0

    play(scenario, budget=RequestBudget(MIB, reserve_bytes=MIB, small_bytes=64 * KIB))


@pytest.mark.parametrize("begun", [1, 2, 3, 4, 5])
def test_the_first_bytes_of_a_size_begin_a_frame_that_can_be_late(begun: int) -> None:
    async def scenario(rig: Rig) -> None:
        client, idle = await rig.connect(), await rig.connect()
        client.writer.write(struct.pack(">ih", 50 * MIB, PRODUCE)[:begun])
        await client.writer.drain()
        await rig.wait_until(lambda: len(rig.listener.connections) == 2)
        connections = [rig.connection_of(each) for each in (client, idle)]
        await rig.wait_until(lambda: connections[0]._splitter.has_rest)
        later = asyncio.get_running_loop().time() + 29
        for each in connections:
            each.sweep(later, idle_ticks_max=100)
        assert len(rig.listener.connections) == 2
        for each in connections:
            each.sweep(later + 100, idle_ticks_max=100)
        for _ in range(20):
            await asyncio.sleep(0)
        assert list(rig.listener.connections) == [connections[1]]

    play(scenario, config=KafkaConfig(frame_timeout_s=30.0))


def test_a_size_that_comes_byte_by_byte_is_read_all_the_same() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for byte in frame(10):
            client.writer.write(bytes([byte]))
            await client.writer.drain()
            await asyncio.sleep(0)
        await client.receive(PRODUCE, 9)
        connection = rig.connection_of(client)
        connection.sweep(asyncio.get_running_loop().time() + 10_000, idle_ticks_max=100)
        assert (await client.produce(batch())).error_code == 0

    play(scenario)
