"""Connections to PostgreSQL for whatever of Tailrace keeps data there, on asyncpg, which is an extra.

`dsn`         where a database is and how to log in: read from a text, checked, never shown with its password
`driver`      asyncpg, imported when the first connection is made; what we use of a connection
`connection`  one connection, with TLS, keepalives and a name that an administrator recognizes
`error`       what PostgreSQL says, as errors of ours: away, busy, full, refused
`pool`        a few connections shared by callers; `standing`: one connection that is made again for ever
`migration`   numbered SQL files, each applied once; `schema` applies them under an advisory lock
`role`        an owner who changes tables, a writer who fills them, an analyst who reads them

All objects are in the schema `tailrace`, which connections have as their search path. A connection must have
its PostgreSQL session to itself: PgBouncer works in session mode only.
"""

from tailrace.postgres.backoff import Backoff
from tailrace.postgres.connection import connect
from tailrace.postgres.driver import Connection, Row
from tailrace.postgres.dsn import Dsn, parse_dsn
from tailrace.postgres.error import (
    DatabaseAway,
    DatabaseBusy,
    DatabaseError,
    DatabaseFailed,
    DatabaseFull,
    DatabaseRefused,
    map_error,
    mapped,
)
from tailrace.postgres.migration import Migration, read_migrations
from tailrace.postgres.pool import Pool
from tailrace.postgres.role import Role, create_roles, grant_reading
from tailrace.postgres.schema import migrate
from tailrace.postgres.standing import Standing

__all__ = [
    "Backoff",
    "Connection",
    "DatabaseAway",
    "DatabaseBusy",
    "DatabaseError",
    "DatabaseFailed",
    "DatabaseFull",
    "DatabaseRefused",
    "Dsn",
    "Migration",
    "Pool",
    "Role",
    "Row",
    "Standing",
    "connect",
    "create_roles",
    "grant_reading",
    "map_error",
    "mapped",
    "migrate",
    "parse_dsn",
    "read_migrations",
]
