"""The ASGI application: how requests are checked before a handler sees them, and what errors look like."""

from __future__ import annotations

import asyncio
import gc
import logging
import weakref
from collections.abc import Callable
from typing import Any

import httpx
import pytest
from tests.unit.http.conftest import Run, Serve, check_error
from tests.unit.http.rig import listening

from tailrace.http import HttpApp, HttpConfig
from tailrace.http.app import read_json
from tailrace.http.error import Code, HttpError, invalid
from tailrace.http.operation import Call, NoBody, NoQuery, Operation
from tailrace.http.rest.topic import TopicBody
from tailrace.model import BrokerError, ErrorCode
from tailrace.server.node import Node

TOPICS = "/api/v1/topics"
INVALID = Code.INVALID_REQUEST


# ---- paths and methods


@pytest.mark.parametrize(
    "path",
    [
        "/nothing",
        "/api/v1",
        "/api/v2/topics",
        "/api/v1/topics/",
        "/health/",
        "/api/v1/topics/a/b/c",
    ],
)
def test_a_path_that_is_not_served_says_where_the_list_is(
    run: Run, client: httpx.AsyncClient, path: str
) -> None:
    answer = run(client.put(path))
    check_error(answer, INVALID, path, "/openapi.json", status=404)


@pytest.mark.parametrize(
    ("method", "path", "body", "words"),
    [
        ("GET", "t/records?partition=0&offset=abc", None, ["offset: Expected an offset, earliest, latest"]),
        ("GET", "t/records?offsets=1", None, ["offsets: Expected an offset for each partition, as in 0:120"]),
        ("DELETE", "t/records?partition=0&before=x", None, ["before: Expected an offset, or latest"]),
        (
            "POST",
            "t/records",
            {"records": [{"valeu": "v"}]},
            ["records[0]: Object contains unknown field valeu", "There are: ", "value", "headers"],
        ),
    ],
)
def test_a_value_that_does_not_fit_is_told_in_words(
    run: Run, client: httpx.AsyncClient, method: str, path: str, body: object, words: list[str]
) -> None:
    answer = run(client.request(method, f"{TOPICS}/{path}", json=body))
    check_error(answer, INVALID, *words)
    assert "regex" not in answer.text


BROWSER = {"accept": "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"}


@pytest.mark.parametrize("path", ["/nothing", "/topicz/orders", "/health/"])
def test_a_browser_at_an_unknown_address_gets_the_console(
    run: Run, client: httpx.AsyncClient, path: str
) -> None:
    answer = run(client.get(path, headers=BROWSER))
    assert (answer.status_code, answer.headers["content-type"]) == (404, "text/html; charset=utf-8")
    assert 'id="app"' in answer.text


@pytest.mark.parametrize(
    ("path", "headers"),
    [("/nothing", {}), ("/nothing", {"accept": "*/*"}), ("/api/v1/nothing", BROWSER)],
    ids=["no wish", "curl", "the API in a browser"],
)
def test_a_program_at_an_unknown_address_gets_json(
    run: Run, client: httpx.AsyncClient, path: str, headers: dict[str, str]
) -> None:
    check_error(run(client.get(path, headers=headers)), INVALID, path, "/openapi.json", status=404)


@pytest.mark.parametrize("path", ["/", "/health", TOPICS, f"{TOPICS}/t/records"])
def test_a_newline_at_the_end_of_a_path_is_a_part_of_it(
    run: Run, client: httpx.AsyncClient, path: str
) -> None:
    check_error(run(client.get(f"{path}%0A")), INVALID, "/openapi.json", status=404)


def test_what_is_repeated_of_a_path_is_short(run: Run, client: httpx.AsyncClient) -> None:
    assert len(run(client.put("/" + "x" * 10_000)).content) < 600


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("PUT", TOPICS, "GET, HEAD, POST"),
        ("POST", f"{TOPICS}/x", "DELETE, GET, HEAD, PATCH"),
        ("DELETE", "/health", "GET, HEAD"),
        ("OPTIONS", "/health", "GET, HEAD"),
        ("TRACE", "/health", "GET, HEAD"),
        ("POST", "/", "GET, HEAD"),
        ("PUT", "/topics/x/messages", "GET, HEAD"),
        ("DELETE", "/assets/0/app.js", "GET, HEAD"),
        ("POST", "/openapi.json", "GET, HEAD"),
    ],
)
def test_a_method_that_is_not_taken_names_those_that_are(
    run: Run, client: httpx.AsyncClient, method: str, path: str, allowed: str
) -> None:
    answer = run(client.request(method, path))
    check_error(answer, INVALID, f"takes {allowed}, and not {method}", status=405)
    assert answer.headers["allow"] == allowed


def test_head_is_get_without_the_body(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        head, got = await client.head("/health/ready"), await client.get("/health/ready")
        assert head.status_code == got.status_code == 200
        assert head.content == b"" and int(head.headers["content-length"]) > 0
        assert (await client.head(f"{TOPICS}/nothing")).status_code == 404

    run(scenario())


def test_requests_are_counted(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        for _ in range(3):
            await client.get("/health")
        assert node._http is not None and node._http.service.counters.requests == 3

    run(scenario())


# ---- query


@pytest.mark.parametrize(
    ("query", "words"),
    [
        ("intrenal=true", ["there is no parameter 'intrenal'", "There are: internal"]),
        ("internal=true&internal=false", ["twice"]),
        ("internal=maybe", ["internal: "]),
        ("internal=", ["internal: "]),
        ("internal", ["internal: "]),
        ("%00=1", ["there is no parameter"]),
    ],
)
def test_a_query_that_is_wrong_names_the_parameter(
    run: Run, client: httpx.AsyncClient, query: str, words: list[str]
) -> None:
    check_error(run(client.get(f"{TOPICS}?{query}")), INVALID, *words)


@pytest.mark.parametrize("query", ["", "internal=true", "internal=1", "internal=FALSE"])
def test_a_query_that_is_right_is_read(run: Run, client: httpx.AsyncClient, query: str) -> None:
    assert run(client.get(f"{TOPICS}?{query}")).status_code == 200


def test_who_takes_no_parameters_says_so(run: Run, client: httpx.AsyncClient) -> None:
    check_error(run(client.get("/health?x=1")), INVALID, "There are: none")


# ---- bodies


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", ["there is no body"]),
        (b"{", ["the body is not JSON"]),
        (b"hello", ["the body is not JSON"]),
        (b"\xff\xfe", ["the body is not JSON"]),
        (b'{"name": "\xff"}', ["the body is not JSON"]),
        (b"[" * 100_000, ["body"]),
        (b"[]", ["body: Expected object, got array"]),
        (b"null", ["body: Expected object, got null"]),
        (b"{}", ["missing required field name"]),
        (b'{"name": 7}', ["name: Expected str, got int"]),
        (b'{"name": "x", "partitions": 2147483648}', ["partitions: "]),
        (b'{"name": "x", "partitions": 1e400}', ["out of range"]),
        (b'{"name": "x", "replicas": 1}', ["unknown field replicas", "There are: name, partitions, "]),
        (b'{"name": "x", "configs": {"a": []}}', ["configs"]),
        (b'{"name": "x"} trailing', ["the body is not JSON"]),
    ],
)
def test_a_body_that_is_wrong_says_where(
    run: Run, client: httpx.AsyncClient, body: bytes, words: list[str]
) -> None:
    answer = run(client.post(TOPICS, content=body, headers={"content-type": "application/json"}))
    check_error(answer, INVALID, *words)
    assert "`" not in answer.json()["error"]["message"]


@pytest.mark.parametrize("media", [None, "application/json", "Application/JSON; charset=utf-8"])
def test_json_is_read_whether_it_says_so_or_not(
    run: Run, client: httpx.AsyncClient, media: str | None
) -> None:
    headers = {} if media is None else {"content-type": media}
    answer = run(client.post(TOPICS, content=b'{"name": "x"}', headers=headers))
    assert answer.status_code == 201


@pytest.mark.parametrize("media", ["text/plain", "application/x-www-form-urlencoded", "nonsense", "a" * 5000])
def test_another_kind_of_body_is_refused_with_the_line_that_would_do(
    run: Run, client: httpx.AsyncClient, media: str
) -> None:
    answer = run(client.post(TOPICS, content=b'{"name": "x"}', headers={"content-type": media}))
    check_error(answer, INVALID, "-H 'Content-Type: application/json'", status=415)
    assert len(answer.content) < 600


def test_a_body_over_the_bound_is_refused_and_the_connection_goes_on(run: Run, serve: Serve) -> None:
    _, client = serve(HttpConfig(body_bytes_max=100))

    async def scenario() -> None:
        async def pieces() -> Any:
            for _ in range(100):
                yield b"x" * 100

        for body in (b"x" * 101, b"x" * 3_000_000, pieces()):
            answer = await client.post(TOPICS, content=body)
            assert check_error(answer, Code.MESSAGE_TOO_LARGE, "100 bytes") == {"bytes_max": 100}
        assert (await client.get("/health")).status_code == 200

    run(scenario())


def test_a_body_where_none_is_taken_is_not_read(run: Run, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        answer = await client.request("GET", "/health", content=b"x" * 100_000)
        assert answer.status_code == 200
        assert (await client.get("/health")).status_code == 200

    run(scenario())


def test_read_json_is_for_others_too() -> None:
    assert read_json(b'{"name": "x"}', TopicBody) == TopicBody(name="x")
    with pytest.raises(HttpError):
        read_json(b"", TopicBody)


# ---- errors


def test_a_bug_is_logged_and_nothing_of_it_told(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with (
            listening() as (listener, _),
            httpx.AsyncClient(base_url=f"http://127.0.0.1:{listener.port}", trust_env=False) as client,
        ):
            answer = await client.get("/broken")
            check_error(answer, Code.INTERNAL, "its log has the details")
            assert "secret" not in answer.text

    run(scenario())
    (logged,) = [each for each in caplog.records if each.levelno == logging.ERROR]
    assert logged.getMessage() == "GET /broken failed"
    assert logged.exc_info and isinstance(logged.exc_info[1], ZeroDivisionError)


def test_what_takes_too_long_is_answered(run: Run, serve: Serve, monkeypatch: pytest.MonkeyPatch) -> None:
    node, client = serve(HttpConfig(request_timeout_s=0.05))

    async def never(*_: object, **__: object) -> None:
        await asyncio.get_running_loop().create_future()

    monkeypatch.setattr(node.broker.topics, "create", never)
    answer = run(client.post(TOPICS, json={"name": "x"}))
    check_error(answer, Code.BROKER_NOT_AVAILABLE, "not done within 0.05 s")


def test_a_node_that_stops_is_not_ready(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        assert (await client.get("/health/ready")).json()["status"] == "ready"
        assert node._http is not None
        node._http.service.stop()
        check_error(await client.get("/health/ready"), Code.BROKER_NOT_AVAILABLE, "stopping")
        assert (await client.get("/health")).json()["status"] == "ok"

    run(scenario())


def test_a_node_that_failed_is_not_ready(
    run: Run, node: Node, client: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(node.broker.cluster, "failure", OSError("the disk is gone"))
    check_error(run(client.get("/health/ready")), Code.CLUSTER_UNHEALTHY, "the disk is gone")


class Ballast:
    """What a request holds while it is answered."""


@pytest.mark.parametrize(
    "make", [lambda: invalid("no"), lambda: BrokerError("no", code=ErrorCode.INVALID_REQUEST)]
)
def test_a_request_that_failed_leaves_nothing_for_the_collector(
    run: Run, node: Node, make: Callable[[], Exception]
) -> None:
    """An error knows the frames that it came through, and with them the body and all that was read."""
    held: list[weakref.ref[Ballast]] = []

    async def fail(call: Call[NoQuery, NoBody]) -> None:
        ballast = Ballast()
        held.append(weakref.ref(ballast))
        raise make()

    operation = Operation(
        method="GET", path="/fail", name="fail", tag="", summary="", handler=fail, answer=None
    )

    async def scenario() -> None:
        app = HttpApp(node.http_app().service, [operation])
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://node") as client:
            assert (await client.get("/fail")).status_code >= 400
        assert [each() for each in held] == [None]

    gc.disable()
    try:
        run(scenario())
    finally:
        gc.enable()
