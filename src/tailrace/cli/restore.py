"""`tailrace restore BACKUP --data-dir D`: a data directory out of a backup."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.exit import CommandFailed
from tailrace.cli.output import Output, examples, output_option, progress_bar
from tailrace.model import StorageError

if TYPE_CHECKING:
    from tailrace.storage.backup import Generation, Manifest

_ADVICE = (
    "Records that were written after {created} are gone. Restart clients that knew the lost broker: a "
    "consumer that had read further gets an offset out of range and goes on as its auto.offset.reset says; "
    "new records get the offsets of the lost ones."
)


@click.command(
    name="restore",
    epilog=examples(
        "tailrace restore /backups/tailrace --data-dir ./restored",
        "tailrace restore /backups/tailrace/20261118T013000Z --data-dir ./restored --dry-run",
    ),
)
@click.argument("backup", metavar="BACKUP", type=click.Path(path_type=Path))
@click.option(
    "--data-dir",
    required=True,
    metavar="DIR",
    type=click.Path(path_type=Path, file_okay=False),
    help="An empty directory, or one that is to be made.",
)
@click.option("--dry-run", is_flag=True, help="Check the backup and the directory, and write nothing.")
@output_option
def command(backup: Path, data_dir: Path, dry_run: bool, output: Output) -> None:
    """Make a data directory out of a backup.

    BACKUP is one backup, or a directory of backups, of which the newest is taken. Every file is checked
    against the manifest first. Nothing is overwritten. A restore that was interrupted leaves a directory that
    no broker starts in, and can be repeated.
    """
    from tailrace.storage.backup import check_target, restore
    from tailrace.storage.backup.catalogue import find_generation

    generation = find_generation(backup)
    manifest = generation.manifest
    assert manifest is not None
    check_target(data_dir)
    _check(generation, manifest)
    if not dry_run:
        elapsed_s = _seconds_since(manifest.created)
        with progress_bar("restoring", bytes_total=manifest.bytes) as advance:
            restore(
                generation, data_dir, advance=advance, finish=lambda path: _outrun(path, elapsed_s=elapsed_s)
            )
    _show(generation, manifest, data_dir, dry_run=dry_run, output=output)


def _check(generation: Generation, manifest: Manifest) -> None:
    from tailrace.storage.backup import check_generation

    with progress_bar("checking", bytes_total=manifest.bytes) as advance:
        problems = list(check_generation(generation, advance=advance))
    if problems:
        raise CommandFailed(
            f"{generation.path} is damaged and was not restored: {problems[0]}"
            + (f", and {len(problems) - 1} more" if len(problems) > 1 else "")
            + ". Restore another backup: tailrace backup list "
            + str(generation.path.parent)
        )


def _outrun(data_dir: Path, *, elapsed_s: int) -> None:
    from tailrace.cluster.restored import outrun

    try:
        outrun(data_dir, elapsed_s=elapsed_s)
    except StorageError as error:  # it was damaged before it was backed up: a start says what to do
        click.echo(f"the metadata is restored as it was backed up: {error}", err=True)


def _seconds_since(created: str) -> int:
    then = datetime.strptime(created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return int((datetime.now(UTC) - then).total_seconds())


def _show(
    generation: Generation, manifest: Manifest, data_dir: Path, *, dry_run: bool, output: Output
) -> None:
    row: dict[str, Any] = {
        "backup": str(generation.path),
        "created": manifest.created,
        "data_dir": str(data_dir),
        "partitions": manifest.partitions,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        "problems": manifest.problems,
        "restored": not dry_run,
    }
    if output.format != "table":
        output.record(row)
        return
    verb = "would restore" if dry_run else "restored"
    click.echo(f"{verb} {manifest.partitions:,} partitions, {manifest.bytes:,} bytes to {data_dir}")
    for problem in manifest.problems:
        click.echo(f"damaged before it was backed up: {problem}", err=True)
    if not dry_run:
        click.echo(_ADVICE.format(created=manifest.created))
        click.echo(f"Next:  tailrace up --data-dir {data_dir}")
