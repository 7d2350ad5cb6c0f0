"""The lake: topics as folders of Parquet files, and a log that says which files count.

The lake is its own checkpoint. Which offsets are in a table is said by the table itself, in the same atomic
commit that adds the files; a run begins where the table ends. No Spark in here, and no broker: pieces of
decoded rows come in, files and commits go out.

    layout.py      where everything lies, by name
    data_file.py   files of rows; change.py: what changes a table; state.py: what a change makes of it
    table.py       the port, and open_table; marker.py makes a folder a lake
    manifest.py    our own log: entry.py has its files, log.py numbers them, placing.py moves what they say
    current.py     the files of one version of a "parquet" table by name, for readers that only know files
    delta.py, iceberg.py   the same on other people's logs
    staging.py     where runs keep what is in no commit yet
    writing.py     pieces to files, by day; row_file.py writes one; quarantine.py keeps what is no record
    scanning.py    files back to rows, in the order of their offsets

Names are imported when they are first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.spark.lake.change import Advance, BadRange, Change, Conflict, Snapshot
    from tailrace.spark.lake.data_file import DataFile, LakeFileError, StagedFile
    from tailrace.spark.lake.scanning import scan_files
    from tailrace.spark.lake.schema import FILE_SCHEMA, ROW_SCHEMA
    from tailrace.spark.lake.staging import Staging
    from tailrace.spark.lake.table import Table, open_table
    from tailrace.spark.lake.writing import Written, write_files

_HOMES = {
    "FILE_SCHEMA": "schema",
    "ROW_SCHEMA": "schema",
    "Advance": "change",
    "BadRange": "change",
    "Change": "change",
    "Conflict": "change",
    "DataFile": "data_file",
    "LakeFileError": "data_file",
    "Snapshot": "change",
    "StagedFile": "data_file",
    "Staging": "staging",
    "Table": "table",
    "Written": "writing",
    "open_table": "table",
    "scan_files": "scanning",
    "write_files": "writing",
}

__all__ = [
    "FILE_SCHEMA",
    "ROW_SCHEMA",
    "Advance",
    "BadRange",
    "Change",
    "Conflict",
    "DataFile",
    "LakeFileError",
    "Snapshot",
    "StagedFile",
    "Staging",
    "Table",
    "Written",
    "open_table",
    "scan_files",
    "write_files",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{home}"), name)
