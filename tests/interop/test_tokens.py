"""API tokens and JSON Web Tokens with real clients, at the listeners of one broker; and tokens that end.

The issuer runs in this process on a loopback port. Every attack on a token alone is in tests/unit/security.
"""

from __future__ import annotations

import asyncio
import json
import os
import struct
import subprocess
import sys
import time
import urllib.error
import urllib.request
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from confluent_kafka.admin import AdminClient
from tests.interop import raw
from tests.interop.deadline import wait_until
from tests.interop.server import ServerProcess
from tests.issuer import AUDIENCE, CLIENT_ID, CLIENT_SECRET, ISSUER, TokenIssuer, forged

from tailrace.client import BrokerClient, MessageProducer, ProducerRecord
from tailrace.client.bearer import BearerCredentials, called
from tailrace.client.kafka import KafkaClient
from tailrace.model import BrokerError, TailraceError

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of their own ways to read files
    from aiokafka import AIOKafkaProducer
    from aiokafka.abc import AbstractTokenProvider
    from kafka import KafkaProducer
    from kafka.net.sasl.oauth import AbstractTokenProvider as PythonTokenProvider

RUN_S = 60
WORD = "open sesame, 42"
HANDSHAKE, AUTHENTICATE, METADATA = 17, 36, 3
SASL = {"security.protocol": "SASL_PLAINTEXT"}


class Site(NamedTuple):
    """A broker, its issuer, and where that is."""

    server: ServerProcess
    issuer: TokenIssuer
    url: str


def tailrace(*words: str, data: bytes = b"", env: Mapping[str, str] | None = None) -> str:
    """What a command prints; it must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", *words],
        input=data,
        capture_output=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, **(env or {})},
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.decode()


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    directory = tmp_path_factory.mktemp("tokens") / "data"
    tailrace("user", "create", "alice", "--data-dir", str(directory), data=WORD.encode())
    issuer = TokenIssuer()
    with issuer.serve() as url:
        both = {
            "sasl": ["PLAIN", "OAUTHBEARER"],
            "oauth": {"issuer": ISSUER, "audience": AUDIENCE, "jwks": f"{url}/keys"},
        }
        listeners = [
            {"name": each, "protocol": each, "address": "127.0.0.1:0", **both}
            for each in ("kafka", "native", "http")
        ]
        with ServerProcess(directory, listeners=listeners) as server:
            yield Site(server, issuer, url)


def new_token(site: Site, *words: str) -> dict[str, Any]:
    made = tailrace(
        *("token", "create", "--data-dir", str(site.server.data_dir), "-o", "json", *words),
        env={"TAILRACE_USER": "alice", "TAILRACE_PASSWORD": WORD},
    )
    found: dict[str, Any] = json.loads(made)
    return found


def http(site: Site, path: str, token: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{site.server.ports['http']}{path}")
    if token:
        request.add_header("authorization", f"Bearer {token}")
    try:
        with urllib.request.urlopen(request, timeout=RUN_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


# ---- JSON Web Tokens by clients of other authors


def test_confluent_kafka_comes_with_a_token_of_its_callback(site: Site) -> None:
    def give(_: str) -> tuple[str, float]:
        return site.issuer.token(), time.time() + 3600

    settings: dict[str, Any] = {
        **SASL,
        "bootstrap.servers": site.server.bootstrap,
        "sasl.mechanism": "OAUTHBEARER",
        "oauth_cb": give,
    }
    admin = AdminClient(settings)
    admin.poll(0.1)
    assert admin.list_topics(timeout=RUN_S).brokers


def test_confluent_kafka_fetches_its_token_by_oidc(site: Site) -> None:
    before = len(site.issuer.asked)
    admin = AdminClient(
        {
            **SASL,
            "bootstrap.servers": site.server.bootstrap,
            "sasl.mechanism": "OAUTHBEARER",
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.token.endpoint.url": f"{site.url}/token",
            "sasl.oauthbearer.client.id": CLIENT_ID,
            "sasl.oauthbearer.client.secret": CLIENT_SECRET,
        }
    )
    assert admin.list_topics(timeout=RUN_S).brokers
    assert "/token" in site.issuer.asked[before:]


def test_kafka_python_comes_with_a_token(site: Site) -> None:
    class Provider(PythonTokenProvider):  # type: ignore[misc]
        def token(self) -> str:
            return site.issuer.token()

    producer = KafkaProducer(
        bootstrap_servers=site.server.bootstrap,
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="OAUTHBEARER",
        sasl_oauth_token_provider=Provider(),
    )
    assert producer.send("by-kafka-python", b"x").get(timeout=RUN_S).offset >= 0
    producer.close()


def test_aiokafka_comes_with_a_token(site: Site) -> None:
    class Provider(AbstractTokenProvider):  # type: ignore[misc]
        async def token(self) -> str:
            return site.issuer.token()

    async def produce() -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=site.server.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism="OAUTHBEARER",
            sasl_oauth_token_provider=Provider(),
        )
        await producer.start()
        try:
            return int((await producer.send_and_wait("by-aiokafka", b"x")).offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce()) >= 0


# ---- our own clients


@pytest.mark.parametrize("how", ["text", "function", "endpoint"])
def test_our_kafka_client_comes_with_a_token(site: Site, how: str) -> None:
    endpoint = {
        "sasl.oauthbearer.token.endpoint.url": f"{site.url}/token",
        "sasl.oauthbearer.client.id": CLIENT_ID,
        "sasl.oauthbearer.client.secret": CLIENT_SECRET,
    }
    ways: dict[str, dict[str, Any]] = {
        "text": {"sasl.oauthbearer.token": site.issuer.token()},
        "function": {"sasl.oauthbearer.token": site.issuer.token},
        "endpoint": endpoint,
    }
    given = {"bootstrap.servers": site.server.bootstrap, **SASL, "sasl.mechanism": "OAUTHBEARER", **ways[how]}
    with MessageProducer(given) as producer:
        assert producer.send(ProducerRecord("by-ours", value=b"x")).result(RUN_S).offset >= 0


def test_our_kafka_client_is_told_why_its_token_is_refused(site: Site) -> None:
    async def connect(token: str) -> None:
        login = BearerCredentials(called(lambda: token))
        async with KafkaClient(site.server.bootstrap, credentials=login) as client:
            await client.metadata([])

    now = time.time()
    for token, said in (
        (site.issuer.token(exp=now - 5), "it expired"),
        (site.issuer.token(aud="other"), "another audience"),
        (forged({"alg": "none"}, {"sub": "alice"}, b""), "authentication failed"),
    ):
        with pytest.raises(TailraceError, match=said) as raised:
            asyncio.run(connect(token))
        assert token not in str(raised.value)


@pytest.mark.parametrize("kind", ["jwt", "api token"])
def test_native_clients_come_with_a_token(site: Site, kind: str) -> None:
    token = site.issuer.token() if kind == "jwt" else new_token(site, "--scope", "all")["token"]
    with BrokerClient("127.0.0.1", site.server.ports["native"], token=token) as client:
        client.create_topic(f"by-native-{kind[:3]}")
        client.publish_text(f"by-native-{kind[:3]}", "x")
    with pytest.raises(BrokerError, match="authentication failed"):
        BrokerClient("127.0.0.1", site.server.ports["native"], token=token[:-6]).connect()


def test_a_login_outlives_its_token_where_another_one_is_given(site: Site) -> None:
    given = 0

    def give() -> str:
        nonlocal given
        given += 1
        return site.issuer.token(exp=time.time() + 2)

    async def stay() -> None:
        async with KafkaClient(site.server.bootstrap, credentials=BearerCredentials(called(give))) as client:
            first = await client.connection_to(None)
            ended = time.monotonic() + 3.0
            while time.monotonic() < ended:
                await client.metadata([])
            assert await client.connection_to(None) is first

    asyncio.run(stay())
    assert given > 1


# ---- HTTP


def test_http_takes_tokens_in_the_header_and_never_in_the_url(site: Site) -> None:
    token = site.issuer.token()
    assert http(site, "/api/v1/topics", token)[0] == 200
    for path in (f"/api/v1/topics?access_token={token}", f"/api/v1/topics?token={token}"):
        assert http(site, path)[0] == 401
    assert http(site, "/api/v1/topics", site.issuer.token(iss="https://evil.example"))[0] == 401
    scoped = new_token(site, "--scope", "describe:cluster")["token"]
    assert http(site, "/metrics", scoped)[0] == 200  # as Prometheus reads them
    assert http(site, "/api/v1/users", scoped)[0] == 200
    narrow = new_token(site, "--scope", "read:topic:orders")["token"]
    assert http(site, "/api/v1/users", narrow)[0] == 403


def test_commands_come_with_a_token(site: Site, tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text(new_token(site, "--scope", "all")["token"] + "\n")
    tailrace("topic", "list", "--bootstrap", site.server.bootstrap, "--token-file", str(file))
    env = {"TAILRACE_TOKEN": site.issuer.token()}
    tailrace("user", "list", "--http", f"127.0.0.1:{site.server.ports['http']}", env=env)


def test_a_command_without_a_login_ends_as_refused(site: Site) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "topic", "list", "--bootstrap", site.server.bootstrap],
        capture_output=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == 4 and b"It may ask for a login" in done.stderr, done.stderr


# ---- tokens that end


def plain(connection: Any, token: str) -> int:
    connection.sendall(raw.request(HANDSHAKE, 1, struct.pack(">h", 5) + b"PLAIN"))
    assert struct.unpack_from(">h", raw.read_frame(connection), 4)[0] == 0
    message = f"\0token\0{token}".encode()
    connection.sendall(raw.request(AUTHENTICATE, 1, struct.pack(">i", len(message)) + message))
    return int(struct.unpack_from(">h", raw.read_frame(connection), 4)[0])


def closed(connection: Any) -> bool:
    try:
        return bool(connection.recv(1) == b"")
    except ConnectionError:
        return True


def test_a_token_that_is_revoked_ends_what_is_connected_by_it(site: Site) -> None:
    made, other = new_token(site, "--scope", "all"), new_token(site, "--scope", "all")
    with (
        raw.connect(site.server.bootstrap, timeout_s=30) as revoked,
        raw.connect(site.server.bootstrap, timeout_s=30) as stays,
        BrokerClient("127.0.0.1", site.server.ports["native"], token=made["token"], reconnect=None) as native,
    ):
        assert plain(revoked, made["token"]) == plain(stays, other["token"]) == 0
        native.create_topic("of-a-token")
        began = time.monotonic()
        tailrace(
            *("token", "revoke", made["id"], "--yes", "--data-dir", str(site.server.data_dir)),
            env={"TAILRACE_USER": "alice", "TAILRACE_PASSWORD": WORD},
        )
        assert closed(revoked)  # by itself
        wait_until(lambda: _fails(lambda: native.publish_text("of-a-token", "x")), what="the end", within_s=5)
        assert time.monotonic() - began < 30
        stays.sendall(raw.request(METADATA, 1, struct.pack(">i", -1)))
        assert raw.read_frame(stays)
    with raw.connect(site.server.bootstrap) as again:
        assert plain(again, made["token"]) == 58
    assert http(site, "/api/v1/topics", made["token"])[0] == 401


def test_a_connection_ends_with_its_token(site: Site) -> None:
    with raw.connect(site.server.bootstrap, timeout_s=30) as connection:
        token = site.issuer.token(exp=time.time() + 1)
        connection.sendall(raw.request(HANDSHAKE, 1, struct.pack(">h", 11) + b"OAUTHBEARER"))
        raw.read_frame(connection)
        message = f"n,,\x01auth=Bearer {token}\x01\x01".encode()
        connection.sendall(raw.request(AUTHENTICATE, 1, struct.pack(">i", len(message)) + message))
        answer = raw.read_frame(connection)
        assert struct.unpack_from(">h", answer, 4)[0] == 0
        assert 0 < struct.unpack(">q", answer[-8:])[0] <= 1000  # the lifetime of the session (KIP-368)
        assert closed(connection)  # by itself, at exp


def _fails(work: Any) -> bool:
    try:
        work()
    except TailraceError:
        return True
    return False


def test_no_token_is_shown(site: Site) -> None:
    token = site.issuer.token(sub="mallory")
    secret = new_token(site, "--scope", "describe:cluster")["token"]
    assert http(site, "/health", token)[0] == 200 and http(site, "/health", token + "x")[0] == 401
    shown = site.server.output().encode() + http(site, "/metrics", secret)[1]
    shown += b"".join(each.read_bytes() for each in site.server.data_dir.rglob("*") if each.is_file())
    assert token.encode() not in shown and secret.encode() not in shown
    assert b"Bearer ey" not in shown
