"""A broker whose users are in PostgreSQL, with real clients; users change by SQL, PostgreSQL is killed."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.interop.deadline import wait_until
from tests.interop.server import ServerProcess
from tests.postgres import PostgresServer, run_on

from tailrace.security import Secret

SASL = ["SCRAM-SHA-256", "PLAIN"]
WORD = "open sesame, 42"
WITHIN_S = 60


@pytest.fixture
def config(own_postgres: PostgresServer, tmp_path: Path) -> Path:
    """The configuration of a broker that does not run yet, and has a user."""
    path = tmp_path / "users.toml"
    path.write_text(f'[security]\nusers = "postgres"\npostgres_dsn = "{own_postgres.dsn().reveal()}"\n')
    user(path, "create", "alice", said="user alice created")
    return path


def user(config: Path, *words: str, said: str = "", code: int = 0) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "user", *words, "--config", str(config)],
        input=WORD,
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == code, done.stderr
    assert said in done.stdout + done.stderr
    assert "the-boss-of-tests" not in done.stdout + done.stderr
    return done.stdout


class Client:
    """One client of librdkafka."""

    def __init__(self, port: int, *, mechanism: str) -> None:
        settings: dict[str, Any] = {
            "bootstrap.servers": f"127.0.0.1:{port}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": "alice",
            "sasl.password": WORD,
            "reconnect.backoff.max.ms": 100,
        }
        self._admin = AdminClient(settings)

    def is_served(self) -> bool:
        self._admin.poll(0)
        try:
            self._admin.list_topics(timeout=1)
        except KafkaException:
            return False
        return True


@pytest.mark.slow
def test_users_in_postgres_log_in_are_disabled_and_outlive_a_kill(
    own_postgres: PostgresServer, config: Path, tmp_path: Path
) -> None:
    listeners = [
        {"name": "kafka", "protocol": "kafka", "address": "127.0.0.1:0", "sasl": SASL},
        {"name": "native", "protocol": "native", "address": "127.0.0.1:0", "sasl": SASL},
    ]
    security = {"users": "postgres", "postgres_dsn": own_postgres.dsn().reveal(), "postgres_grace_s": 3600}
    with ServerProcess(tmp_path / "data", listeners=listeners, security=security) as broker:
        clients = [Client(broker.port, mechanism=each) for each in SASL]
        assert all(each.is_served() for each in clients)

        sql(own_postgres, "UPDATE tailrace.users SET enabled = false")
        for each in clients:
            wait_until(lambda: not each.is_served(), within_s=WITHIN_S, what="alice is still served")  # noqa: B023
        user(config, "enable", "alice", said="user alice enabled")
        for each in clients:
            wait_until(each.is_served, within_s=WITHIN_S, what="alice is not served again")

        own_postgres.kill()
        assert all(each.is_served() for each in clients), "open connections go on"
        assert all(Client(broker.port, mechanism=each).is_served() for each in SASL), "and so do logins"
        user(config, "disable", "alice", said="cannot be reached", code=1)

        own_postgres.start()
        user(config, "disable", "alice", said="user alice disabled")
        for each in clients:
            wait_until(lambda: not each.is_served(), within_s=WITHIN_S, what="alice is still served")  # noqa: B023
        assert broker.stop() == 0

    listed = json.loads(user(config, "list", "-o", "json"))
    assert listed == [{"name": "alice", "enabled": False, "mechanisms": ["SCRAM-SHA-256", "SCRAM-SHA-512"]}]


def test_the_dsn_is_not_shown(config: Path, tmp_path: Path) -> None:
    for words in (
        ["config", "show"],
        ["config", "show", "-o", "json"],
        ["config", "explain", "security.postgres_dsn"],
    ):
        done = subprocess.run(
            [sys.executable, "-m", "tailrace", *words, "--config", str(config)],
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=True,
        )
        assert "<secret>" in done.stdout and "the-boss" not in done.stdout
    config.write_text('[security]\nusers = "postgres"\npostgres_dsn = "mysql://boss:hunter2@h"\n')
    done = subprocess.run(
        [sys.executable, "-m", "tailrace", "config", "validate", str(config)],
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == 1 and "security.postgres_dsn is no connection URI" in done.stdout
    assert "hunter2" not in done.stdout + done.stderr


def sql(server: PostgresServer, text: str) -> None:
    dsn: Secret = server.dsn()
    run_on(dsn, lambda each: each.execute(text))
