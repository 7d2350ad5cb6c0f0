"""Quotas with real clients: slowed to about their quota, none by the quota of another; REST, command line."""

from __future__ import annotations

import http.client
import json
import socket
import subprocess
import sys
import time
import warnings
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from tests.interop.deadline import wait_until
from tests.interop.server import ServerProcess

from tailrace.client import BrokerClient
from tailrace.testing.port import free_port

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of its own way to read files
    from kafka import KafkaProducer

RATE = 200_000
PIECE = b"x" * 50_000
RUN_S = 120


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    """A broker that has a quota before its first start."""
    directory = tmp_path_factory.mktemp("quotas") / "data"
    quota("set", "--client-id", "first", "--produce", str(RATE), "--data-dir", str(directory))
    listeners = [
        {"name": each, "protocol": each, "address": f"127.0.0.1:{free_port()}"}
        for each in ("kafka", "native", "http")
    ]
    with ServerProcess(directory, listeners=listeners) as running:
        yield running


def quota(*words: str, code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "quota", *words],
        capture_output=True,
        text=True,
        timeout=RUN_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    return done.stdout


def change(node: ServerProcess, entity: Mapping[str, str | None], values: Mapping[str, float | None]) -> None:
    status, answer, _ = call(node, "PATCH", "/api/v1/quotas", {"entity": entity, "values": values})
    assert status == 200, answer


def call(
    node: ServerProcess, method: str, path: str, body: object = None
) -> tuple[int, Any, Mapping[str, str]]:
    connection = http.client.HTTPConnection("127.0.0.1", node.ports["http"], timeout=RUN_S)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, body=data, headers={"content-type": "application/json"})
        response = connection.getresponse()
        return response.status, json.loads(response.read() or b"{}"), dict(response.getheaders())
    finally:
        connection.close()


def produce_s(node: ServerProcess, topic: str, client_id: str, pieces: int) -> float:
    """How long librdkafka takes for so many requests of one piece each."""
    settings: dict[str, Any] = {
        "bootstrap.servers": node.bootstrap,
        "client.id": client_id,
        "batch.num.messages": 1,
        "linger.ms": 0,
        "max.in.flight": 1,
    }
    producer = Producer(settings)
    began = time.monotonic()
    for _ in range(pieces):
        producer.produce(topic, PIECE)
    assert producer.flush(RUN_S) == 0
    return time.monotonic() - began


def test_a_producer_is_slowed_to_its_quota_and_no_other_is(node: ServerProcess) -> None:
    # 20 pieces are a megabyte: five seconds at this rate, less the burst of one and the last wait.
    slow = produce_s(node, "made", "first", 20)
    free = produce_s(node, "made", "other", 20)
    assert slow >= 3.0, "it is slowed, although librdkafka ignores throttle_time_ms"
    assert free < slow


def test_a_consumer_is_slowed_to_its_quota(node: ServerProcess) -> None:
    produce_s(node, "read", "other", 20)
    change(node, {"client-id": "reader"}, {"consumer_byte_rate": RATE})
    settings: dict[str, Any] = {
        "bootstrap.servers": node.bootstrap,
        "client.id": "reader",
        "group.id": "readers",
        "auto.offset.reset": "earliest",
    }
    consumer = Consumer(settings)
    consumer.subscribe(["read"])
    began, count = 0.0, 0
    while count < 20:
        message = consumer.poll(RUN_S)
        assert message is not None and message.error() is None
        began = began or time.monotonic()
        count += 1
    took = time.monotonic() - began
    consumer.close()
    assert took >= 2.0


def test_kafka_python_is_slowed_too_and_the_metrics_say_so(node: ServerProcess) -> None:
    change(node, {"user": "ANONYMOUS", "client-id": "python"}, {"producer_byte_rate": RATE})
    producer = KafkaProducer(
        bootstrap_servers=node.bootstrap,
        client_id="python",
        batch_size=0,
        max_in_flight_requests_per_connection=1,
    )
    began = time.monotonic()
    for _ in range(12):
        producer.send("made", PIECE)
    producer.flush(RUN_S)
    took = time.monotonic() - began
    producer.close()
    assert took >= 1.0
    connection = http.client.HTTPConnection("127.0.0.1", node.ports["http"], timeout=RUN_S)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    counts = [line for line in text.splitlines() if line.startswith("tailrace_throttled_requests_total")]
    assert any('quota="producer_byte_rate"' in each and float(each.split()[-1]) > 0 for each in counts)


def test_an_answer_tells_how_long_the_client_is_not_read(node: ServerProcess) -> None:
    change(node, {"client-id": "asker"}, {"request_percentage": 0.0001})
    with socket.create_connection(("127.0.0.1", node.port)) as client:
        client.settimeout(RUN_S)
        head = b"\x00\x03\x00\x09\x00\x00\x00\x07\x00\x05asker\x00"  # Metadata 9, no topics
        body = b"\x01\x00\x00\x00\x00"
        client.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
        size = int.from_bytes(client.recv(4), "big")
        answer = b""
        while len(answer) < size:
            answer += client.recv(size - len(answer))
        told_ms = int.from_bytes(answer[5:9], "big")
        assert told_ms > 1000
        client.sendall((len(head) + len(body)).to_bytes(4, "big") + head + body)
        client.settimeout(0.3)
        with pytest.raises(TimeoutError):
            client.recv(1)  # it is not read
        change(node, {"client-id": "asker"}, {"request_percentage": None})
        client.settimeout(RUN_S)
        assert client.recv(4), "without the quota it goes on at once"


def test_a_native_publisher_is_slowed(node: ServerProcess) -> None:
    change(node, {"client-id": "native"}, {"producer_byte_rate": RATE})
    with BrokerClient(port=node.ports["native"], client_id="native") as client:
        client.create_topic("natively")
        began = time.monotonic()
        for _ in range(20):
            client.publish("natively", PIECE)
        assert time.monotonic() - began >= 3.0


def test_http_says_when_to_come_again(node: ServerProcess) -> None:
    change(node, {"user": "ANONYMOUS"}, {"producer_byte_rate": 1000})
    try:
        records = {"records": [{"value": "x" * 5000}]}
        assert call(node, "POST", "/api/v1/topics/made/records", records)[0] in (200, 201)
        status, answer, headers = call(node, "GET", "/api/v1/topics")
        assert (status, answer["error"]["code"]) == (429, "QUOTA_EXCEEDED")
        assert 1 <= int(headers["retry-after"]) <= 6
        assert call(node, "GET", "/health")[0] == 200
    finally:
        change(node, {"user": "ANONYMOUS"}, {"producer_byte_rate": None})
    assert call(node, "GET", "/api/v1/topics")[0] == 200


def test_an_address_connects_at_its_rate(node: ServerProcess) -> None:
    change(node, {"ip": "127.0.0.1"}, {"connection_creation_rate": 3})
    refused = 0
    try:
        for _ in range(10):
            with socket.create_connection(("127.0.0.1", node.port)) as client:
                client.settimeout(0.2)
                try:
                    refused += client.recv(1) == b""
                except TimeoutError:
                    pass
                except ConnectionResetError:
                    refused += 1
    finally:
        wait_until(lambda: _removed(node), within_s=RUN_S, what="the quota is not removed")
    assert 1 <= refused <= 7


def _removed(node: ServerProcess) -> bool:
    try:
        change(node, {"ip": "127.0.0.1"}, {"connection_creation_rate": None})
    except OSError:
        return False
    return True


def test_quotas_are_changed_on_the_command_line(node: ServerProcess) -> None:
    place = ["--http", f"127.0.0.1:{node.ports['http']}"]
    alice = ["--for-user", "alice", "--client-id-default"]
    said = quota("set", *alice, "--produce", "1048576", "--fetch", "5", *place)
    assert said == "user alice, client-id (default): consumer_byte_rate 5, producer_byte_rate 1048576\n"
    said = quota("remove", *alice, "--fetch", *place)
    assert said == "user alice, client-id (default): producer_byte_rate 1048576\n"
    rows = json.loads(quota("list", "-o", "json", *place))
    row = {"entity": {"user": "alice", "client-id": None}, "values": {"producer_byte_rate": 1048576.0}}
    assert row in rows
    assert {"entity": {"client-id": "first"}, "values": {"producer_byte_rate": float(RATE)}} in rows
    assert quota("remove", *alice, *place).endswith(": no quota\n")
    quota("set", "--for-user", "alice", *place, code=2)
    quota("set", "--ip", "10.0.0.1", "--produce", "5", *place, code=1)


def test_quotas_survive_a_restart(tmp_path: Path) -> None:
    directory = tmp_path / "data"
    quota("set", "--user-default", "--request-percent", "50", "--data-dir", str(directory))
    with ServerProcess(directory) as running:
        rows = json.loads(quota("list", "-o", "json", "--data-dir", str(directory)))
        assert rows == [{"entity": {"user": None}, "values": {"request_percentage": 50.0}}]
        assert running.stop() == 0
