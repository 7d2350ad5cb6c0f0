"""Connections, pool, migrations and roles on a real PostgreSQL, which is killed and started again."""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Awaitable, Callable
from dataclasses import replace

import pytest
from tests.postgres import PostgresServer, parsed, run_on

from tailrace.model import ConfigError
from tailrace.postgres import (
    Connection,
    DatabaseAway,
    DatabaseBusy,
    DatabaseError,
    DatabaseRefused,
    Dsn,
    Migration,
    Pool,
    Role,
    Standing,
    connect,
    create_roles,
    grant_reading,
    migrate,
)
from tailrace.postgres.pool import close_connection
from tailrace.security import Secret

ONE = Migration(
    number=1, name="one", sql="CREATE TABLE tailrace.one (n int); CREATE VIEW tailrace.seen AS TABLE one"
)
TWO = Migration(number=2, name="two", sql="ALTER TABLE tailrace.one ADD COLUMN m int")
WAIT_S = 60


async def with_connection(dsn: Dsn, act: Callable[[Connection], Awaitable[object]]) -> object:
    connection = await connect(dsn)
    try:
        return await act(connection)
    finally:
        await close_connection(connection)


def test_a_connection_has_its_name_its_schema_and_keepalives(postgres: Secret) -> None:
    async def run() -> None:
        connection = await connect(parsed(postgres), purpose="users", settings={"lock_timeout": "1s"})
        shown = [
            await connection.fetchval(f"SHOW {name}")
            for name in ("application_name", "search_path", "timezone", "lock_timeout")
        ]
        assert shown == ["tailrace users", "tailrace", "UTC", "1s"]
        found = connection._transport.get_extra_info("socket")  # type: ignore[attr-defined]
        assert found.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE) == 1
        if sys.platform == "linux":
            options = (socket.TCP_KEEPIDLE, socket.TCP_KEEPINTVL, socket.TCP_KEEPCNT)
            assert [found.getsockopt(socket.IPPROTO_TCP, each) for each in options] == [5, 2, 3]
        await close_connection(connection)

    asyncio.run(run())


@pytest.mark.parametrize(
    ("change", "family", "text"),
    [
        ({"password": Secret("wr0ng-pass")}, DatabaseRefused, "28P01"),
        ({"database": "nothing"}, DatabaseRefused, "3D000"),
        ({"port": 1}, DatabaseAway, "refused"),
        ({"sslmode": "verify-full"}, DatabaseAway, "SSL"),
    ],
)
def test_why_there_is_no_connection_is_told_without_the_password(
    postgres: Secret, change: dict[str, object], family: type[DatabaseError], text: str
) -> None:
    dsn = replace(parsed(postgres), **change)  # type: ignore[arg-type]
    with pytest.raises(family, match=text) as caught:
        asyncio.run(connect(dsn))
    assert "wr0ng-pass" not in str(caught.value)
    assert parsed(postgres).password is not None
    assert postgres.reveal() not in str(caught.value)


def test_a_pool_reuses_connections_and_gives_no_one_the_state_of_another(postgres: Secret) -> None:
    async def run() -> None:
        pool = Pool(parsed(postgres), connections_max=1)
        pids = []
        for _ in range(2):
            async with pool.connection() as connection:
                pids.append(await connection.fetchval("SELECT pg_backend_pid()"))
        assert pids[0] == pids[1]
        with pytest.raises(DatabaseError, match="42P01"):
            async with pool.connection() as connection:
                await connection.execute("SELECT * FROM nowhere")
        async with pool.connection() as connection:
            assert await connection.fetchval("SELECT pg_backend_pid()") != pids[0]
            await connection.execute("BEGIN")
            pids.append(await connection.fetchval("SELECT pg_backend_pid()"))
        async with pool.connection() as connection:
            assert await connection.fetchval("SELECT pg_backend_pid()") not in pids, "a transaction was open"
            with pytest.raises(DatabaseBusy, match=r"in use for 0\.01 s"):
                async with pool.connection(wait_s=0.01):
                    pass
        await pool.close()
        await pool.close()
        with pytest.raises(DatabaseAway, match="closed"):
            async with pool.connection():
                pass

    asyncio.run(run())


def test_a_statement_that_waits_too_long_for_a_lock_is_busy(postgres: Secret) -> None:
    async def run() -> None:
        pool = Pool(parsed(postgres), settings={"lock_timeout": "50ms"})
        async with pool.connection() as holder:
            await holder.execute("SELECT pg_advisory_lock(1)")
            with pytest.raises(DatabaseBusy, match="55P03"):
                async with pool.connection() as waiter:
                    await waiter.execute("SELECT pg_advisory_lock(1)")
        await pool.close()

    asyncio.run(run())


def test_migrations_that_start_together_are_applied_once(postgres: Secret) -> None:
    async def run() -> None:
        dsn = parsed(postgres)

        async def start() -> list[Migration]:
            made: list[Migration] = []
            await with_connection(dsn, lambda each: _migrate(each, made))
            return made

        async def _migrate(connection: Connection, made: list[Migration]) -> None:
            made += await migrate(connection, "test", [ONE], where=dsn)

        applied = await asyncio.gather(*(start() for _ in range(5)))
        assert sorted(map(len, applied)) == [0, 0, 0, 0, 1]
        assert await with_connection(dsn, lambda each: migrate(each, "test", [ONE, TWO], where=dsn)) == [TWO]
        with pytest.raises(ConfigError, match="newer tailrace"):
            await with_connection(dsn, lambda each: migrate(each, "test", [ONE], where=dsn))

    asyncio.run(run())


def test_a_migration_that_fails_leaves_the_steps_before_it(postgres: Secret) -> None:
    bad = Migration(number=2, name="bad", sql="CREATE TABLE tailrace.half (n int); SELECT 1/0")

    async def run() -> None:
        dsn = parsed(postgres)
        with pytest.raises(DatabaseError, match="22012"):
            await with_connection(dsn, lambda each: migrate(each, "test", [ONE, bad], where=dsn))
        tables = await with_connection(
            dsn, lambda each: each.fetchval("SELECT to_regclass('tailrace.half')::text")
        )
        assert tables is None
        assert await with_connection(dsn, lambda each: migrate(each, "test", [ONE, TWO], where=dsn)) == [TWO]

    asyncio.run(run())


def test_each_role_may_do_its_work_and_no_more(fast_postgres: PostgresServer, postgres: Secret) -> None:
    name = parsed(postgres).database
    roles = [
        Role(name=f"{name} {kind}", kind=kind, password=Secret(f"{kind}-of-tests"))
        for kind in ("owner", "writer", "analyst")
    ]
    owner, writer, analyst = (
        replace(parsed(postgres), user=each.name, password=each.password) for each in roles
    )

    async def run() -> None:
        boss = parsed(postgres)
        for _ in range(2):  # again is harmless
            await with_connection(boss, lambda each: create_roles(each, roles, database=name))
        with pytest.raises(ConfigError, match=r"may not create them .*owner of the database"):
            await with_connection(writer, lambda each: migrate(each, "test", [ONE], where=writer))
        await with_connection(owner, lambda each: migrate(each, "test", [ONE], where=owner))
        assert await with_connection(writer, lambda each: migrate(each, "test", [ONE], where=writer)) == ()
        await with_connection(writer, lambda each: each.execute("INSERT INTO one VALUES (7)"))
        with pytest.raises(Exception, match="must be owner"):
            await with_connection(writer, lambda each: each.execute("DROP TABLE one"))
        await with_connection(owner, lambda each: grant_reading(each, ["seen"], analyst=analyst.user))
        assert await with_connection(analyst, lambda each: each.fetchval("SELECT n FROM seen")) == 7
        with pytest.raises(Exception, match="permission denied"):
            await with_connection(analyst, lambda each: each.fetchval("SELECT n FROM one"))
        for setting, value in (("statement_timeout", "30s"), ("default_transaction_read_only", "on")):
            assert await with_connection(analyst, lambda each: each.fetchval(f"SHOW {setting}")) == value  # noqa: B023

    asyncio.run(run())
    fast_postgres.drop_database(postgres)
    gone = ", ".join(f'"{each.name}"' for each in roles)
    run_on(fast_postgres.dsn(), lambda each: each.execute(f"DROP ROLE {gone}"))


def test_a_killed_server_is_away_and_comes_back(own_postgres: PostgresServer) -> None:
    async def run() -> None:
        dsn = parsed(own_postgres.dsn())
        pool = Pool(dsn)
        served: asyncio.Queue[int] = asyncio.Queue()
        lost: asyncio.Queue[DatabaseError] = asyncio.Queue()

        async def serve(connection: Connection) -> None:
            served.put_nowait(await connection.fetchval("SELECT pg_backend_pid()"))
            await asyncio.Event().wait()

        standing = asyncio.create_task(Standing(dsn, serve, purpose="test", lost=lost.put_nowait).run())
        async with asyncio.timeout(WAIT_S):
            first = await served.get()
            with pytest.raises(DatabaseAway):  # noqa: PT012
                async with pool.connection() as connection:
                    await asyncio.to_thread(own_postgres.kill)
                    await connection.fetchval("SELECT 1")
            with pytest.raises(DatabaseAway, match="cannot be reached"):
                async with pool.connection():
                    pass
            assert isinstance(pool.failure, DatabaseAway)
            assert isinstance(await lost.get(), DatabaseAway)
            await asyncio.to_thread(own_postgres.start)
            assert await served.get() != first
            assert lost.empty(), "it is told once, and not with every attempt"
        standing.cancel()
        await asyncio.gather(standing, return_exceptions=True)
        await pool.close()

    asyncio.run(run())
