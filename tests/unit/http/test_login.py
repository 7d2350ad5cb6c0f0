"""HTTP Basic before the app: what is read of the header, who is let through, and what is answered."""

from __future__ import annotations

import asyncio
import time
from base64 import b64encode
from typing import Any

import httpx
import pytest

from tailrace.http.login import Login
from tailrace.http.session import SESSION_KEY, session_of
from tailrace.model.scope import read_scope
from tailrace.net import ListenerCounters
from tailrace.net.logins import Logins, PendingLogins
from tailrace.security import PLAIN, Authenticator, Secret, Tokens, Users
from tailrace.security.api_token import LIFETIME_MS

WORD = "open: sesame, 42Ω"


def basic(user: str, password: str, scheme: str = "Basic") -> str:
    return f"{scheme} {b64encode(f'{user}:{password}'.encode()).decode()}"


def ask(*requests: tuple[str, str | list[str]], pending: PendingLogins | None = None) -> list[httpx.Response]:
    """The answers to requests of a path with Authorization headers; the app behind tells the session."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        body = f"{session_of(scope)} {scope[SESSION_KEY].mechanism}".encode()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body})

    async def main() -> list[httpx.Response]:
        users = Users()
        await users.create("alice", Secret(WORD))
        authenticator = Authenticator(users, monotonic=time.monotonic)
        logins = Logins(authenticator=authenticator, mechanisms=(PLAIN,), pending=pending or PendingLogins())
        guarded = Login(app, logins, name="web", counters=ListenerCounters())
        transport = httpx.ASGITransport(app=guarded, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            answers = []
            for path, given in requests:
                values = [given] if isinstance(given, str) else given
                headers = [("authorization", each) for each in values]
                answers.append(await client.get(path, headers=headers))
        await users.close()
        return answers

    return asyncio.run(main())


@pytest.mark.parametrize("scheme", ["Basic", "basic", "BASIC"])
def test_a_user_is_let_through_with_its_name(scheme: str) -> None:
    (answer,) = ask(("/x", basic("alice", WORD, scheme)))
    assert answer.text == "User:alice at 192.0.2.7 by web Basic"


@pytest.mark.parametrize(
    "header",
    [
        "",
        "Basic",
        "Basic ",
        "Basic ***",
        "Basic " + b64encode(b"alice").decode(),
        "Basic " + b64encode(b":x").decode(),
        "Basic " + b64encode(b"alice:").decode(),
        "Basic " + b64encode(b"alice:\xff").decode(),
        "Basic " + b64encode(b"alice:" + b"x" * 5000).decode(),
        "Bearer",
        "Bearer  ",
        "Bearer " + "x" * 20_000,
        "Digest username=alice",
    ],
)
def test_what_is_no_basic_header_is_refused_and_not_repeated(header: str) -> None:
    (answer,) = ask(("/x", header))
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"].startswith("Basic ")
    assert "alice" not in answer.text


def test_wrong_password_unknown_user_and_no_login_are_refused() -> None:
    wrong, unknown, nothing = ask(("/x", basic("alice", "wrong")), ("/x", basic("nobody", WORD)), ("/x", []))
    assert {each.status_code for each in (wrong, unknown, nothing)} == {401}
    assert wrong.text == unknown.text
    assert nothing.json()["error"]["code"] == "AUTHENTICATION_FAILED"


def test_only_the_probes_are_open() -> None:
    answers = ask(
        ("/health", []), ("/health/ready", []), ("/health/", []), ("/healthy", []), ("//health", [])
    )
    assert [each.status_code for each in answers] == [200, 200, 401, 401, 401]
    assert answers[0].text == "User:ANONYMOUS at 192.0.2.7 by http "
    assert ask(("/health", basic("alice", "wrong")))[0].status_code == 401


def test_two_headers_are_refused() -> None:
    assert ask(("/x", [basic("alice", WORD), basic("alice", WORD)]))[0].status_code == 400


def test_checks_under_way_are_bounded_and_give_their_place_back() -> None:
    full = PendingLogins(total_max=1)
    full.enter("192.0.2.9")
    (answer,) = ask(("/x", basic("alice", WORD)), pending=full)
    assert answer.status_code == 503 and answer.headers["retry-after"] == "1"
    full.leave("192.0.2.9")
    answers = ask(("/x", basic("alice", "wrong")), ("/x", basic("alice", WORD)), pending=full)
    assert [each.status_code for each in answers] == [401, 200]
    assert not len(full)


# ---- tokens


def ask_with_token(path: str, header: str, *, revoke: bool = False) -> httpx.Response:
    """The answer to a request with {token} in its path or header, of a user that has one token."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        session = session_of(scope)
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": f"{session} {session.scope}".encode()})

    async def main() -> httpx.Response:
        users = Users()
        await users.create("alice", Secret(WORD))
        tokens = Tokens(users, now_ms=lambda: 0)
        scope = read_scope(["read:topic:orders"])
        made, text = await tokens.create("alice", scope=scope, lifetime_ms=LIFETIME_MS)
        if revoke:
            await tokens.revoke(made.id)
        authenticator = Authenticator(users, tokens=tokens, monotonic=time.monotonic)
        logins = Logins(authenticator=authenticator, mechanisms=(PLAIN,))
        guarded = Login(app, logins, name="web", counters=ListenerCounters())
        transport = httpx.ASGITransport(app=guarded, client=("192.0.2.7", 1))
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            headers = {"authorization": header.replace("{token}", text.reveal())} if header else {}
            answer = await client.get(path.replace("{token}", text.reveal()), headers=headers)
        await tokens.close()
        await users.close()
        assert text.reveal() not in answer.text + str(answer.headers)
        return answer

    return asyncio.run(main())


@pytest.mark.parametrize("scheme", ["Bearer", "bearer"])
def test_a_token_is_let_through_as_its_owner_with_its_scope(scheme: str) -> None:
    assert (
        ask_with_token("/x", f"{scheme} {{token}}").text == "User:alice at 192.0.2.7 by web read:topic:orders"
    )


@pytest.mark.parametrize(
    "header", ["Bearer {token}x", "Bearer x{token}", "Bearer {token} {token}", "Bearer x"]
)
def test_what_is_no_token_is_refused(header: str) -> None:
    answer = ask_with_token("/x", header)
    assert answer.status_code == 401
    assert answer.headers["www-authenticate"] == 'Bearer realm="tailrace", error="invalid_token"'


def test_a_revoked_token_is_refused() -> None:
    assert ask_with_token("/x", "Bearer {token}", revoke=True).status_code == 401


@pytest.mark.parametrize(
    "path",
    ["/x?access_token={token}", "/x?token={token}", "/x?authorization=Bearer%20{token}", "/{token}"],
)
def test_a_token_in_the_url_counts_for_nothing(path: str) -> None:
    answer = ask_with_token(path, "")
    assert answer.status_code == 401 and "needs a user" in answer.text
