"""Brings the tables of a part of the program up to date.

`tailrace.migrations` records what a database has had. Programs that start together take turns by an
advisory lock. Each migration and its record are one transaction, so that a crash leaves whole steps. A
database that is up to date is only read, which needs no right to change tables.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from typing import Final

from tailrace.model import ConfigError
from tailrace.postgres.connection import SCHEMA
from tailrace.postgres.driver import Connection
from tailrace.postgres.error import DatabaseRefused, mapped
from tailrace.postgres.migration import Applied, Migration, plan_migrations

logger = logging.getLogger(__name__)

LOCK: Final = 0x7461_696C_7261_6365
"""The advisory lock of migrations: "tailrace" in ASCII."""
_LOCK_S: Final = 60

_RECORD: Final = f"""
CREATE TABLE IF NOT EXISTS {SCHEMA}.migrations (
    part        text NOT NULL,
    number      integer NOT NULL,
    name        text NOT NULL,
    checksum    text NOT NULL,
    applied_at  timestamptz NOT NULL DEFAULT now(),
    PRIMARY KEY (part, number)
)
"""


async def migrate(
    connection: Connection, part: str, known: Sequence[Migration], *, where: object
) -> Sequence[Migration]:
    """Apply what is missing, and return it.

    ConfigError for a newer or foreign schema, and for a user who may not change tables; DatabaseError.
    """
    with mapped(where):
        if not plan_migrations(part, known, await _applied(connection, part), where=where):
            return ()
    try:
        with mapped(where):
            return await _migrate_locked(connection, part, known, where)
    except DatabaseRefused as error:
        raise ConfigError(
            f"{where} lacks tables of {part}, and the user of the connection may not create them ({error}). "
            "Start once with a connection URI of the owner of the database"
        ) from error


async def _migrate_locked(
    connection: Connection, part: str, known: Sequence[Migration], where: object
) -> Sequence[Migration]:
    before = await connection.fetchval("SELECT current_setting('lock_timeout')")
    await _set_lock_timeout(connection, f"{_LOCK_S}s")
    try:
        await connection.execute("SELECT pg_advisory_lock($1)", LOCK, timeout=_LOCK_S + 5)
        try:
            if not await _schema_exists(connection):
                await connection.execute(f"CREATE SCHEMA IF NOT EXISTS {SCHEMA}")
            await connection.execute(_RECORD)
            plan = plan_migrations(part, known, await _applied(connection, part), where=where)
            for each in plan:
                await _apply(connection, part, each)
            return plan
        finally:
            await connection.execute("SELECT pg_advisory_unlock($1)", LOCK)
    finally:
        await _set_lock_timeout(connection, before)


async def _apply(connection: Connection, part: str, migration: Migration) -> None:
    async with connection.transaction():
        await connection.execute(migration.sql)
        await connection.execute(
            f"INSERT INTO {SCHEMA}.migrations (part, number, name, checksum) VALUES ($1, $2, $3, $4)",
            part,
            migration.number,
            migration.name,
            migration.checksum,
        )
    logger.info("schema changed: %s %s", part, migration)


async def _applied(connection: Connection, part: str) -> Mapping[int, Applied]:
    if await connection.fetchval("SELECT to_regclass($1)", f"{SCHEMA}.migrations") is None:
        return {}
    rows = await connection.fetch(
        f"SELECT number, name, checksum FROM {SCHEMA}.migrations WHERE part = $1", part
    )
    return {row["number"]: Applied(name=row["name"], checksum=row["checksum"]) for row in rows}


async def _schema_exists(connection: Connection) -> bool:
    return await connection.fetchval("SELECT to_regnamespace($1)", SCHEMA) is not None


async def _set_lock_timeout(connection: Connection, value: str) -> None:
    await connection.execute("SELECT set_config('lock_timeout', $1, false)", value)
