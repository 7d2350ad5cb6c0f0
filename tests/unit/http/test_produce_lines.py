"""NDJSON into a real node over plain sockets: answers while lines come, slow clients, ends of all kinds."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx
import pytest

from tailrace.http import HttpConfig
from tailrace.http.error import Code
from tailrace.http.rest.produce import cut_lines
from tailrace.server.node import Node

from .conftest import Run, Serve, Wire, both_loops, check_error, partition_of, wait_until
from .test_produce import RECORDS, create, stored

LINES = {"content-type": "application/x-ndjson"}
HEAD = (
    b"POST /api/v1/topics/t/records HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/x-ndjson\r\n"
    b"transfer-encoding: chunked\r\n\r\n"
)
END = b"0\r\n\r\n"


def chunk(data: bytes) -> bytes:
    return b"%x\r\n%s\r\n" % (len(data), data)


def line(value: Any, **fields: Any) -> bytes:
    return json.dumps({"value": value, **fields}).encode() + b"\n"


async def head(wire: Wire) -> int:
    """The status of an answer whose body is still to come."""
    return int((await wire.reader.readuntil(b"\r\n\r\n")).split()[1])


async def row(wire: Wire) -> dict[str, Any]:
    """The next line of an answer, which comes as a chunk."""
    size = int(await wire.reader.readline(), 16)
    data = await wire.reader.readexactly(size)
    await wire.reader.readexactly(2)
    found: dict[str, Any] = json.loads(data)
    return found


async def values(node: Node) -> list[bytes | None]:
    return [each.value for each in await stored(node)]


@both_loops
def test_lines_are_stored_and_answered_while_others_still_come(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await create(node)
        async with Wire.to(node) as wire:
            await wire.send(HEAD, chunk(line("a") + line("b")))
            assert await head(wire) == 200
            assert await row(wire) == {"lines": 2, "offsets": [{"partition": 0, "offset": 0, "count": 2}]}
            assert await values(node) == [b"a", b"b"]
            await wire.send(chunk(line("c")[:5]))
            await wire.send(chunk(line("c")[5:] + b"\n\r\n"))  # empty lines are none
            assert await row(wire) == {"lines": 3, "offsets": [{"partition": 0, "offset": 2, "count": 1}]}
            await wire.send(chunk(line("d")[:-1]), END)  # the last needs no end
            assert await row(wire) == {"lines": 4, "offsets": [{"partition": 0, "offset": 3, "count": 1}]}
            assert await wire.reader.readexactly(5) == END
            assert await values(node) == [b"a", b"b", b"c", b"d"]
            # The connection can be used for what comes next.
            await wire.send(b"GET /health HTTP/1.1\r\nhost: localhost\r\n\r\n")
            assert (await wire.answer())[0] == 200

    run(scenario())


def test_a_body_as_a_whole_is_stored_as_one_batch(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node, partitions=3)
        body = b"".join(line(n, key=f"k{n}") for n in range(100))
        answer = await client.post(RECORDS, content=body, headers=LINES)
        assert answer.headers["content-type"].startswith("application/x-ndjson")
        (told,) = [json.loads(each) for each in answer.text.splitlines()]
        assert told["lines"] == 100
        counts = {each["partition"]: each["count"] for each in told["offsets"]}
        assert counts == {index: partition_of(node.broker, "t", index).high_watermark for index in range(3)}
        assert node.broker.counters.batches_in == 3

    run(scenario())


def test_a_bad_line_ends_it_and_says_which(run: Run, node: Node, client: httpx.AsyncClient) -> None:
    async def scenario() -> None:
        await create(node)
        body = line(1) + b"\n" + line(2) + b'{"valu": 3}\n' + line(4)
        answer = await client.post(RECORDS, content=body, headers=LINES)
        assert answer.status_code == 200
        told, error = (json.loads(each) for each in answer.text.splitlines())
        assert told["lines"] == 2
        assert (error["error"]["code"], error["error"]["details"]) == ("INVALID_REQUEST", {"line": 3})
        assert "line 3: a record has no valu" in error["error"]["message"]
        assert await values(node) == [b"1", b"2"]

    run(scenario())


@pytest.mark.parametrize(
    ("body", "words"),
    [
        (b"", "no line"),
        (b"\n  \r\n\n", "no line"),
        (b"{}\n", "line 1: a record needs a value"),
        (b"{}\n" + line(2), "line 1"),
        (b"not json\n", "line 1: this is not JSON"),
        (b"\xff\n", "line 1: this is not JSON"),
        (b'[{"value": 1}]\n', "line 1: a record is an object"),
    ],
)
def test_if_the_first_line_is_bad_the_request_fails(
    run: Run, node: Node, client: httpx.AsyncClient, body: bytes, words: str
) -> None:
    async def scenario() -> None:
        answer = await client.post(RECORDS, content=body, headers=LINES)
        details = check_error(answer, Code.INVALID_REQUEST, words)
        assert details == ({"line": 1} if "line 1" in words else {})
        assert node.broker.topics.get("t") is None

    run(scenario())


def test_what_the_broker_refuses_at_first_has_its_status(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node, max_message_bytes="500")
        answer = await client.post(RECORDS, content=line(1, partition=5), headers=LINES)
        assert check_error(answer, Code.TOPIC_NOT_FOUND) == {"line": 1}
        answer = await client.post(RECORDS, content=line("x" * 500), headers=LINES)
        assert check_error(answer, Code.MESSAGE_TOO_LARGE) == {"line": 1}
        answer = await client.post(f"{RECORDS}?partition=5", content=line(1), headers=LINES)
        assert check_error(answer, Code.TOPIC_NOT_FOUND) == {"line": 1}
        assert await values(node) == []

    run(scenario())


def test_what_the_broker_refuses_later_is_the_last_line(run: Run, node: Node) -> None:
    async def scenario() -> None:
        await create(node)
        async with Wire.to(node) as wire:
            await wire.send(HEAD, chunk(line(1)))
            assert await head(wire) == 200
            assert (await row(wire))["lines"] == 1
            await wire.send(chunk(line(2) + line(3, partition=9)))
            error = (await row(wire))["error"]
            assert (error["code"], error["details"]) == ("TOPIC_NOT_FOUND", {"line": 2})
            assert await wire.reader.readexactly(5) == END
        assert await values(node) == [b"1"]

    run(scenario())


def test_lines_are_counted_as_one_request_with_the_error_of_its_last_line(
    run: Run, node: Node, client: httpx.AsyncClient
) -> None:
    async def scenario() -> None:
        await create(node)
        tally = node.http_app().service.counters.tally("produceRecords")
        async with Wire.to(node) as wire:
            await wire.send(HEAD, chunk(line(1)))
            assert (await head(wire), (await row(wire))["lines"]) == (200, 1)
            assert tally.requests == 0  # a counter does not go back: it may fail yet
            await wire.send(chunk(line(2, partition=9)))
            assert (await row(wire))["error"]["code"] == "TOPIC_NOT_FOUND"
            assert await wire.reader.readexactly(5) == END
        assert (tally.requests, tally.errors) == (1, {"TOPIC_NOT_FOUND": 1})
        await client.post(RECORDS, content=line(1) + b"{}\n", headers=LINES)
        await client.post(RECORDS, content=line(1), headers=LINES)
        await client.post(RECORDS, content=b"{}\n", headers=LINES)
        assert (tally.requests, tally.errors) == (4, {"TOPIC_NOT_FOUND": 1, "INVALID_REQUEST": 2})
        assert tally.duration.count == 4

    run(scenario())


def test_what_has_no_end_was_not_sent(run: Run, node: Node) -> None:
    """A client that goes away in the middle: what was answered is there, the line that was cut off is not."""

    async def scenario() -> None:
        await create(node)
        async with Wire.to(node) as wire:
            await wire.send(HEAD, chunk(line(1)))
            assert await head(wire) == 200
            assert (await row(wire))["lines"] == 1
            await wire.send(chunk(line(2) + line(3)[:-2]))
            assert (await row(wire))["lines"] == 2
        assert node._http is not None
        listener = node._http
        await wait_until(lambda: not listener.connections)
        assert await values(node) == [b"1", b"2"]

    run(scenario())


def test_a_line_has_a_bound_and_a_body_has_none(run: Run, serve: Serve) -> None:
    node, client = serve(HttpConfig(line_bytes_max=100, body_bytes_max=200, batch_bytes=300))

    async def scenario() -> None:
        await create(node)
        answer = await client.post(RECORDS, content=line("v" * 50) * 50, headers=LINES)
        rows = [json.loads(each) for each in answer.text.splitlines()]
        assert [each["lines"] for each in rows] == [*range(4, 50, 4), 50]  # of 66 bytes, so many at a time
        answer = await client.post(RECORDS, content=line(1) + line("x" * 100), headers=LINES)
        assert check_error(answer, Code.MESSAGE_TOO_LARGE, "100")["line"] == 1
        assert len(await values(node)) == 50

    run(scenario())


def test_nothing_is_read_ahead_of_what_is_stored(
    run: Run, node: Node, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While a batch is on its way to the disk its client can send what sockets hold, and no more."""

    async def scenario() -> None:
        await create(node)
        written = asyncio.Event()

        async def slow(_: object) -> None:
            await written.wait()

        monkeypatch.setattr("tailrace.broker.appending.Stored.wait_acknowledged", slow)
        async with Wire.to(node) as wire:
            await wire.send(HEAD)
            flood = chunk(line("x" * 1000) * 1000)
            sent = 0
            while sent < 64 << 20:  # far more than any socket takes
                wire.writer.write(flood)
                sent += len(flood)
                try:
                    async with asyncio.timeout(1):
                        await wire.writer.drain()
                except TimeoutError:
                    break
            assert sent < 64 << 20
            assert partition_of(node.broker, "t", 0).high_watermark < 2_000
            written.set()
            assert await head(wire) == 200

    run(scenario())


def test_a_client_that_reads_nothing_is_given_up(run: Run, serve: Serve) -> None:
    """Else both would wait for ever: it for us to read, and we for it. The app is called as servers do."""
    node, _ = serve(HttpConfig(body_timeout_s=0.1))

    async def scenario() -> None:
        await create(node)
        sent: list[str] = []

        async def receive() -> dict[str, Any]:
            return {"type": "http.request", "body": line(1), "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message["type"])
            if len(sent) > 3:
                await asyncio.Event().wait()

        assert node._http is not None
        scope = {
            "type": "http",
            "method": "POST",
            "path": RECORDS,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in LINES.items()],
        }
        await node._http._app(scope, receive, send)
        assert sent == ["http.response.start"] + 3 * ["http.response.body"]
        assert node.http_app().service.counters.tally("produceRecords").errors == {"INVALID_REQUEST": 1}
        assert await values(node) == [b"1"] * 3

    run(scenario())


def test_who_does_not_even_read_the_error_is_given_up(run: Run, serve: Serve) -> None:
    node, _ = serve(HttpConfig(body_timeout_s=0.1))

    async def scenario() -> None:
        await create(node)
        pieces = [line(1), b"{}\n"]
        sent: list[bytes] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": pieces.pop(0) if pieces else b"", "more_body": True}

        async def send(message: Any) -> None:
            sent.append(message.get("body", b""))
            if b"error" in sent[-1]:
                await asyncio.Event().wait()

        assert node._http is not None
        scope = {
            "type": "http",
            "method": "POST",
            "path": RECORDS,
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in LINES.items()],
        }
        await node._http._app(scope, receive, send)
        assert len(sent) == 3 and b"error" in sent[-1]

    run(scenario())


def test_a_quiet_stream_ends_after_a_while(run: Run, serve: Serve) -> None:
    node, _ = serve(HttpConfig(body_timeout_s=1))

    async def scenario() -> None:
        await create(node)
        async with Wire.to(node) as wire:
            await wire.send(HEAD + chunk(line(1)))
            assert await head(wire) == 200
            assert (await row(wire))["lines"] == 1
            error = (await row(wire))["error"]
            assert (error["code"], error["details"]) == ("INVALID_REQUEST", {"line": 2})
            assert "did not go on" in error["message"]

    run(scenario())


def test_a_node_that_stops_does_not_wait_for_more(run: Run, serve: Serve) -> None:
    node, _ = serve(HttpConfig(close_grace_s=20))

    async def scenario() -> None:
        await create(node)
        async with Wire.to(node) as wire:
            await wire.send(HEAD, chunk(line(1)))
            assert await head(wire) == 200
            assert (await row(wire))["lines"] == 1
            async with asyncio.timeout(10):
                closing = asyncio.ensure_future(node.close())
                error = (await row(wire))["error"]
                assert (error["code"], error["details"]) == ("BROKER_NOT_AVAILABLE", {"line": 2})
                await closing

    run(scenario())


@pytest.mark.parametrize(
    ("sizes", "runs"),
    [
        ([], []),
        ([5], [[5]]),
        ([50], [[50]]),
        ([5, 5, 1], [[5, 5], [1]]),
        ([11, 1, 9, 1], [[11], [1, 9], [1]]),
    ],
)
def test_lines_are_cut_into_batches(sizes: list[int], runs: list[list[int]]) -> None:
    cut = cut_lines([bytes(size) for size in sizes], bytes_max=10)
    assert [[len(each) for each in run] for run in cut] == runs
