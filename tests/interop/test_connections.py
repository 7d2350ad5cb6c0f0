"""Many connections, fast ones, slow ones and too many: those that keep the rules go on being served."""

from __future__ import annotations

import asyncio
import os
import random
import resource
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
import uvloop
from tests.interop.clients import confluent
from tests.interop.clients.port import Client, Message, Reading, TopicPartition
from tests.interop.deadline import wait_until
from tests.interop.raw import api_versions, connect, fetch, fetch_all, read_frame
from tests.interop.server import ServerProcess

_MIB = 1024 * 1024
_SPARE_DESCRIPTORS = 400  # what a test process and a server need beside the connections


@pytest.fixture
def neighbour(own_server: ServerProcess) -> Iterator[Client]:
    """A real client beside the crowd."""
    client = confluent.start(own_server.bootstrap)
    yield client
    client.close()


def check_neighbour(client: Client, topic: str = "beside") -> None:
    """It produces and reads, within its usual deadlines."""
    placed = client.produce(topic, [Message(value=b"still here", partition=0)])
    consumer = client.open(Reading(assign={TopicPartition(topic, 0): placed[0].offset}))
    assert consumer.take(1, within_s=60)[0].value == b"still here"
    consumer.close()


def need_descriptors(count: int) -> None:
    """Raise our own limit as far as we may, or skip."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count + _SPARE_DESCRIPTORS
    if soft < wanted:
        if hard < wanted:
            pytest.skip(f"only {hard} descriptors are allowed here, and {wanted} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def run_idle(server: ServerProcess, neighbour: Client, *, count: int) -> None:
    """So many open connections that say nothing, or said something once."""
    check_neighbour(neighbour)
    before, memory = server.descriptors(), server.memory_bytes()
    with ExitStack() as open_ones:
        crowd = [open_ones.enter_context(connect(server.bootstrap)) for _ in range(count)]
        for each in crowd[::2]:
            each.sendall(api_versions())
        for each in crowd[::2]:
            read_frame(each)
        assert server.descriptors() > before + count - 10  # a client may have closed one of its own meanwhile
        check_neighbour(neighbour)
        per_connection = (server.memory_bytes() - memory) / count
        assert per_connection < 64 * 1024, f"{per_connection:.0f} bytes for an idle connection"
        for each in (crowd[0], crowd[1], crowd[-1]):
            each.sendall(api_versions())
            read_frame(each)
    wait_until(
        lambda: server.descriptors() <= before + 5,
        within_s=60,
        what=lambda: f"{server.descriptors()} are open",
    )
    check_neighbour(neighbour)


def test_idle_connections_cost_little_and_leave_nothing(own_server: ServerProcess, neighbour: Client) -> None:
    need_descriptors(500)
    run_idle(own_server, neighbour, count=500)


@pytest.mark.heavy
def test_five_thousand_idle_connections(own_server: ServerProcess, neighbour: Client) -> None:
    need_descriptors(5000)
    run_idle(own_server, neighbour, count=5000)


async def come_and_go(bootstrap: str, *, count: int) -> float:
    """Connect, ask, hear, go: so many times. The rate per second, for whoever reads the output."""
    host, _, port = bootstrap.rpartition(":")
    turns = iter(range(count))
    began = time.monotonic()

    async def work() -> None:
        for turn in turns:
            async with asyncio.timeout(60):
                reader, writer = await asyncio.open_connection(host, int(port))
                writer.write(api_versions(correlation=turn))
                head = await reader.readexactly(8)
                assert int.from_bytes(head[4:]) == turn
                writer.transport.abort()

    await asyncio.gather(*(work() for _ in range(64)))
    return count / (time.monotonic() - began)


def run_churn(server: ServerProcess, neighbour: Client, *, count: int) -> None:
    """Every one of them is answered, and nothing of them stays."""
    check_neighbour(neighbour)
    before = server.descriptors()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        rate = runner.run(come_and_go(server.bootstrap, count=count))
    print(f"{count} connections came and went, {rate:.0f} a second")
    check_neighbour(neighbour)
    wait_until(
        lambda: server.descriptors() <= before + 5,
        within_s=60,
        what=lambda: f"{server.descriptors()} are open",
    )


def test_connections_that_come_and_go_leave_nothing(own_server: ServerProcess, neighbour: Client) -> None:
    run_churn(own_server, neighbour, count=2000)


@pytest.mark.heavy
def test_sixty_thousand_connections_come_and_go(own_server: ServerProcess, neighbour: Client) -> None:
    memory = own_server.memory_bytes()
    run_churn(own_server, neighbour, count=60_000)  # half a minute at two thousand a second
    assert own_server.memory_bytes() - memory < 64 * _MIB


def is_refused(connection: socket.socket) -> bool:
    """Closed without an answer, and without hanging."""
    try:
        connection.sendall(api_versions())
        read_frame(connection)
    except ConnectionError:
        return True
    return False


def test_connections_over_the_limit_are_refused_and_the_others_served(tmp_path: Path) -> None:
    if os.environ.get("TAILRACE_INTEROP_BOOTSTRAP", ""):
        pytest.skip("the broker was given: its limit is not ours to set")
    with ServerProcess(tmp_path / "data", broker={"max.connections": 20}) as server, ExitStack() as open_ones:
        crowd = [open_ones.enter_context(connect(server.bootstrap)) for _ in range(20)]
        for each in crowd:
            each.sendall(api_versions())
            read_frame(each)
        for _ in range(5):
            with connect(server.bootstrap) as one_too_many:
                assert is_refused(one_too_many)
        for each in crowd:
            each.sendall(api_versions())
            read_frame(each)
        crowd[0].close()
        wait_until(lambda: admitted(server.bootstrap), within_s=60, what="no place became free")


def admitted(bootstrap: str) -> bool:
    """Whether a new connection is served."""
    with connect(bootstrap) as connection:
        return not is_refused(connection)


def run_slow_readers(server: ServerProcess, neighbour: Client, *, readers: int) -> None:
    """Each asks for the whole topic several times over, and reads nothing of it."""
    rng = random.Random(6)
    sent = [Message(value=rng.randbytes(100_000), partition=0) for _ in range(300)]
    neighbour.produce("slow", sent)
    check_neighbour(neighbour)
    memory = server.memory_bytes()
    with ExitStack() as open_ones:
        for _ in range(readers):
            slow = open_ones.enter_context(connect(server.bootstrap))
            slow.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 8192)
            slow.sendall(b"".join(fetch("slow", 0, 0) for _ in range(8)))
        for _ in range(3):
            check_neighbour(neighbour)
        growth = server.memory_bytes() - memory
        bound = readers * 8 * _MIB + 64 * _MIB
        assert growth < bound, f"{growth >> 20} MiB for {readers} readers that do not read"
        one = open_ones.enter_context(connect(server.bootstrap))
        assert fetch_all(one, "slow", 0) > 30_000_000  # a patient one gets it all
    check_neighbour(neighbour)


def test_slow_readers_are_bounded_and_harm_nobody(own_server: ServerProcess, neighbour: Client) -> None:
    run_slow_readers(own_server, neighbour, readers=20)


@pytest.mark.heavy
def test_two_hundred_slow_readers(own_server: ServerProcess, neighbour: Client) -> None:
    run_slow_readers(own_server, neighbour, readers=200)


def test_senders_that_never_finish_are_bounded(own_server: ServerProcess, neighbour: Client) -> None:
    """Each announces a large request and sends a part of it: what is held has a bound for the node."""
    check_neighbour(neighbour)
    memory = own_server.memory_bytes()
    part = b"\x05\x00\x00\x00" + b"\x00\x00\x00\x09" + b"x" * (2 * _MIB)  # 80 MiB of Produce, they say
    with ExitStack() as open_ones:
        for _ in range(40):
            sender = open_ones.enter_context(connect(own_server.bootstrap))
            send_what_fits(sender, part)
        check_neighbour(neighbour)
        growth = own_server.memory_bytes() - memory
        assert growth < (112 + 48) * _MIB, (
            f"{growth >> 20} MiB"
        )  # large requests of one listener, and some air
    wait_until(lambda: admitted(own_server.bootstrap), within_s=60, what="nobody is served")


def send_what_fits(connection: socket.socket, data: bytes) -> None:
    """Until the other side takes no more for a moment."""
    connection.settimeout(0.2)
    view = memoryview(data)
    try:
        while view:
            view = view[connection.send(view) :]
    except (TimeoutError, ConnectionError):
        return
