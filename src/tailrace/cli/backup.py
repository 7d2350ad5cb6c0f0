"""`tailrace backup DIR`, and `list`, `verify` of what is there."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.config import config_option
from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.login import login_option
from tailrace.cli.output import Column, Output, examples, output_option, progress_bar
from tailrace.model import StorageError

if TYPE_CHECKING:
    from tailrace.storage.backup import Generation, Made, Source
    from tailrace.storage.backup.making import Held

    _FloatType = click.ParamType[float]
else:  # in older versions of click it has no parameter
    _FloatType = click.ParamType

_RATE = re.compile(r"(\d+(?:\.\d+)?)\s*([kmg]?)i?b?(?:/s)?", re.IGNORECASE)
_UNITS = {"": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30}


class _BackupGroup(click.RichGroup):
    """A group in which a directory in the place of a command means `create`."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if args and args[0] not in (*self.commands, "-h", "--help"):
            args = ["create", *args]
        return super().parse_args(ctx, args)


@click.group(
    name="backup",
    cls=_BackupGroup,
    no_args_is_help=True,
    epilog=examples(
        "tailrace backup /backups/tailrace",
        "tailrace backup /backups/tailrace --data-dir /var/lib/tailrace --keep 7 --rate 50MB",
        "tailrace backup list /backups/tailrace",
    ),
)
def command() -> None:
    """Back up a running broker; list and check backups.

    Nothing is stopped. `tailrace backup DIR` is `tailrace backup create DIR`.
    """


class _RateType(_FloatType):
    name = "rate"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        found = _RATE.fullmatch(str(value).strip())
        rate = float(found[1]) * _UNITS[found[2].lower()] if found else 0.0
        if not rate:
            self.fail(f"{value!r} is no rate. Write bytes per second, such as 50MB", param, ctx)
        return rate


@command.command(
    name="create",
    epilog=examples(
        "tailrace backup /backups/tailrace",
        "tailrace backup /backups/tailrace --keep 7 -o json",
        "tailrace backup /backups/tailrace --data-dir /var/lib/tailrace --rate 50MB",
    ),
)
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path, file_okay=False))
@click.option(
    "--data-dir",
    metavar="DIR",
    show_default="./tailrace-data",
    help="What to back up. A broker that serves it is asked for its files; else they are taken as they are.",
)
@click.option(
    "--http",
    "http_address",
    metavar="HOST:PORT",
    show_default="found by the data directory",
    help="The HTTP listener of the broker.",
)
@click.option("--keep", type=click.IntRange(min=1), metavar="N", help="Then remove all but the newest N.")
@click.option("--copy", "copy_all", is_flag=True, help="Copy every file, even those that have not changed.")
@click.option("--rate", type=_RateType(), metavar="BYTES", help="Read no more per second, such as 50MB.")
@click.option("--dry-run", is_flag=True, help="Say what would be copied, and write nothing.")
@config_option
@login_option
@output_option
def create_backup(
    directory: Path,
    data_dir: str | None,
    http_address: str | None,
    keep: int | None,
    copy_all: bool,
    rate: float | None,
    dry_run: bool,
    config_file: Path | None,
    output: Output,
) -> None:
    """Back up everything that was acknowledged before this command began.

    DIR gets a directory named by the time. Files that have not changed since the backup before are hard links
    to those of that one; nothing is shared with the data directory. A backup that was interrupted leaves
    DIR/partial, and the next one goes on from there.
    """
    from tailrace.server.configuration import read_config

    flags = {"storage.data_dir": data_dir}
    served = read_config(flags=flags, environment=os.environ, file=config_file).server().data_dir
    _check_apart(directory, served)
    # Before the files are asked for: what was acknowledged by then is in the backup.
    work = _Backup(directory, datetime.now(UTC), copy_all=copy_all, rate=rate, dry_run=dry_run)
    with _files(served, http_address) as (source, held):
        row = work.run(source, held)
    if dry_run:
        _show(row, output)
        return
    problems = row["problems"]
    if keep is not None and not problems:
        row["removed"] = work.prune(keep)
    _show(row, output)
    if problems:
        raise CommandFailed(
            f"{len(problems)} problem{'s' if len(problems) > 1 else ''} in the data that was backed up: "
            f"{problems[0]}. The backup holds it as it is; no older backup was removed. "
            f"Try: tailrace log verify {served}"
        )


@command.command(name="list", epilog=examples("tailrace backup list /backups/tailrace"))
@click.argument("directory", metavar="DIR", type=click.Path(path_type=Path))
@output_option
def list_backups(directory: Path, output: Output) -> None:
    """List backups, the oldest first."""
    from tailrace.storage.backup import Catalogue

    catalogue = Catalogue(directory)
    rows = [_row_of(each) for each in catalogue.generations()]
    if catalogue.partial.exists():
        rows.append({"name": "partial", "state": "interrupted: the next backup goes on from it"})
    output.rows(rows, columns=_LIST_COLUMNS)


@command.command(
    name="verify",
    epilog=examples(
        "tailrace backup verify /backups/tailrace", "tailrace backup verify /backups/tailrace/latest"
    ),
)
@click.argument("path", metavar="DIR|BACKUP", type=click.Path(path_type=Path))
@output_option
def verify_backup(path: Path, output: Output) -> None:
    """Read every byte of the newest backup in DIR, or of the one named; exit code 1 if something is wrong."""
    from tailrace.storage.backup import check_generation
    from tailrace.storage.backup.catalogue import find_generation

    generation = find_generation(path)
    assert generation.manifest is not None
    total = generation.manifest.bytes
    with progress_bar("checking", bytes_total=total) as advance:
        problems = list(check_generation(generation, advance=advance))
    row = {**_row_of(generation), "state": "damaged" if problems else "whole", "problems": problems}
    if output.format == "table":
        for problem in problems:
            click.echo(problem)
        output.record({key: value for key, value in row.items() if key != "problems"}, columns=_LIST_COLUMNS)
    else:
        output.record(row)
    if problems:
        raise CommandFailed(
            f"{len(problems)} of {len(generation.manifest.files)} files of {generation.path} are damaged or "
            "missing. Restore another backup, and make a new one with --copy"
        )


# ---- making one


@dataclass(frozen=True, slots=True)
class _Backup:
    """One run of the command, once its files are there."""

    directory: Path
    created: datetime
    copy_all: bool
    rate: float | None
    dry_run: bool

    def run(self, source: Source, held: Held) -> dict[str, Any]:
        from tailrace.storage.backup import Catalogue, plan_backup
        from tailrace.storage.backup.making import read_progress

        catalogue = Catalogue(self.directory)
        lock = None if self.dry_run else catalogue.prepare()
        try:
            known = self.directory.exists()
            earlier = catalogue.latest() if known and not self.copy_all else None
            manifest = None if earlier is None else earlier.manifest
            plan = plan_backup(
                source.files,
                earlier={} if manifest is None else {each.path: each for each in manifest.files},
                unfinished=read_progress(catalogue.partial) if known else {},
            )
            if self.dry_run:
                return {
                    "backup": None,
                    "files": len(source.files),
                    "bytes": source.bytes,
                    "copied_files": len(plan.copied),
                    "copied_bytes": plan.copied_bytes,
                }
            return _summary(self._make(catalogue, source, earlier, plan, held))
        finally:
            if lock is not None:
                lock.release()

    def _make(self, catalogue: Any, source: Source, earlier: Any, plan: Any, held: Held) -> Made:
        from tailrace import __version__
        from tailrace.storage.backup import Pace, make_generation

        catalogue.remove_rest()
        with progress_bar("backing up", bytes_total=plan.copied_bytes + plan.checked_bytes) as advance:
            return make_generation(
                catalogue,
                source,
                earlier=earlier,
                plan=plan,
                created=self.created,
                version=__version__,
                pace=Pace(self.rate),
                held=held,
                check_metadata=_check_metadata,
                advance=advance,
            )

    def prune(self, keep: int) -> list[str]:
        from tailrace.storage.backup import Catalogue

        catalogue = Catalogue(self.directory)
        lock = catalogue.prepare()
        try:
            return catalogue.prune(keep)
        finally:
            lock.release()


@contextmanager
def _files(data_dir: Path, http_address: str | None) -> Iterator[tuple[Source, Held]]:
    """What to copy: the cut of the broker that serves the directory, or the directory under its lock."""
    from tailrace.runtime import DirectoryLock
    from tailrace.storage.backup import AtRest, cut_source, directory_source

    if http_address is None:
        if not data_dir.is_dir():
            raise CommandFailed(
                f"there is no data directory {data_dir}. Name it with --data-dir, or the broker with --http",
                exit_code=ExitCode.NOT_FOUND,
            )
        try:
            lock = DirectoryLock(os.fspath(data_dir))
        except StorageError:
            http_address = _listener_of(data_dir)
        else:
            try:
                yield directory_source(data_dir), AtRest()
            finally:
                lock.release()
            return
    from tailrace.cli.held_cut import HeldCut

    with HeldCut(http_address) as cut:
        root = cut.path.parent
        yield cut_source(cut.path, data_dir=root, cluster_id=cut.cluster_id), cut


def _listener_of(data_dir: Path) -> str:
    from tailrace.server.ports import read_ports

    ports = read_ports(data_dir)
    if ports is None:
        raise CommandFailed(
            f"a broker serves {data_dir} and does not say where it listens. Name it with --http HOST:PORT"
        )
    if ports.http is None:
        raise CommandFailed(
            f"the broker of pid {ports.pid} has no HTTP listener, which a backup needs. Start it with "
            "--http-port, or stop it and run this command again"
        )
    return f"127.0.0.1:{ports.http}"


def _check_metadata(data_dir: Path) -> list[str]:
    from tailrace.cluster.verification import verify_metadata

    return [f"{each.path}: {each.message}" for each in verify_metadata(data_dir).problems]


def _check_apart(directory: Path, data_dir: Path) -> None:
    backup, data = directory.resolve(), data_dir.resolve()
    if backup == data or data in backup.parents or backup in data.parents:
        raise CommandFailed(
            f"{directory} and the data directory {data_dir} lie one in the other. Choose another directory, "
            "best on another disk",
            exit_code=ExitCode.USAGE,
        )


# ---- rows


def _summary(made: Made) -> dict[str, Any]:
    return {
        "backup": str(made.generation.path),
        "created": made.manifest.created,
        "partitions": made.manifest.partitions,
        "files": len(made.manifest.files),
        "bytes": made.manifest.bytes,
        "copied_files": made.copied_files,
        "copied_bytes": made.copied_bytes,
        "linked_files": made.linked_files,
        "linked_bytes": made.linked_bytes,
        "problems": made.manifest.problems,
        "removed": [],
    }


def _show(row: dict[str, Any], output: Output) -> None:
    if output.format != "table":
        output.record(row)
    elif row["backup"] is None:
        click.echo(
            f"would copy {row['copied_files']:,} of {row['files']:,} files, "
            f"{row['copied_bytes']:,} of {row['bytes']:,} bytes"
        )
    else:
        click.echo(
            f"{row['backup']}: {row['partitions']:,} partitions, {row['bytes']:,} bytes; "
            f"{row['copied_bytes']:,} copied, {row['linked_bytes']:,} unchanged"
        )
        if row["removed"]:
            click.echo(f"removed {', '.join(row['removed'])}")


def _row_of(generation: Generation) -> dict[str, Any]:
    manifest = generation.manifest
    if manifest is None:
        return {"name": generation.name, "path": str(generation.path), "state": generation.trouble}
    return {
        "name": generation.name,
        "path": str(generation.path),
        "created": manifest.created,
        "partitions": manifest.partitions,
        "files": len(manifest.files),
        "bytes": manifest.bytes,
        "state": f"{len(manifest.problems)} problems in the data" if manifest.problems else "whole",
    }


_LIST_COLUMNS = (
    Column("name"),
    Column("created"),
    Column("partitions", right=True),
    Column("files", right=True),
    Column("bytes", show=lambda size: f"{size:,}", right=True),
    Column("state"),
)
