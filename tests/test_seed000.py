"""Seed 000's message flow on the tiered engine: publish, ingest, persist to Redis and PostgreSQL, deliver,
acknowledge, resume. Real processes; the test looks into both servers.

The broker is then killed, and a second one that stood by goes on where the subscriber's cursor is.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.postgres import run_on
from tests.redis import RedisServer

import tailrace
from tailrace.client import BrokerClient, Message
from tailrace.security import Secret
from tailrace.testing.port import free_port

DEADLINE_S = 60
BODIES = [f"measurement {number}" for number in range(6)]


class BrokerProcess:
    """`tailrace up --engine tiered`, and the lines that it prints."""

    def __init__(self, directory: Path, dsn: Secret, redis: str) -> None:
        self.http = free_port()
        self.native = free_port()
        self.process = subprocess.Popen(
            [
                sys.executable, "-m", "tailrace", "up", "--engine", "tiered", "--data-dir", str(directory),
                "--kafka-port", "0", "--native-port", str(self.native), "--http-port", str(self.http),
            ],
            env={
                **{name: value for name, value in os.environ.items() if not name.startswith("TAILRACE_")},
                "PYTHONPATH": str(Path(tailrace.__file__).parents[1]),
                "TAILRACE_TIERED__POSTGRES_DSN": dsn.reveal(),
                "TAILRACE_TIERED__REDIS_URL": redis,
            },
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )  # fmt: skip
        self._lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def wait_line(self, beginning: str) -> str:
        while True:
            line = self._lines.get(timeout=DEADLINE_S)
            assert line, f"the broker ended before it said {beginning!r}"
            if line.startswith(beginning):
                return line

    def get(self, path: str) -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.http, timeout=DEADLINE_S)
        with contextlib.closing(connection):
            connection.request("GET", path)
            answer = connection.getresponse()
            return answer.status, answer.read().decode()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(DEADLINE_S)

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line.rstrip("\n"))
        self._lines.put("")

    def close(self) -> None:
        if self.process.poll() is None:
            self.kill()
        self._reader.join(DEADLINE_S)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture
def brokers(
    durable_postgres: Secret, own_redis: RedisServer, tmp_path: Path
) -> Iterator[list[BrokerProcess]]:
    made = [BrokerProcess(tmp_path / "first", durable_postgres, own_redis.url)]
    made[0].wait_line("ready")
    made.append(BrokerProcess(tmp_path / "second", durable_postgres, own_redis.url))
    yield made
    for each in made:
        each.close()


def wait_until(condition: object) -> None:
    assert callable(condition)
    ends = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < ends
        time.sleep(0.05)


def _pull(client: BrokerClient, count: int) -> list[Message]:
    """So many messages, each acknowledged; a pull may return fewer than it may."""
    found: list[Message] = []
    while len(found) < count:
        for message in client.pull("readings", count - len(found), wait_ms=DEADLINE_S * 1000):
            message.ack()
            found.append(message)
    return found


@pytest.mark.slow
def test_publish_ingest_persist_deliver_acknowledge_resume(
    brokers: list[BrokerProcess], durable_postgres: Secret, own_redis: RedisServer
) -> None:
    first, second = brokers

    # Publish and ingest: the broker gives every message its offset and its time.
    with BrokerClient(host="127.0.0.1", port=first.native, client_id="publisher") as client:
        client.create_topic("sensors", partitions=1)
        published = [client.publish_text("sensors", body) for body in BODIES]
        assert [each.offset for each in published] == list(range(len(BODIES)))

    # Persist: PostgreSQL has the bytes when the acknowledgement is there, Redis soon after.
    stored = run_on(
        durable_postgres,
        lambda each: each.fetchval(
            "SELECT string_agg(data, ''::bytea ORDER BY base_offset) FROM tailrace.chunks JOIN tailrace.logs"
            " USING (log) WHERE topic_id = (SELECT (value::jsonb ->> 'topic')::uuid FROM tailrace.metadata"
            " WHERE key = 'names/sensors')"
        ),
    )
    assert isinstance(stored, bytes)
    for body in BODIES:
        assert stored.count(body.encode()) == 1
    wait_until(lambda: int(own_redis.command("DBSIZE").removeprefix(":")) >= len(BODIES))

    # Deliver and acknowledge half of them.
    with BrokerClient(host="127.0.0.1", port=first.native, client_id="subscriber") as client:
        client.create_subscription("readings", "sensors", start_offset=0)
        assert [message.offset for message in _pull(client, 3)] == [0, 1, 2]

    # A second broker stands by: alive, not ready, no listener.
    second.wait_line("standby")
    assert second.get("/health")[0] == 200
    status, body = second.get("/health/ready")
    assert (status, json.loads(body)["status"]) == (503, "standby")

    # The first one dies; the second serves what was acknowledged, and the subscriber resumes at its cursor.
    first.kill()
    second.wait_line("ready")
    wait_until(lambda: second.get("/health/ready")[0] == 200)
    with BrokerClient(host="127.0.0.1", port=second.native, client_id="subscriber") as client:
        rest = _pull(client, 3)
        assert [(message.offset, message.body.decode()) for message in rest] == [
            (3, BODIES[3]), (4, BODIES[4]), (5, BODIES[5]),
        ]  # fmt: skip
        assert client.publish_text("sensors", "after the takeover").offset == len(BODIES)
    assert second.stop() == 0
