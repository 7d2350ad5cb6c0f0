"""Reading a metadata file from outside: nothing is locked or written, whoever else uses it.

SQLite writes beside a database even to read it, so the file and its write-ahead log are copied first. If both
changed meanwhile, as they do while a broker serves, they are copied again.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from tailrace.cluster import database
from tailrace.cluster.migration import read_schema_1
from tailrace.cluster.replacement import READY
from tailrace.cluster.store import Rows
from tailrace.model import StorageError

_ATTEMPTS_MAX = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class MetadataFile:
    """What a file holds, and in which schema; 0: it is missing or has no tables."""

    schema: int
    rows: Rows


def read_metadata_file(path: Path) -> MetadataFile:
    """The content, every row checked; StorageError names what is wrong."""
    for attempt in range(1, _ATTEMPTS_MAX + 1):
        before = _stamps(path)
        try:
            return _read_copy(path)
        except StorageError:
            if _stamps(path) == before or attempt == _ATTEMPTS_MAX:
                raise
    raise AssertionError


def _read_copy(path: Path) -> MetadataFile:
    finished = Path(f"{path}{READY}")  # a replacement that a crash interrupted: this is the file that counts
    with TemporaryDirectory(prefix="tailrace-") as directory:
        copy = Path(directory) / path.name
        for source, target in (
            [(finished, copy)]
            if finished.exists()
            else [(Path(f"{path}-wal"), Path(f"{copy}-wal")), (path, copy)]
        ):
            if source.exists():
                shutil.copyfile(source, target)
        if not copy.exists() or not copy.stat().st_size:
            return MetadataFile(schema=0, rows=Rows())
        try:
            with closing(sqlite3.connect(copy)) as opened:
                return _read(opened, str(path))
        except sqlite3.Error as error:
            raise database.damaged(path, str(error)) from error


def _read(opened: sqlite3.Connection, path: str) -> MetadataFile:
    schema = database.schema_of(opened, path)
    if not schema:
        return MetadataFile(schema=0, rows=Rows())
    read = read_schema_1 if schema == database.SCHEMA_1 else database.read_rows
    return MetadataFile(schema=schema, rows=read(opened, path))


def _stamps(path: Path) -> list[tuple[int, int, int] | None]:
    found: list[tuple[int, int, int] | None] = []
    for name in (str(path), f"{path}-wal", f"{path}{READY}"):
        try:
            state = os.stat(name)
            found.append((state.st_ino, state.st_mtime_ns, state.st_size))
        except FileNotFoundError:
            found.append(None)
    return found
