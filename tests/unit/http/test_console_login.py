"""The console's login on a real node: who gets which page, what a session needs, and attacks on it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest
import websockets
from tests.unit.http.test_audit import WORD, config

from tailrace.http.console_files import OF_LOGIN, Console
from tailrace.security import Secret
from tailrace.server.node import Node

PAGE = {"accept": "text/html,application/xhtml+xml", "sec-fetch-mode": "navigate", "sec-fetch-site": "none"}
"""What a browser sends with an address that a person typed."""
FETCH = {"accept": "*/*", "sec-fetch-mode": "cors", "sec-fetch-site": "same-origin"}


class Browser:
    """A client with cookies, on a node."""

    def __init__(self, node: Node, client: httpx.AsyncClient) -> None:
        self.node = node
        self.client = client
        self.origin = f"http://{node.http_address}"

    @property
    def cookie(self) -> str:
        return f"tailrace_{self.node.ports.http}"

    async def log_in(self, user: str = "alice", password: str = WORD, **headers: str) -> httpx.Response:
        return await self.client.post(
            "/login", json={"user": user, "password": password}, headers={"origin": self.origin, **headers}
        )

    async def csrf(self) -> str:
        token: str = (await self.client.get("/api/v1/whoami")).json()["csrf"]
        return token

    async def change(self, **headers: str) -> httpx.Response:
        """Create a topic as a page of the console does, with other headers where they are given."""
        given = {"origin": self.origin, "tailrace-csrf": await self.csrf(), **headers}
        return await self.client.post(
            "/api/v1/topics",
            json={"name": "orders"},
            headers={name: value for name, value in given.items() if value},
        )


@asynccontextmanager
async def started() -> AsyncIterator[Browser]:
    node = Node(config(), owns_loop=False)
    await node.start()
    try:
        await node.broker.users.create("alice", Secret(WORD))
        await node.broker.users.create("bob", Secret(WORD + "!"))
        async with httpx.AsyncClient(base_url=f"http://{node.http_address}") as client:
            yield Browser(node, client)
    finally:
        await node.close()


def play(scenario: Callable[[Browser], Awaitable[None]]) -> None:
    async def main() -> None:
        async with started() as browser:
            await asyncio.wait_for(scenario(browser), 60)

    asyncio.run(main())


# ---- before a login


def test_a_person_gets_the_login_page_and_no_question_of_the_browser() -> None:
    async def scenario(browser: Browser) -> None:
        for path in ("/", "/topics/orders/messages?offset=5", "/metrics", "/openapi.json", "/nothing"):
            answer = await browser.client.get(path, headers=PAGE)
            assert answer.status_code == 401 and '<h1 id="title">Log in to Tailrace' in answer.text
            assert "www-authenticate" not in answer.headers
            assert answer.headers["cache-control"] == "no-store"
            assert "set-cookie" not in answer.headers

    play(scenario)


def test_programs_are_asked_by_http() -> None:
    async def scenario(browser: Browser) -> None:
        for headers in ({}, {"accept": "*/*"}, {"accept": "application/json"}):
            answer = await browser.client.get("/", headers=headers)
            assert answer.status_code == 401
            assert answer.headers["www-authenticate"].startswith("Basic ")
        assert (await browser.client.get("/api/v1/topics", auth=("alice", WORD))).status_code == 200

    play(scenario)


def test_a_page_that_asks_without_a_session_opens_no_box_of_the_browser() -> None:
    async def scenario(browser: Browser) -> None:
        for headers in (FETCH, {"tailrace-idle": "0"}):
            answer = await browser.client.get("/api/v1/topics", headers=headers)
            assert answer.status_code == 401 and "www-authenticate" not in answer.headers
            assert answer.json()["error"]["code"] == "AUTHENTICATION_FAILED"

    play(scenario)


def test_only_probes_and_the_login_page_with_its_files_are_served_before_a_login() -> None:
    async def scenario(browser: Browser) -> None:
        console = Console()
        for name in console.assets:
            answer = await browser.client.get(f"/assets/{console.build}/{name}", headers=FETCH)
            assert answer.status_code == (200 if name in OF_LOGIN else 401), name
        page = (await browser.client.get("/", headers=PAGE)).text
        loaded = set(re.findall(rf"/assets/{console.build}/([^\"]+)", page))
        assert loaded == OF_LOGIN
        health = await browser.client.get("/health")
        assert health.status_code == 200 and health.json()["version"] == ""
        for path in ("/metrics", "/openapi.json", "/api/v1/whoami", "/api/v1/cluster/health"):
            assert (await browser.client.get(path)).status_code == 401

    play(scenario)


@pytest.mark.parametrize(
    "path",
    [
        "/assets/{build}/../app.js",
        "/assets/{build}/%2e%2e/app.js",
        "/assets/{build}/login.js/../app.js",
        "/assets/{build}//app.js",
        "/assets/{build}/login.js%00",
        "/assets/{build}/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/health/../api/v1/topics",
        "//health",
        "/health%2f..%2fapi/v1/topics",
    ],
)
def test_no_path_leads_around_the_login(path: str) -> None:
    async def scenario(browser: Browser) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", browser.node.ports.http)
        target = path.format(build=Console().build)
        writer.write(f"GET {target} HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n".encode())
        answer = await reader.read()
        assert answer.split()[1] in (b"401", b"404", b"400"), answer[:200]
        assert b"root:" not in answer and b"import" not in answer
        writer.close()

    play(scenario)


# ---- the login


def test_a_login_makes_a_session_whose_cookie_no_script_can_read() -> None:
    async def scenario(browser: Browser) -> None:
        answer = await browser.log_in()
        assert answer.status_code == 204, answer.text
        name, _, rest = answer.headers["set-cookie"].partition("=")
        value, *attributes = rest.split("; ")
        assert name == browser.cookie and len(value) == 43
        assert {each.lower() for each in attributes} == {"path=/", "httponly", "samesite=strict"}
        page = await browser.client.get("/", headers=PAGE)
        assert page.status_code == 200 and "app.js" in page.text
        who = (await browser.client.get("/api/v1/whoami")).json()
        assert (who["principal"], who["mechanism"], who["listener"]) == ("User:alice", "Console", "web")

    play(scenario)


@pytest.mark.parametrize(
    ("user", "password"), [("alice", "wrong"), ("nobody-here", WORD), ("alice", ""), ("", WORD)]
)
def test_a_login_that_fails_is_told_alike_and_makes_no_session(user: str, password: str) -> None:
    async def scenario(browser: Browser) -> None:
        answer = await browser.log_in(user, password)
        assert answer.status_code == 401 and "set-cookie" not in answer.headers
        assert "www-authenticate" not in answer.headers
        message = answer.json()["error"]["message"]
        assert message.startswith("The user name or the password is wrong")
        assert (await browser.client.get("/api/v1/whoami")).status_code == 401

    play(scenario)


def test_a_disabled_user_cannot_log_in() -> None:
    async def scenario(browser: Browser) -> None:
        await browser.node.broker.users.set_enabled("alice", enabled=False)
        assert (await browser.log_in()).status_code == 401

    play(scenario)


@pytest.mark.parametrize(
    ("body", "media", "status"),
    [
        (b"", "application/json", 400),
        (b"{", "application/json", 400),
        (b'{"user":"alice"}', "application/json", 400),
        (b'{"user":"alice","password":5}', "application/json", 400),
        (b'{"user":"alice","password":"open-sesame-secret","x":1}', "application/json", 400),
        (b"[" * 4000, "application/json", 400),
        (b'{"user":"alice","password":"' + b"x" * 5000 + b'"}', "application/json", 413),
        (b"user=alice&password=open-sesame-secret", "application/x-www-form-urlencoded", 415),
        (b'{"user":"alice","password":"open-sesame-secret"}', "text/plain", 415),
    ],
)
def test_a_body_that_is_no_login_is_refused_and_not_repeated(body: bytes, media: str, status: int) -> None:
    async def scenario(browser: Browser) -> None:
        headers = {"origin": browser.origin, "content-type": media}
        answer = await browser.client.post("/login", content=body, headers=headers)
        assert answer.status_code == status and "open-sesame" not in answer.text

    play(scenario)


def test_a_login_gives_a_new_id_and_ends_the_session_before() -> None:
    """Session fixation: neither a planted id nor an earlier one lives on."""

    async def scenario(browser: Browser) -> None:
        planted = "A" * 43
        browser.client.cookies.set(browser.cookie, planted, domain="127.0.0.1")
        assert (await browser.client.get("/api/v1/whoami")).status_code == 401
        browser.client.cookies.clear()
        await browser.log_in()
        first = browser.client.cookies[browser.cookie]
        await browser.log_in()
        second = browser.client.cookies[browser.cookie]
        assert len({planted, first, second}) == 3
        browser.client.cookies.clear()
        for value, status in ((planted, 401), (first, 401), (second, 200)):
            headers = {"cookie": f"{browser.cookie}={value}"}
            assert (await browser.client.get("/api/v1/whoami", headers=headers)).status_code == status

    play(scenario)


def test_of_two_cookies_of_our_name_none_counts() -> None:
    async def scenario(browser: Browser) -> None:
        await browser.log_in()
        value = browser.client.cookies[browser.cookie]
        browser.client.cookies.clear()
        twice = {"cookie": f"{browser.cookie}={value}; {browser.cookie}={value}"}
        assert (await browser.client.get("/api/v1/whoami", headers=twice)).status_code == 401
        others = {"cookie": f"a=b; {browser.cookie}={value}; tailrace_1=x"}
        assert (await browser.client.get("/api/v1/whoami", headers=others)).status_code == 200

    play(scenario)


# ---- the end


async def log_out(browser: Browser) -> None:
    headers = {"origin": browser.origin, "tailrace-csrf": await browser.csrf()}
    answer = await browser.client.post("/logout", headers=headers)
    assert answer.status_code == 204 and "Max-Age=0" in answer.headers["set-cookie"]


async def change_password(browser: Browser) -> None:
    await browser.node.broker.users.set_password("alice", Secret("another word, 42"))


async def disable(browser: Browser) -> None:
    await browser.node.broker.users.set_enabled("alice", enabled=False)


async def delete(browser: Browser) -> None:
    await browser.node.broker.users.delete("alice")


@pytest.mark.parametrize("end", [log_out, change_password, disable, delete])
def test_a_session_ends_and_its_streams_with_it(end: Callable[[Browser], Awaitable[None]]) -> None:
    async def scenario(browser: Browser) -> None:
        await browser.log_in()
        await browser.change()
        value = browser.client.cookies[browser.cookie]
        headers = {"cookie": f"{browser.cookie}={value}"}
        address = f"ws://{browser.node.http_address}"
        async with (
            httpx.AsyncClient(base_url=browser.origin, headers=headers) as other,
            other.stream("GET", "/api/v1/topics/orders/tail") as events,
            websockets.connect(
                f"{address}/api/v1/topics/orders/tail",
                origin=browser.origin,  # type: ignore[arg-type]
                additional_headers=headers,
            ) as tail,
        ):
            assert events.status_code == 200
            await end(browser)
            with pytest.raises(websockets.ConnectionClosed):
                await tail.recv()
            async for _ in events.aiter_bytes():
                pass
        answer = await browser.client.get("/api/v1/whoami", headers=headers)
        assert answer.status_code == 401

    play(scenario)


def test_a_restart_ends_sessions() -> None:
    async def main() -> None:
        async with started() as browser:
            await browser.log_in()
            value = browser.client.cookies[browser.cookie]
        async with started() as browser:
            headers = {"cookie": f"{browser.cookie}={value}"}
            assert (await browser.client.get("/api/v1/whoami", headers=headers)).status_code == 401

    asyncio.run(main())


# ---- other origins


def test_a_change_by_a_page_of_the_console_is_done() -> None:
    async def scenario(browser: Browser) -> None:
        await browser.log_in()
        answer = await browser.change()
        assert answer.status_code == 201, answer.text

    play(scenario)


@pytest.mark.parametrize(
    "origin",
    [
        "",
        "null",
        "https://evil.example",
        "http://127.0.0.1:1",
        "http://127.0.0.1",
        "http://localhost:{port}",
        "http://127.0.0.1:{port}.evil.example",
        "http://127.0.0.1:{port}@evil.example",
        "http://evil.example#127.0.0.1:{port}",
        "http://127.0.0.1:{port}/x",
        "ftp://127.0.0.1:{port}",
        "http://[",
    ],
)
@pytest.mark.parametrize("path", ["/api/v1/topics", "/login", "/logout"])
def test_a_change_from_another_origin_is_refused(origin: str, path: str) -> None:
    """Also from another port of this machine, to which browsers send the same cookies."""

    async def scenario(browser: Browser) -> None:
        await browser.log_in()
        given = origin.format(port=browser.node.ports.http)
        headers = {"origin": given, "tailrace-csrf": await browser.csrf()} if given else {}
        body: dict[str, Any] = (
            {"name": "x"} if path == "/api/v1/topics" else {"user": "bob", "password": WORD + "!"}
        )
        answer = await browser.client.post(path, json=body, headers=headers)
        assert answer.status_code == 403, answer.text
        who = await browser.client.get("/api/v1/whoami")
        assert who.status_code == 200 and who.json()["principal"] == "User:alice"

    play(scenario)


@pytest.mark.parametrize("token", ["", "x", "A" * 43, "of bob"])
def test_a_change_without_the_csrf_token_of_the_session_is_refused(token: str) -> None:
    async def scenario(browser: Browser) -> None:
        if token == "of bob":
            await browser.log_in("bob", WORD + "!")
            given = await browser.csrf()
        else:
            given = token
        await browser.log_in()
        answer = await browser.change(**{"tailrace-csrf": given})
        assert answer.status_code == 403 and "tailrace-csrf" in answer.json()["error"]["message"]
        assert browser.node.broker.topics.get("orders") is None

    play(scenario)


@pytest.mark.parametrize("site", ["cross-site", "same-site"])
def test_a_page_of_another_origin_cannot_load_anything_with_the_cookie(site: str) -> None:
    async def scenario(browser: Browser) -> None:
        await browser.log_in()
        headers = {"sec-fetch-site": site, "sec-fetch-mode": "no-cors", "sec-fetch-dest": "script"}
        assert (await browser.client.get("/api/v1/whoami", headers=headers)).status_code == 403
        followed = {**PAGE, "sec-fetch-site": site}
        assert (await browser.client.get("/", headers=followed)).status_code == 200

    play(scenario)


@pytest.mark.parametrize("origin", [None, "http://127.0.0.1:1", "https://evil.example"])
@pytest.mark.parametrize("path", ["/api/v1/ws", "/api/v1/topics/orders/tail"])
def test_a_websocket_with_the_cookie_needs_the_origin_of_the_console(origin: str | None, path: str) -> None:
    async def scenario(browser: Browser) -> None:
        await browser.log_in()
        await browser.change()
        headers = {"cookie": f"{browser.cookie}={browser.client.cookies[browser.cookie]}"}
        address = f"ws://{browser.node.http_address}{path}"
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(address, origin=origin, additional_headers=headers)  # type: ignore[arg-type]
        assert refused.value.response.status_code == 403
        async with websockets.connect(
            address,
            origin=browser.origin,  # type: ignore[arg-type]
            additional_headers=headers,
        ):
            pass

    play(scenario)


def test_a_websocket_without_a_session_is_refused_and_a_program_logs_in_by_header() -> None:
    async def scenario(browser: Browser) -> None:
        address = f"ws://{browser.node.http_address}/api/v1/ws"
        with pytest.raises(websockets.InvalidStatus) as refused:
            await websockets.connect(address, origin=browser.origin)  # type: ignore[arg-type]
        assert refused.value.response.status_code == 401
        header = httpx.BasicAuth("alice", WORD)._auth_header
        async with websockets.connect(address, additional_headers={"authorization": header}):
            pass

    play(scenario)


# ---- headers


def test_a_header_cannot_be_injected_by_what_is_sent() -> None:
    async def scenario(browser: Browser) -> None:
        for name in ("x\r\nset-cookie: a=b", "x\nset-cookie: a=b"):
            answer = await browser.log_in(name, WORD)
            assert answer.status_code == 401 and "set-cookie" not in answer.headers
        answer = await browser.client.get("/%0d%0aset-cookie:%20a=b", headers=PAGE)
        assert "set-cookie" not in answer.headers

    play(scenario)


def test_every_answer_of_the_login_forbids_frames_scripts_of_others_and_keeping() -> None:
    async def scenario(browser: Browser) -> None:
        answers = [
            await browser.client.get("/", headers=PAGE),
            await browser.log_in("alice", "wrong"),
            await browser.log_in(),
        ]
        for answer in answers:
            policy = answer.headers["content-security-policy"]
            assert "default-src 'none'" in policy and "frame-ancestors 'none'" in policy
            assert "script-src 'self';" in policy
            assert answer.headers["x-content-type-options"] == "nosniff"
            assert answer.headers["referrer-policy"] == "no-referrer"
            assert answer.headers["cache-control"] == "no-store"
            assert "strict-transport-security" not in answer.headers

    play(scenario)


def test_a_link_of_another_site_leads_to_a_page_that_asks_once_more() -> None:
    """A browser sends no SameSite=Strict cookie with it, although there is a session."""

    async def scenario(browser: Browser) -> None:
        linked = await browser.client.get("/", headers={**PAGE, "sec-fetch-site": "cross-site"})
        assert 'data-retry="yes"' in linked.text
        again = await browser.client.get("/", headers={**PAGE, "sec-fetch-site": "same-origin"})
        assert 'data-retry="no"' in again.text

    play(scenario)
