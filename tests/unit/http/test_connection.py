"""One HTTP connection over a real loopback socket, on both event loops: bounds, order, and what ends it."""

from __future__ import annotations

import asyncio
import json
import logging
import socket

import pytest
import websockets
from tests.unit.http.conftest import Run, Wire, both_loops, wait_until
from tests.unit.http.rig import get, late, listening, only_connection, post
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol

from tailrace.http import HttpConfig, HttpListener
from tailrace.http.connection import FRAGMENTS_MAX

SMALL = HttpConfig(head_bytes_max=1024)
HOUR = 3600.0
UPGRADE = [
    "connection: upgrade",
    "upgrade: websocket",
    "sec-websocket-version: 13",
    "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==",
]


def error_of(body: bytes) -> dict[str, object]:
    error = json.loads(body)["error"]
    assert error["code"] == "INVALID_REQUEST" and error["details"] == {}
    return error  # type: ignore[no-any-return]


ECHO = b"POST /echo HTTP/1.1\r\nhost: localhost\r\n"


async def is_alive(wire: Wire) -> bool:
    await wire.send(get("/hello/again"))
    status, _, body = await wire.answer()
    return status == 200 and json.loads(body) == {"hello": "again"}


# ---- requests


@both_loops
def test_requests_follow_each_other_on_one_connection(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            assert await is_alive(wire) and await is_alive(wire)
            assert listener.service.counters.accepted == 1 and listener.service.counters.requests == 2

    run(scenario())


@both_loops
def test_a_request_may_come_byte_by_byte(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            request = post("/echo", b"hello")
            await wire.send(*[request[at : at + 1] for at in range(len(request))])
            status, _, body = await wire.answer()
            assert status == 200 and json.loads(body)["body"] == "hello"
            assert await is_alive(wire)

    run(scenario())


@both_loops
def test_requests_that_come_at_once_are_answered_in_order(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            names = [f"n{each}" for each in range(50)]
            await wire.send(b"".join(get(f"/hello/{name}") for name in names))
            for name in names:
                assert json.loads((await wire.answer())[2]) == {"hello": name}

    run(scenario())


def test_the_client_is_who_connected_whatever_a_header_says(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(post("/echo", b"", "x-forwarded-for: 10.0.0.9", "forwarded: for=10.0.0.9"))
            assert json.loads((await wire.answer())[2])["client"] == "127.0.0.1"

    run(scenario())


def test_every_answer_has_a_date(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(get("/hello/x"))
            assert (await wire.answer())[1]["date"].endswith(" GMT")

    run(scenario())


def test_head_has_the_headers_of_get_and_no_body(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(get("/hello/x", method="HEAD"), get("/hello/again"))
            head = await wire.reader.readuntil(b"\r\n\r\n")
            assert b" 200 " in head and b"content-length: 13\r\n" in head
            assert json.loads((await wire.answer())[2]) == {"hello": "again"}

    run(scenario())


@both_loops
def test_an_upgrade_that_is_not_spoken_here_is_ignored(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(get("/hello/x", "connection: upgrade", "upgrade: h2c"))
            assert (await wire.answer())[0] == 200

    run(scenario())


# ---- heads


@both_loops
@pytest.mark.parametrize("pieces", [1, 50])
def test_a_head_over_the_bound_is_answered_and_the_connection_closed(run: Run, pieces: int) -> None:
    async def scenario() -> None:
        async with listening(SMALL) as (listener, _), Wire.to(listener) as wire:
            request = get("/hello/x", "cookie: " + "x" * 2000)
            step = len(request) // pieces
            await wire.send(*[request[at : at + step] for at in range(0, len(request), step)])
            status, headers, body = await wire.answer()
            assert status == 431 and headers["connection"] == "close"
            assert "too large" in str(error_of(body)["message"])
            assert await wire.rest() == b""
            assert listener.service.counters.protocol_errors == 1

    run(scenario())


@pytest.mark.parametrize(
    "start", [b"GET /" + b"x" * 3000, b"GET / HTTP/1.1\r\nhost: " + b"x" * 3000, b"\r\n" * 1500]
)
def test_a_head_without_an_end_is_not_collected(run: Run, start: bytes) -> None:
    async def scenario() -> None:
        async with listening(SMALL) as (listener, _), Wire.to(listener) as wire:
            await wire.send(*[start[at : at + 100] for at in range(0, len(start), 100)])
            assert (await wire.answer())[0] == 431

    run(scenario())


def test_a_head_of_the_bound_is_taken_and_the_next_has_a_bound_of_its_own(run: Run) -> None:
    async def scenario() -> None:
        async with listening(SMALL) as (listener, _), Wire.to(listener) as wire:
            for _ in range(4):
                await wire.send(get("/hello/x", "cookie: " + "x" * 900))
                assert (await wire.answer())[0] == 200

    run(scenario())


def test_a_body_is_not_part_of_the_head(run: Run) -> None:
    async def scenario() -> None:
        async with listening(SMALL) as (listener, _), Wire.to(listener) as wire:
            await wire.send(post("/echo", b"x" * 100_000))
            assert len(json.loads((await wire.answer())[2])["body"]) == 100_000
            assert await is_alive(wire)

    run(scenario())


def test_trailers_without_an_end_are_not_collected(run: Run) -> None:
    async def scenario() -> None:
        async with listening(SMALL) as (listener, _), Wire.to(listener) as wire:
            await wire.send(get("/echo", "transfer-encoding: chunked", method="POST"), b"2\r\nhi\r\n0\r\n")
            await wire.send(*[b"x-trailer: " + b"x" * 400] * 10)
            assert (await wire.answer())[0] == 431

    run(scenario())


def test_a_trailer_does_not_become_a_header(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, stage), Wire.to(listener) as wire:
            await wire.send(get("/echo", "transfer-encoding: chunked", method="POST"))
            await wire.send(b"2\r\nhi\r\n0\r\norigin: http://attacker.example\r\n\r\n")
            assert json.loads((await wire.answer())[2])["body"] == "hi"
            assert "origin" not in stage.headers

    run(scenario())


def test_a_head_that_does_not_become_complete_is_given_up(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(b"GET /hello/x HT")
            connection = await only_connection(listener)
            await wait_until(lambda: connection._dry_bytes > 0)
            assert late(connection, 14.0)
            assert not late(connection, 16.0)
            assert await wire.rest() == b""

    run(scenario())


def test_the_acceptor_sweeps_by_itself(run: Run) -> None:
    async def scenario() -> None:
        config = HttpConfig(head_timeout_s=0.05, idle_timeout_s=0.05)
        async with listening(config) as (listener, _), Wire.to(listener) as slow, Wire.to(listener) as silent:
            await slow.send(b"GET /hello/x HT")
            assert await slow.rest() == await silent.rest() == b""

    run(scenario())


# ---- silence


def test_a_client_that_never_speaks_has_the_idle_time(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener):
            connection = await only_connection(listener)
            assert late(connection, 70.0)
            assert not late(connection, 80.0)

    run(scenario())


def test_a_connection_without_a_next_request_is_closed(run: Run) -> None:
    async def scenario() -> None:
        config = HttpConfig(idle_timeout_s=1)
        async with listening(config) as (listener, _), Wire.to(listener) as wire:
            assert await is_alive(wire)
            assert await wire.rest() == b""

    run(scenario())


def test_an_empty_line_is_no_sign_of_life(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            assert await is_alive(wire)
            connection = await only_connection(listener)
            assert late(connection, 70.0)
            await wire.send(b"\r\n")
            await wait_until(lambda: connection._dry_bytes > 0)
            assert connection.timeout_keep_alive_task is None  # uvicorn's own clock is off by now
            assert not late(connection, 80.0)

    run(scenario())


def test_while_a_request_is_answered_no_clock_runs(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, stage), Wire.to(listener) as wire:
            await wire.send(get("/wait"))
            await wait_until(lambda: stage.began == ["wait"])
            assert late(await only_connection(listener), HOUR)
            stage.go_on.set()
            assert (await wire.answer())[0] == 200

    run(scenario())


def test_a_slow_body_is_not_taken_for_a_slow_head(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(post("/echo", b"hello")[:-3])
            connection = await only_connection(listener)
            await wait_until(lambda: connection.cycle is not None)
            assert late(connection, HOUR)
            await wire.send(b"llo")
            assert json.loads((await wire.answer())[2])["body"] == "hello"
            assert await is_alive(wire)

    run(scenario())


def test_a_head_that_came_behind_another_request_waits_with_it(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, stage), Wire.to(listener) as wire:
            half = len(get("/hello/again")) - 4
            await wire.send(get("/wait") + get("/hello/x") + get("/hello/again")[:half])
            await wait_until(lambda: stage.began == ["wait"])
            assert late(await only_connection(listener), HOUR)
            stage.go_on.set()
            assert (await wire.answer())[0] == (await wire.answer())[0] == 200
            await wire.send(get("/hello/again")[half:])
            assert (await wire.answer())[0] == 200

    run(scenario())


@both_loops
def test_who_sends_a_body_that_is_not_wanted_gets_the_answer_and_some_time(run: Run) -> None:
    async def scenario() -> None:
        async with listening(SMALL) as (listener, _), Wire.to(listener) as wire:
            await wire.send(get("/deaf", "content-length: 1000000", method="POST"))
            assert (await wire.answer())[0] == 200
            await wire.send(*[b"x" * 10_000] * 20)  # far more than a head may have
            connection = await only_connection(listener)
            assert late(connection, 14.0)
            await wire.send(*[b"x" * 10_000] * 80)
            assert await is_alive(wire)
            await wire.send(get("/deaf", "content-length: 1000000", method="POST"))
            assert (await wire.answer())[0] == 200
            assert not late(connection, 16.0)

    run(scenario())


@both_loops
def test_a_client_that_takes_nothing_of_its_answer_is_given_up(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, stage), Wire.to(listener) as wire:
            stage.answer_bytes = 64 << 20
            await wire.send(get("/large"))
            connection = await only_connection(listener)
            await wait_until(lambda: connection.transport.get_write_buffer_size() > 0)
            assert late(connection, 70.0)
            left = connection.transport.get_write_buffer_size()
            while connection.transport.get_write_buffer_size() >= left:
                await wire.reader.read(1 << 20)
            connection.sweep(asyncio.get_running_loop().time() + 80.0, idle_ticks_max=1)
            assert not connection.transport.is_closing()  # slow, and not gone
            assert not late(connection, 160.0)

    run(scenario())


@both_loops
def test_a_client_that_takes_nothing_of_its_stream_is_given_up_later(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, stage), Wire.to(listener) as wire:
            stage.answer_bytes = 64 << 20
            await wire.send(get("/large") + get("/wait"))
            connection = await only_connection(listener)
            await wait_until(lambda: connection.transport.get_write_buffer_size() > 0)
            assert connection._is_answering
            assert late(connection, 290.0)
            assert not late(connection, 310.0)

    run(scenario())


# ---- what breaks the rules


@both_loops
@pytest.mark.parametrize(
    "garbage",
    [
        b"hello\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET \xff HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http:// HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"CONNECT localhost:80 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost localhost\r\n\r\n",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\nx",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ncontent-length: " + b"9" * 30 + b"\r\n\r\nx",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\ncontent-length: 1\r\n\r\nx",
        b"POST /echo HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n",
        # Two readers of these may find two different requests (RFC 9112 sections 3.2, 5.2, 6.3 and 11.2).
        ECHO + b"content-length: 1\r\ncontent-length: 1\r\n\r\nx",
        ECHO + b"content-length: 1, 1\r\n\r\nx",
        ECHO + b"content-length: +1\r\n\r\nx",
        ECHO + b"content-length: -1\r\n\r\nx",
        ECHO + b"content-length: \r\n\r\n",
        ECHO + b"content-length : 1\r\n\r\nx",
        ECHO + b"content-length: 1\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ECHO + b"transfer-encoding: chunked, identity\r\n\r\n0\r\n\r\n",
        ECHO + b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
        ECHO + b"transfer-encoding:\r\n chunked\r\n\r\n0\r\n\r\n",
        ECHO + b"x-a: 1\r\n folded\r\ncontent-length: 1\r\n\r\nx",
        ECHO + b"x-a: a\0b\r\ncontent-length: 1\r\n\r\nx",
        b"POST /echo HTTP/1.1\nhost: localhost\ncontent-length: 1\n\nx",
        b"POST /echo HTTP/1.1\r\n host: localhost\r\ncontent-length: 1\r\n\r\nx",
        *[
            ECHO + b"transfer-encoding: chunked\r\n\r\n" + chunks
            for chunks in (
                b"-1\r\nx\r\n0\r\n\r\n",
                b"+1\r\nx\r\n0\r\n\r\n",
                b"0x1\r\nx\r\n0\r\n\r\n",
                b"1 \r\nx\r\n0\r\n\r\n",
                b"1\r\nxY0\r\n\r\n",
                b"1\nx\n0\n\n",
                b"\r\nx\r\n0\r\n\r\n",
                b"f" * 17 + b"\r\nx\r\n0\r\n\r\n",
            )
        ],
        b"GET http://attacker.example/hello/x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://localhost:1/hello/x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://localhost@attacker.example/hello/x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://user@localhost/hello/x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://localhost?/hello/x HTTP/1.1\r\nhost: localhos\r\n\r\n",
        b"GET ftp://localhost/hello/x HTTP/1.1\r\nhost: localhost\r\n\r\n",
        b"GET http://localhost/hello/x HTTP/1.1\r\n\r\n",
        b"GET http://localhost/hello/x HTTP/1.1\r\nhost: localhost\r\nhost: localhost\r\n\r\n",
        get("http://attacker.example/socket", *UPGRADE),
    ],
)
def test_what_is_not_http_is_answered_in_our_form_and_quietly(
    run: Run, garbage: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)

    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(garbage)
            status, headers, body = await wire.answer()
            assert status == 400 and headers["content-type"] == "application/json"
            assert error_of(body)
            assert await wire.rest() == b""
            assert listener.service.counters.protocol_errors == 1

    run(scenario())
    assert [each.message for each in caplog.records if each.levelno > logging.INFO] == []


def test_a_client_that_speaks_tls_is_named_in_the_log_once_a_minute(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _):
            for _ in range(2):
                async with Wire.to(listener) as wire:
                    await wire.send(b"\x16\x03\x01\x02\x00\x01\x00")
                    assert (await wire.answer())[0] == 400

    run(scenario())
    (line,) = [each.message for each in caplog.records if each.levelno > logging.INFO]
    assert "the client speaks TLS to a listener without TLS" in line and "on listener http" in line


@pytest.mark.parametrize("target", ["http://localhost/hello/x", "HTTP://LocalHost/hello/x"])
def test_a_target_may_name_the_host_itself(run: Run, target: str) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(get(target))
            status, _, body = await wire.answer()
            assert status == 200 and json.loads(body) == {"hello": "x"}
            assert await is_alive(wire)

    run(scenario())


@pytest.mark.parametrize("coding", ["gzip, chunked", "gzip,chunked", "identity", "xchunked"])
def test_a_body_that_is_coded_for_its_way_is_not_taken_for_the_body(run: Run, coding: str) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            head = ECHO + f"transfer-encoding: {coding}\r\n\r\n".encode()
            await wire.send(head + b"1\r\nx\r\n0\r\n\r\n")
            status, _, body = await wire.answer()
            assert status == 501 and "chunked" in str(error_of(body)["message"])
            assert await wire.rest() == b""

    run(scenario())


@both_loops
def test_garbage_behind_a_request_does_not_spoil_its_answer(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, stage), Wire.to(listener) as wire:
            await wire.send(get("/wait"))
            await wait_until(lambda: stage.began == ["wait"])
            await wire.send(b"hello\r\n\r\n")
            await wait_until(lambda: listener.service.counters.protocol_errors == 1)
            await wire.send(get("/hello/x"))  # nobody listens any more
            stage.go_on.set()
            status, headers, body = await wire.answer()
            assert status == 200 and json.loads(body) == {"waited": True}
            assert headers["connection"] == "close"
            assert await wire.rest() == b""

    run(scenario())


def test_a_body_that_breaks_in_the_middle_of_an_answer_ends_it(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(get("/stream", "transfer-encoding: chunked"))
            await wire.reader.readuntil(b"first\n\r\n")
            await wire.send(b"zz\r\n")
            assert await wire.rest() == b""

    run(scenario())


def test_who_was_refused_and_does_not_leave_is_given_up(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(b"hello\r\n\r\n", b"and more")
            assert (await wire.answer())[0] == 400
            connection = await only_connection(listener)
            assert late(connection, 14.0)
            assert not late(connection, 16.0)

    run(scenario())


# ---- clients that go away


@both_loops
@pytest.mark.parametrize("behind", [b"", get("/hello/x"), get("/hello/x") * 3])
def test_who_works_for_a_client_that_went_away_is_told(run: Run, behind: bytes) -> None:
    async def scenario() -> None:
        async with listening() as (listener, stage):
            async with Wire.to(listener) as wire:
                await wire.send(get("/wait") + behind)
                await wait_until(lambda: stage.began == ["wait"])
            await wait_until(lambda: stage.gone == ["wait"])
            await wait_until(lambda: not listener.connections)

    run(scenario())


# ---- WebSocket


def socket_address(listener: HttpListener) -> str:
    return f"ws://127.0.0.1:{listener.port}/socket"


@both_loops
def test_an_upgraded_connection_stays_one_connection(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, stage):
            counters = listener.service.counters
            async with websockets.connect(socket_address(listener)) as client:
                await client.send("hello")
                assert await client.recv() == "hello"
                assert (counters.connections, counters.accepted) == (1, 1)
                connection = await only_connection(listener)
                assert repr(connection).endswith("WebSocket>")
                assert late(connection, HOUR)
            await wait_until(lambda: stage.gone == ["socket"] and counters.connections == 0)

    run(scenario())


def test_a_websocket_whose_socket_breaks_is_counted_out(run: Run) -> None:
    async def scenario() -> None:
        async with (
            listening() as (listener, stage),
            websockets.connect(socket_address(listener)) as client,
        ):
            client.transport.abort()
            await wait_until(lambda: stage.gone == ["socket"])
            assert listener.service.counters.connections == 0

    run(scenario())


@pytest.mark.parametrize("head", ["x-large: " + "x" * 10_000, "\r\n".join(f"x-{n}: 1" for n in range(200))])
def test_a_head_that_is_too_large_for_a_websocket_only_is_answered_too(run: Run, head: str) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _):
            async with Wire.to(listener) as wire:
                await wire.send(get("/socket", *UPGRADE, head))
                status, _, body = await wire.answer()
                assert status == 431 and "WebSocket" in str(error_of(body)["message"])
                assert await wire.rest() == b""
            await wait_until(lambda: listener.service.counters.connections == 0)

    run(scenario())


def test_a_handshake_that_is_none_is_refused(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener) as wire:
            await wire.send(get("/socket", "connection: upgrade", "upgrade: websocket"))
            assert (await wire.answer())[0] in (400, 426)
            await wait_until(lambda: listener.service.counters.connections == 0)

    run(scenario())


def test_an_upgrade_behind_a_request_closes_the_connection(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, stage), Wire.to(listener) as wire:
            upgrade = ["connection: upgrade", "upgrade: websocket", "sec-websocket-version: 13"]
            await wire.send(
                get("/wait"), get("/socket", *upgrade, "sec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==")
            )
            assert await wire.rest() == b""
            await wait_until(lambda: not listener.connections)
            assert stage.gone in ([], ["wait"])  # it heard, or had not begun

    run(scenario())


@pytest.mark.parametrize(("message", "code"), [(b"x" * 2000, 1009), (b"\xff\xfe", 1007)])
def test_a_message_that_may_not_be_closes_the_socket_quietly(
    run: Run, message: bytes, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with listening(HttpConfig(body_bytes_max=1000)) as (listener, stage):
            async with websockets.connect(socket_address(listener)) as client:
                await client.send(message, text=True)
                with pytest.raises(websockets.ConnectionClosedError) as closed:
                    await client.recv()
                assert closed.value.rcvd is not None and closed.value.rcvd.code == code
            await wait_until(lambda: stage.gone == ["socket"])

    run(scenario())
    assert caplog.records == []


def test_a_message_of_too_many_fragments_closes_the_socket(run: Run) -> None:
    """Empty ones have no size, and cost all the same."""
    text, more, last = (bytes((head, 0x80)) + bytes(4) for head in (0x01, 0x00, 0x80))

    async def scenario() -> None:
        async with listening() as (listener, stage), Wire.to(listener) as wire:
            await wire.send(get("/socket", *UPGRADE))
            assert (await wire.answer())[0] == 101
            await wire.send(text + more * (FRAGMENTS_MAX - 2) + last)
            assert await wire.reader.readexactly(2) == b"\x81\x00"  # said back
            await wire.send(text + more * FRAGMENTS_MAX)
            closed = await wire.rest()
            assert closed[:1] == b"\x88" and closed[1] == len(closed) - 2
            assert int.from_bytes(closed[2:4], "big") == 1009
            assert closed[4:] == b"a message may have %d fragments" % FRAGMENTS_MAX
            await wait_until(lambda: stage.gone == ["socket"] and not listener.connections)

    run(scenario())


def test_messages_behind_one_that_may_not_be_are_not_listened_to(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    no_text = b"\x81\x81" + bytes(4) + b"\xff"

    async def scenario() -> None:
        async with listening() as (listener, stage), Wire.to(listener) as wire:
            await wire.send(get("/socket", *UPGRADE))
            assert (await wire.answer())[0] == 101
            await wire.send(no_text * 2)
            assert await wire.rest() == b"\x88\x02" + (1007).to_bytes(2, "big")
            await wait_until(lambda: stage.gone == ["socket"] and not listener.connections)

    run(scenario())
    assert caplog.records == []


def test_a_socket_that_nobody_serves_is_refused_with_an_error_and_quietly(
    run: Run, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _):
            with pytest.raises(websockets.InvalidStatus) as refused:
                async with websockets.connect(f"ws://127.0.0.1:{listener.port}/nothing"):
                    pass
            assert refused.value.response.status_code == 404
            assert error_of(bytes(refused.value.response.body or b""))

    run(scenario())
    assert [each.message for each in caplog.records] == []


# ---- what we take from uvicorn


@pytest.mark.parametrize(
    ("kind", "names"),
    [
        (
            HttpToolsProtocol,
            "connection_made connection_lost data_received on_message_begin on_header on_headers_complete "
            "on_body on_message_complete send_400_response handle_websocket_upgrade shutdown",
        ),
        (RequestResponseCycle, "receive send run_asgi"),
        (
            WebSocketsSansIOProtocol,
            "connection_lost handle_cont send_receive_event_to_app handle_parser_exception send",
        ),
    ],
)
def test_uvicorn_has_what_is_built_on(kind: type, names: str) -> None:
    """A release that renames one of these would leave our bound beside the road, in silence."""
    assert [name for name in names.split() if not callable(getattr(kind, name, None))] == []


def test_small_answers_do_not_wait_for_more(run: Run) -> None:
    async def scenario() -> None:
        async with listening() as (listener, _), Wire.to(listener):
            accepted = (await only_connection(listener)).transport.get_extra_info("socket")
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) != 0

    run(scenario())
