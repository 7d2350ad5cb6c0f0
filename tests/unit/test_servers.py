"""The servers that tests start: they serve, are killed and serve again on the same port."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest
from tests.postgres import PostgresServer, run_on
from tests.redis import RedisServer

from tailrace.security import Secret


def test_redis_answers_is_killed_and_comes_back_empty(own_redis: RedisServer) -> None:
    assert own_redis.command("SET a 1") == "+OK"
    own_redis.kill()
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(own_redis.address)
    own_redis.start()
    assert own_redis.command("EXISTS a") == ":0"


def test_a_shared_redis_is_empty_for_each_test(redis: tuple[str, int], shared_redis: RedisServer) -> None:
    assert redis == shared_redis.address and shared_redis.command("DBSIZE") == ":0"
    shared_redis.command("SET a 1")


def test_postgres_keeps_its_data_when_it_is_stopped_and_killed(own_postgres: PostgresServer) -> None:
    dsn = own_postgres.create_database()
    run_on(dsn, lambda each: each.execute("CREATE TABLE public.t AS SELECT 7 AS n"))
    own_postgres.stop()
    own_postgres.start()
    own_postgres.kill()
    own_postgres.start()
    assert run_on(dsn, lambda each: each.fetchval("SELECT n FROM public.t")) == 7


def test_only_a_durable_postgres_syncs(durable_postgres: Secret, postgres: Secret) -> None:
    assert run_on(durable_postgres, lambda each: each.fetchval("SHOW fsync")) == "on"
    assert run_on(postgres, lambda each: each.fetchval("SHOW fsync")) == "off"


def test_a_database_is_gone_after_its_test(fast_postgres: PostgresServer, tmp_path: Path) -> None:
    dsn = fast_postgres.create_database()
    fast_postgres.drop_database(dsn)
    count = "SELECT count(*) FROM pg_database WHERE datname = current_database()"
    assert run_on(fast_postgres.dsn(), lambda each: each.fetchval(count)) == 1
    with pytest.raises(Exception, match="3D000"):
        run_on(dsn, lambda each: each.fetchval("SELECT 1"))
