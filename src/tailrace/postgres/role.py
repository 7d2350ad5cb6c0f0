"""Three roles with no more rights than their work needs.

    owner     owns the schema and runs migrations: the connection of the first start and of upgrades
    writer    reads and changes rows, and cannot change tables
    analyst   reads what it is given by name, read only, for 30 s at most

PostgreSQL is given a SCRAM verifier and never a password, which would otherwise stand in its logs.
"""

from __future__ import annotations

import base64
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Literal

from tailrace.postgres.connection import SCHEMA
from tailrace.postgres.driver import Connection
from tailrace.security.secret import Secret
from tailrace.security.verifier import SALT_BYTES, SCRAM_SHA_256, salted_password, verifier_of

Kind = Literal["owner", "writer", "analyst"]
_ITERATIONS: Final = 4096  # PostgreSQL's own number
_OF_ANALYSTS: Final = {
    "default_transaction_read_only": "on",
    "statement_timeout": "30s",
    "idle_in_transaction_session_timeout": "60s",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """A role that logs in."""

    name: str
    kind: Kind
    password: Secret


async def create_roles(connection: Connection, roles: Sequence[Role], *, database: str) -> None:
    """Create the roles, or give those that exist these passwords and rights; for a superuser's connection.

    Writers get their rights on tables that owners among `roles` make from now on.
    """
    owners = [each.name for each in roles if each.kind == "owner"]
    async with connection.transaction():
        for each in sorted(roles, key=lambda role: role.kind != "owner"):
            known = await connection.fetchval("SELECT 1 FROM pg_roles WHERE rolname = $1", each.name)
            for statement in _statements(each, known=known is not None, database=database, owners=owners):
                await connection.execute(statement)


async def grant_reading(connection: Connection, names: Sequence[str], *, analyst: str) -> None:
    """Let an analyst read tables or views of the schema; for the owner's connection."""
    async with connection.transaction():
        for name in names:
            await connection.execute(f"GRANT SELECT ON {SCHEMA}.{quoted(name)} TO {quoted(analyst)}")


def quoted(name: str) -> str:
    """A name as an identifier of SQL."""
    if not name or "\0" in name or len(name.encode()) > 63:
        raise ValueError("a name in PostgreSQL has 1 to 63 bytes, and no NUL")
    return '"' + name.replace('"', '""') + '"'


def _statements(role: Role, *, known: bool, database: str, owners: Sequence[str]) -> Iterator[str]:
    name = quoted(role.name)
    yield f"{'ALTER' if known else 'CREATE'} ROLE {name} LOGIN PASSWORD '{_verifier(role.password)}'"
    yield f"GRANT CONNECT ON DATABASE {quoted(database)} TO {name}"
    if role.kind == "owner":
        yield f"GRANT CREATE ON DATABASE {quoted(database)} TO {name}"
        yield f"CREATE SCHEMA IF NOT EXISTS {SCHEMA} AUTHORIZATION {name}"
        return
    yield f"GRANT USAGE ON SCHEMA {SCHEMA} TO {name}"
    if role.kind == "analyst":
        for setting, value in _OF_ANALYSTS.items():
            yield f"ALTER ROLE {name} SET {setting} = '{value}'"
        return
    yield f"GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA {SCHEMA} TO {name}"
    for owner in owners:
        yield (
            f"ALTER DEFAULT PRIVILEGES FOR ROLE {quoted(owner)} IN SCHEMA {SCHEMA} "
            f"GRANT SELECT, INSERT, UPDATE, DELETE ON TABLES TO {name}"
        )


def _verifier(password: Secret) -> str:
    """What PostgreSQL stores of a password: SCRAM-SHA-256$<iterations>:<salt>$<StoredKey>:<ServerKey>."""
    salt = secrets.token_bytes(SALT_BYTES)
    salted = salted_password(SCRAM_SHA_256, password, salt=salt, iterations=_ITERATIONS)
    made = verifier_of(SCRAM_SHA_256, salted, salt=salt, iterations=_ITERATIONS)
    stored, server = (base64.b64encode(each).decode() for each in (made.stored_key, made.server_key))
    return f"{SCRAM_SHA_256}${_ITERATIONS}:{base64.b64encode(salt).decode()}${stored}:{server}"
