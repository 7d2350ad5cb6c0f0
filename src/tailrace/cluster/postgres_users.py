"""Users in PostgreSQL: tables that several brokers and other programs read and change.

    tailrace.users          name, enabled                      user_schema/ has the tables and their triggers
    tailrace.credentials    a SCRAM verifier per user and mechanism
    tailrace.users_state    the revision of the last change, and what makes the salts of unknown users

A trigger gives every change the next revision, in the order of the commits, and notifies the channel
`tailrace_users`. `changes` compares revisions and reads only users whose revision is another one.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import Iterable, Mapping
from logging import DEBUG, WARNING
from typing import Final

from tailrace.model import BrokerError, ConfigError, ErrorCode, StorageError
from tailrace.postgres import (
    Backoff,
    Connection,
    DatabaseAway,
    DatabaseBusy,
    DatabaseError,
    DatabaseFailed,
    Dsn,
    Pool,
    Row,
    migrate,
    read_migrations,
)
from tailrace.security import StoredUsers, User, Verifier
from tailrace.security.password import check_user_name
from tailrace.security.users import USERS_MAX

logger = logging.getLogger(__name__)

CHANNEL: Final = "tailrace_users"
PART: Final = "users"
_FAKE_KEY_BYTES: Final = 32
OPEN_S: Final = 30.0
_STATEMENT_S: Final = 5.0
_SETTINGS: Final = {"lock_timeout": "3s"}

_CREDENTIALS: Final = """
SELECT u.name, u.enabled, u.revision, c.mechanism, c.salt, c.iterations, c.stored_key, c.server_key
FROM users u JOIN credentials c ON c.user_name = u.name
"""


class PostgresUsers:
    """The users in a database. It belongs to whoever opened it."""

    def __init__(self, dsn: Dsn) -> None:
        self.dsn = dsn
        self._pool = Pool(dsn, purpose=PART, settings=_SETTINGS, statement_s=_STATEMENT_S)
        self._revision = -1  # everything up to it was read
        self._highest = -1  # of all that were seen, those of our own changes too
        self._revisions: dict[str, int] = {}  # of the users that were read, by name
        self._refused: set[str] = set()  # names that cannot be users, so that each is logged once

    def __repr__(self) -> str:
        return f"<PostgresUsers in {self.dsn}>"

    async def open(self, *, wait_s: float = OPEN_S) -> None:
        """Bring the tables up to date. A database that is away is waited for: both may start together.

        ConfigError for a database that this program cannot use; StorageError for one that stays away.
        """
        try:
            async with asyncio.timeout(wait_s):
                await self._open_patiently()
        except TimeoutError:
            reason = str(self._pool.failure) if self._pool.failure else f"it took over {wait_s:g} s"
            raise StorageError(
                "open users in",
                str(self.dsn),
                reason,
                hint="Start PostgreSQL, or set security.users = metadata",
            ) from None

    async def _open_patiently(self) -> None:
        backoff = Backoff()
        while True:
            try:
                await self._open()
                return
            except (DatabaseAway, DatabaseBusy) as error:
                logger.log(WARNING if backoff.is_first else DEBUG, "waiting for users: %s", error)
                await asyncio.sleep(backoff.failed())
            except DatabaseError as error:
                raise ConfigError(f"security.postgres_dsn cannot be used: {error}") from error

    async def _open(self) -> None:
        known = read_migrations("tailrace.cluster", "user_schema")
        async with self._pool.connection() as connection:
            await migrate(connection, PART, known, where=self.dsn)
            made = secrets.token_bytes(_FAKE_KEY_BYTES)
            await connection.execute("UPDATE users_state SET fake_key = $1 WHERE fake_key IS NULL", made)

    async def close(self) -> None:
        await self._pool.close()

    # ---- the port

    async def load(self) -> StoredUsers:
        async with self._pool.connection() as connection, connection.transaction(isolation="repeatable_read"):
            revision = await connection.fetchval("SELECT revision FROM users_state")
            names = await self._read_revisions(connection)
            rows = await connection.fetch(_CREDENTIALS)
            key = await connection.fetchval("SELECT fake_key FROM users_state")
        self._revision, self._highest, self._revisions = revision, revision, names
        return StoredUsers(users=self._read_users(rows), fake_key=key or b"")

    async def save(self, user: User, *, fake_key: bytes) -> None:  # noqa: ARG002 - `open` has made one
        """Store a user; REQUEST_TIMED_OUT if it is no longer what it was when it was read."""
        known = self._revisions.get(user.name)
        async with self._pool.connection() as connection, connection.transaction():
            found = await connection.fetchval(
                "SELECT revision FROM users WHERE name = $1 FOR UPDATE", user.name
            )
            if found != known:
                raise BrokerError(
                    f"user {user.name!r} was changed by others at this moment. Try again",
                    code=ErrorCode.REQUEST_TIMED_OUT,
                )
            await connection.execute(
                "INSERT INTO users (name, enabled) VALUES ($1, $2) "
                "ON CONFLICT (name) DO UPDATE SET enabled = excluded.enabled",
                user.name,
                user.enabled,
            )
            await connection.execute("DELETE FROM credentials WHERE user_name = $1", user.name)
            await connection.executemany(
                "INSERT INTO credentials (user_name, mechanism, salt, iterations, stored_key, server_key) "
                "VALUES ($1, $2, $3, $4, $5, $6)",
                [_fields(user.name, each) for each in user.verifiers.values()],
            )
            made = await connection.fetchval("SELECT revision FROM users WHERE name = $1", user.name)
        self._revisions[user.name], self._highest = made, max(made, self._highest)

    async def remove(self, name: str) -> None:
        async with self._pool.connection() as connection:
            await connection.execute("DELETE FROM users WHERE name = $1", name)
        self._revisions.pop(name, None)

    async def changes(self) -> Mapping[str, User | None]:
        async with self._pool.connection() as connection:
            revision = await connection.fetchval("SELECT revision FROM users_state")
            if revision == self._revision:
                return {}
            async with connection.transaction(isolation="repeatable_read"):
                revision = await connection.fetchval("SELECT revision FROM users_state")
                names = await self._read_revisions(connection)
                # A revision that went back is a restored database, where equal revisions prove nothing.
                known = self._revisions if revision >= self._highest else {}
                changed = [name for name, each in names.items() if each != known.get(name)]
                rows = await connection.fetch(_CREDENTIALS + "WHERE u.name = ANY($1::text[])", changed)
        removed = self._revisions.keys() - names.keys()
        found = self._read_users(rows)
        self._revision, self._highest, self._revisions = revision, revision, names
        # A user whose last credentials were taken away, or that cannot be read, is none that may log in.
        return {**dict.fromkeys(removed), **dict.fromkeys(changed), **found}

    # ---- inside

    async def _read_revisions(self, connection: Connection) -> dict[str, int]:
        rows = await connection.fetch("SELECT name, revision FROM users LIMIT $1", USERS_MAX + 1)
        if len(rows) > USERS_MAX:
            raise DatabaseFailed(
                f"there are over {USERS_MAX} users in {self.dsn}. Delete those that are not used: "
                "DELETE FROM tailrace.users WHERE ..."
            )
        return {row["name"]: row["revision"] for row in rows}

    def _read_users(self, rows: Iterable[Row]) -> dict[str, User]:
        verifiers: dict[str, dict[str, Verifier]] = {}
        enabled: dict[str, bool] = {}
        for row in rows:
            try:
                check_user_name(row["name"])
                verifier = _verifier(row)
            except (ValueError, BrokerError) as error:
                self._refuse(row["name"], error)
                continue
            verifiers.setdefault(row["name"], {})[row["mechanism"]] = verifier
            enabled[row["name"]] = row["enabled"]
        return {
            name: User(name=name, verifiers=each, enabled=enabled[name]) for name, each in verifiers.items()
        }

    def _refuse(self, name: str, error: Exception) -> None:
        if name not in self._refused and len(self._refused) < USERS_MAX:
            self._refused.add(name)
            logger.warning("user cannot log in: %r in %s: %s", name, self.dsn, error)


def _fields(name: str, verifier: Verifier) -> tuple[object, ...]:
    return (
        name,
        verifier.mechanism,
        verifier.salt,
        verifier.iterations,
        verifier.stored_key,
        verifier.server_key,
    )


def _verifier(row: Row) -> Verifier:
    return Verifier(
        mechanism=row["mechanism"],
        salt=row["salt"],
        iterations=row["iterations"],
        stored_key=row["stored_key"],
        server_key=row["server_key"],
    )
