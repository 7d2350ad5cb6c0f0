"""The listener: bounds on connections, idle ones, ports that are taken, and its end. Over real sockets."""

from __future__ import annotations

import asyncio
import logging
import os
import socket
import struct
from pathlib import Path

import pytest
from tests.unit.kafka.rig import Client, Rig, batch, fetch_body, play, produce_body

from tailrace.kafka import KafkaConfig, KafkaListener
from tailrace.model import ConfigError
from tailrace.model.address import Address, unix_address
from tailrace.wire.kafka import FETCH, PRODUCE
from tailrace.wire.kafka.messages.metadata import MetadataRequest

METADATA = 3
both_loops = pytest.mark.parametrize("uv", [False, True], ids=["asyncio", "uvloop"])


@both_loops
def test_connections_past_the_bound_are_closed_and_the_others_go_on(
    uv: bool, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario(rig: Rig) -> None:
        inside = [await rig.connect() for _ in range(3)]
        await rig.wait_until(lambda: rig.listener.counters.connections == 3)
        for _ in range(5):
            outside = await rig.connect()
            assert await outside.wait_closed() == b""
        await rig.wait_until(lambda: rig.listener.counters.connections == 3)
        assert rig.listener.counters.refused == 5
        for client in inside:
            assert (await client.ask(METADATA, MetadataRequest(topics=[]))).controller_id == 1
        inside[0].close()
        await rig.wait_until(lambda: rig.listener.counters.connections == 2)
        newcomer = await rig.connect()
        assert (await newcomer.ask(METADATA, MetadataRequest(topics=[]))).controller_id == 1

    with caplog.at_level(logging.WARNING):
        play(scenario, config=KafkaConfig(connections_max=3), uv=uv)
    assert caplog.text.count("connections refused") == 1  # once per burst


def test_one_address_may_have_a_bound_of_its_own() -> None:
    async def scenario(rig: Rig) -> None:
        first, _ = [await rig.connect() for _ in range(2)]
        await rig.wait_until(lambda: rig.listener.counters.connections == 2)
        third = await rig.connect()
        assert await third.wait_closed() == b""
        first.close()
        await rig.wait_until(lambda: rig.listener.counters.connections == 1)
        fourth = await rig.connect()
        assert (await fourth.ask(METADATA, MetadataRequest(topics=[]))).controller_id == 1

    play(scenario, config=KafkaConfig(connections_per_address_max=2))


@both_loops
def test_idle_connections_are_closed_and_busy_ones_are_not(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        idle, polling, waiting = [await rig.connect() for _ in range(3)]
        rig.log(1).hold()
        polling.send(FETCH, 12, fetch_body({0: 0}, max_wait_ms=20_000))
        waiting.send(PRODUCE, 9, produce_body({1: batch()}))
        assert await idle.wait_closed() == b""
        await asyncio.sleep(1.5)
        assert rig.listener.counters.connections == 2
        rig.log(1).settle()
        await waiting.receive(PRODUCE, 9)
        await waiting.produce(batch())
        await polling.receive(FETCH, 12)
        await rig.wait_until(lambda: rig.listener.counters.connections == 0)  # in their turn

    play(scenario, config=KafkaConfig(idle_timeout_s=1), uv=uv)


def test_a_client_that_talks_now_and_then_stays() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for _ in range(8):
            await asyncio.sleep(0.05)
            await client.ask(METADATA, MetadataRequest(topics=[]))

    play(scenario, config=KafkaConfig(idle_timeout_s=0.2))


def test_a_frame_that_does_not_come_to_an_end_is_not_waited_for() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.writer.write(struct.pack(">i", 1000))

        async def drip() -> None:
            for _ in range(500):
                client.writer.write(b"x")
                await asyncio.sleep(0.01)

        dripping = asyncio.ensure_future(drip())
        assert await client.wait_closed() == b""
        assert not dripping.done()
        dripping.cancel()
        assert rig.listener.budget.used == 0

    play(scenario, config=KafkaConfig(frame_timeout_s=0.1, idle_timeout_s=0.8))


def test_a_client_that_does_not_read_is_idle_in_the_end() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        for _ in range(10):
            await client.produce(batch(b"x" * 1_000_000))
        client.stop_reading()
        for _ in range(10):
            client.send(FETCH, 12, fetch_body({0: 0}, max_bytes=10_000_000, partition_max_bytes=10_000_000))
        await rig.wait_until(lambda: rig.listener.counters.connections == 0)

    play(scenario, config=KafkaConfig(idle_timeout_s=0.3))


@pytest.mark.parametrize("other", ["ours", "somebody's"])
def test_a_port_in_use_is_named_with_its_owner_and_a_way_out(other: str) -> None:
    async def scenario(rig: Rig) -> None:
        if other == "ours":
            port = rig.listener.port
        else:
            taken = socket.socket()
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
        second = KafkaListener(rig.broker.gate, addresses=[Address("127.0.0.1", port)])
        with pytest.raises(ConfigError) as caught:
            await second.start()
        text = str(caught.value)
        assert f"port {port} is in use by pid {os.getpid()} (" in text
        assert "Try: tailrace up --kafka-port " in text and not text.endswith(f" {port}")
        await second.close()
        if other != "ours":
            taken.close()

    play(scenario)


def test_an_address_that_is_not_ours_is_a_config_error() -> None:
    async def scenario(rig: Rig) -> None:
        with pytest.raises(ConfigError, match=r"cannot listen on 192\.0\.2\.1 port 0"):
            await KafkaListener(rig.broker.gate, addresses=[Address("192.0.2.1", 0)]).start()

    play(scenario)


@both_loops
def test_a_unix_socket_is_served_beside_the_port(uv: bool, short_directory: Path) -> None:
    path = short_directory / "kafka.sock"

    async def scenario(rig: Rig) -> None:
        local = Client(*await asyncio.open_unix_connection(str(path)))
        rig.clients.append(local)
        for number in range(20):  # replies above the size that is written in one piece
            assert (await local.produce(batch(b"%d" % number * 20_000))).error_code == 0
        answer = await local.fetch({0: 0})
        ((_, (partition,)),) = answer.topics
        assert partition.records is not None and len(partition.records) > 400_000
        (connection,) = rig.listener.connections
        assert str(connection.facts) == f"unix:{path} pid {os.getpid()}"
        assert connection.access.session.host == f"unix:{path}"
        remote = await rig.connect()
        assert (await remote.ask(METADATA, MetadataRequest(topics=[]))).controller_id == 1

    play(scenario, uv=uv, addresses=[Address("127.0.0.1", 0), unix_address(str(path))])
    assert not path.exists()


def test_an_address_that_is_taken_leaves_the_others_free(short_directory: Path) -> None:
    async def scenario(rig: Rig) -> None:
        taken = unix_address(str(short_directory))
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        second = KafkaListener(rig.broker.gate, addresses=[Address("127.0.0.1", port), taken])
        with pytest.raises(ConfigError, match="is a directory"):
            await second.start()
        third = KafkaListener(rig.broker.gate, addresses=[Address("127.0.0.1", port)])
        await third.start()
        await third.close()

    play(scenario)


def test_several_listeners_live_side_by_side() -> None:
    async def scenario(rig: Rig) -> None:
        second = KafkaListener(
            rig.broker.gate, addresses=[Address("127.0.0.1", 0)], budget=rig.listener.budget
        )
        await second.start()
        assert second.port != rig.listener.port and second.budget is rig.listener.budget
        reader, writer = await asyncio.open_connection("127.0.0.1", second.port)
        await second.close()
        assert await reader.read() == b""
        writer.close()
        client = await rig.connect()
        assert (await client.ask(METADATA, MetadataRequest(topics=[]))).controller_id == 1

    play(scenario)


@both_loops
def test_closing_lets_the_replies_under_way_leave(uv: bool) -> None:
    async def scenario(rig: Rig) -> None:
        writing, polling, idle = [await rig.connect() for _ in range(3)]
        rig.log(1).hold()
        asked = writing.send(PRODUCE, 9, produce_body({1: batch()}))
        poll = polling.send(FETCH, 12, fetch_body({0: 0}, max_wait_ms=20_000))
        await rig.wait_until(lambda: rig.log(1).end_offset == 1)
        await rig.wait_until(lambda: len(rig.partition(0).waiters) == 1)
        closing = asyncio.ensure_future(rig.listener.close())
        assert await idle.wait_closed() == b""
        assert (await polling.receive(FETCH, 12))[0] == poll  # with what there is
        assert not closing.done()
        writing.send(PRODUCE, 9, produce_body({0: batch()}))
        rig.log(1).settle()
        assert (await writing.receive(PRODUCE, 9))[0] == asked
        assert await writing.wait_closed() == b""
        await closing
        assert rig.log(0).end_offset == 0  # what came after the end was not taken
        with pytest.raises(ConnectionError):
            await rig.connect()

    play(scenario, uv=uv)


def test_what_does_not_leave_in_time_is_cut_off() -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log(0).hold()
        client.send(PRODUCE, 9, produce_body({0: batch()}))
        await rig.wait_until(lambda: rig.log(0).end_offset == 1)
        await rig.listener.close()
        assert await client.wait_closed() == b""
        await rig.listener.close()  # twice is harmless
        rig.log(0).settle()
        await rig.wait_until(lambda: rig.listener.budget.used == 0)

    play(scenario, config=KafkaConfig(close_grace_s=0.05))


def test_a_handler_that_hangs_ends_with_the_listener(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario(rig: Rig) -> None:
        ended = asyncio.Event()

        async def hang(name: str) -> None:
            try:
                await asyncio.get_running_loop().create_future()
            finally:
                ended.set()

        monkeypatch.setattr(rig.broker.topics, "auto_create", hang)
        client = await rig.connect()
        client.send(METADATA, 1, b"\0\0\0\x01\0\x03new")
        await rig.wait_until(lambda: rig.listener.budget.used > 0)
        await rig.listener.close()
        assert ended.is_set() and await client.wait_closed() == b""
        assert rig.listener.budget.used == 0

    play(scenario, config=KafkaConfig(close_grace_s=0.05))


def test_a_listener_that_was_never_started_closes() -> None:
    async def scenario(rig: Rig) -> None:
        await KafkaListener(rig.broker.gate, addresses=[Address("127.0.0.1", 0)]).close()

    play(scenario)
