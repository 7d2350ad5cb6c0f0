"""`tailrace storage rebuild-checkpoint`: runs `tailrace.storage.segment.rebuild` and shows what it found."""

from __future__ import annotations

import asyncio
import os
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import rich_click as click

from tailrace.cli.config import config_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Column, Output, examples, output_option, progress_bar

if TYPE_CHECKING:
    from tailrace.storage.segment.rebuild import RebuildReport


@click.command(
    name="rebuild-checkpoint",
    epilog=examples(
        "tailrace storage rebuild-checkpoint ./tailrace-data --dry-run",
        "tailrace storage rebuild-checkpoint ./tailrace-data",
    ),
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@click.option("--dry-run", is_flag=True, help="Show what would be done, and write nothing.")
@config_option
@output_option
def command(directory: Path, dry_run: bool, config_file: Path | None, output: Output) -> None:
    """Make an unreadable CHECKPOINT again, from the segments and the journal.

    For a directory that does not open because CHECKPOINT and CHECKPOINT.copy are both unreadable or missing.
    No broker may be running on it. Every acknowledged record is in the segments or in the journal, and is
    back afterwards. Nothing is deleted: the unreadable files are renamed to CHECKPOINT.damaged-N, and bytes
    of writes that were never acknowledged are kept in files named torn-... The command may be interrupted
    and repeated. An encrypted directory needs the configuration file that names its key.
    """
    from tailrace.storage.segment.rebuild import bytes_to_survey, rebuild_directory

    if not (directory / "journal").is_dir():
        raise CommandFailed(
            f"{directory} holds no log: it has no journal. Try: tailrace log inspect DIR",
            exit_code=ExitCode.NOT_FOUND,
        )
    from tailrace.server.configuration import read_config

    where = read_config(environment=os.environ, file=config_file).server().encryption
    encryption = where.read() if where is not None else None
    with progress_bar("reading", bytes_total=bytes_to_survey(directory)) as advance:
        report = asyncio.run(
            rebuild_directory(directory, dry_run=dry_run, advance=advance, encryption=encryption)
        )
    if output.format == "table":
        _show(report, dry_run, output)
    else:
        output.record({"dry_run": dry_run, **asdict(report)})
    if count := sum(each.quarantined_from is not None for each in report.partitions):
        raise CommandFailed(
            f"{count} partition{'s' if count > 1 else ''} with damaged records: see the table"
        )


def _show(report: RebuildReport, dry_run: bool, output: Output) -> None:
    output.rows([asdict(each) for each in report.partitions], columns=_COLUMNS)
    rounds = f"rounds {report.first_lsn} to {report.last_lsn} of the journal"
    what = "would be replayed" if dry_run else "were replayed, the checkpoint is written"
    click.echo(f"{len(report.partitions)} partitions; {rounds} {what}", err=True)
    for name in report.kept:
        click.echo(f"kept: {name}", err=True)
    for name in report.set_aside:
        click.echo(f"an older life of a partition, put aside: stray-{name}", err=True)


_COLUMNS = (
    Column("path", "partition"),
    Column("start", right=True),
    Column("end", right=True),
    Column("replayed_batches", "batches from the journal", right=True),
    Column("torn_bytes", "torn bytes cut", right=True),
    Column("quarantined_from", "quarantined from", right=True),
)
