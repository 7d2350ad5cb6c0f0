"""Malformed requests by the thousand: only their own connection pays, and nothing grows.

The cases are mutations of what real clients sent through a recording proxy, and of a request of every API and
version from the table of the protocol. Meanwhile a well-behaved connection is served.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
from collections.abc import Iterator, Sequence

import pytest
import uvloop
from tests.interop.clients import confluent, kafka_python
from tests.interop.clients.port import Client, Message, Producing, Reading, TopicPartition
from tests.interop.malformed import case
from tests.interop.raw import api_versions, connect, fetch, read_frame, request
from tests.interop.recorder import Recorder
from tests.interop.server import ServerProcess
from tests.seed import seed_of_run

from tailrace.wire.kafka import APIS, FETCH, PRODUCE, encode, request_type, write_request

_GROWTH_BYTES_MAX = 64 * 1024 * 1024
_AT_ONCE = 32
_CASE_S = 0.25  # a broken request may still be one that waits: nobody has to answer it
_NEIGHBOUR_S = 60
_BESIDE = "beside"
_GIVEN = os.environ.get("TAILRACE_INTEROP_BOOTSTRAP", "")


@pytest.fixture(scope="module")
def recorder() -> Iterator[Recorder]:
    """Known before the server, which advertises it."""
    made = Recorder()
    yield made
    made.close()


@pytest.fixture(scope="module")
def target(tmp_path_factory: pytest.TempPathFactory, recorder: Recorder) -> Iterator[ServerProcess]:
    """A server whose topics are made on purpose only, since a broken name would make one otherwise. And few:
    a mutation may be a sound request for ten thousand partitions, which is growth that was asked for."""
    if _GIVEN:
        pytest.skip("the broker was given: it is not ours to break")
    running = ServerProcess(
        tmp_path_factory.mktemp("frames") / "data",
        server={"advertised": recorder.bootstrap},
        broker={"auto.create.topics.enable": False, "max.partitions": 1000},
    )
    with running:
        yield running


@pytest.fixture(scope="module")
def frames(target: ServerProcess, recorder: Recorder) -> list[bytes]:
    """Valid requests: recorded, and made from the table."""
    recorder.broker = target.bootstrap
    with recorder:
        # A topic that no deletion names: a request that deletes records may stay sound when it is mutated.
        client = confluent.start(recorder.bootstrap)
        client.admin.create_topic(_BESIDE)
        client.produce(_BESIDE, [Message(value=b"w" * 500, partition=0)])
        client.close()
        for module in (confluent, kafka_python):
            visit(module.start(recorder.bootstrap), topic=f"visited-by-{module.__name__.rpartition('.')[2]}")
    kinds = {key for key, _ in recorder.kinds()}
    assert kinds >= {0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 18, 19, 20, 22, 32, 37}, sorted(kinds)
    return recorder.frames() + list(table())


def visit(client: Client, *, topic: str) -> None:
    """A little of everything, so that its requests are seen."""
    where = TopicPartition(topic, 0)
    client.admin.create_topic(topic, partitions=2, configs={"retention.ms": "3600000"})
    client.produce(topic, [Message(value=b"v" * 50, key=b"k", headers=(("h", b"1"),), partition=0)])
    client.produce(topic, [Message(value=b"w" * 500, partition=1)], Producing(codec="gzip", idempotent=True))
    member = client.open(Reading(topics=[topic], group=f"{topic}-group"))
    member.take(2)
    member.commit({where: 1}, metadata="note")
    client.admin.describe_group(f"{topic}-group")
    client.admin.group_offsets(f"{topic}-group")
    member.close()
    client.admin.offset_at(where, 1)
    client.admin.configs(topic)
    client.admin.set_config(topic, name="retention.ms", value="7200000")
    client.admin.add_partitions(topic, total=3)
    client.admin.delete_records(where, before=1)
    client.admin.groups()
    client.admin.create_topic(f"{topic}-gone")
    client.admin.delete_topic(f"{topic}-gone")
    client.close()


def table() -> Iterator[bytes]:
    """A request of every API and version, with default values throughout."""
    for key, api in APIS.items():
        if key in (PRODUCE, FETCH):
            continue  # recorded ones have records in them
        for version in range(api.min_version, api.max_version + 1):
            body = encode(request_type(key)(), version)
            yield write_request(key, version, 7, "table", body)[4:]


async def send_all(bootstrap: str, cases: Iterator[bytes]) -> int:
    """Each on a connection of its own, a few at a time; how many of them the server answered."""
    host, _, port = bootstrap.rpartition(":")
    answered = 0

    async def work() -> None:
        nonlocal answered
        for data in cases:
            reader, writer = await asyncio.open_connection(host, int(port))
            try:
                writer.write(data)
                with contextlib.suppress(TimeoutError, ConnectionError):
                    async with asyncio.timeout(_CASE_S):
                        answer = await reader.read(4096)
                        answered += bool(answer)
            finally:
                writer.transport.abort()

    await asyncio.gather(*(work() for _ in range(_AT_ONCE)))
    return answered


def check_neighbour(server: ServerProcess) -> None:
    """A connection that keeps the rules is served at once, whatever the others did."""
    assert server.running(), server.output()
    with connect(server.bootstrap, timeout_s=_NEIGHBOUR_S) as connection:
        connection.sendall(api_versions(correlation=99))
        assert read_frame(connection)[:4] == b"\0\0\0\x63"
        connection.sendall(fetch(_BESIDE, 0, 0))
        assert len(read_frame(connection)) > 500


def run_cases(server: ServerProcess, frames: Sequence[bytes], *, count: int) -> None:
    """Send so many, look after each part, and compare the memory after the first with that at the end."""
    rng = random.Random(seed_of_run())
    part = max(2000, count // 50)
    memory: list[int] = []
    answered = 0
    for _ in range(0, count, part):
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            answered += runner.run(send_all(server.bootstrap, (case(rng, frames) for _ in range(part))))
        check_neighbour(server)
        memory.append(server.memory_bytes())
    assert answered > count // 20, "hardly a case got as far as an answer: the cases are too dull"
    assert memory[-1] - memory[0] < _GROWTH_BYTES_MAX, f"it grew: {[size >> 20 for size in memory]} MiB"
    assert "Traceback" not in server.output(), server.output()


@pytest.mark.slow
def test_malformed_requests_harm_nobody(target: ServerProcess, frames: list[bytes]) -> None:
    run_cases(target, frames, count=20_000)


@pytest.mark.heavy
def test_a_million_malformed_requests_harm_nobody(target: ServerProcess, frames: list[bytes]) -> None:
    run_cases(target, frames, count=1_000_000)


@pytest.mark.parametrize("version", [5, 99, -1])
def test_an_unknown_version_of_api_versions_is_told_the_range(target: ServerProcess, version: int) -> None:
    with connect(target.bootstrap) as connection:
        connection.sendall(request(18, version, b"\0"))
        answer = read_frame(connection)
        assert answer[4:6] == b"\0\x23"  # 35, in the form of version 0
        assert b"\x00\x12\x00\x00\x00\x04" in answer  # key 18, from 0 to 4
        connection.sendall(api_versions())
        assert read_frame(connection)[4:6] == b"\0\0"


@pytest.mark.parametrize("data", [b"\xff\xff\xff\xff", b"\x7f\xff\xff\xff", b"\0\0\0\0", b"\0\0\0\x02\0\x12"])
def test_a_size_that_cannot_be_closes_the_connection(target: ServerProcess, data: bytes) -> None:
    with connect(target.bootstrap) as connection:
        connection.sendall(data)
        with pytest.raises(ConnectionError):
            read_frame(connection)
    check_neighbour_version(target)


def check_neighbour_version(server: ServerProcess) -> None:
    """The cheapest sign of life."""
    with connect(server.bootstrap, timeout_s=_NEIGHBOUR_S) as connection:
        connection.sendall(api_versions())
        assert read_frame(connection)[4:6] == b"\0\0"


def test_frames_are_taken_whatever_pieces_they_come_in(target: ServerProcess) -> None:
    whole = api_versions(correlation=1) + api_versions(correlation=2)
    with connect(target.bootstrap) as connection:
        for byte in whole:
            connection.sendall(bytes([byte]))
        assert [read_frame(connection)[:4] for _ in range(2)] == [b"\0\0\0\1", b"\0\0\0\2"]


def test_answers_come_in_the_order_of_the_requests(target: ServerProcess) -> None:
    with connect(target.bootstrap) as connection:
        waiting = fetch("visited-by-confluent", 0, 1, wait_ms=300)
        connection.sendall(waiting + api_versions(correlation=8))
        assert read_frame(connection)[:4] == b"\0\0\0\7"
        assert read_frame(connection)[:4] == b"\0\0\0\x08"
