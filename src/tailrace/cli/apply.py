"""`tailrace apply`: makes a broker have the topics and subscriptions of a file."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import rich_click as click

from tailrace.cli.connection import confirm
from tailrace.cli.definition import Change, Definitions, plan_changes, read_definitions
from tailrace.cli.definition_access import DefinitionAccess, access_option
from tailrace.cli.exit import CommandFailed
from tailrace.cli.output import Output, examples, output_option
from tailrace.model import ConfigError, escape

_SIGNS = {"create": "+", "change": "~", "delete": "-", "leave": " "}


@click.command(
    name="apply",
    epilog=examples(
        "tailrace apply broker.json --dry-run", "tailrace apply broker.json", "tailrace apply - --prune --yes"
    ),
)
@click.argument("file", metavar="FILE|-", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@click.option("--dry-run", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--prune", is_flag=True, help="Delete what is not in the file, records and cursors included.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@access_option
@output_option
def command(
    file: Path, dry_run: bool, prune: bool, yes: bool, access: DefinitionAccess, output: Output
) -> None:
    """Make a broker have the topics and subscriptions of a file.

    Once more changes nothing. Partitions are added and never taken away; nothing is deleted without --prune.
    Exit code 1 if something could not be done; everything else is done.
    """
    changes = plan_changes(_read(file), access.read(), prune=prune)
    deleted = [each.name for each in changes if each.action == "delete"]
    if deleted and not dry_run:
        confirm(f"Delete {', '.join(deleted)} with everything in them?", yes=yes)
    rows = []
    for change in changes:
        rows.append(_row(change, "" if dry_run else _perform(access, change), dry_run=dry_run))
        if output.format == "table":
            click.echo(_line(rows[-1]))
    _finish(rows, dry_run=dry_run, output=output)


def _read(file: Path) -> Definitions:
    name = os.fspath(file)
    try:
        text = sys.stdin.read() if name == "-" else file.read_text(encoding="utf-8")
        return read_definitions(text)
    except UnicodeDecodeError as error:
        raise ConfigError(f"{name} is not UTF-8") from error
    except ConfigError as error:
        raise ConfigError(f"{name}: {error}") from error


def _perform(access: DefinitionAccess, change: Change) -> str:
    """Make the change; returns why it failed, or nothing."""
    if change.wrong or change.action == "leave":
        return ""
    try:
        access.apply(change)
    except CommandFailed as error:
        return str(error)
    return ""


def _row(change: Change, failure: str, *, dry_run: bool) -> dict[str, Any]:
    error = change.wrong or failure
    result = (
        "failed" if error else "untouched" if change.action == "leave" else "planned" if dry_run else "done"
    )
    return {
        "action": change.action,
        "kind": change.kind,
        "name": change.name,
        "detail": change.detail,
        "result": result,
        "error": error,
    }


def _line(row: dict[str, Any]) -> str:
    text = f"{_SIGNS[row['action']]} {row['kind']} {row['name']}"
    if row["action"] == "leave":
        text += ": not in the file, not touched"
    elif row["detail"]:
        text += f": {row['detail']}"
    return escape(text + (f"  FAILED: {row['error']}" if row["error"] else ""))


def _finish(rows: Sequence[dict[str, Any]], *, dry_run: bool, output: Output) -> None:
    if output.format != "table":
        output.rows(rows, columns=())
    elif not any(row["action"] != "leave" for row in rows):
        click.echo("nothing to change")
    if failed := [row for row in rows if row["error"]]:
        verb = "cannot be done" if dry_run else "failed"
        raise CommandFailed(f"{len(failed)} of {len(rows)} changes {verb}")
