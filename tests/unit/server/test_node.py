"""A node in this process: it closes at once though clients wait, and says why there is no loop for it."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path

import pytest

import tailrace
from tailrace.client import KafkaClient
from tailrace.model import ErrorCode
from tailrace.server import loop
from tailrace.server.config import ServerConfig
from tailrace.server.node import Node
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
