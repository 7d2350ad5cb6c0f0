"""Logins by real clients, by every mechanism, at the listeners of one broker; and what an attacker may try.

Users are made with `tailrace user`, before the broker runs and while it does.
"""

from __future__ import annotations

import asyncio
import http.client
import importlib
import os
import socket
import struct
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
import warnings
from base64 import b64encode
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.interop import raw
from tests.interop.clients.cache import need_program
from tests.interop.deadline import wait_until
from tests.interop.server import ServerProcess

from tailrace.client import BrokerClient, MessageConsumer, MessageProducer, ProducerRecord
from tailrace.client.credentials import Credentials
from tailrace.client.kafka import KafkaClient
from tailrace.model import BrokerError, TailraceError
from tailrace.security import AuthenticationFailed, Secret

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of their own ways to read files
    from aiokafka import AIOKafkaProducer
    from aiokafka.errors import KafkaError as AiokafkaError
    from kafka import KafkaProducer

scram: Any = importlib.import_module("confluent_kafka.admin._scram")
MECHANISMS = ["SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN"]
USER, PASSWORD = "alice,=é", "open sesame, 42=Ω"
SIMPLE = "alice"  # for clients that do not escape a comma or an equals sign in SCRAM messages
RUN_S = 120
HANDSHAKE, AUTHENTICATE, METADATA = 17, 36, 3


def tailrace(
    *words: str, data: bytes = b"", env: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """The command as a user runs it; the password is on its stdin."""
    return subprocess.run(
        [sys.executable, "-m", "tailrace", *words],
        input=data,
        capture_output=True,
        timeout=RUN_S,
        check=False,
        env={**os.environ, **(env or {})},
    )


def listeners() -> list[dict[str, Any]]:
    return [
        {"name": "kafka", "protocol": "kafka", "address": "127.0.0.1:0", "sasl": MECHANISMS},
        {"name": "open", "protocol": "kafka", "address": "127.0.0.1:0"},
        {"name": "native", "protocol": "native", "address": "127.0.0.1:0", "sasl": MECHANISMS},
        {"name": "http", "protocol": "http", "address": "127.0.0.1:0", "sasl": ["PLAIN"]},
    ]


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A broker whose first user was made before its first start."""
    directory = tmp_path_factory.mktemp("login") / "data"
    for name in (USER, SIMPLE, "admin"):
        made = tailrace("user", "create", name, "--data-dir", str(directory), data=PASSWORD.encode())
        assert made.returncode == 0, made.stderr
    with ServerProcess(directory, listeners=listeners()) as running:
        yield running


def librdkafka(server: ServerProcess, mechanism: str, password: str = PASSWORD) -> dict[str, Any]:
    return {
        "bootstrap.servers": server.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": USER,
        "sasl.password": password,
    }


# ---- clients of other authors


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_confluent_kafka_logs_in(secured: ServerProcess, mechanism: str) -> None:
    admin = AdminClient(librdkafka(secured, mechanism))
    assert admin.list_topics(timeout=RUN_S).brokers


@pytest.mark.parametrize(
    "mechanism", [MECHANISMS[0], *(pytest.param(each, marks=pytest.mark.heavy) for each in MECHANISMS[1:])]
)
def test_confluent_kafka_is_told_of_a_wrong_password(secured: ServerProcess, mechanism: str) -> None:
    said: list[str] = []
    heard = threading.Event()

    def on_error(error: Any) -> None:
        said.append(str(error))
        heard.set()

    settings: dict[str, Any] = {**librdkafka(secured, mechanism, "wrong"), "error_cb": on_error}
    admin = AdminClient(settings)
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)
    while not heard.is_set():
        admin.poll(0.1)
    assert any("the user name or the password is wrong" in each for each in said), said


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kafka_python_logs_in(secured: ServerProcess, mechanism: str) -> None:
    def producer(password: str) -> KafkaProducer:
        return KafkaProducer(
            bootstrap_servers=secured.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=SIMPLE,
            sasl_plain_password=password,
        )

    made = producer(PASSWORD)
    assert made.send("by-kafka-python", b"x").get(timeout=RUN_S).offset >= 0
    made.close()


def test_kafka_python_is_told_of_a_wrong_password(secured: ServerProcess) -> None:
    # In a process of its own: a producer that cannot begin leaves its sockets open.
    program = f"""
import warnings; warnings.simplefilter("ignore")
import logging; logging.basicConfig(level=logging.ERROR)
from kafka import KafkaProducer
KafkaProducer(bootstrap_servers={secured.bootstrap!r}, security_protocol="SASL_PLAINTEXT",
    sasl_mechanism="SCRAM-SHA-512", sasl_plain_username={SIMPLE!r}, sasl_plain_password="wrong",
    bootstrap_timeout_ms=8000)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=RUN_S, check=False)
    assert done.returncode != 0
    assert b"the user name or the password is wrong" in done.stderr


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_aiokafka_logs_in(secured: ServerProcess, mechanism: str) -> None:
    async def produce(password: str) -> int:
        producer = AIOKafkaProducer(
            bootstrap_servers=secured.bootstrap,
            security_protocol="SASL_PLAINTEXT",
            sasl_mechanism=mechanism,
            sasl_plain_username=USER,
            sasl_plain_password=password,
        )
        try:
            await producer.start()
            done = await producer.send_and_wait("by-aiokafka", b"x")
            return cast(int, done.offset)
        finally:
            await producer.stop()

    assert asyncio.run(produce(PASSWORD)) >= 0
    with pytest.raises(AiokafkaError):
        asyncio.run(produce("wrong"))


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_kcat_logs_in(secured: ServerProcess, mechanism: str, tmp_path: Path) -> None:
    settings = tmp_path / "kcat.conf"
    settings.write_text(
        "".join(
            f"{name}={value}\n"
            for name, value in {**librdkafka(secured, mechanism), "sasl.username": SIMPLE}.items()
        )
    )
    command = [need_program("kcat"), "-F", str(settings), "-L", "-J"]
    done = subprocess.run(command, capture_output=True, timeout=RUN_S, check=True)
    assert b'"brokers"' in done.stdout


def test_a_client_without_a_login_is_not_served(secured: ServerProcess) -> None:
    admin = AdminClient({"bootstrap.servers": secured.bootstrap})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=1)


# ---- ours


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_our_kafka_client_logs_in(secured: ServerProcess, mechanism: str) -> None:
    async def ask(password: str) -> str:
        login = Credentials(USER, Secret(password), mechanism)
        async with KafkaClient(secured.bootstrap, credentials=login) as client:
            return client.cluster.cluster_id or ""

    assert asyncio.run(ask(PASSWORD))
    with pytest.raises(AuthenticationFailed, match="the user name or the password is wrong"):
        asyncio.run(ask("wrong"))


def test_producer_and_consumer_log_in_by_properties(secured: ServerProcess) -> None:
    login = {
        "bootstrap.servers": secured.bootstrap,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        f'username="{USER}" password="{PASSWORD}";',
    }
    with MessageProducer(login) as producer:
        producer.send(ProducerRecord("by-properties", value=b"x")).result(RUN_S)
    consumer = MessageConsumer({**login, "group.id": "g", "auto.offset.reset": "earliest"})
    with consumer:
        consumer.subscribe(["by-properties"])
        values: list[object] = []
        deadline = time.monotonic() + RUN_S
        while not values and time.monotonic() < deadline:
            values += [each.value for each in consumer.poll(1.0)]
    assert values == [b"x"]


def test_the_native_client_logs_in(secured: ServerProcess) -> None:
    port = secured.ports["native"]
    with BrokerClient("127.0.0.1", port, username=USER, password=PASSWORD) as client:
        client.create_topic("by-native")
        assert client.publish_text("by-native", "x").offset == 0
    with pytest.raises(BrokerError, match="password is wrong"):
        BrokerClient("127.0.0.1", port, username=USER, password="wrong").connect()
    with pytest.raises(BrokerError, match="needs a login"):
        BrokerClient("127.0.0.1", port).connect()


def test_commands_log_in_by_options_and_environment(secured: ServerProcess, tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text(PASSWORD + "\n")
    where = ("--bootstrap", secured.bootstrap)
    by_option = tailrace("topic", "list", *where, "--user", USER, "--password-file", str(file))
    assert by_option.returncode == 0, by_option.stderr
    by_variable = tailrace(
        "topic", "list", *where, env={"TAILRACE_USER": USER, "TAILRACE_PASSWORD": PASSWORD}
    )
    assert by_variable.returncode == 0, by_variable.stderr
    wrong = tailrace("topic", "list", *where, env={"TAILRACE_USER": USER, "TAILRACE_PASSWORD": "wrong-word"})
    assert wrong.returncode == 4
    assert b"password is wrong" in wrong.stderr and b"wrong-word" not in wrong.stderr
    without = tailrace("topic", "list", *where)
    assert without.returncode != 0
    assert b"may ask for a login" in without.stderr


def test_backup_and_doctor_log_in(secured: ServerProcess, tmp_path: Path) -> None:
    login = {"TAILRACE_USER": SIMPLE, "TAILRACE_PASSWORD": PASSWORD}
    words = ("backup", str(tmp_path / "backups"), "--data-dir", str(secured.data_dir))
    refused = tailrace(*words)
    assert refused.returncode == 4 and b"needs a user and a password" in refused.stderr
    done = tailrace(*words, env=login)
    assert done.returncode == 0, done.stderr
    looked = tailrace("doctor", "--bootstrap", secured.bootstrap, "-o", "json", env=login)
    assert b"answers, cluster" in looked.stdout, looked.stdout


# ---- HTTP


def http_status(server: ServerProcess, path: str, *, user: str = "", password: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(f"http://127.0.0.1:{server.ports['http']}{path}")
    if user:
        request.add_header("authorization", "Basic " + b64encode(f"{user}:{password}".encode()).decode())
    try:
        with urllib.request.urlopen(request, timeout=RUN_S) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, error.read()


@pytest.mark.parametrize(
    "path", ["/", "/api/v1/topics", "/metrics", "/openapi.json", "/assets/app.js", "/health/", "/nothing"]
)
def test_nothing_but_health_is_answered_without_a_login(secured: ServerProcess, path: str) -> None:
    status, body = http_status(secured, path)
    assert status == 401
    assert b"needs a user and a password" in body


def test_health_says_no_version_before_the_login(secured: ServerProcess) -> None:
    for path in ("/health", "/health/ready"):
        status, body = http_status(secured, path)
        assert status == 200 and b'"version":""' in body
        status, body = http_status(secured, path, user=USER, password=PASSWORD)
        assert status == 200 and b'"version":""' not in body


def test_a_browser_is_asked_for_the_login(secured: ServerProcess) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", secured.ports["http"], timeout=RUN_S)
    connection.request("GET", "/")
    assert connection.getresponse().headers["www-authenticate"].startswith("Basic ")
    connection.close()
    assert http_status(secured, "/", user=USER, password=PASSWORD)[0] == 200
    assert http_status(secured, "/", user=USER, password="wrong")[0] == 401
    assert http_status(secured, "/", user="nobody", password=PASSWORD)[0] == 401


# ---- users while the broker runs


def test_users_come_and_go_while_the_broker_runs(secured: ServerProcess) -> None:
    admin = {"TAILRACE_USER": USER, "TAILRACE_PASSWORD": PASSWORD}
    where = ("--data-dir", str(secured.data_dir))
    assert tailrace("user", "create", "bob", *where, data=b"bobs-own-word", env=admin).returncode == 0
    again = tailrace("user", "create", "bob", *where, data=b"bobs-own-word", env=admin)
    assert again.returncode == 1 and b"exists already" in again.stderr
    weak = tailrace("user", "passwd", "bob", *where, data=b"password", env=admin)
    assert weak.returncode == 1 and b"commonest" in weak.stderr
    with BrokerClient(
        "127.0.0.1", secured.ports["native"], username="bob", password="bobs-own-word", reconnect=None
    ) as client:
        client.create_topic("of-bob")
        assert tailrace("user", "disable", "bob", *where, env=admin).returncode == 0
        wait_until(
            lambda: _fails(lambda: client.publish_text("of-bob", "x")),
            what="the end of the connection",
            within_s=5,
        )
    listed = tailrace("user", "list", *where, "-o", "json", env=admin)
    assert b'"enabled": false' in listed.stdout
    with pytest.raises(BrokerError, match="disabled"):
        BrokerClient("127.0.0.1", secured.ports["native"], username="bob", password="bobs-own-word").connect()
    assert tailrace("user", "enable", "bob", *where, env=admin).returncode == 0
    with BrokerClient("127.0.0.1", secured.ports["native"], username="bob", password="bobs-own-word"):
        pass
    assert tailrace("user", "delete", "bob", *where, "--yes", env=admin).returncode == 0
    missing = tailrace("user", "passwd", "bob", *where, data=b"another-word", env=admin)
    assert missing.returncode == 3


def _fails(work: Any) -> bool:
    try:
        work()
    except TailraceError:
        return True
    return False


def test_open_connections_of_a_disabled_user_end(secured: ServerProcess) -> None:
    admin = {"TAILRACE_USER": "admin", "TAILRACE_PASSWORD": PASSWORD}
    where = ("--data-dir", str(secured.data_dir))
    assert tailrace("user", "create", "carol", *where, data=b"carols-own-word", env=admin).returncode == 0
    with raw.connect(secured.bootstrap, timeout_s=30) as connection:
        plain(connection, "carol", "carols-own-word")
        assert tailrace("user", "disable", "carol", *where, env=admin).returncode == 0
        assert closed(connection)  # by itself


def test_confluent_manages_scram_credentials(secured: ServerProcess) -> None:
    admin = cast(Any, AdminClient(librdkafka(secured, "SCRAM-SHA-256")))
    info = scram.ScramCredentialInfo(scram.ScramMechanism.SCRAM_SHA_512, 8192)
    upsert = scram.UserScramCredentialUpsertion("dave", info, b"daves-own-word", b"0123456789abcdef")
    admin.alter_user_scram_credentials([upsert])["dave"].result(RUN_S)
    described = admin.describe_user_scram_credentials(["dave"])["dave"].result(RUN_S)
    assert [(each.mechanism, each.iterations) for each in described.scram_credential_infos] == [
        (scram.ScramMechanism.SCRAM_SHA_512, 8192)
    ]
    settings = {
        **librdkafka(secured, "SCRAM-SHA-512", "daves-own-word"),
        "sasl.username": "dave",
    }
    assert AdminClient(settings).list_topics(timeout=RUN_S).brokers
    few: Any = scram.ScramCredentialInfo(scram.ScramMechanism.SCRAM_SHA_512, 4095)
    bad = scram.UserScramCredentialUpsertion("dave", few, b"daves-own-word", b"0123456789abcdef")
    with pytest.raises(KafkaException, match="4096 to 16384"):
        admin.alter_user_scram_credentials([bad])["dave"].result(RUN_S)
    gone = scram.UserScramCredentialDeletion("dave", scram.ScramMechanism.SCRAM_SHA_512)
    admin.alter_user_scram_credentials([gone])["dave"].result(RUN_S)
    with pytest.raises(KafkaException):
        admin.describe_user_scram_credentials(["dave"])["dave"].result(RUN_S)


# ---- by hand: what an attacker may try


def text(value: str) -> bytes:
    data = value.encode()
    return struct.pack(">h", len(data)) + data


def handshake(connection: socket.socket, mechanism: str, version: int = 1) -> tuple[int, bytes]:
    connection.sendall(raw.request(HANDSHAKE, version, text(mechanism)))
    answer = raw.read_frame(connection)
    return struct.unpack_from(">h", answer, 4)[0], answer[6:]


def authenticate(connection: socket.socket, message: bytes) -> tuple[int, bytes]:
    connection.sendall(raw.request(AUTHENTICATE, 0, struct.pack(">i", len(message)) + message))
    answer = raw.read_frame(connection)
    return struct.unpack_from(">h", answer, 4)[0], answer[6:]


def plain(connection: socket.socket, user: str, password: str) -> None:
    assert handshake(connection, "PLAIN")[0] == 0
    code, said = authenticate(connection, f"\0{user}\0{password}".encode())
    assert code == 0, said


def closed(connection: socket.socket) -> bool:
    try:
        return connection.recv(1) == b""
    except ConnectionError:
        return True


@pytest.mark.parametrize("key", [0, 1, 3, 10, 19, 32, 50, 51, 999])
def test_nothing_else_is_served_before_the_login(secured: ServerProcess, key: int) -> None:
    with raw.connect(secured.bootstrap) as connection:
        connection.sendall(raw.api_versions())
        assert raw.read_frame(connection)
        connection.sendall(raw.request(key, 4, b"\0" * 20))
        assert closed(connection)


def test_requests_behind_an_unfinished_login_are_not_served(secured: ServerProcess) -> None:
    with raw.connect(secured.bootstrap) as connection:
        assert handshake(connection, "SCRAM-SHA-256")[0] == 0
        assert authenticate(connection, b"n,,n=whoever,r=abc")[0] == 0
        connection.sendall(raw.request(METADATA, 1, struct.pack(">i", -1)))
        assert closed(connection)


def test_a_request_sent_together_with_a_failing_login_is_not_served(secured: ServerProcess) -> None:
    message = b"\0alice\0wrong"
    sent = raw.request(HANDSHAKE, 1, text("PLAIN"))
    sent += raw.request(AUTHENTICATE, 0, struct.pack(">i", len(message)) + message)
    sent += raw.request(METADATA, 1, struct.pack(">i", -1), correlation=99)
    with raw.connect(secured.bootstrap) as connection:
        connection.sendall(sent)
        raw.read_frame(connection)
        assert struct.unpack_from(">h", raw.read_frame(connection), 4)[0] == 58
        assert closed(connection)


def test_a_mechanism_that_is_not_offered_is_refused_with_those_that_are(secured: ServerProcess) -> None:
    with raw.connect(secured.bootstrap) as connection:
        code, said = handshake(connection, "GSSAPI")
        assert code == 33 and all(each.encode() in said for each in MECHANISMS)
        assert closed(connection)


def test_a_login_without_a_handshake_is_refused(secured: ServerProcess) -> None:
    with raw.connect(secured.bootstrap) as connection:
        assert authenticate(connection, b"\0a\0b")[0] == 34
        assert closed(connection)


def test_a_large_frame_before_the_login_is_refused(secured: ServerProcess) -> None:
    with raw.connect(secured.bootstrap) as connection:
        connection.sendall(struct.pack(">ihh", 65 * 1024, AUTHENTICATE, 0))
        assert closed(connection)


@pytest.mark.parametrize("user", [USER, "nobody"])
def test_no_answer_tells_whether_a_user_exists(secured: ServerProcess, user: str) -> None:
    answers = []
    for _ in range(2):
        with raw.connect(secured.bootstrap) as connection:
            assert handshake(connection, "PLAIN")[0] == 0
            answers.append(authenticate(connection, f"\0{user}\0wrong".encode()))
    assert {code for code, _ in answers} == {58}
    assert len(set(answers)) == 1
    assert user.encode() not in answers[0][1]


def test_logins_by_bare_frames_of_an_old_client(secured: ServerProcess) -> None:
    for password, succeeds in ((PASSWORD, True), ("wrong", False)):
        with raw.connect(secured.bootstrap) as connection:
            assert handshake(connection, "PLAIN", version=0)[0] == 0
            message = f"\0{USER}\0{password}".encode()
            connection.sendall(struct.pack(">i", len(message)) + message)
            if succeeds:
                assert raw.read_frame(connection) == b""
                connection.sendall(raw.request(METADATA, 1, struct.pack(">i", -1)))
                assert raw.read_frame(connection)
            else:
                assert closed(connection)


def test_a_connection_cannot_change_its_user(secured: ServerProcess) -> None:
    with raw.connect(secured.bootstrap) as connection:
        plain(connection, USER, PASSWORD)
        plain(connection, USER, PASSWORD)  # again, as the same
        assert handshake(connection, "PLAIN")[0] == 0
        code, said = authenticate(connection, f"\0admin\0{PASSWORD}".encode())
        assert code == 58 and b"cannot change its user" in said
        assert closed(connection)


def test_tokens_are_refused_as_kafka_does_without_them(secured: ServerProcess) -> None:
    with raw.connect(secured.bootstrap) as connection:
        plain(connection, USER, PASSWORD)
        connection.sendall(raw.request(41, 1, struct.pack(">i", -1)))
        assert struct.unpack_from(">h", raw.read_frame(connection), 4)[0] == 61


def test_a_listener_without_sasl_asks_nobody(tmp_path: Path) -> None:
    with ServerProcess(tmp_path / "data") as server, raw.connect(server.bootstrap) as connection:
        assert handshake(connection, "PLAIN")[0] == 34
        assert authenticate(connection, b"\0a\0b")[0] == 34


def test_a_login_that_ends_is_renewed_or_the_connection_ends(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    assert (
        tailrace("user", "create", USER, "--data-dir", str(directory), data=PASSWORD.encode()).returncode == 0
    )
    broker: Mapping[str, object] = {"connections.max.reauth.ms": 1000}
    with ServerProcess(directory, listeners=listeners(), broker=broker) as server:
        with raw.connect(server.bootstrap) as connection:
            assert handshake(connection, "PLAIN")[0] == 0
            message = f"\0{USER}\0{PASSWORD}".encode()
            connection.sendall(raw.request(AUTHENTICATE, 1, struct.pack(">i", len(message)) + message))
            answer = raw.read_frame(connection)
            assert struct.unpack(">q", answer[-8:])[0] == 1000
            ended = time.monotonic() + 1.0
            while time.monotonic() < ended:
                connection.sendall(raw.api_versions())
                raw.read_frame(connection)
            connection.sendall(raw.request(METADATA, 1, struct.pack(">i", -1)))
            assert closed(connection)

        async def stay() -> int:
            login = Credentials(USER, Secret(PASSWORD))
            asked = 0
            async with KafkaClient(server.bootstrap, credentials=login) as client:
                first = await client.connection_to(None)
                ended = time.monotonic() + 3.0
                while time.monotonic() < ended:
                    await client.metadata([])
                    asked += 1
                assert await client.connection_to(None) is first
            return asked

        assert asyncio.run(stay()) > 1


# ---- secrets


def test_no_secret_is_shown(tmp_path: Path) -> None:
    directory, word = tmp_path / "data", "very-secret-word-7"
    assert tailrace("user", "create", "eve", "--data-dir", str(directory), data=word.encode()).returncode == 0
    with ServerProcess(directory, listeners=listeners(), log={"level": "debug"}) as server:
        assert http_status(server, "/health", user="eve", password=word)[0] == 200
        assert http_status(server, "/health", user="eve", password=word + "x")[0] == 401
        with raw.connect(server.bootstrap) as connection:
            plain(connection, "eve", word)
        with raw.connect(server.bootstrap) as connection:
            handshake(connection, "PLAIN")
            authenticate(connection, b"\0eve\0" + word.encode() + b"\0broken")
        metrics = http_status(server, "/metrics", user="eve", password=word)[1]
        settings = http_status(server, "/api/v1/cluster", user="eve", password=word)[1]
        users = http_status(server, "/api/v1/users", user="eve", password=word)[1]
        command_line = Path(f"/proc/{server.pid}/cmdline").read_bytes()
        config = tailrace("config", "show", "--config", str(directory.with_name("data.toml"))).stdout
        shown = server.output().encode()
        assert b"login failed" in shown
        assert b'tailrace_logins_total{mechanism="PLAIN",result="succeeded"} 1.0' in metrics
        stored = (directory / "cluster.json").read_bytes() + (directory / "metadata.sqlite").read_bytes()
    for each in (metrics, settings, users, command_line, config, shown, stored):
        assert word.encode() not in each
        assert b64encode(f"eve:{word}".encode()) not in each
    assert b"stored_key" not in metrics + settings + users + config + shown
    for name in ("metadata.sqlite", "cluster.json"):
        assert (directory / name).stat().st_mode & 0o077 == 0, name
