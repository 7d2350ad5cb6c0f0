"""A table of Parquet files with a log that says which of them count.

Three kinds of log, one behaviour: our manifest (`parquet`, the default, nothing else to install), Delta Lake
and Iceberg. `open_table` finds out what a folder is, or makes it one.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tailrace.model import ConfigError
from tailrace.spark.lake.change import Change, Snapshot
from tailrace.spark.lake.layout import resolve_root
from tailrace.spark.lake.manifest import ManifestTable, no_step
from tailrace.spark.lake.marker import FORMATS, make_lake, read_format


class Table(Protocol):
    """What a pipeline does with a lake, whatever its log."""

    root: Path
    format: str

    def snapshot(self) -> Snapshot:
        """The newest state. Its files stay readable until `expire` has passed them."""

    def commit(self, change: Change, *, on_step: Callable[[str], None] = no_step) -> Snapshot:
        """Make a change, all or nothing, durable when this returns; Conflict if it comes too late.

        Changes that others made meanwhile do no harm as long as they touch other partitions and files. A file
        whose name is taken gets another: the snapshot says which. `on_step` hears how far the commit is.
        """

    def recover(self) -> None:
        """Finish what a killed process left half done, and clear what dead runs staged."""

    def expire(self, *, older_than_h: float) -> int:
        """Delete files that were removed from the table longer ago than that; says how many."""

    def close(self) -> None:
        """Let go of what is held; closing twice is harmless."""


def open_table(root: str | Path, *, format: str | None = None, create: bool = False) -> Table:
    """The table in a folder. With `create` an empty or new folder becomes one, of `format` or parquet."""
    folder = resolve_root(root)
    if format is not None and format not in FORMATS:
        raise ConfigError(f"format {format!r} is not one of {', '.join(FORMATS)}")
    found = read_format(folder)
    if found is None:
        if not create:
            raise ConfigError(
                f"there is no lake at {str(folder)!r}. Make one: tailrace pipeline run archive --to {folder}"
            )
        _check_installed(format or FORMATS[0])
        found = make_lake(folder, format or FORMATS[0])
    if format is not None and format != found:
        raise ConfigError(
            f"{str(folder)!r} is a lake of format {found!r}, not {format!r}."
            f" Leave the format out, or name another folder"
        )
    return _open(folder, found)


def _check_installed(format: str) -> None:
    """Refuse before the folder is a lake that nobody here could open."""
    if format == "delta":
        from tailrace.spark.lake.delta import import_deltalake

        import_deltalake()
    elif format == "iceberg":
        from tailrace.spark.lake.iceberg import import_pyiceberg

        import_pyiceberg()


def _open(folder: Path, format: str) -> Table:
    # What only one kind of lake needs is imported only for that kind.
    if format == "delta":
        from tailrace.spark.lake.delta import DeltaLakeTable

        return DeltaLakeTable(folder)
    if format == "iceberg":
        from tailrace.spark.lake.iceberg import IcebergTable

        return IcebergTable(folder)
    return ManifestTable(folder)
