"""`tailrace cleanup`: what the tiered engine's cleanup service does, by hand."""

from __future__ import annotations

import asyncio
import os
import time
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.config import config_option
from tailrace.cli.exit import CommandFailed
from tailrace.cli.output import Column, Output, examples, output_option

if TYPE_CHECKING:
    from tailrace.storage.tiered.config import TieredConfig
    from tailrace.storage.tiered.sweep import Cleaned

_DAY_S = 24 * 3600


@click.command(
    name="cleanup",
    epilog=examples(
        "tailrace cleanup",
        "tailrace cleanup --config /etc/tailrace/tailrace.toml -o json",
    ),
)
@config_option
@output_option
def command(config_file: Path | None, output: Output) -> None:
    """Remove from PostgreSQL what no topic needs any more.

    Tables of days that are past the retention of every topic, deleted topics, and what lies below the start
    of a topic that has no such tables. A broker does the same every few minutes, and moves the starts of its
    topics before; this command may run beside it. It removes no record that can be read.
    """
    from tailrace.postgres import DatabaseError
    from tailrace.server.configuration import read_config
    from tailrace.server.engines.tiered import tiered_config

    server = read_config(environment=os.environ, file=config_file).server()
    if not server.engine_settings.get("postgres_dsn"):
        raise CommandFailed(
            f"storage.engine = {server.engine} keeps nothing in PostgreSQL: its broker cleans up by itself. "
            "Name the configuration of a tiered one with --config"
        )
    try:
        done = asyncio.run(_sweep(tiered_config(server)))
    except DatabaseError as error:
        raise CommandFailed(str(error)) from error
    columns = [
        Column("days", right=True),
        Column("logs", "deleted logs", right=True),
        Column("chunks", right=True),
        Column("days_held_up", "days held up", right=True),
    ]
    output.rows([asdict(done)], columns=columns)


async def _sweep(config: TieredConfig) -> Cleaned:
    from tailrace.postgres import Pool
    from tailrace.storage.tiered.sweep import Sweep, read_days

    pool = Pool(config.dsn, purpose="cleanup", connections_max=1)
    try:
        async with pool.connection() as connection:
            epoch: int = await connection.fetchval("SELECT epoch FROM tailrace.writer")
            days = await read_days(connection)
        sweep = Sweep(pool, lambda: epoch)
        await sweep.remove_rows()
        await sweep.drop_days(days, today=int(time.time()) // _DAY_S)
        return sweep.done
    finally:
        await pool.close()
