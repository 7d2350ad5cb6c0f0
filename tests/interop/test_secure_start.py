"""The secure quick start as README shows it, met by real clients over SASL_SSL; and certificates of clients.

`tailrace cert init` makes the directory, `tailrace user create` the first user, `tailrace up` the broker. The
ports of the file are replaced by free ones, and listeners are added for what the quick start does not have.
"""

from __future__ import annotations

import asyncio
import base64
import http.client
import json
import os
import signal
import ssl
import subprocess
import sys
import threading
import warnings
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from tests.document import ROOT
from tests.interop.clients.cache import need_program
from tests.interop.deadline import wait_until

from tailrace.client import AdminClient, BrokerClient, ClientTls, KafkaClient, MessageProducer, ProducerRecord
from tailrace.client.credentials import Credentials
from tailrace.client.error import CannotConnect
from tailrace.security import Secret
from tailrace.server.secure_start import add_client

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its own ways to read files
    from kafka import KafkaProducer

RUN_S = 120
PASSWORD = "open sesame 42"
INIT = ("cert", "init", "./secure")
USER = ("user", "create", "admin", "--config", "./secure/tailrace.toml")
UP = ("up", "--config", "./secure/tailrace.toml")
MORE = """
[[listeners]]
name = "machines"
protocol = "kafka"
address = "127.0.0.1:0"
tls = {cert = "./secure/server.crt", key = "./secure/server.key", client_ca = "./secure/ca.crt"}
"""


class Secured:
    """The broker of a directory that `tailrace cert init` made."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.config = "./secure/tailrace.toml"
        self.ca = str(directory / "secure" / "ca.crt")
        self.lines: list[str] = []
        self._ready = threading.Event()

    def run(
        self, *words: str, data: str = "", env: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, "-m", "tailrace", *words],
            cwd=self.directory,
            input=data,
            capture_output=True,
            text=True,
            timeout=RUN_S,
            check=False,
            env={**os.environ, **(env or {})},
        )

    def wait_logged(self, text: str) -> None:
        """Wait until the broker has logged it: its lines come by a thread."""
        wait_until(
            lambda: any(text in each for each in self.lines),
            within_s=RUN_S,
            what=lambda: f"{text!r} in {self.lines[-10:]}",
        )

    def prepare(self) -> None:
        made = self.run(*INIT)
        assert made.returncode == 0, made.stderr
        path = self.directory / self.config
        text = path.read_text()
        for port in (9092, 9999, 8080):
            assert f'address = "127.0.0.1:{port}"' in text
            text = text.replace(f"127.0.0.1:{port}", "127.0.0.1:0")
        path.write_text(text + MORE)
        user = self.run(*USER, data=PASSWORD)
        assert user.returncode == 0, user.stderr

    def start(self) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tailrace", *UP],
            cwd=self.directory,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        assert self._ready.wait(RUN_S) and self.process.poll() is None, "".join(self.lines)
        self.ports = json.loads((self.directory / "secure/data/tailrace.ports.json").read_text())
        self.bootstrap = f"127.0.0.1:{self.ports['kafka']}"
        (line,) = [each for each in self.lines if "listening: machines on" in each]
        self.machines = line.rsplit(" ", 1)[-1].strip()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as lines:
            for line in lines:
                self.lines.append(line)
                if line == "ready\n":
                    self._ready.set()
        self._ready.set()

    def stop(self) -> None:
        self.process.send_signal(signal.SIGTERM)
        assert self.process.wait(RUN_S) == 0, "".join(self.lines)
        self._reader.join(RUN_S)

    def librdkafka(self, **more: str) -> dict[str, Any]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": self.ca,
            "sasl.mechanism": "SCRAM-SHA-256",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
            **{name.replace("_", "."): value for name, value in more.items()},
        }

    @property
    def login(self) -> dict[str, str]:
        return {"TAILRACE_USER": "admin", "TAILRACE_PASSWORD": PASSWORD}


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secure-start"))
    made.prepare()
    made.start()
    yield made
    made.stop()


def test_readme_shows_these_three_lines() -> None:
    shown = (ROOT / "README.md").read_text()
    lines = [f".venv/bin/tailrace {' '.join(each)}\n" for each in (INIT, USER, UP)]
    assert "".join(lines) in shown


def test_keys_are_for_their_owner_alone_and_nothing_is_written_over(secured: Secured) -> None:
    secure = secured.directory / "secure"
    for key in (secure / "server.key", secure / "ca" / "ca.key"):
        assert key.stat().st_mode & 0o777 == 0o600
    before = (secure / "server.crt").read_bytes()
    again = secured.run("cert", "init", "./secure")
    assert again.returncode == 2 and "exists already and is not written over" in again.stderr
    assert (secure / "server.crt").read_bytes() == before


def test_kcat_writes_and_reads(secured: Secured) -> None:
    kcat = need_program("kcat")
    settings = [
        f"-X{name}={value}" for name, value in secured.librdkafka().items() if name != "bootstrap.servers"
    ]
    common = [kcat, "-b", secured.bootstrap, "-t", "by-kcat", *settings]
    subprocess.run([*common, "-P"], input=b"hello\n", check=True, timeout=RUN_S)
    read = subprocess.run(
        [*common, "-C", "-e", "-o", "beginning"], capture_output=True, check=True, timeout=RUN_S
    )
    assert read.stdout == b"hello\n"


def test_confluent_kafka_writes_and_reads(secured: Secured) -> None:
    producer = Producer(secured.librdkafka())
    values = [os.urandom(200_000) for _ in range(8)]
    for value in values:
        producer.produce("by-confluent", value, partition=0)
    assert producer.flush(RUN_S) == 0
    consumer = Consumer({**secured.librdkafka(), "group.id": "one", "auto.offset.reset": "earliest"})
    consumer.subscribe(["by-confluent"])
    found: list[bytes | str | None] = []
    while len(found) < len(values):
        (message,) = consumer.consume(1, RUN_S)
        assert not message.error(), message.error()
        found.append(message.value())
    consumer.close()
    assert found == values


def test_confluent_kafka_is_told_of_a_wrong_password(secured: Secured) -> None:
    said: list[str] = []
    given = secured.librdkafka(sasl_password="wrong")
    producer = Producer({**given, "error_cb": lambda error: said.append(str(error))})
    for _ in range(RUN_S):
        with suppress(KafkaException):
            producer.list_topics(timeout=0.5)
        producer.poll(0)
        if any("the user name or the password is wrong" in each for each in said):
            return
    raise AssertionError(said[-3:])


@pytest.mark.parametrize(
    ("protocol", "cause"),
    [
        ("SSL", "broker might require SASL authentication"),
        ("PLAINTEXT", "connecting to a SSL listener?"),
    ],
)
def test_the_same_client_without_a_password_or_without_tls_is_refused(
    secured: Secured, protocol: str, cause: str
) -> None:
    kcat = [need_program("kcat"), "-b", secured.bootstrap, "-L", "-m", "1", f"-Xsecurity.protocol={protocol}"]
    if protocol == "SSL":
        kcat.append(f"-Xssl.ca.location={secured.ca}")
    done = subprocess.run(kcat, capture_output=True, text=True, timeout=RUN_S, check=False)
    assert done.returncode == 1 and cause in done.stderr, done.stderr[-500:]
    logged = {
        "SSL": "it has not logged in, and asks for something else",
        "PLAINTEXT": "without TLS to a TLS listener",
    }
    secured.wait_logged(logged[protocol])


def test_kafka_python_writes(secured: Secured) -> None:
    producer = KafkaProducer(
        bootstrap_servers=secured.bootstrap,
        security_protocol="SASL_SSL",
        ssl_cafile=secured.ca,
        sasl_mechanism="SCRAM-SHA-256",
        sasl_plain_username="admin",
        sasl_plain_password=PASSWORD,
    )
    assert producer.send("by-kafka-python", b"x").get(timeout=RUN_S).offset == 0
    producer.close()


def test_our_clients_write_over_tls(secured: Secured) -> None:
    with MessageProducer(
        {
            "bootstrap.servers": secured.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.location": secured.ca,
            "ssl.truststore.type": "PEM",
            "sasl.username": "admin",
            "sasl.password": PASSWORD,
        }
    ) as producer:
        assert producer.send(ProducerRecord("ours", b"x")).result(RUN_S).offset == 0
    with AdminClient(secured.bootstrap, username="admin", password=PASSWORD, tls=secured.ca) as admin:
        assert "ours" in admin.list_topics()
    native = BrokerClient(
        "127.0.0.1", secured.ports["native"], username="admin", password=PASSWORD, tls=secured.ca
    )
    native.connect()
    native.publish_text("ours", "y")
    native.disconnect()


def test_commands_verify_the_broker_and_say_what_is_missing(secured: Secured) -> None:
    words = ("topic", "list", "--bootstrap", secured.bootstrap)
    assert secured.run(*words, "--tls-ca", secured.ca, env=secured.login).returncode == 0
    for flags, cause in (
        (("--tls-ca", "system"), "not of a CA that is trusted here"),
        ((), "It may speak TLS"),
    ):
        failed = secured.run(*words, *flags, env=secured.login)
        assert failed.returncode == 1 and cause in failed.stderr, failed.stderr
    careless = secured.run(*words, "--tls-insecure", env=secured.login)
    assert careless.returncode == 0 and "is not verified" in careless.stderr


def test_commands_beside_the_broker_trust_its_certificate_alone(secured: Secured) -> None:
    users = secured.run("user", "list", "--config", secured.config, "-o", "jsonl", env=secured.login)
    assert users.returncode == 0 and '"admin"' in users.stdout, users.stderr
    found = secured.run("doctor", "--config", secured.config, "-o", "json", env=secured.login)
    assert f"{secured.bootstrap} answers" in found.stdout, found.stdout + found.stderr


def test_http_is_https(secured: Secured) -> None:
    port = secured.ports["http"]
    context = ssl.create_default_context(cafile=secured.ca)
    connection = http.client.HTTPSConnection("localhost", port, context=context, timeout=RUN_S)
    connection.request("GET", "/health")
    assert json.loads(connection.getresponse().read())["status"] == "ok"
    connection.close()
    plain = http.client.HTTPConnection("localhost", port, timeout=RUN_S)
    plain.request("GET", "/health")
    answer = plain.getresponse()
    assert answer.status == 400 and f"https://127.0.0.1:{port}/".encode() in answer.read()
    plain.close()
    secured.wait_logged("sends HTTP without TLS")


def test_metrics_tell_when_certificates_expire(secured: Secured) -> None:
    context = ssl.create_default_context(cafile=secured.ca)
    connection = http.client.HTTPSConnection(
        "localhost", secured.ports["http"], context=context, timeout=RUN_S
    )
    basic = base64.b64encode(f"admin:{PASSWORD}".encode()).decode()
    connection.request("GET", "/metrics", headers={"authorization": f"Basic {basic}"})
    text = connection.getresponse().read().decode()
    connection.close()
    (line,) = [
        each
        for each in text.splitlines()
        if each.startswith('tailrace_certificate_expiry_seconds{listener="kafka"}')
    ]
    assert 364 * 86400 < float(line.split()[-1]) <= 365 * 86400


async def _topics(bootstrap: str, tls: ClientTls, credentials: Credentials | None = None) -> None:
    async with KafkaClient(bootstrap, tls=tls, credentials=credentials) as client:
        await client.metadata()


def test_a_client_certificate_is_a_principal_that_can_be_disabled(secured: Secured) -> None:
    files, _ = add_client(secured.directory / "secure", "billing")
    own = ClientTls(ca=secured.ca, cert=str(files[0]), key=str(files[1]))
    words = ("--config", secured.config)

    async def until_disabled() -> None:
        async with KafkaClient(secured.machines, tls=own) as client:
            connection = await client.connection_to(None)
            disabled = await asyncio.to_thread(
                secured.run, "user", "disable", "User:CN=billing", *words, env=secured.login
            )
            assert disabled.returncode == 0, disabled.stderr
            async with asyncio.timeout(RUN_S):
                await connection._closed.wait()

    asyncio.run(until_disabled())
    with pytest.raises(CannotConnect):
        asyncio.run(_topics(secured.machines, own))
    secured.wait_logged("User:CN=billing is disabled")
    listed = secured.run("user", "list", *words, "-o", "jsonl", env=secured.login)
    assert '"User:CN=billing"' in listed.stdout
    assert secured.run("user", "enable", "User:CN=billing", *words, env=secured.login).returncode == 0
    asyncio.run(_topics(secured.machines, own))


def test_a_listener_with_client_ca_admits_nobody_without_a_certificate(secured: Secured) -> None:
    with pytest.raises(CannotConnect, match=r"demands a certificate of the client"):
        asyncio.run(_topics(secured.machines, ClientTls(ca=secured.ca)))
    # Neither does a password help: this listener asks for none.
    with pytest.raises(CannotConnect):
        asyncio.run(
            _topics(secured.machines, ClientTls(ca=secured.ca), Credentials("admin", Secret(PASSWORD)))
        )
