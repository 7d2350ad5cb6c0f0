"""From a generation back to a data directory.

The directory must be empty. RESTORING is its first file and goes last: while it is there no broker starts
in the directory, and the restore can be repeated. Everything is copied, never linked: a broker writes to its
files, and a backup must not change.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable
from pathlib import Path

from tailrace.model import StorageError
from tailrace.runtime import DirectoryLock
from tailrace.storage.backup.catalogue import BackupError, Generation
from tailrace.storage.backup.copying import Advance, Pace, copy_file
from tailrace.storage.backup.manifest import sync_directory
from tailrace.storage.segment.names import JOURNAL_DIRECTORY, RESTORING

_WRITABLE = 0o644


def check_target(data_dir: Path) -> None:
    """BackupError unless the directory is missing, empty, or left by a restore that was interrupted."""
    try:
        names = set(os.listdir(data_dir))
    except FileNotFoundError:
        return
    if RESTORING in names or not names - {"LOCK", "lost+found"}:
        return
    raise BackupError(
        f"{data_dir} is not empty, and nothing is overwritten. Restore to another directory, or move away "
        "what is in it"
    )


def restore(
    generation: Generation,
    data_dir: Path,
    *,
    advance: Advance,
    finish: Callable[[Path], None] = lambda _: None,
) -> None:
    """Copy a checked generation into an empty directory; `finish` may change it before it can be served."""
    manifest = generation.manifest
    assert manifest is not None
    check_target(data_dir)
    data_dir.mkdir(parents=True, exist_ok=True)
    lock = _lock(data_dir)
    try:
        check_target(data_dir)
        _begin(data_dir, generation)
        for each in manifest.files:
            target = data_dir / each.path
            target.parent.mkdir(parents=True, exist_ok=True)
            found = copy_file(
                generation.data / each.path,
                target,
                size=each.size,
                pace=Pace(),
                advance=advance,
                mode=_WRITABLE,
            )
            if found != each.sha256:
                raise BackupError(
                    f"{generation.data / each.path} has changed since it was checked. Restore another "
                    f"backup: no broker starts with what is in {data_dir} now"
                )
        finish(data_dir)
        for directory, _, _ in os.walk(data_dir):
            sync_directory(Path(directory))
        os.unlink(data_dir / RESTORING)
        sync_directory(data_dir)
    finally:
        lock.release()


def _lock(data_dir: Path) -> DirectoryLock:
    try:
        return DirectoryLock(os.fspath(data_dir))
    except StorageError as error:
        raise BackupError(f"{data_dir} is in use: {error}") from error


def _begin(data_dir: Path, generation: Generation) -> None:
    """Mark the directory, durably, and remove what an interrupted restore left in it."""
    with open(data_dir / RESTORING, "w", encoding="utf-8") as file:
        file.write(f"{generation.path}\n")
        file.flush()
        os.fsync(file.fileno())
    sync_directory(data_dir)
    for name in os.listdir(data_dir):
        path = data_dir / name
        if name in (RESTORING, "LOCK", "lost+found"):
            continue
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink()
    (data_dir / JOURNAL_DIRECTORY).mkdir()
