"""The HTTP listener of an embedded broker: on its own port, and mounted in an app of its loop or another."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from starlette.applications import Starlette
from starlette.routing import Mount
from starlette.types import ASGIApp, Message

import tailrace
from tailrace.broker.gate import Access, Gate
from tailrace.http import HttpConfig
from tailrace.http.guard import Guard
from tailrace.model import TailraceError
from tailrace.model.session import Session
from tailrace.server.mounted import Closed, MountedApp

DEADLINE_S = 120.0
TOPICS = "/broker/api/v1/topics"


def play(work: Callable[[], Awaitable[None]]) -> None:
    async def main() -> None:
        async with asyncio.timeout(DEADLINE_S):
            await work()

    asyncio.run(main())


def around(broker: tailrace.Broker | tailrace.AsyncBroker) -> Starlette:
    """Somebody's app with a broker in it."""
    return Starlette(routes=[Mount("/broker", app=broker.asgi())])


def client_of(app: ASGIApp) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app=app, raise_app_exceptions=True)
    return httpx.AsyncClient(transport=transport, base_url="http://somewhere.example", timeout=DEADLINE_S)


@pytest.fixture
def threaded() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as broker:
        yield broker


@asynccontextmanager
async def started(kind: str) -> AsyncIterator[tailrace.Broker | tailrace.AsyncBroker]:
    """A broker in this loop, or in one of its own."""
    if kind == "AsyncBroker":
        async with tailrace.AsyncBroker() as broker:
            yield broker
        return
    threaded = tailrace.Broker()
    await asyncio.to_thread(threaded.start)
    try:
        yield threaded
    finally:
        await asyncio.to_thread(threaded.close)


both = pytest.mark.parametrize("kind", ["AsyncBroker", "Broker"])


# ---- a port of its own


def test_a_broker_with_a_port_is_called_there() -> None:
    with tailrace.Broker(http_port=0) as broker:
        broker.create_topic("jobs")
        answer = httpx.get(f"http://{broker.http_address}/api/v1/topics", trust_env=False)
        assert [each["name"] for each in answer.json()["topics"]] == ["jobs"]
        address = broker.http_address
    with pytest.raises(httpx.ConnectError):
        httpx.get(f"http://{address}/health", trust_env=False)


def test_an_async_broker_with_a_port_is_called_there() -> None:
    async def main() -> None:
        async with tailrace.AsyncBroker(http_port=0) as broker, httpx.AsyncClient(trust_env=False) as client:
            assert (await client.get(f"http://{broker.http_address}/health")).status_code == 200

    play(main)


def test_without_a_port_there_is_no_address() -> None:
    with tailrace.Broker() as broker, pytest.raises(TailraceError, match="http_port=0"):
        broker.http_address  # noqa: B018
    with pytest.raises(TailraceError, match="not started"):
        broker.http_address  # noqa: B018


# ---- mounted


@both
def test_everything_works_below_a_prefix(kind: str) -> None:
    async def main() -> None:
        async with started(kind) as broker, client_of(around(broker)) as client:
            made = await client.post(TOPICS, json={"name": "jobs", "partitions": 2})
            assert made.status_code == 201 and made.json()["partitions"] == 2
            assert (await client.get(f"{TOPICS}/jobs")).json()["name"] == "jobs"
            assert (await client.delete(f"{TOPICS}/jobs")).status_code == 204
            assert (await client.get(TOPICS)).json() == {"topics": []}
            assert (await client.get("/health")).status_code == 404  # that is the app's own

    play(main)


@both
def test_what_is_said_of_paths_has_the_prefix(kind: str) -> None:
    async def main() -> None:
        async with started(kind) as broker, client_of(around(broker)) as client:
            wrong = await client.put(TOPICS)
            assert wrong.status_code == 405 and wrong.headers["allow"] == "GET, HEAD, POST"
            missing = await client.put("/broker/api/v1/nothing")
            assert missing.status_code == 404
            assert "/broker/openapi.json" in missing.json()["error"]["message"]

    play(main)


@both
def test_a_page_of_another_site_is_for_the_app_around_to_refuse(kind: str) -> None:
    async def main() -> None:
        async with started(kind) as broker:
            async with client_of(around(broker)) as client:
                foreign = await client.get("/broker/health", headers={"origin": "http://attacker.example"})
                assert foreign.status_code == 200
            guarded = Starlette(routes=[Mount("/broker", app=Guard(broker.asgi()))])
            async with client_of(guarded) as client:
                assert (await client.get("/broker/health")).status_code == 403
                ours = await client.get("/broker/health", headers={"host": "localhost"})
                assert ours.status_code == 200

    play(main)


def test_a_body_crosses_whole_in_both_directions(threaded: tailrace.Broker) -> None:
    async def main() -> None:
        async with client_of(around(threaded)) as client:
            values = [{"value": "x" * 50_000} for _ in range(15)]
            sent = await client.post(f"{TOPICS}/large/records", json={"records": values})
            assert sent.status_code == 200, sent.text
            read = await client.get(f"{TOPICS}/large/records")
            assert [len(each["value"]) for each in read.json()["records"]] == [50_000] * 15

    play(main)


def test_many_requests_cross_at_once(threaded: tailrace.Broker) -> None:
    async def main() -> None:
        async with client_of(around(threaded)) as client:
            answers = await asyncio.gather(
                *[client.post(TOPICS, json={"name": f"t{each}"}) for each in range(50)]
            )
            assert {each.status_code for each in answers} == {201}
            assert len((await client.get(TOPICS)).json()["topics"]) == 50

    play(main)


@both
def test_a_websocket_crosses(kind: str) -> None:
    async def main() -> None:
        async with started(kind) as broker:
            await created(broker, "jobs")
            caller = Caller(broker.asgi(), "/api/v1/topics/jobs/tail", b"offset=earliest", kind="websocket")
            await caller.wait_sent(1)
            assert caller.sent[0]["type"] == "websocket.accept"
            async with client_of(broker.asgi()) as client:
                await client.post("/api/v1/topics/jobs/records", json={"records": [{"value": "hello"}]})
            await caller.wait_sent(2)
            assert json.loads(caller.sent[1]["text"])["record"]["value"] == "hello"
            caller.left.set()
            await caller.task

            refused = Caller(broker.asgi(), "/api/v1/nothing", kind="websocket")
            await refused.task
            assert refused.sent[0]["type"] == "websocket.close"

    play(main)


@both
def test_a_mounted_request_has_the_session_of_its_client(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sessions: list[Session] = []
    access = Gate.access

    def noting(gate: Gate, session: Session) -> Access:
        sessions.append(session)
        return access(gate, session)

    async def main() -> None:
        async with started(kind) as broker:
            await created(broker, "jobs")
            monkeypatch.setattr(Gate, "access", noting)
            transport = httpx.ASGITransport(around(broker), client=("192.0.2.7", 4711))
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                assert (await client.get(f"{TOPICS}/jobs")).status_code == 200
            monkeypatch.undo()
        assert [each for each in sessions if each.listener == "http"] == [
            Session(host="192.0.2.7", listener="http")
        ]

    play(main)


# ---- not started, closed, started again


@both
def test_a_broker_may_be_mounted_before_it_starts_and_after_it_closed(kind: str) -> None:
    async def main() -> None:
        broker = tailrace.AsyncBroker() if kind == "AsyncBroker" else tailrace.Broker()

        async def change(what: str) -> None:
            if isinstance(broker, tailrace.Broker):
                await asyncio.to_thread(getattr(broker, what))
            else:
                await getattr(broker, what)()

        app = broker.asgi()
        assert repr(app) == "<MountedApp not started>"
        async with client_of(Starlette(routes=[Mount("/broker", app=app)])) as client:
            for _ in range(2):
                answer = await client.get("/broker/health")
                assert answer.status_code == 503
                assert answer.json()["error"]["code"] == "BROKER_NOT_AVAILABLE"
                await change("start")
                assert repr(app) == "<MountedApp serves>"
                assert (await client.get("/broker/health")).status_code == 200
                await change("close")
            assert (await client.get("/broker/health")).status_code == 503

    play(main)


def test_the_life_of_the_app_around_is_not_ours() -> None:
    async def main() -> None:
        told = iter(["lifespan.startup", "lifespan.shutdown"])
        sent: list[Message] = []

        async def receive() -> Message:
            return {"type": next(told)}

        async def send(message: Message) -> None:
            sent.append(message)

        await tailrace.Broker().asgi()({"type": "lifespan"}, receive, send)
        assert [each["type"] for each in sent] == ["lifespan.startup.complete", "lifespan.shutdown.complete"]

    play(main)


# ---- requests that end early


class Caller:
    """A request as a server makes it, without a server."""

    def __init__(self, app: MountedApp, path: str, query: bytes = b"", *, kind: str = "http") -> None:
        self.sent: list[Message] = []
        self.left = asyncio.Event()  # set: the client went away
        self._asked = False
        self._kind = kind
        scope = {
            "type": kind,
            "asgi": {"version": "3.0", "spec_version": "2.3"},
            "http_version": "1.1",
            "method": "GET",
            "scheme": "http" if kind == "http" else "ws",
            "path": path,
            "raw_path": path.encode(),
            "query_string": query,
            "root_path": "",
            "headers": [(b"host", b"localhost")],
            "client": ("127.0.0.1", 1),
            "server": ("127.0.0.1", 2),
        }
        self.task = asyncio.ensure_future(app(scope, self.receive, self.send))

    async def receive(self) -> Message:
        if not self._asked:
            self._asked = True
            if self._kind == "websocket":
                return {"type": "websocket.connect"}
            return {"type": "http.request", "body": b"", "more_body": False}
        await self.left.wait()
        return {"type": f"{self._kind}.disconnect", "code": 1000}

    async def send(self, message: Message) -> None:
        self.sent.append(message)

    async def wait_sent(self, count: int) -> None:
        await wait_until(lambda: len(self.sent) >= count)


def open_requests(broker: tailrace.Broker | tailrace.AsyncBroker) -> int:
    inner = broker._inner if isinstance(broker, tailrace.Broker) else broker
    return 0 if inner._mounted is None else len(inner._mounted._requests)


async def wait_until(condition: Callable[[], bool]) -> None:
    while not condition():  # noqa: ASYNC110 - there is no event for whatever a test may ask
        await asyncio.sleep(0.001)


async def created(broker: tailrace.Broker | tailrace.AsyncBroker, topic: str) -> None:
    if isinstance(broker, tailrace.Broker):
        broker.create_topic(topic)
    else:
        await broker.create_topic(topic)


async def long_poll(broker: tailrace.Broker | tailrace.AsyncBroker) -> Caller:
    """A read that waits for a record which does not come."""
    await created(broker, "jobs")
    caller = Caller(broker.asgi(), "/api/v1/topics/jobs/records", b"timeout=60000")
    await wait_until(lambda: open_requests(broker) == 1)
    return caller


@both
def test_a_caller_that_is_cancelled_ends_the_request(kind: str) -> None:
    async def main() -> None:
        async with started(kind) as broker:
            caller = await long_poll(broker)
            caller.task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await caller.task
            assert open_requests(broker) == 0 and caller.sent == []

    play(main)


@both
def test_a_client_that_goes_away_ends_the_request(kind: str) -> None:
    async def main() -> None:
        async with started(kind) as broker:
            caller = await long_poll(broker)
            caller.left.set()
            await caller.task
            assert open_requests(broker) == 0

    play(main)


@both
def test_a_broker_that_closes_ends_what_waits_and_what_streams(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    grace_s = DEADLINE_S / 2
    monkeypatch.setattr("tailrace.server.node.http_config", lambda _: HttpConfig(close_grace_s=grace_s))

    async def main() -> None:
        async with started(kind) as broker:
            poll = await long_poll(broker)
            tail = Caller(broker.asgi(), "/api/v1/topics/jobs/tail")
            await tail.wait_sent(1)
            began = time.monotonic()
            if isinstance(broker, tailrace.Broker):
                await asyncio.to_thread(broker.close)
            else:
                await broker.close()
            await asyncio.gather(poll.task, tail.task)
            assert time.monotonic() - began < grace_s  # nobody had to be cut off
            assert poll.sent[0]["status"] in (200, 503)
            assert tail.sent[-1]["type"] == "http.response.body" and not tail.sent[-1].get("more_body")

    play(main)


@both
def test_who_does_not_end_is_ended_and_its_caller_hears_why(kind: str) -> None:
    async def main() -> None:
        async with started(kind) as broker:
            caller = await long_poll(broker)
            inner = broker._inner if isinstance(broker, tailrace.Broker) else broker
            assert inner._mounted is not None
            (request,) = inner._mounted._requests
            inner._loop.call_soon_threadsafe(request.cancel)  # type: ignore[union-attr]
            await caller.task
            assert caller.sent[0]["status"] == 503

            tail = Caller(broker.asgi(), "/api/v1/topics/jobs/tail")
            await tail.wait_sent(1)
            (request,) = inner._mounted._requests
            inner._loop.call_soon_threadsafe(request.cancel)  # type: ignore[union-attr]
            with pytest.raises(Closed):
                await tail.task

    play(main)


@both
def test_an_error_of_the_server_comes_back_to_it(kind: str) -> None:
    async def main() -> None:
        async with started(kind) as broker:
            app = broker.asgi()

            async def receive() -> Message:
                return {"type": "http.request", "body": b"", "more_body": False}

            async def send(_: Message) -> None:
                raise OSError("the pipe is broken")

            scope = {"type": "http", "method": "GET", "path": "/health", "headers": [], "query_string": b""}
            with pytest.raises(OSError, match="the pipe is broken"):
                await app(scope, receive, send)
            async with client_of(app) as client:
                assert (await client.get("/health")).status_code == 200

    play(main)


def test_a_loop_that_closes_before_its_turn_answers_nobody_and_the_caller_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("tailrace.server.mounted._LOOK_S", 0.01)

    async def never(*_: object) -> None:
        raise AssertionError("this loop does not run")

    async def main() -> None:
        loop = asyncio.new_event_loop()
        caller = Caller(MountedApp(lambda: (loop, never)), "/health")
        await asyncio.sleep(0)  # the request has crossed over
        assert not caller.task.done()
        loop.close()
        await caller.task
        assert caller.sent[0]["status"] == 503

    play(main)


def test_a_caller_is_cancelled_although_the_other_loop_is_closed() -> None:
    async def never(*_: object) -> None:
        raise AssertionError("this loop does not run")

    async def main() -> None:
        loop = asyncio.new_event_loop()
        caller = Caller(MountedApp(lambda: (loop, never)), "/health")
        await asyncio.sleep(0)
        loop.close()
        caller.task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await caller.task

    play(main)


def test_what_a_server_gives_is_called_in_its_own_thread(threaded: tailrace.Broker) -> None:
    """A `receive` or `send` that is no coroutine function works when it is called, not when it is awaited."""

    async def main() -> None:
        threads: set[threading.Thread] = set()

        async def receive() -> Message:
            return {"type": "http.request", "body": b"", "more_body": False}

        def send(_: Message) -> Awaitable[None]:
            threads.add(threading.current_thread())
            return asyncio.sleep(0)

        scope = {"type": "http", "method": "GET", "path": "/health", "query_string": b"", "headers": []}
        await threaded.asgi()(scope, receive, send)
        assert threads == {threading.current_thread()}

    play(main)


def test_a_loop_that_ends_with_a_request_open_leaves_nothing_behind(threaded: tailrace.Broker) -> None:
    """A server that is stopped in the middle: asyncio cancels what is left, and closes the loop."""

    async def main() -> None:
        await long_poll(threaded)

    server = threading.Thread(target=lambda: asyncio.run(main()))
    server.start()
    server.join(DEADLINE_S)
    assert not server.is_alive() and open_requests(threaded) == 0

    async def again() -> None:
        async with client_of(threaded.asgi()) as client:
            assert (await client.get("/health")).status_code == 200

    play(again)
