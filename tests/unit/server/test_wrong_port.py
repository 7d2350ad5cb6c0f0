"""Clients on the wrong port of a real broker: each is told which port that is, and where to go."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

import tailrace
from tailrace.cli.main import main
from tailrace.client import BrokerClient
from tailrace.client.native.error import BrokerUnreachable


@pytest.fixture(scope="module")
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker(http_port=0) as running:
        yield running


def exchange(port: int, data: bytes) -> bytes:
    """Everything that is answered until the end of the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection:
        connection.sendall(data)
        while piece := connection.recv(65536):
            answer += piece
    return answer


def ports(broker: tailrace.Broker) -> dict[str, int]:
    return {
        "kafka": int(broker.bootstrap_servers.rpartition(":")[2]),
        "native": int(broker.native_address.rpartition(":")[2]),
    }


@pytest.mark.parametrize(("listener", "name"), [("kafka", "Kafka"), ("native", "native")])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"])
def test_http_is_answered_with_the_console_s_address(
    broker: tailrace.Broker, listener: str, name: str, method: str
) -> None:
    request = f"{method} / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{{}}".encode()
    head, _, body = exchange(ports(broker)[listener], request).partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 400 Bad Request\r\n")
    assert b"Content-Length: %d\r\n" % len(body) in head
    assert body.decode() == (
        f"This is the {name} listener of a Tailrace broker, and it does not speak HTTP."
        f" The console and the REST API are at http://{broker.http_address}/\n"
    )


def test_without_an_http_listener_the_answer_says_so() -> None:
    with tailrace.Broker() as plain:
        answer = exchange(ports(plain)["kafka"], b"GET / HTTP/1.1\r\n\r\n")
    assert b"serves no HTTP: see http.enabled" in answer


@pytest.mark.parametrize("listener", ["kafka", "native"])
def test_a_size_that_is_no_method_is_not_answered_in_http(broker: tailrace.Broker, listener: str) -> None:
    assert b"HTTP" not in exchange(ports(broker)[listener], b"GOT / HTTP/1.1\r\n\r\n")


@pytest.mark.parametrize("listener", ["kafka", "native"])
def test_a_client_that_speaks_tls_is_named_in_the_log(
    broker: tailrace.Broker, listener: str, caplog: pytest.LogCaptureFixture
) -> None:
    exchange(ports(broker)[listener], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500))
    (line,) = [each.message for each in caplog.records if each.levelname == "WARNING"]
    assert f"on listener {listener}: the client speaks TLS to a listener without TLS" in line


def test_a_kafka_command_on_the_native_port_is_told_the_kafka_port(
    broker: tailrace.Broker, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["topic", "list", "-b", broker.native_address]) == 1
    assert capfd.readouterr().err == (
        f"error: {broker.native_address} is no Kafka port: this is the native listener, and the client speaks"
        f" Kafka. Connect it to port {ports(broker)['kafka']}\n"
    )


def test_a_native_client_on_the_http_port_is_told_so(broker: tailrace.Broker) -> None:
    host, _, port = broker.http_address.rpartition(":")
    with pytest.raises(BrokerUnreachable, match=r"speaks HTTP\. Is this the native port\?"):
        BrokerClient(host, int(port), reconnect=None).connect()


def test_a_native_client_on_the_kafka_port_is_asked_about_it(broker: tailrace.Broker) -> None:
    with pytest.raises(BrokerUnreachable, match=r"Is this the native port\?"):
        BrokerClient("127.0.0.1", ports(broker)["kafka"], reconnect=None).connect()
