"""One set of behaviours over every transport of the native listener: TCP, a Unix socket, a WebSocket, TLS.

Real sockets, the real listeners, and asyncio's loop as well as uvloop's.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

import pytest
from tests.conformance.transport_rig import ENCRYPTED, WEB_SOCKETS, Client, Refused, Rig, facts_of_end, play

from tailrace.broker.topic import NewTopic
from tailrace.http import HttpConfig
from tailrace.model.session import Session
from tailrace.native import NativeConfig
from tailrace.native.connection import Connection
from tailrace.net import Transport
from tailrace.wire.native import MessageType, read_error

KIB = 1024
DESCRIBE = MessageType.DESCRIBE
KINDS = ("tcp", "unix", "websocket", "tls", "wss")


class Play(Protocol):
    """`transport_rig.play` with the kind of transport and the loop that the test is run with."""

    def __call__(
        self,
        scenario: Callable[[Rig], Awaitable[None]],
        *,
        config: NativeConfig | None = None,
        http: HttpConfig | None = None,
    ) -> None: ...


@pytest.fixture(params=[(kind, uv) for kind in KINDS for uv in (False, True)], ids=lambda each: _name(*each))
def played(request: pytest.FixtureRequest, short_directory: Path) -> Play:
    kind, uv = request.param

    def run(
        scenario: Callable[[Rig], Awaitable[None]],
        *,
        config: NativeConfig | None = None,
        http: HttpConfig | None = None,
    ) -> None:
        play(scenario, kind, short_directory, config=config, http=http, uv=uv)

    return run


def _name(kind: str, uv: bool) -> str:
    return f"{kind}-{'uvloop' if uv else 'asyncio'}"


def of_asyncio(transport: asyncio.Transport) -> Transport:
    """asyncio's transports are transports as they are, those of TLS too: the type checker holds this."""
    return transport


# ---- receiving


def test_bytes_that_are_split_anywhere_arrive_whole(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        bodies: list[bytes] = []
        length = len(client.encode(client.frame(MessageType.PUBLISH, b"body", _topic="events")[1]))
        for cut in range(1, length):
            sequence, frame = client.frame(MessageType.PUBLISH, b"%04d" % cut, _topic="events")
            data = client.encode(frame)
            assert len(data) == length
            for piece in (data[:cut], data[cut:]):
                client.writer.write(piece)
                for _ in range(3):  # turns of the loop, in which the listener reads it
                    await asyncio.sleep(0)
            assert (await client.reply()).sequence == sequence
            bodies.append(b"%04d" % cut)
        assert await rig.values() == bodies

    played(scenario)


def test_a_request_may_come_byte_by_byte(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        sequence, frame = client.frame(MessageType.PUBLISH, b"slowly", _topic="events")
        for byte in client.encode(frame):
            client.writer.write(bytes([byte]))
            await asyncio.sleep(0)
        assert (await client.reply()).sequence == sequence
        assert await rig.values() == [b"slowly"]

    played(scenario)


def test_a_large_request_arrives_whole(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        body = os.urandom(
            900 * KIB
        )  # above every buffer on the way, below the bound of a WebSocket's message
        sequence = client.publish(body)
        assert (await client.reply()).sequence == sequence
        assert await rig.values() == [body]

    played(scenario)


def test_requests_that_come_together_are_applied_and_answered_in_order(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        frames = [client.frame(MessageType.PUBLISH, b"%d" % number, _topic="events") for number in range(300)]
        client.writer.write(client.encode(b"".join(frame for _, frame in frames)))
        replies = [await client.reply() for _ in frames]
        assert [reply.sequence for reply in replies] == [sequence for sequence, _ in frames]
        assert [int(reply.properties["_offset"]) for reply in replies] == list(range(300))
        assert await rig.values() == [b"%d" % number for number in range(300)]

    played(scenario)


def test_a_connection_that_ends_in_the_middle_of_a_frame_leaves_nothing_behind(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        broken, other = await rig.connect(), await rig.connect()
        whole = broken.publish(b"whole")
        assert (await broken.reply()).sequence == whole
        _, frame = broken.frame(MessageType.PUBLISH, b"x" * 100 * KIB, _topic="events")
        broken.writer.write(broken.encode(frame)[:-1])
        await rig.wait_until(lambda: rig.native.budget.used > 64 * KIB)  # it has come, but for the last byte
        broken.vanish()
        await rig.wait_until(lambda: rig.connections == 1 and rig.native.budget.used == 0)
        other.publish(b"other")
        await other.reply()
        assert await rig.values() == [b"whole", b"other"]

    played(scenario)


# ---- back-pressure

SMALL_BUFFERS = NativeConfig(out_buffer_bytes_max=64 * KIB, reply_bytes_max=16 * KIB)
ASKED = 2500


async def fill(rig: Rig) -> tuple[Client, list[int], Connection]:
    """A client that asks for about 20 MB and reads nothing, what it asked, and the listener's end of it."""
    for number in range(40):
        await rig.broker.topics.create(NewTopic(name=f"topic-{number}", partitions=1))
    client = await rig.connect(narrow=True)
    client.stop_reading()
    sequences = [client.send(DESCRIBE, _what="topics") for _ in range(ASKED)]
    await rig.wait_until(lambda: bool(rig.ends))
    await rig.wait_still(lambda: rig.native.counters.requests)
    return client, sequences, rig.ends[-1]


def test_a_client_that_does_not_read_is_not_read_and_costs_a_bounded_amount(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client, sequences, end = await fill(rig)
        taken = rig.native.counters.requests
        assert taken < ASKED
        assert (
            64 * KIB < end.buffered_bytes < 80 * KIB + 128 * KIB
        )  # what one turn may add: a piece, and a reply
        assert not end.is_open()
        client.go_on_reading()
        assert [(await client.reply()).sequence for _ in sequences] == sequences
        assert end.is_open()

    played(scenario, config=SMALL_BUFFERS)


def test_a_client_that_never_reads_is_given_up(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client, _, end = await fill(rig)
        await rig.wait_until(lambda: end not in rig.ends_open)
        assert rig.native.counters.requests < ASKED
        other = await rig.connect()
        other.publish(b"x")
        await other.reply()
        client.go_on_reading()
        assert len(await client.rest()) < ASKED

    played(
        scenario,
        config=NativeConfig(
            out_buffer_bytes_max=64 * KIB, reply_bytes_max=16 * KIB, heartbeat_interval_ms=100
        ),
    )


def test_too_many_unanswered_requests_hold_the_next(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        rig.log.hold()
        client = await rig.connect()
        sequences = [client.publish(b"%d" % number) for number in range(40)]
        await rig.wait_until(lambda: bool(rig.ends) and rig.ends[-1].protocol.unanswered == 8)
        for _ in range(50):
            await asyncio.sleep(0)
        assert rig.ends[-1].protocol.unanswered == 8
        rig.log.settle()
        assert [(await client.reply()).sequence for _ in sequences] == sequences
        assert await rig.values() == [b"%d" % number for number in range(40)]

    played(scenario, config=NativeConfig(unanswered_requests_max=8))


# ---- ends


def test_a_client_that_ends_its_side_has_what_it_asked_for_done(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log.hold()
        sequence = client.publish(b"last")
        await rig.wait_until(lambda: bool(rig.log.held))
        if client.transport.can_write_eof():
            client.writer.write_eof()
        else:  # TLS
            client.writer.close()
        for _ in range(10):
            await asyncio.sleep(0)
        rig.log.settle()
        replies = [frame.sequence for frame in await client.rest()]
        assert replies == ([sequence] if client.half_closes else [])
        assert await rig.values() == [b"last"]
        await rig.wait_until(lambda: rig.connections == 0)

    played(scenario)


def test_a_client_that_breaks_the_protocol_is_told_behind_its_answers(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log.hold()
        sequence = client.publish(b"x")
        await rig.wait_until(lambda: bool(rig.log.held))
        client.writer.write(client.encode(b"\xff" * 64))
        await rig.wait_until(lambda: rig.native.counters.protocol_errors == 1)
        rig.log.settle()
        reply, last = await client.rest()
        assert (reply.type, reply.sequence) == (MessageType.ACK, sequence)
        assert (last.type, last.sequence) == (MessageType.ERROR, 0)
        assert "bytes" in read_error(last).message

    played(scenario)


def test_closing_sends_what_was_accepted(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        rig.log.hold()
        sequences = [client.publish(b"%d" % number) for number in range(10)]
        await rig.wait_until(lambda: bool(rig.ends) and rig.ends[-1].protocol.unanswered == 10)
        closing = asyncio.ensure_future(rig.close())
        await rig.wait_until(lambda: not rig.ends[-1].is_open())
        client.publish(b"too late")
        rig.log.settle()
        assert [frame.sequence for frame in await client.rest()] == sequences
        client.vanish()
        await closing
        assert await rig.values() == [b"%d" % number for number in range(10)]

    played(scenario)


def test_closing_sends_what_was_written_though_the_client_reads_slowly(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client, _, end = await fill(rig)
        taken = rig.native.counters.requests
        end.close_soon()
        client.go_on_reading()
        if rig.kind == "tls":
            # asyncio's own client drops what it has received and not handed out when the goodbye of TLS
            # comes: tests/unit/net/test_handshake.py has a client that does not.
            assert await client.rest()
        else:
            assert len(await client.rest()) == taken

    played(scenario, config=SMALL_BUFFERS)


def test_aborting_drops_what_was_not_sent(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client, _, end = await fill(rig)
        taken = rig.native.counters.requests
        end.abort()
        await rig.wait_until(lambda: end not in rig.ends_open)
        assert end.buffered_bytes == 0
        client.go_on_reading()
        assert len(await client.rest()) < taken

    played(scenario, config=SMALL_BUFFERS)


def test_a_listener_that_closes_ends_every_connection(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        clients = [await rig.connect() for _ in range(5)]
        for client in clients:
            client.send(MessageType.SUBSCRIBE, _subscription="workers", _topic="events")
            assert (await client.reply()).type == MessageType.ACK
        closing = asyncio.ensure_future(rig.close())
        for client in clients:
            assert await client.rest() == []
            client.vanish()
        await closing
        assert rig.connections == 0
        with pytest.raises((OSError, Refused)):
            await rig.connect()

    played(scenario)


# ---- who is there


def test_a_connection_knows_its_client(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        client = await rig.connect()
        client.publish(b"x")
        await client.reply()
        facts, session = facts_of_end(rig), rig.ends[-1].protocol.access.session
        if rig.kind == "unix":
            assert facts.peer_host == facts.local_host == str(rig.address)
            assert str(facts) == f"{rig.address} pid {os.getpid()}"
            assert session == Session(host=str(rig.address), listener="native")
        else:
            _, port = client.writer.get_extra_info("sockname")
            assert str(facts) == f"127.0.0.1:{port}"
            _, served = client.writer.get_extra_info("peername")
            assert (facts.local_host, facts.local_port) == ("127.0.0.1", served)
            assert session == Session(
                host="127.0.0.1",
                listener="http" if rig.kind in WEB_SOCKETS else "native",
                encrypted=rig.kind in ENCRYPTED,
            )

    played(scenario)


def test_many_connections_are_served_at_once(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        clients = [await rig.connect() for _ in range(60)]
        for number, client in enumerate(clients):
            client.publish(b"%02d" % number)
        for client in clients:
            assert (await client.reply()).sequence == 1
        assert sorted(filter(None, await rig.values())) == [b"%02d" % number for number in range(60)]

    played(scenario)


def test_connections_past_the_bound_are_ended_at_once(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        clients = [await rig.connect() for _ in range(3)]
        for client in clients:
            client.publish(b"x")
            await client.reply()
        with pytest.raises((EOFError, Refused)):
            await (await rig.connect()).receive()
        clients[0].vanish()
        await rig.wait_until(lambda: rig.connections == 2)
        again = await rig.connect()
        again.publish(b"y")
        assert (await again.reply()).sequence == 1

    played(scenario, config=NativeConfig(connections_max=3), http=HttpConfig(connections_max=3))


def test_the_bound_of_one_address_leaves_the_clients_of_a_unix_socket_alone(played: Play) -> None:
    async def scenario(rig: Rig) -> None:
        clients = [await rig.connect() for _ in range(2)]
        for client in clients:
            client.publish(b"x")
            await client.reply()
        if rig.kind == "unix":  # whose clients have no addresses
            third = await rig.connect()
            third.publish(b"y")
            assert (await third.reply()).sequence == 1
        else:
            with pytest.raises((EOFError, Refused)):
                await (await rig.connect()).receive()

    played(
        scenario,
        config=NativeConfig(connections_per_address_max=2),
        http=HttpConfig(connections_per_address_max=2),
    )
