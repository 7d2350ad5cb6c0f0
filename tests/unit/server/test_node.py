"""A node in this process: it closes at once though clients wait, and says why there is no loop for it."""

from __future__ import annotations

import asyncio
import os
import threading
from dataclasses import replace
from pathlib import Path

import pytest

import tailrace
from tailrace.client import AsyncClient, BrokerClient, KafkaClient
from tailrace.model import ErrorCode, TailraceError
from tailrace.server import loop
from tailrace.server.config import ServerConfig
from tailrace.server.node import CannotListen, Node
from tailrace.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol

JOIN_GROUP = 11
DEADLINE_S = 120.0


def test_a_member_that_waits_for_others_is_sent_away_when_the_node_closes(tmp_path: Path) -> None:
    """Listeners wait some seconds for replies under way: one that nobody will complete must not cost that."""

    async def scenario() -> None:
        delay = {"group.initial.rebalance.delay.ms": "60000"}
        node = Node(
            ServerConfig(kafka_port=0, native_port=0, engine="memory", data_dir=tmp_path, broker=delay),
            owns_loop=False,
        )
        await node.start()
        groups = node.broker.groups
        async with KafkaClient(node.kafka_address) as client:
            request = JoinGroupRequest(
                group_id="g",
                group_instance_id="one",  # so that it waits at once, whatever the version
                session_timeout_ms=10_000,
                rebalance_timeout_ms=60_000,
                protocol_type="consumer",
                protocols=[JoinGroupRequestProtocol(name="range", metadata=b"m")],
            )
            joining = asyncio.ensure_future(client.request(JOIN_GROUP, request))
            while not groups._parked:  # noqa: ASYNC110 - nothing tells of it
                await asyncio.sleep(0.001)
            closing = asyncio.ensure_future(node.close())
            answer = await joining
            assert answer.error_code == ErrorCode.NOT_COORDINATOR
            await closing

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE_S))


def test_the_native_listener_serves_a_unix_socket_beside_its_port(short_directory: Path) -> None:
    path = short_directory / "native.sock"
    config = ServerConfig(
        kafka_port=0, native_port=0, native_socket=str(path), engine="memory", data_dir=short_directory
    )

    async def scenario() -> None:
        node = Node(config, owns_loop=False)
        await node.start()
        assert node.native_socket == f"unix:{path}"
        async with (
            AsyncClient(f"unix:{path}") as local,
            AsyncClient("127.0.0.1", node.native_port) as remote,
        ):
            assert str(local.address) == f"unix:{path}"
            await local.create_topic("t")
            await local.publish("t", b"by socket")
            await remote.publish("t", b"by port")
            await remote.create_subscription("s", "t")
            received = [message.body for message in await local.pull("s", 2)]
            assert received == [b"by socket", b"by port"]
            assert {each.facts.has_address for each in node._native[0].connections} == {True, False}
            second = Node(replace(config, data_dir=short_directory / "2"), owns_loop=False)
            with pytest.raises(
                CannotListen, match=rf"native\.socket: {path} is in use by pid {os.getpid()} \("
            ):
                await second.start()
        await node.close()

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE_S))
    assert not path.exists()


def test_a_thread_publishes_through_a_unix_socket(short_directory: Path) -> None:
    path = short_directory / "native.sock"

    def publish() -> bytes:
        with BrokerClient(host=f"unix:{path}") as client:
            client.create_topic("t")
            client.publish_text("t", "hello")
            client.create_subscription("s", "t")
            return client.pull("s")[0].body

    async def scenario() -> None:
        config = ServerConfig(
            kafka_port=0, native_port=0, native_socket=str(path), engine="memory", data_dir=short_directory
        )
        node = Node(config, owns_loop=False)
        await node.start()
        assert await asyncio.to_thread(publish) == b"hello"
        await node.close()

    asyncio.run(asyncio.wait_for(scenario(), DEADLINE_S))


def test_a_client_of_a_unix_socket_that_is_not_there_is_told(short_directory: Path) -> None:
    path = short_directory / "absent.sock"
    with pytest.raises(TailraceError, match=rf"cannot reach unix:{path} \(no such file or directory\)"):
        BrokerClient(host=f"unix:{path}", reconnect=None).connect()


def test_a_broker_that_gets_no_event_loop_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def no_loop() -> asyncio.AbstractEventLoop:
        raise OSError(24, "Too many open files")

    threads = set(threading.enumerate())
    broker = tailrace.Broker()
    with monkeypatch.context() as patched:
        patched.setattr(loop, "loop_factory", lambda: no_loop)
        with pytest.raises(OSError, match="Too many open files"):
            broker.start()
    assert set(threading.enumerate()) <= threads
    with broker:
        broker.produce("t", b"v")
