"""The guard: which Host and Origin are let through, and what the others and every answer are told."""

from __future__ import annotations

import asyncio

import httpx
import pytest
import websockets
from starlette.datastructures import Headers
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send
from tests.unit.http.conftest import Run, Serve, Wire, check_error

from tailrace.http import HttpConfig
from tailrace.http.error import Code
from tailrace.http.guard import Guard, check, host_name
from tailrace.http.session import ENCRYPTED_KEY
from tailrace.server.node import Node


def verdict(host: str | None, origin: str | None = None, allowed: frozenset[str] = frozenset()) -> str | None:
    headers = {} if host is None else {"host": host}
    if origin is not None:
        headers["origin"] = origin
    refusal = check(Headers(headers), allowed)
    return None if refusal is None else str(refusal)


@pytest.mark.parametrize(
    "host",
    ["localhost", "LOCALHOST:8080", "127.0.0.1:8080", "127.0.0.1", "[::1]:8080", "[::1]", "10.1.2.3:80"],
)
def test_loopback_names_and_addresses_are_let_through(host: str) -> None:
    assert verdict(host) is None


@pytest.mark.parametrize(
    "host",
    [
        None,
        "",
        "attacker.example",
        "attacker.example:8080",
        "localhost.attacker.example",
        "127.0.0.1.attacker.example",
        "localhost@attacker.example",
        "attacker.example@127.0.0.1",
        "127.0.0.1/attacker.example",
        "localhost#attacker.example",
        "127.0.0.1?x",
        "[::1",
        "::1]",
        "[attacker]",
        "localhost:80:80",
        "localhost:x",
        " localhost x",
        "2130706433",
        "localhost.",
        "\xff",
    ],
)
def test_any_other_host_is_refused(host: str | None) -> None:
    said = verdict(host)
    assert said is not None and "http.allowed_hosts" in said


def test_a_name_that_the_configuration_allows_is_let_through_in_any_case() -> None:
    allowed = frozenset({"broker.lan"})
    assert verdict("Broker.LAN:8080", allowed=allowed) is None
    assert verdict("x.broker.lan:8080", allowed=allowed) is not None


def test_an_empty_name_is_nobody_even_where_it_is_in_the_configuration() -> None:
    assert verdict("", allowed=frozenset({""})) is not None
    assert verdict("[", allowed=frozenset({""})) is not None


@pytest.mark.parametrize(
    ("host", "origin"),
    [
        ("localhost:8080", "http://localhost:8080"),
        ("localhost:8080", "http://LocalHost:8080"),
        ("[::1]:8080", "http://[::1]:8080"),
    ],
)
def test_a_page_of_the_listener_itself_may_use_it(host: str, origin: str) -> None:
    assert verdict(host, origin) is None


@pytest.mark.parametrize(
    "origin",
    [
        "http://attacker.example",
        "http://localhost:3000",  # another program's page on this machine
        "http://localhost",
        "http://127.0.0.1:8080",  # the same machine under another name
        "http://localhost:80801",  # the own authority is its beginning
        "http://localhost:8080.attacker.example",
        "http://localhost:8080@attacker.example",
        "null",
        "",
        "localhost:8080",
        "http://[",
    ],
)
def test_a_page_of_anybody_else_is_refused(origin: str) -> None:
    said = verdict("localhost:8080", origin)
    assert said is not None and "may not use this node" in said


@pytest.mark.parametrize("header", ["host", "origin"])
@pytest.mark.parametrize("second", ["localhost", "attacker.example"])
def test_a_header_that_decides_may_be_there_once(header: str, second: str) -> None:
    pairs = [("host", "localhost"), (header, second), ("origin", "http://localhost")]
    refusal = check(Headers(raw=[(name.encode(), value.encode()) for name, value in pairs]), frozenset())
    assert refusal is not None and refusal.status == 400 and f"one {header.title()} header" in str(refusal)


@pytest.mark.parametrize("more", [b"", b"x"])
def test_two_hosts_are_answered_400(run: Run, node: Node, more: bytes) -> None:
    async def scenario() -> None:
        async with Wire.to(node) as wire:
            hosts = b"host: localhost\r\nhost: localhost%b\r\n" % more
            await wire.send(b"GET /api/v1/topics HTTP/1.1\r\n%b\r\n" % hosts)
            status, _, body = await wire.answer()
            assert status == 400 and b"one Host header" in body

    run(scenario())


def test_a_host_loses_port_and_brackets() -> None:
    assert host_name("[2001:DB8::1]:80") == "2001:db8::1"
    assert host_name("a:") == "a"
    assert host_name("a b") == ""


def test_what_a_refusal_repeats_is_short() -> None:
    assert len(verdict("x" * 10_000) or "") < 300
    assert len(verdict("localhost", "http://" + "x" * 10_000) or "") < 300


# ---- through the listener


def test_a_foreign_host_and_a_foreign_origin_are_answered_403(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        answer = await client.get("/health", headers={"host": "attacker.example"})
        check_error(answer, Code.AUTHORIZATION_FAILED, "attacker.example")
        answer = await client.post(
            "/api/v1/topics", json={"name": "x"}, headers={"origin": "http://attacker.example"}
        )
        check_error(answer, Code.AUTHORIZATION_FAILED, "attacker.example")
        assert (await client.get("/api/v1/topics")).json() == {"topics": []}

    run(scenario())


def test_a_request_without_a_host_is_refused(run: Run, node: Node) -> None:
    async def scenario() -> None:
        async with Wire.to(node) as wire:
            await wire.send(b"GET /health HTTP/1.0\r\n\r\n")
            status, _, body = await wire.answer()
            assert status == 403 and b"AUTHORIZATION_FAILED" in body

    run(scenario())


def test_a_websocket_of_a_foreign_page_is_refused_with_an_error(run: Run, node: Node) -> None:
    async def scenario() -> None:
        address = f"ws://{node.http_address}/api/v1/topics/x/tail"
        with pytest.raises(websockets.InvalidStatus) as refused:
            async with websockets.connect(address, origin=websockets.Origin("http://attacker.example")):
                pass
        response = refused.value.response
        assert response.status_code == 403
        assert response.headers["content-type"] == "application/json"
        assert b"AUTHORIZATION_FAILED" in (response.body or b"")
        assert "frame-ancestors 'none'" in response.headers["content-security-policy"]

    run(scenario())


def test_allowed_hosts_reach_the_listener(run: Run, serve: Serve) -> None:
    _, client = serve(HttpConfig(allowed_hosts=("broker.lan",)))
    answer = run(client.get("/health", headers={"host": "Broker.lan:8080"}))
    assert answer.status_code == 200


def test_every_answer_says_what_it_may_not_be_used_for(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        for path in ("/health", "/nothing-here"):
            headers = (await client.get(path)).headers
            assert "default-src 'none'" in headers["content-security-policy"]
            assert "frame-ancestors 'none'" in headers["content-security-policy"]
            assert headers["x-content-type-options"] == "nosniff"
            assert headers["cross-origin-resource-policy"] == "same-origin"
            assert headers["cache-control"] == "no-store"
            assert "access-control-allow-origin" not in headers

    run(scenario())


# ---- alone


def guarded(
    scope: Scope, answer: Response | None = None, *, allowed_hosts: tuple[str, ...] = ()
) -> list[Message]:
    """What the guard sends; the app behind it answers with `answer`, or must not be asked."""
    sent: list[Message] = []

    async def app(scope: Scope, receive: Receive, send: Send) -> None:
        assert answer is not None, "the app heard of it"
        await answer(scope, receive, send)

    async def receive() -> Message:
        raise AssertionError("nothing is read")

    async def send(message: Message) -> None:
        sent.append(message)

    asyncio.run(Guard(app, allowed_hosts=allowed_hosts)(scope, receive, send))
    return sent


def test_an_answer_that_says_more_itself_keeps_it() -> None:
    answer = Response(headers={"cache-control": "max-age=60"})
    scope = {"type": "http", "headers": [(b"host", b"localhost")]}
    start = guarded(scope, answer)[0]
    assert (b"cache-control", b"max-age=60") in start["headers"]
    assert len([name for name, _ in start["headers"] if name == b"cache-control"]) == 1


def test_a_server_that_cannot_refuse_a_websocket_with_an_answer_closes_it() -> None:
    (closed,) = guarded({"type": "websocket", "headers": [(b"host", "ü.example".encode() * 30)]})
    assert closed["type"] == "websocket.close" and closed["code"] == 1008
    assert len(closed["reason"].encode()) <= 123


@pytest.mark.parametrize(
    ("host", "encrypted", "pinned"),
    [
        ("broker.lan:8080", True, True),
        ("broker.lan:8080", False, False),
        ("localhost:8080", True, False),
        ("127.0.0.1:8080", True, False),
        ("[::1]:8080", True, False),
        ("192.0.2.7", True, False),
    ],
)
def test_a_name_is_for_tls_alone_once_it_had_tls(host: str, encrypted: bool, pinned: bool) -> None:
    """But not localhost, where a browser would then refuse every other program without TLS."""
    scope: Scope = {
        "type": "http",
        "method": "GET",
        "path": "/",
        "headers": [(b"host", host.encode())],
        **({ENCRYPTED_KEY: True} if encrypted else {}),
    }
    start, *_ = guarded(scope, Response(), allowed_hosts=("broker.lan",))
    assert (b"strict-transport-security" in dict(start["headers"])) is pinned
