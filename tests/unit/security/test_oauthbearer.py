"""OAUTHBEARER: the message of a client, and the exchange over an issuer that says yes or no."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.model.session import Principal
from tailrace.security import (
    OAUTHBEARER,
    Authenticated,
    AuthenticationFailed,
    Authenticator,
    Secret,
    Users,
)
from tailrace.security.sasl.oauthbearer import MESSAGE_BYTES_MAX, REFUSAL, read_bearer, write_bearer

TOKEN = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln"


@pytest.mark.parametrize(
    ("message", "authzid"),
    [
        (f"n,,\x01auth=Bearer {TOKEN}\x01\x01", ""),
        (f"y,,\x01auth=bearer  {TOKEN} \x01\x01", ""),
        (f"n,a=alice,\x01auth=Bearer {TOKEN}\x01\x01", "alice"),
        (f"n,a=a=2Cb=3Dc,\x01auth=Bearer {TOKEN}\x01\x01", "a,b=c"),
        (f"n,a=é,\x01host=h\x01port=9092\x01auth=Bearer {TOKEN}\x01logicalCluster=lkc\x01\x01", "é"),
        (f"n,,\x01auth=Bearer {TOKEN}\x01empty=\x01\x01", ""),
    ],
)
def test_a_message_is_read(message: str, authzid: str) -> None:
    found = read_bearer(message.encode())
    assert (found.authzid, found.token.reveal()) == (authzid, TOKEN)


@pytest.mark.parametrize(
    "message",
    [
        "",
        "\x01",
        "n,,",
        "n,,\x01\x01",
        "n,,\x01\x01\x01",
        f"auth=Bearer {TOKEN}\x01\x01",
        f"\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,\x01auth=Bearer {TOKEN}\x01\x01",
        f"p=tls-unique,,\x01auth=Bearer {TOKEN}\x01\x01",
        f"x,,\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,a=,\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,a=a=b,\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,b=alice,\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,,auth=Bearer {TOKEN}\x01\x01",
        f"n,,\x01auth=Bearer {TOKEN}\x01",
        f"n,,\x01auth=Bearer {TOKEN}",
        f"n,,\x01auth=Bearer {TOKEN}\x01\x01x",
        f"n,,\x01auth=Basic {TOKEN}\x01\x01",
        "n,,\x01auth=Bearer\x01\x01",
        "n,,\x01auth=Bearer \x01\x01",
        f"n,,\x01auth=Bearer {TOKEN} {TOKEN}\x01\x01",
        f"n,,\x01auth=Bearer {TOKEN}\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,,\x01host=h\x01\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,,\x01ho st=h\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,,\x01host=\x02\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,,\x01host=é\x01auth=Bearer {TOKEN}\x01\x01",
        f"n,,\x01host\x01auth=Bearer {TOKEN}\x01\x01",
        "n,,\x01host=h\x01\x01",
        f"n,,\x01auth=Bearer {TOKEN}\x01pad={'x' * MESSAGE_BYTES_MAX}\x01\x01",
    ],
)
def test_what_is_no_message_is_refused_and_not_repeated(message: str) -> None:
    with pytest.raises(ValueError, match=r".") as raised:
        read_bearer(message.encode())
    assert TOKEN not in str(raised.value) and "alice" not in str(raised.value)
    with pytest.raises(ValueError, match=r"UTF-8|bytes"):
        read_bearer(message.encode() + b"\xff")


def test_a_message_is_written_as_it_is_read() -> None:
    written = write_bearer(Secret(TOKEN), {"logicalCluster": "lkc-1"}, authzid="a,b")
    found = read_bearer(written)
    assert (found.authzid, found.token.reveal()) == ("a,b", TOKEN)
    assert write_bearer(Secret(TOKEN)) == f"n,,\x01auth=Bearer {TOKEN}\x01\x01".encode()
    for name, value in (("a b", "x"), ("a", "x\x01auth=y"), ("", "x")):
        with pytest.raises(ValueError, match="SASL extension"):
            write_bearer(Secret(TOKEN), {name: value})


class Issuer:
    """Believes one token."""

    async def check(self, token: Secret) -> Authenticated:
        if token != Secret(TOKEN):
            raise AuthenticationFailed("authentication failed (OAUTHBEARER): the token is not accepted")
        return Authenticated(Principal("User", "alice"), OAUTHBEARER, expires_at_ms=7)


def authenticator(monkeypatch: pytest.MonkeyPatch) -> tuple[Authenticator, Users, list[float]]:
    waits: list[float] = []

    async def sleep(seconds: float) -> None:
        waits.append(seconds)

    monkeypatch.setattr("tailrace.security.authenticator.asyncio.sleep", sleep)
    users = Users()
    made = Authenticator(users, monotonic=lambda: 0.0)
    return made.believing(Issuer()), users, waits


def test_a_token_that_the_issuer_believes_ends_the_exchange(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        logins, _, waits = authenticator(monkeypatch)
        step = await logins.begin(OAUTHBEARER, host="h").step(write_bearer(Secret(TOKEN), authzid="alice"))
        assert step.data == b"" and step.authenticated is not None
        assert step.authenticated.principal == Principal("User", "alice")
        assert step.authenticated.expires_at_ms == 7
        assert await logins.check_bearer(Secret(TOKEN), host="h") == step.authenticated
        assert logins.counts.succeeded == {OAUTHBEARER: 2} and waits == []

    asyncio.run(main())


@pytest.mark.parametrize("data", [b"\x01", b"", b"anything", write_bearer(Secret(TOKEN))])
def test_a_refusal_is_told_as_json_and_then_the_exchange_fails(
    monkeypatch: pytest.MonkeyPatch, data: bytes
) -> None:
    async def main() -> None:
        logins, _, waits = authenticator(monkeypatch)
        login = logins.begin(OAUTHBEARER, host="h")
        step = await login.step(write_bearer(Secret("x.y.z")))
        assert step.authenticated is None and step.data == REFUSAL == b'{"status":"invalid_token"}'
        assert waits == [pytest.approx(0.1)]  # before the refusal is told
        with pytest.raises(AuthenticationFailed, match="is not accepted"):
            await login.step(data)  # also where a good token follows
        assert logins.counts.failed == {OAUTHBEARER: 1} and not logins.counts.succeeded

    asyncio.run(main())


@pytest.mark.parametrize(
    "message",
    [b"nonsense", write_bearer(Secret(TOKEN), authzid="bob"), b"p=x,,\x01auth=Bearer a.b.c\x01\x01"],
)
def test_a_bad_message_or_another_name_is_refused(monkeypatch: pytest.MonkeyPatch, message: bytes) -> None:
    async def main() -> None:
        logins, _, _ = authenticator(monkeypatch)
        login = logins.begin(OAUTHBEARER, host="h")
        assert (await login.step(message)).data == REFUSAL
        with pytest.raises(AuthenticationFailed, match="is not valid"):
            await login.step(b"\x01")

    asyncio.run(main())


def test_a_token_of_a_user_that_is_disabled_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        logins, users, _ = authenticator(monkeypatch)
        await users.create("alice", Secret("open-sesame-42"))
        assert (await logins.check_bearer(Secret(TOKEN), host="h")).principal.name == "alice"
        await users.set_enabled("alice", enabled=False)
        with pytest.raises(AuthenticationFailed, match="principal of the token is disabled"):
            await logins.check_bearer(Secret(TOKEN), host="h")
        await users.close()

    asyncio.run(main())


def test_without_an_issuer_no_json_web_token_is_believed(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        logins, users, _ = authenticator(monkeypatch)
        plain = Authenticator(users, monotonic=lambda: 0.0)
        with pytest.raises(AuthenticationFailed):
            await plain.check_bearer(Secret(TOKEN), host="h")
        assert (await logins.check_bearer(Secret(TOKEN), host="h")).principal.name == "alice"

    asyncio.run(main())
