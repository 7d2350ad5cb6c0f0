"""One connection against a scripted broker: order, bounds, timeouts, and peers that break the protocol."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Awaitable, Callable
from typing import Any

import pytest
from tests import unhurried
from tests.port import refusing_port
from tests.unit.client.conftest import METADATA, FakeBroker

from tailrace.client.connection import Connection, open_connection
from tailrace.client.error import CannotConnect, ConnectionLost, ConnectTimedOut, TimedOut, UnsupportedApi
from tailrace.model import ProtocolError
from tailrace.model.address import Address
from tailrace.wire.kafka import API_VERSIONS, encode
from tailrace.wire.kafka.messages.api_versions import ApiVersion, ApiVersionsResponse
from tailrace.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse

SOUND = encode(MetadataResponse(), 11)


async def connect(fake: FakeBroker, **settings: Any) -> Connection:
    limits = {"request_timeout_s": 60.0, "connect_timeout_s": 60.0, **settings}
    return await open_connection(Address("127.0.0.1", fake.port), client_id="test", **limits)


def with_connection(test: Callable[[FakeBroker, Connection], Awaitable[None]], **settings: Any) -> None:
    async def run() -> None:
        async with FakeBroker() as fake:
            connection = await connect(fake, **settings)
            try:
                await test(fake, connection)
            finally:
                await connection.close()

    unhurried.run(run())


def ask(connection: Connection, **settings: Any) -> Awaitable[Any]:
    return connection.request(METADATA, MetadataRequest(topics=[]), **settings)


# ---- requests and replies


def test_replies_reach_their_requests_though_all_were_sent_at_once() -> None:
    async def test(fake: FakeBroker, connection: Connection) -> None:
        count = 0

        def numbered(version: int, request: object) -> MetadataResponse:
            nonlocal count
            count += 1
            return MetadataResponse(controller_id=count)

        fake.handlers[METADATA] = numbered
        replies = await asyncio.gather(*(ask(connection) for _ in range(50)))
        assert [reply.controller_id for reply in replies] == list(range(1, 51))

    with_connection(test)


def test_requests_are_pipelined_up_to_the_bound() -> None:
    async def test(fake: FakeBroker, connection: Connection) -> None:
        release = asyncio.Event()

        async def held(version: int, request: object) -> MetadataResponse:
            await release.wait()
            return MetadataResponse()

        fake.handlers[METADATA] = held
        asking = [asyncio.ensure_future(ask(connection)) for _ in range(5)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert "2 in flight" in repr(connection)
        release.set()
        await asyncio.gather(*asking)
        assert "0 in flight" in repr(connection)

    with_connection(test, in_flight_max=2)


def test_a_reply_larger_than_the_receive_buffer_arrives_whole() -> None:
    async def test(fake: FakeBroker, connection: Connection) -> None:
        fake.handlers[METADATA] = lambda version, request: MetadataResponse(cluster_id="x" * 30_000)
        small = await asyncio.gather(*(ask(connection) for _ in range(10)))
        assert {len(reply.cluster_id) for reply in small} == {30_000}

    with_connection(test)


def test_a_reply_in_single_bytes_arrives_whole() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        correlation = 0
        while True:
            try:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                frame = await reader.readexactly(size)
            except asyncio.IncompleteReadError:
                writer.close()
                return
            correlation += 1
            key = struct.unpack_from(">h", frame)[0]
            keys = [ApiVersion(api_key=METADATA, min_version=0, max_version=0)]
            body = (
                encode(ApiVersionsResponse(api_keys=keys), 3)
                if key == API_VERSIONS
                else encode(MetadataResponse(), 0)
            )
            for byte in struct.pack(">ii", 4 + len(body), correlation) + body:
                writer.write(bytes([byte]))
                await writer.drain()

    async def run() -> None:
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
        connection = await open_connection(address, client_id="t", request_timeout_s=60, connect_timeout_s=60)
        assert (await ask(connection)).topics == []
        await connection.close()
        server.close()

    unhurried.run(run())


def test_a_request_that_was_given_up_does_not_shift_the_others() -> None:
    async def test(fake: FakeBroker, connection: Connection) -> None:
        release = asyncio.Event()
        replies = iter((1, 2))

        async def held(version: int, request: object) -> MetadataResponse:
            await release.wait()
            return MetadataResponse(controller_id=next(replies))

        fake.handlers[METADATA] = held
        first, second = asyncio.ensure_future(ask(connection)), asyncio.ensure_future(ask(connection))
        await asyncio.sleep(0)
        first.cancel()
        await asyncio.gather(first, return_exceptions=True)
        release.set()
        assert (await second).controller_id == 2

    with_connection(test)


# ---- trouble


def test_a_request_that_times_out_ends_the_connection() -> None:
    async def test(fake: FakeBroker, connection: Connection) -> None:
        fake.handlers[METADATA] = lambda version, request: None
        behind = asyncio.ensure_future(ask(connection))
        with pytest.raises(TimedOut, match=r"did not answer Metadata within 0\.05 s"):
            await ask(connection, timeout_s=0.05)
        with pytest.raises(ConnectionLost):
            await behind
        assert connection.closed
        with pytest.raises(ConnectionLost):
            await ask(connection)

    with_connection(test)


def test_a_connection_that_breaks_fails_everything_in_flight() -> None:
    async def test(fake: FakeBroker, connection: Connection) -> None:
        async def break_off(version: int, request: object) -> None:
            fake.drop_connections()

        fake.handlers[METADATA] = break_off
        results = await asyncio.gather(*(ask(connection) for _ in range(3)), return_exceptions=True)
        assert [isinstance(each, ConnectionLost) for each in results] == [True] * 3

    with_connection(test)


@pytest.mark.parametrize(
    "answer",
    [
        b"\x00",
        b"",
        encode(MetadataResponse(), 11) + b"left over",
        b"\xff" * 40,
    ],
)
def test_a_reply_that_makes_no_sense_ends_the_connection(answer: bytes) -> None:
    async def test(fake: FakeBroker, connection: Connection) -> None:
        fake.handlers[METADATA] = lambda version, request: answer
        with pytest.raises(ProtocolError):
            await ask(connection)
        assert connection.closed

    with_connection(test)


def reply_raw(data: bytes) -> Callable[[FakeBroker, Connection], Awaitable[None]]:
    """A test in which the broker's reply to Metadata is these bytes, frame and all."""

    async def test(fake: FakeBroker, connection: Connection) -> None:
        async def raw(version: int, request: object) -> None:
            for writer in fake._writers:
                writer.write(data)

        fake.handlers[METADATA] = raw
        with pytest.raises(ProtocolError):
            await ask(connection)
        assert connection.closed

    return test


@pytest.mark.parametrize(
    "data",
    [
        struct.pack(">i", -1),
        struct.pack(">i", 0),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 2**31 - 1),
        struct.pack(">ii", 4, 99),
        struct.pack(">iib", 5 + len(SOUND), 99, 0) + SOUND,
    ],
    ids=["negative size", "no size", "size of no header", "huge size", "no room for an id", "wrong id"],
)
def test_a_frame_that_breaks_the_rules_ends_the_connection(data: bytes) -> None:
    with_connection(reply_raw(data))


def test_a_reply_over_the_limit_is_refused_before_it_is_received() -> None:
    with_connection(reply_raw(struct.pack(">i", 4001)), reply_bytes_max=4000)


def test_a_reply_that_nobody_asked_for_ends_the_connection() -> None:
    async def test(fake: FakeBroker, connection: Connection) -> None:
        for writer in fake._writers:
            writer.write(struct.pack(">ii", 4, 1))
        await asyncio.wait_for(connection._closed.wait(), 60)
        with pytest.raises(ConnectionLost, match="nobody asked for"):
            await ask(connection)

    with_connection(test)


# ---- opening


def test_refused_says_where_why_and_what_to_do() -> None:
    async def run(port: int) -> None:
        expected = (
            rf"^cannot reach 127\.0\.0\.1:{port} \(connection refused\)\. "
            r"Is the broker running\? Try: tailrace up$"
        )
        with pytest.raises(CannotConnect, match=expected):
            await open_connection(
                Address("127.0.0.1", port), client_id="t", request_timeout_s=60, connect_timeout_s=60
            )

    with refusing_port() as port:
        unhurried.run(run(port))


async def open_against(greeting: bytes | None, *, timeout_s: float = 5.0) -> None:
    """Connect to something that answers the first bytes it gets with these, or with nothing."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        if greeting is not None:
            writer.write(greeting)
            writer.close()
            return
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    address = Address("127.0.0.1", server.sockets[0].getsockname()[1])
    try:
        await open_connection(
            address, client_id="t", request_timeout_s=timeout_s, connect_timeout_s=timeout_s
        )
    finally:
        server.close()


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n", "speaks HTTP and not Kafka"),
        (b"\x15\x03\x01\x00\x02\x02\x46", "expects TLS"),
        (b"SSH-2.0-OpenSSH\r\n", "Is this the Kafka port"),
        (b"", "Is this the Kafka port"),
    ],
)
def test_something_that_is_no_broker_is_recognised(greeting: bytes, words: str) -> None:
    with pytest.raises(CannotConnect, match=words):
        unhurried.run(open_against(greeting))


def test_something_that_says_nothing_is_a_timeout() -> None:
    with pytest.raises(ConnectTimedOut, match="said nothing"):
        unhurried.run(open_against(None, timeout_s=0.05))


# ---- versions


def test_the_newest_version_of_both_sides_is_used() -> None:
    async def run() -> None:
        async with FakeBroker() as fake:
            fake.versions[METADATA] = (0, 4)
            connection = await connect(fake)
            assert connection.version_of(METADATA) == 4
            assert (await ask(connection)).cluster_id == "fake"
            await connection.close()

    unhurried.run(run())


@pytest.mark.parametrize("versions", [None, (90, 99)])
def test_an_api_without_a_common_version_is_refused_by_name(versions: tuple[int, int] | None) -> None:
    async def run() -> None:
        async with FakeBroker() as fake:
            fake.versions.pop(METADATA)
            if versions is not None:
                fake.versions[METADATA] = versions
            connection = await connect(fake)
            with pytest.raises(UnsupportedApi, match="Metadata cannot be used"):
                await ask(connection)
            await connection.close()

    unhurried.run(run())


def test_a_broker_that_does_not_know_our_handshake_is_asked_in_version_0() -> None:
    """Such a broker answers in version 0 with error 35, whatever it was asked in (KIP-511)."""

    async def run() -> None:
        async with FakeBroker() as fake:
            asked = []

            def old(version: int, request: object) -> bytes:
                asked.append(version)
                keys = [ApiVersion(api_key=METADATA, min_version=0, max_version=1)]
                return encode(ApiVersionsResponse(error_code=35 if version else 0, api_keys=keys), 0)

            fake.handlers[API_VERSIONS] = old
            connection = await connect(fake)
            assert asked == [3, 0]
            assert connection.versions == {METADATA: (0, 1)}
            await connection.close()

    unhurried.run(run())
