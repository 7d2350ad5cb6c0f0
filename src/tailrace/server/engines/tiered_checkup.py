"""What `tailrace doctor` tells of the tiered engine's servers: whether they answer, and who serves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator

from tailrace.broker.health import Finding
from tailrace.model import ConfigError
from tailrace.postgres import DatabaseError, connect, mapped
from tailrace.postgres.pool import close_connection
from tailrace.server.config import ServerConfig
from tailrace.server.engines.tiered import tiered_config
from tailrace.storage.tiered.config import RedisConfig, TieredConfig
from tailrace.storage.tiered.lock import KEY
from tailrace.storage.tiered.resp import RedisError, connect_redis

_OLDEST = 140000
_HOLDER = (
    "SELECT holder FROM tailrace.writer, pg_locks WHERE locktype = 'advisory' AND granted"
    " AND classid = ($1::bigint >> 32)::int::oid AND objid = ($1::bigint & 4294967295)::bigint::oid"
    " AND database = (SELECT oid FROM pg_database WHERE datname = current_database())"
)


def examine_tiered(config: ServerConfig) -> Iterator[Finding]:
    """PostgreSQL, and Redis where one is set."""
    try:
        made = tiered_config(config)
    except ConfigError as error:
        yield Finding(check="PostgreSQL", status="problem", found=str(error))
        return
    yield from asyncio.run(_collect(made))


async def _collect(config: TieredConfig) -> list[Finding]:
    found = [each async for each in _postgres(config)]
    found.append(await _redis(config.redis))
    return found


async def _postgres(config: TieredConfig) -> AsyncIterator[Finding]:
    began = time.monotonic()
    try:
        connection = await connect(config.dsn, purpose="doctor")
    except (DatabaseError, ConfigError) as error:
        yield Finding(check="PostgreSQL", status="problem", found=str(error))
        return
    try:
        with mapped(config.dsn):
            version = int(await connection.fetchval("SELECT current_setting('server_version_num')"))
            took_ms = (time.monotonic() - began) * 1000
            yield _version(config, version, took_ms)
            if await connection.fetchval("SELECT current_setting('fsync')") != "on":
                yield Finding(
                    check="PostgreSQL fsync",
                    status="problem",
                    found="off: a power cut loses what was acknowledged, or the whole database",
                    advice="Set fsync = on in postgresql.conf",
                )
            if await connection.fetchval("SELECT to_regclass('tailrace.writer')") is None:
                yield Finding(check="tables", status="ok", found="not there yet: the first start makes them")
                return
            holder = await connection.fetchval(_HOLDER, KEY)
            serving = f"served by {holder.rpartition(' ')[0]}" if holder else "served by no broker now"
            yield Finding(check="writer", status="ok", found=serving)
    except DatabaseError as error:
        yield Finding(check="PostgreSQL", status="problem", found=str(error))
    finally:
        await close_connection(connection)


def _version(config: TieredConfig, version: int, took_ms: float) -> Finding:
    found = f"{config.dsn} answers, version {version // 10000}.{version % 100}, connected in {took_ms:.0f} ms"
    if version < _OLDEST:
        return Finding(
            check="PostgreSQL", status="problem", found=found, advice="The tables need PostgreSQL 14 or newer"
        )
    return Finding(check="PostgreSQL", status="ok", found=found)


async def _redis(config: RedisConfig | None) -> Finding:
    if config is None:
        return Finding(check="Redis", status="ok", found="not used: tiered.redis_url is empty")
    began = time.monotonic()
    try:
        connection = await connect_redis(config)
    except (RedisError, OSError, TimeoutError) as error:
        return Finding(
            check="Redis",
            status="warning",
            found=f"{config.address} does not answer: {error or 'no answer in time'}",
            advice="A broker serves without it, and asks PostgreSQL for what is recent. Start it, or mend "
            "tiered.redis_url",
        )
    connection.abort()
    took_ms = (time.monotonic() - began) * 1000
    return Finding(check="Redis", status="ok", found=f"{config.address} answers in {took_ms:.0f} ms")
