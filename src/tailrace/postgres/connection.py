"""One connection to PostgreSQL."""

from __future__ import annotations

import os
import socket
from collections.abc import Mapping
from typing import Any, Final, cast

from tailrace.postgres.driver import OpenConnection, load_asyncpg
from tailrace.postgres.dsn import Dsn, tls_context
from tailrace.postgres.error import mapped

SCHEMA: Final = "tailrace"
STATEMENT_S: Final = 30.0
_KEEPALIVE_AFTER_S: Final = 5
_KEEPALIVE_EVERY_S: Final = 2
_KEEPALIVES: Final = 3
_OF_EVERY_SESSION: Final = {"search_path": SCHEMA, "timezone": "UTC"}


async def connect(
    dsn: Dsn,
    *,
    purpose: str = "",
    settings: Mapping[str, str] | None = None,
    statement_s: float = STATEMENT_S,
) -> OpenConnection:
    """A new connection; DatabaseError if there is none, ConfigError without asyncpg or its certificates.

    `purpose` stands behind the application's name in pg_stat_activity. `settings` are PostgreSQL's, such as
    {"lock_timeout": "1s"}. A statement without a timeout of its own ends after `statement_s`.
    """
    asyncpg = load_asyncpg()
    name = f"{dsn.application_name} {purpose}".strip()[:63]
    with mapped(dsn):
        made = await asyncpg.connect(
            host=dsn.host,
            port=dsn.port,
            user=dsn.user,
            password=None if dsn.password is None else dsn.password.reveal(),
            database=dsn.database,
            ssl=tls_context(dsn) or False,
            timeout=dsn.connect_timeout_s,
            command_timeout=statement_s,
            server_settings={**_OF_EVERY_SESSION, **(settings or {}), "application_name": name},
        )
    _keep_alive(made)
    return cast(OpenConnection, made)


def _keep_alive(connection: Any) -> None:
    """Notice within 11 s that the other machine is gone: it never says so. asyncpg has no setting for it."""
    transport = getattr(connection, "_transport", None)
    found = None if transport is None else transport.get_extra_info("socket")
    if found is None or found.family == socket.AF_UNIX:
        return
    with socket.socket(fileno=os.dup(found.fileno())) as own:  # uvloop's is read-only
        own.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in (
            ("TCP_KEEPIDLE", _KEEPALIVE_AFTER_S),
            ("TCP_KEEPINTVL", _KEEPALIVE_EVERY_S),
            ("TCP_KEEPCNT", _KEEPALIVES),
        ):
            if hasattr(socket, option):  # macOS calls the first one otherwise
                own.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
