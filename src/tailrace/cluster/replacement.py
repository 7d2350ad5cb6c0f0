"""Replacing the database file: `kill -9` at any moment leaves the old file or the new one.

    <path>.building     being written; worthless after a crash
    <kept>              a copy of the old file, with the write-ahead log that belongs to it as <kept>-wal
    <path>.ready        the new file, complete: from here on it is the one that counts
    <path>              the new file, once the write-ahead log of the old one is gone

SQLite would replay a write-ahead log that it finds beside a database, whosever it was. So the log of the old
file is removed before the new file gets its name, and a crash between the two is finished by `finish`, which
every opening calls first.
"""

from __future__ import annotations

import os
import shutil
import sqlite3
from contextlib import closing, suppress

from tailrace.cluster import database
from tailrace.cluster.database import SIDECARS
from tailrace.cluster.store import Rows
from tailrace.runtime.private import make_private, open_private

_BUILDING, READY = ".building", ".ready"
_COPIES_MAX = 1000


def replace(path: str, rows: Rows, *, kept: str) -> str | None:
    """Put a database with these rows in the place of `path`; returns where the old file is kept, if any.

    `kept` is the name of the copy. A number is added if that name is taken by a file with another content.
    """
    _build(path + _BUILDING, rows)
    where = _keep(path, kept) if os.path.exists(path) else None
    os.rename(path + _BUILDING, path + READY)
    _sync_directory(path)
    finish(path)
    return where


def finish(path: str) -> None:
    """End a replacement that a crash interrupted; nothing to do is harmless."""
    if not os.path.exists(path + READY):
        return
    for suffix in SIDECARS:
        with suppress(FileNotFoundError):
            os.remove(path + suffix)
    _sync_directory(path)
    os.rename(path + READY, path)
    _sync_directory(path)


def _build(path: str, rows: Rows) -> None:
    for suffix in ("", "-journal", *SIDECARS):
        with suppress(FileNotFoundError):
            os.remove(path + suffix)
    make_private(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as made:
        made.execute("PRAGMA synchronous = OFF")  # synced as a whole below
        made.execute("BEGIN")
        database.create(made, rows)
        made.execute("COMMIT")
    _sync(path)


def _keep(path: str, kept: str) -> str:
    """Copy the old file and its write-ahead log; a copy that an interrupted run made is used again."""
    where = kept
    for number in range(2, _COPIES_MAX):
        if not os.path.exists(where) or _same(path, where):
            break
        where = f"{kept}-{number}"
    _copy(path + "-wal", where + "-wal")  # first: the copy counts as complete when it has its name
    _copy(path, where)
    _sync_directory(path)
    return where


def _same(path: str, copy: str) -> bool:
    return all(_content(path + suffix) == _content(copy + suffix) for suffix in ("", "-wal"))


def _content(path: str) -> bytes | None:
    try:
        with open(path, "rb") as file:
            return file.read() or None  # an empty write-ahead log is none
    except FileNotFoundError:
        return None


def _copy(source: str, target: str) -> None:
    if _content(source) is None:
        with suppress(FileNotFoundError):
            os.remove(target)  # of an interrupted run, when there was one
        return
    with open(source, "rb") as reader, open(target + ".copying", "wb", opener=open_private) as writer:
        shutil.copyfileobj(reader, writer)
    _sync(target + ".copying")
    os.rename(target + ".copying", target)


def _sync(path: str) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_directory(path: str) -> None:
    _sync(os.path.dirname(path) or ".")
