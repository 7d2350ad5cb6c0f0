"""Users in a real PostgreSQL: what other programs change counts, and what happens while it is away."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from tests.postgres import PostgresServer, parsed, run_on

from tailrace.cluster.postgres_users import PostgresUsers
from tailrace.cluster.user_following import UserFollowing
from tailrace.model import BrokerError, ConfigError, ErrorCode, StorageError
from tailrace.postgres import DatabaseAway
from tailrace.security import SCRAM_SHA_256, SCRAM_SHA_512, Secret, User, Users
from tailrace.security.verifier import verifier_of

WAIT_S = 60
FOREVER_S = 3600.0
BY_HAND = (
    "INSERT INTO tailrace.users (name) VALUES ('bob');"
    "INSERT INTO tailrace.credentials SELECT 'bob', mechanism, salt, iterations, stored_key, server_key "
    "FROM tailrace.credentials WHERE user_name = 'alice'"
)


def user(name: str = "alice", *, enabled: bool = True) -> User:
    made = {
        each: verifier_of(each, b"s" * 32, salt=b"0123456789abcdef", iterations=4096)
        for each in (SCRAM_SHA_256, SCRAM_SHA_512)
    }
    return User(name=name, verifiers=made, enabled=enabled)


@asynccontextmanager
async def opened(dsn: Secret) -> AsyncIterator[PostgresUsers]:
    store = PostgresUsers(parsed(dsn))
    try:
        await store.open(wait_s=WAIT_S)
        yield store
    finally:
        await store.close()


async def sql(dsn: Secret, text: str) -> None:
    await asyncio.to_thread(run_on, dsn, lambda each: each.execute(text))


def test_users_come_back_as_they_were_stored(postgres: Secret) -> None:
    async def run() -> None:
        async with opened(postgres) as store:
            first = await store.load()
            assert first.users == {} and len(first.fake_key) == 32
            for each in (user("a/b,=é"), user("alice", enabled=False)):
                await store.save(each, fake_key=b"another")
            await store.save(user("gone"), fake_key=b"")
            await store.remove("gone")
            await store.remove("gone")
            assert await store.changes() == {}, "they are our own"
        async with opened(postgres) as again:
            found = await again.load()
            assert found.users == {"a/b,=é": user("a/b,=é"), "alice": user("alice", enabled=False)}
            assert found.fake_key == first.fake_key

    asyncio.run(run())


@pytest.mark.parametrize(
    ("text", "changed"),
    [
        (BY_HAND, {"bob": user("bob")}),
        ("UPDATE tailrace.users SET enabled = false", {"alice": user(enabled=False)}),
        ("UPDATE tailrace.users SET name = 'eve'", {"alice": None, "eve": user("eve")}),
        ("DELETE FROM tailrace.users", {"alice": None}),
        ("TRUNCATE tailrace.users CASCADE", {"alice": None}),
        ("DELETE FROM tailrace.credentials", {"alice": None}),
        ("TRUNCATE tailrace.credentials", {"alice": None}),
        (
            "DELETE FROM tailrace.credentials WHERE mechanism = 'SCRAM-SHA-512'",
            {"alice": User(name="alice", verifiers={SCRAM_SHA_256: user().verifiers[SCRAM_SHA_256]})},
        ),
        ("INSERT INTO tailrace.users (name) VALUES ('carol')", {"carol": None}),  # without a password
        ("UPDATE tailrace.users SET name = name || chr(8203)", {"alice": None, "alice\u200b": None}),
        ("SELECT 1", {}),
    ],
)
def test_what_other_programs_change_is_seen(postgres: Secret, text: str, changed: dict[str, User]) -> None:
    async def run() -> None:
        async with opened(postgres) as store:
            await store.load()
            await store.save(user(), fake_key=b"")
            await sql(postgres, text)
            assert await store.changes() == changed
            assert await store.changes() == {}

    asyncio.run(run())


@pytest.mark.parametrize(
    "text",
    [
        "INSERT INTO tailrace.users (name) VALUES ('')",
        "INSERT INTO tailrace.users (name) VALUES ('ANONYMOUS')",
        "INSERT INTO tailrace.users (name) VALUES ('a:b')",
        "INSERT INTO tailrace.users (name) VALUES ('a b')",
        "INSERT INTO tailrace.users (name) VALUES (repeat('a', 129))",
        "UPDATE tailrace.credentials SET iterations = 1000",
        "UPDATE tailrace.credentials SET iterations = 1000000",
        "UPDATE tailrace.credentials SET salt = 'short'",
        "UPDATE tailrace.credentials SET stored_key = '' WHERE mechanism = 'SCRAM-SHA-256'",
        "UPDATE tailrace.credentials SET mechanism = 'PLAIN'",
        "INSERT INTO tailrace.users_state (one) VALUES (false)",
    ],
)
def test_the_tables_refuse_what_no_broker_could_use(postgres: Secret, text: str) -> None:
    async def run() -> None:
        async with opened(postgres) as store:
            await store.load()
            await store.save(user(), fake_key=b"")
            with pytest.raises(Exception, match="violates check constraint"):
                await sql(postgres, text)

    asyncio.run(run())


def test_a_program_with_rights_on_users_alone_may_change_them(
    fast_postgres: PostgresServer, postgres: Secret
) -> None:
    role = f"app_{parsed(postgres).database}"

    async def run() -> None:
        async with opened(postgres) as store:
            await store.load()
            await store.save(user(), fake_key=b"")
            await sql(
                postgres,
                f"CREATE ROLE {role} LOGIN PASSWORD 'of-the-app'; GRANT USAGE ON SCHEMA tailrace TO {role};"
                f"GRANT SELECT, UPDATE ON tailrace.users TO {role}",
            )
            app = fast_postgres.dsn(parsed(postgres).database, user=role, password="of-the-app")
            await sql(app, "UPDATE tailrace.users SET enabled = false")
            assert await store.changes() == {"alice": user(enabled=False)}
            for wrong in ("SELECT * FROM tailrace.users_state", "SELECT tailrace.note_user_change('x')"):
                with pytest.raises(Exception, match="permission denied"):
                    await sql(app, wrong)

    asyncio.run(run())
    fast_postgres.drop_database(postgres)
    run_on(fast_postgres.dsn(), lambda each: each.execute(f"DROP ROLE {role}"))


def test_two_brokers_do_not_overwrite_each_other(postgres: Secret) -> None:
    async def run() -> None:
        async with opened(postgres) as one, opened(postgres) as other:
            await one.load()
            await other.load()
            await one.save(user(), fake_key=b"")
            with pytest.raises(BrokerError, match="changed by others") as caught:
                await other.save(user(enabled=False), fake_key=b"")
            assert caught.value.code == ErrorCode.REQUEST_TIMED_OUT
            assert await other.changes() == {"alice": user()}
            await other.save(user(enabled=False), fake_key=b"")
            assert await one.changes() == {"alice": user(enabled=False)}

    asyncio.run(run())


def test_a_database_that_was_restored_to_the_past_is_read_whole(postgres: Secret) -> None:
    async def run() -> None:
        async with opened(postgres) as store:
            await store.load()
            for enabled in (False, True, False, True):
                await store.save(user(enabled=enabled), fake_key=b"")
            await sql(
                postgres,
                "UPDATE tailrace.users SET enabled = false;"
                "ALTER TABLE tailrace.users DISABLE TRIGGER ALL;"
                "UPDATE tailrace.users_state SET revision = 2; UPDATE tailrace.users SET revision = "
                f"{store._revisions['alice']}",
            )
            assert await store.changes() == {"alice": user(enabled=False)}

    asyncio.run(run())


class Following:
    """Users that follow a database, and the names that their watchers were told."""

    def __init__(self, store: PostgresUsers, *, grace_s: float, poll_s: float) -> None:
        self.users = Users(store)
        self.told: asyncio.Queue[str] = asyncio.Queue()
        self.users.watch(self.told.put_nowait)
        self._following = UserFollowing(self.users, store.dsn, grace_s=grace_s, poll_s=poll_s)

    async def __aenter__(self) -> Following:
        await self.users.load()
        self._task = asyncio.create_task(self._following.run())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        await self.users.close()

    async def wait(self, holds: Callable[[], bool]) -> None:
        async with asyncio.timeout(WAIT_S):
            while not holds():
                await self.told.get()


def test_a_notification_makes_a_change_count(postgres: Secret) -> None:
    async def run() -> None:
        async with opened(postgres) as store, Following(store, grace_s=FOREVER_S, poll_s=FOREVER_S) as node:
            await node.users.put_verifier("alice", user().verifiers[SCRAM_SHA_256])
            await sql(postgres, "UPDATE tailrace.users SET enabled = false")
            await node.wait(lambda: not node.users.may_log_in("alice"))

    asyncio.run(run())


def test_without_notifications_a_change_counts_too(postgres: Secret) -> None:
    async def run() -> None:
        async with opened(postgres) as store, Following(store, grace_s=FOREVER_S, poll_s=0.01) as node:
            await sql(
                postgres,
                "CREATE FUNCTION tailrace.pg_notify(text, text) RETURNS void LANGUAGE sql AS '';"
                "ALTER FUNCTION tailrace.note_user_change SET search_path = tailrace, pg_catalog",
            )
            await node.users.put_verifier("alice", user().verifiers[SCRAM_SHA_256])
            await sql(postgres, "UPDATE tailrace.users SET enabled = false")
            await node.wait(lambda: not node.users.may_log_in("alice"))

    asyncio.run(run())


def test_known_users_stay_while_the_database_is_away_and_changes_fail(own_postgres: PostgresServer) -> None:
    async def run() -> None:
        async with (
            opened(own_postgres.dsn()) as store,
            Following(store, grace_s=FOREVER_S, poll_s=0.01) as node,
        ):
            await node.users.put_verifier("alice", user().verifiers[SCRAM_SHA_256])
            await asyncio.to_thread(own_postgres.kill)
            with pytest.raises(DatabaseAway):
                await node.users.set_enabled("alice", enabled=False)
            assert node.users.may_log_in("alice")
            assert node.users.verifier("alice", SCRAM_SHA_256) == user().verifiers[SCRAM_SHA_256]
            await asyncio.to_thread(own_postgres.start)
            await sql(own_postgres.dsn(), "UPDATE tailrace.users SET enabled = false")
            await node.wait(lambda: not node.users.may_log_in("alice"))

    asyncio.run(run())


def test_after_its_time_no_user_may_log_in_until_the_database_is_back(own_postgres: PostgresServer) -> None:
    async def run() -> None:
        async with opened(own_postgres.dsn()) as store, Following(store, grace_s=0.05, poll_s=0.01) as node:
            await node.users.put_verifier("alice", user().verifiers[SCRAM_SHA_256])
            await asyncio.to_thread(own_postgres.kill)
            await node.wait(lambda: not node.users.may_log_in("alice"))
            for name in ("alice", "unknown"):
                with pytest.raises(BrokerError, match=r"been away for over 0.05 s") as caught:
                    node.users.verifier(name, SCRAM_SHA_256)
                assert caught.value.code == ErrorCode.BROKER_NOT_AVAILABLE
                assert str(own_postgres.port) not in str(caught.value)
            await asyncio.to_thread(own_postgres.start)
            await node.wait(lambda: node.users.may_log_in("alice"))

    asyncio.run(run())


def test_a_start_waits_for_the_database_and_then_says_that_it_is_away(own_postgres: PostgresServer) -> None:
    own_postgres.stop()

    async def run() -> None:
        store = PostgresUsers(parsed(own_postgres.dsn()))
        with pytest.raises(StorageError, match=r"open users in .* cannot be reached.*Start PostgreSQL"):
            await store.open(wait_s=0.2)
        starting = asyncio.create_task(store.open(wait_s=WAIT_S))
        await asyncio.to_thread(own_postgres.start)
        await starting
        await store.close()

    asyncio.run(run())


def test_a_database_that_refuses_is_not_waited_for(postgres: Secret) -> None:
    async def run() -> None:
        store = PostgresUsers(parsed(Secret(postgres.reveal().replace("the-boss", "an-imposter"))))
        with pytest.raises(ConfigError, match=r"security\.postgres_dsn cannot be used.*28P01"):
            await store.open(wait_s=WAIT_S)

    asyncio.run(run())


def test_the_tables_are_in_the_wheel() -> None:
    from tests.document import ROOT

    listed = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert '"cluster/user_schema/*.sql"' in listed
    assert list(Path(ROOT / "src/tailrace/cluster/user_schema").glob("*.sql"))
