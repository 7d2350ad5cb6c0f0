"""`tailrace export`: topics and subscriptions of a broker as one file."""

from __future__ import annotations

import os
from pathlib import Path

import rich_click as click

from tailrace.cli.definition import write_definitions
from tailrace.cli.definition_access import DefinitionAccess, access_option
from tailrace.cli.output import examples


@click.command(
    name="export", epilog=examples("tailrace export broker.json", "tailrace export - | jq '.topics[].name'")
)
@click.argument("file", metavar="FILE|-", type=click.Path(path_type=Path, dir_okay=False, allow_dash=True))
@access_option
def command(file: Path, access: DefinitionAccess) -> None:
    """Write topics and subscriptions to a file.

    `tailrace apply` makes another broker like it. Settings that have their default are left out, and so are
    records, offsets and cursors: those are what `tailrace backup` is for.
    """
    text = write_definitions(access.read())
    if os.fspath(file) == "-":
        click.echo(text, nl=False)
        return
    fresh = file.with_name(f".{file.name}.tmp")
    fresh.write_text(text, encoding="utf-8")
    os.replace(fresh, file)
