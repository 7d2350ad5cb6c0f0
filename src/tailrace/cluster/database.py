"""The file of the SQLite store, schema 2: how it is created, read, checked and changed. Plain blocking calls.

    meta(key, value)                              one row: schema = 2
    entries(key, value, version, crc)             crc: CRC32C over key, value and version
    head(revision, entries, digest, crc)          one row; entries: their number; digest: XOR of their crc;
                                                  crc: CRC32C over the other three

A changed row fails its own checksum; a lost, repeated or outdated row fails the number or the digest. Builds
that know schema 1 only look for `meta` first and refuse any other schema, which is why that table stays.

Columns are read as bytes: a damaged text must be reported with its key, not fail inside SQLite.
"""

from __future__ import annotations

import os
import sqlite3
import struct
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path

from tailrace.cluster.store import ABSENT, Entry, Rows
from tailrace.model import StorageError
from tailrace.records import crc32c
from tailrace.runtime.private import make_private

SIDECARS = ("-wal", "-shm")
"""What SQLite adds to the name of the file for those beside it."""
SCHEMA = 2
SCHEMA_1 = 1
_TABLES = """
CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE entries (
    key TEXT PRIMARY KEY, value TEXT NOT NULL, version INTEGER NOT NULL, crc INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE head (
    id INTEGER PRIMARY KEY, revision INTEGER NOT NULL, entries INTEGER NOT NULL, digest INTEGER NOT NULL,
    crc INTEGER NOT NULL
);
"""
_VERSION = struct.Struct("<q")
_HEAD = struct.Struct("<qqq")
_SHOWN_MAX = 120
_SECRET_MARKS = (b"users/", b"tokens/", b"security/", b"verifiers", b"digest", b"_key")
"""What stands in the keys and values of users and tokens; some is left where the other part is damaged."""


def rebuild_hint(path: str | os.PathLike[str]) -> str:
    """The way out for a file that cannot be trusted."""
    return f"No record is lost. Stop the broker, then: tailrace storage rebuild-metadata {Path(path).parent}"


def damaged(path: str | os.PathLike[str], reason: str) -> StorageError:
    """The file is not what was written."""
    return StorageError("read metadata in", str(path), reason, hint=rebuild_hint(path))


def connect(path: str) -> sqlite3.Connection:
    """A connection whose commits survive a power cut (WAL, synchronous=FULL: the log is synced).

    Only the owner of the file may read it from now on.
    """
    for file in (path, *(path + suffix for suffix in SIDECARS if os.path.exists(path + suffix))):
        make_private(file)  # SQLite gives its other files the mode of this one
    database = sqlite3.connect(path, check_same_thread=False, isolation_level=None)
    try:
        database.execute("PRAGMA journal_mode = WAL")
        database.execute("PRAGMA synchronous = FULL")
    except BaseException:
        database.close()
        raise
    return database


def schema_of(database: sqlite3.Connection, path: str) -> int:
    """The version of the schema; 0 for a database without tables. StorageError for one that is not ours."""
    tables = {row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables:
        return 0
    row = None
    if "meta" in tables:
        row = database.execute("SELECT CAST(value AS BLOB) FROM meta WHERE key = 'schema'").fetchone()
    text = b"" if row is None else row[0]
    if not text.isdigit():
        raise damaged(path, "it does not say which schema it has")
    version = int(text)
    if version not in (SCHEMA_1, SCHEMA):
        raise StorageError(
            "read metadata in",
            path,
            f"its schema has version {version}, and this program knows {SCHEMA_1} and {SCHEMA}",
            hint="Start the program that wrote it. If there is none: " + rebuild_hint(path),
        )
    return version


def create(database: sqlite3.Connection, rows: Rows | None = None) -> None:
    """The tables, with these rows; in a transaction of the caller's."""
    rows = rows or Rows()
    for statement in filter(str.strip, _TABLES.split(";")):
        database.execute(statement)
    database.execute("INSERT INTO meta VALUES ('schema', ?)", (str(SCHEMA),))
    digest = 0
    for key, entry in rows.entries.items():
        crc = checksum(key, entry)
        digest ^= crc
        database.execute("INSERT INTO entries VALUES (?, ?, ?, ?)", (key, entry.value, entry.version, crc))
    _write_head(database, revision=rows.revision, entries=len(rows.entries), digest=digest)


def read_rows(database: sqlite3.Connection, path: str, prefix: str = "") -> Rows:
    """The rows, each checked, and all of them together if `prefix` is empty. StorageError names the key."""
    revision, count, digest = _read_head(database, path)
    found: dict[str, Entry] = {}
    seen = 0
    for key, value, version, crc in _select(database, prefix):
        entry = _checked(path, key, value, version, crc)
        found[key.decode()] = entry
        seen ^= crc
    if not prefix and (len(found) != count or seen != digest):
        raise damaged(
            path,
            f"it holds {len(found)} of {count} entries, or outdated ones",
        )
    return Rows(revision=revision, entries=found)


def apply(
    database: sqlite3.Connection,
    path: str,
    *,
    checks: Mapping[str, int],
    puts: Mapping[str, str],
    deletes: Collection[str],
) -> int | None:
    """The commit of the store port, in a transaction of the caller's; None if a check fails."""
    revision, count, digest = _read_head(database, path)
    for key, version in checks.items():
        if _version_and_crc(database, key)[0] != version:
            return None
    revision += 1
    for key in {*puts, *deletes}:
        version, crc = _version_and_crc(database, key)
        if version != ABSENT:
            count, digest = count - 1, digest ^ crc
    database.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in deletes])
    written = [(key, value, revision, checksum(key, Entry(value, revision))) for key, value in puts.items()]
    database.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?, ?)", written)
    for *_, crc in written:
        count, digest = count + 1, digest ^ crc
    _write_head(database, revision=revision, entries=count, digest=digest)
    return revision


def checksum(key: str, entry: Entry) -> int:
    """Over key, value and version; the zeros keep two neighbours from passing bytes to each other."""
    text = b"\0".join((key.encode(), entry.value.encode(), _VERSION.pack(entry.version)))
    return crc32c(text)


# ---- inside


def _select(database: sqlite3.Connection, prefix: str) -> Iterator[tuple[bytes, bytes, int, int]]:
    columns = "SELECT CAST(key AS BLOB), CAST(value AS BLOB), version, crc FROM entries"
    if not prefix:
        return iter(database.execute(f"{columns} ORDER BY key"))
    # The successor of every key with this prefix: U+10FFFF is greater than any character of a key.
    return iter(
        database.execute(
            f"{columns} WHERE key >= ? AND key < ? ORDER BY key", (prefix, prefix + "\U0010ffff")
        )
    )


def _checked(path: str, key: bytes, value: bytes, version: object, crc: object) -> Entry:
    try:
        name, text = key.decode(), value.decode()
    except (UnicodeDecodeError, AttributeError):
        raise _bad_row(path, key, value) from None
    if not isinstance(version, int) or not 0 < version < 1 << 63:
        raise _bad_row(path, key, value)
    entry = Entry(text, version)
    if checksum(name, entry) != crc:
        raise _bad_row(path, key, value)
    return entry


def _bad_row(path: str, key: object, value: object) -> StorageError:
    """Shows both, but for secrets: either may be the damaged one, and a topic's value has its name."""
    is_secret = any(
        mark in each for each in (key, value) if isinstance(each, bytes) for mark in _SECRET_MARKS
    )
    shown = "not shown" if is_secret else _shown(value)
    return damaged(path, f"the checksum of the entry {_shown(key)} does not hold; its value is {shown}")


def _shown(data: object) -> str:
    text = data.decode(errors="backslashreplace") if isinstance(data, bytes) else repr(data)
    return text if len(text) <= _SHOWN_MAX else text[:_SHOWN_MAX] + "..."


def _version_and_crc(database: sqlite3.Connection, key: str) -> tuple[int, int]:
    row = database.execute("SELECT version, crc FROM entries WHERE key = ?", (key,)).fetchone()
    return (ABSENT, 0) if row is None else row


def _read_head(database: sqlite3.Connection, path: str) -> tuple[int, int, int]:
    rows = database.execute("SELECT revision, entries, digest, crc FROM head").fetchall()
    if len(rows) != 1 or not all(isinstance(number, int) for number in rows[0]):
        raise damaged(path, "its head is missing or unreadable")
    revision, count, digest, crc = rows[0]
    if crc32c(_HEAD.pack(revision, count, digest)) != crc:
        raise damaged(path, "the checksum of its head does not hold")
    return revision, count, digest


def _write_head(database: sqlite3.Connection, *, revision: int, entries: int, digest: int) -> None:
    crc = crc32c(_HEAD.pack(revision, entries, digest))
    database.execute("INSERT OR REPLACE INTO head VALUES (1, ?, ?, ?, ?)", (revision, entries, digest, crc))
