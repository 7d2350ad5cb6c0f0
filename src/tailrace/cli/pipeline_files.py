"""`tailrace pipeline files`: the files of one version of a lake, for programs that read Parquet files."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import rich_click as click

from tailrace.cli.exit import CommandFailed, ExitCode
from tailrace.cli.output import Output, examples, output_option

if TYPE_CHECKING:
    from pathlib import Path


@click.command(
    name="files",
    epilog=examples(
        "tailrace pipeline files ./lake",
        "tailrace pipeline files ./lake --topic orders -o json",
    ),
)
@click.argument("lake", metavar="LAKE")
@click.option("--topic", metavar="TOPIC", help="Only the files of this topic.")
@output_option
def command(lake: str, topic: str | None, output: Output) -> None:
    """Print the files of a lake, a path per line: all of one version, and none twice.

    The paths can be opened until the grace period of the next compaction is over (--grace-h of
    `pipeline run compact`), also while it moves files. Of a parquet lake they are those of
    `_manifest/current.txt`.
    """
    rows = [row for row in _rows(lake) if topic in (None, row["topic"])]
    if topic is not None and not rows:
        raise CommandFailed(f"the lake {lake} has no files of topic {topic}", exit_code=ExitCode.NOT_FOUND)
    if output.format != "table":
        output.rows(rows, columns=())
        return
    for row in rows:
        click.echo(row["path"])


def _rows(lake: str) -> Iterator[dict[str, Any]]:
    from tailrace.spark.lake.current import list_files
    from tailrace.spark.lake.layout import read_data_path, resolve_root

    root = resolve_root(lake)
    for path, listed in list_files(root).items():
        name = read_data_path(path)
        assert name is not None, f"{path} is in the table"
        yield {
            "path": _as_given(lake, root, listed),
            "topic": name.topic,
            "dt": name.day,
            "partition": name.partition,
            "first_offset": name.first_offset,
            "last_offset": name.last_offset,
            "bytes": os.stat(root / listed).st_size,
        }


def _as_given(lake: str, root: Path, path: str) -> str:
    """Relative where the lake was named so: a reader in the same folder takes it as it is."""
    return os.path.join(lake if "://" not in lake else root, path)
