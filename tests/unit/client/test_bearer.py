"""Logins with a token: where it comes from, and what an endpoint may answer."""

from __future__ import annotations

import asyncio
import json
import pickle
from typing import Any

import pytest
from tests.issuer import CLIENT_ID, CLIENT_SECRET, TokenIssuer

from tailrace.client.bearer import BearerCredentials, ClientCredentials, called, fixed
from tailrace.client.credentials import Credentials, credentials_of, from_environment, token_credentials
from tailrace.client.sasl_properties import read_sasl
from tailrace.model import ConfigError
from tailrace.security import PLAIN, AuthenticationFailed, Secret
from tailrace.security.sasl.oauthbearer import REFUSAL, read_bearer
from tailrace.spark.login import spark_token

JWT = "eyJhbGciOiJSUzI1NiJ9.e30.c2ln"
API_TOKEN = "trt_00ff00ff00ff00ff_" + "x" * 43
OAUTH = {"security.protocol": "SASL_SSL", "sasl.mechanism": "OAUTHBEARER"}
URL, ID, SECRET = (
    "sasl.oauthbearer.token.endpoint.url",
    "sasl.oauthbearer.client.id",
    "sasl.oauthbearer.client.secret",
)


def first(credentials: Any) -> bytes:
    async def main() -> bytes:
        return bytes(await credentials.begin().first())

    return asyncio.run(main())


def test_a_token_stands_for_a_user_and_its_password() -> None:
    assert token_credentials(API_TOKEN) == Credentials("token", Secret(API_TOKEN), PLAIN)
    found = token_credentials(JWT)
    assert isinstance(found, BearerCredentials) and JWT not in repr(found)
    assert read_bearer(first(found)).token.reveal() == JWT
    with pytest.raises(ConfigError, match="stands for"):
        credentials_of("alice", "word", JWT)
    with pytest.raises(ConfigError, match="empty"):
        token_credentials("")


def test_a_function_is_asked_for_every_login() -> None:
    given = iter(["a.b.c", "d.e.f"])
    source = BearerCredentials(called(lambda: next(given)), {"logicalCluster": "lkc"})
    assert first(source) == b"n,,\x01auth=Bearer a.b.c\x01logicalCluster=lkc\x01\x01"
    assert b"d.e.f" in first(source)

    async def awaited() -> Secret:
        return Secret("g.h.i")

    assert b"g.h.i" in first(BearerCredentials(called(awaited)))
    for wrong in (None, "", 7, b"a.b.c"):
        with pytest.raises(ConfigError, match="function for tokens"):
            first(BearerCredentials(called(lambda wrong=wrong: wrong)))  # type: ignore[misc]
    with pytest.raises(ConfigError, match="characters"):
        first(BearerCredentials(fixed(Secret("a b\x01auth=x"))))


def test_a_refusal_is_acknowledged() -> None:
    async def main() -> None:
        exchange = BearerCredentials(fixed(Secret(JWT))).begin()
        await exchange.first()
        assert await exchange.answer(b"") is None
        assert await exchange.answer(REFUSAL) == b"\x01"

    asyncio.run(main())


def test_a_token_of_the_endpoint_is_used_until_it_is_nearly_over() -> None:
    async def main() -> None:
        issuer = TokenIssuer()
        with issuer.serve() as url:
            source = ClientCredentials(
                f"{url}/token", client_id=CLIENT_ID, client_secret=Secret(CLIENT_SECRET), scope="kafka"
            )
            one, two = await asyncio.gather(source.token(), source.token())
            assert one is two and issuer.asked == ["/token"]
            assert CLIENT_SECRET not in repr(source)
            issuer.lifetime_s = 0
            short = ClientCredentials(
                f"{url}/token", client_id=CLIENT_ID, client_secret=Secret(CLIENT_SECRET)
            )
            await short.token()
            await short.token()
            assert len(issuer.asked) == 3
            wrong = ClientCredentials(f"{url}/token", client_id=CLIENT_ID, client_secret=Secret("hidden"))
            with pytest.raises(AuthenticationFailed, match=r"401 \(invalid_client: wrong secret\)") as raised:
                await wrong.token()
            assert "hidden" not in str(raised.value)
        with pytest.raises(AuthenticationFailed, match="cannot be reached"):
            await short.token()

    asyncio.run(main())


@pytest.mark.parametrize("answer", [b"", b"<html>", b"[]", b"{}", b'{"access_token": 7}', b"[" * 30_000])
def test_an_endpoint_that_gives_no_token_is_an_error(answer: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(url: str, **_: Any) -> tuple[int, bytes]:
        return 200, answer

    monkeypatch.setattr("tailrace.security.oauth.fetch.fetch", fetch)
    source = ClientCredentials("https://issuer.example/t", client_id="a", client_secret=Secret("b"))
    with pytest.raises(AuthenticationFailed, match="no token from the token endpoint"):
        asyncio.run(source.token())


# ---- properties and environment


def test_properties_name_a_token_or_an_endpoint() -> None:
    found = read_sasl({**OAUTH, "sasl.oauthbearer.token": JWT, "sasl.oauthbearer.extensions": "a=b,c=d"})
    assert first(found) == f"n,,\x01auth=Bearer {JWT}\x01a=b\x01c=d\x01\x01".encode()
    assert b"x.y.z" in first(read_sasl(OAUTH, give_token=lambda: "x.y.z"))
    line = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required "
    jaas = line + 'clientId="shop" clientSecret="hidden" scope="s" extension_tenant="t";'
    for given in (
        {URL: "https://issuer.example/t", ID: "shop", SECRET: "hidden"},
        {URL: "https://issuer.example/t", "sasl.jaas.config": jaas},
    ):
        login = read_sasl({**OAUTH, **given})
        assert isinstance(login, BearerCredentials) and "hidden" not in repr(login)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (OAUTH, "needs sasl.oauthbearer.token, or"),
        ({**OAUTH, URL: "https://x/t", ID: "shop"}, "needs sasl.oauthbearer.token, or"),
        ({**OAUTH, URL: "http://issuer.example/t", ID: "a", SECRET: "hidden"}, "must be https"),
        ({**OAUTH, URL: "file:///t", ID: "a", SECRET: "hidden"}, "answers no request"),
        ({**OAUTH, URL: "https://x/t", "sasl.oauthbearer.token": "hidden"}, "exclude each other"),
        ({**OAUTH, "sasl.username": "a", "sasl.oauthbearer.token": "hidden"}, "is not for"),
        ({**OAUTH, "sasl.oauthbearer.token": "hidden", "sasl.oauthbearer.extensions": "a"}, "NAME=VALUE"),
        (
            {**OAUTH, "sasl.oauthbearer.token": "x", "sasl.oauthbearer.extensions": "auth=x"},
            "NAME=VALUE",
        ),
        ({**OAUTH, "sasl.mechanism": PLAIN, "sasl.oauthbearer.token": "hidden"}, "needs sasl.mechanism"),
        ({"sasl.oauthbearer.token": "hidden"}, "needs security.protocol"),
    ],
)
def test_properties_that_name_no_token_are_refused(given: dict[str, str], said: str) -> None:
    with pytest.raises(ConfigError, match=said) as raised:
        read_sasl(given)
    assert "hidden" not in str(raised.value)


def test_the_environment_names_a_token(tmp_path: Any) -> None:
    assert from_environment({"TAILRACE_TOKEN": API_TOKEN}) == token_credentials(API_TOKEN)
    file = tmp_path / "token"
    file.write_text(JWT + "\n")
    assert JWT.encode() in first(from_environment({"TAILRACE_TOKEN_FILE": str(file)}))
    with pytest.raises(ConfigError, match="are both set"):
        from_environment({"TAILRACE_TOKEN": API_TOKEN, "TAILRACE_USER": "alice"})
    with pytest.raises(ConfigError, match="cannot read the token file"):
        from_environment({"TAILRACE_TOKEN_FILE": str(tmp_path / "none")})


def test_spark_ships_where_a_token_comes_from_to_its_workers() -> None:
    login = spark_token({**OAUTH, "sasl.oauthbearer.token": JWT, "sasl.username": None})
    assert JWT not in repr(login) and json.dumps(login.digest())
    assert JWT.encode() in first(pickle.loads(pickle.dumps(login)).credentials())
    assert login.digest() != spark_token({**OAUTH, "sasl.oauthbearer.token": "other"}).digest()
