"""Moving files to where a commit says they are: renames within a lake, each of which may be repeated.

A commit is made first and its files are moved afterwards, so that whoever lists folders never sees a row that
is not committed. A process may end between the two. Whatever it did not move is found by its old name, and
moved by the next one that comes (`apply_moves` is given the same commit again).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container, Iterable
from pathlib import Path

from tailrace.model import StorageError
from tailrace.spark.lake.data_file import StagedFile
from tailrace.spark.lake.durable import make_folder, sync_folder
from tailrace.spark.lake.entry import Entry
from tailrace.spark.lake.layout import OLD, OLD_SUFFIX, old_path


def apply_moves(root: Path, entry: Entry, *, live: Container[str], on_step: Callable[[str], None]) -> None:
    """Take what a commit removes out of sight, then bring what it adds into sight.

    `live` has the paths of the newest state. An older commit is only finished as far as they agree: a file
    that it added may be removed since, and a name that it removed may be in use again.
    """
    changed: set[Path] = set()
    for path in entry.remove:
        if path not in live and os.path.exists(root / path):
            _move(root / path, root / old_path(path, version=entry.version), changed)
        on_step("removed")
    files = [staged for staged in entry.add if staged.file.path in live]
    place_files(root, files, changed=changed, on_step=on_step)


def place_files(
    root: Path,
    files: Iterable[StagedFile],
    *,
    on_step: Callable[[str], None],
    changed: set[Path] | None = None,
) -> None:
    """Rename staged files to their own names, durable when this returns."""
    changed = set() if changed is None else changed
    for staged in files:
        if os.path.exists(root / staged.staged):
            _move(root / staged.staged, root / staged.file.path, changed)
        elif not os.path.exists(root / staged.file.path):
            raise StorageError(
                "move",
                str(root / staged.file.path),
                f"a file of the table is missing, and {staged.staged} too",
                hint="Restore it from a backup",
            )
        on_step("placed")
    for folder in changed:
        sync_folder(folder)


def check_staged(root: Path, files: Iterable[StagedFile]) -> None:
    """Refuse to commit a file that is not there, whole: a commit cannot be taken back."""
    for staged in files:
        path = root / staged.staged
        try:
            size = path.stat().st_size
        except FileNotFoundError:
            raise StorageError("commit", str(path), "the staged file is not there") from None
        if size != staged.file.bytes:
            raise StorageError(
                "commit", str(path), f"the staged file has {size} bytes, not {staged.file.bytes}"
            )


def find_old(root: Path, path: str) -> Path | None:
    """Where a data file lies that a commit removed, if it is still kept."""
    try:
        versions = os.listdir(root / OLD)
    except FileNotFoundError:
        return None
    for version in sorted(versions, reverse=True):
        found = root / OLD / version / f"{path}{OLD_SUFFIX}"
        if found.exists():
            return found
    return None


def _move(source: Path, target: Path, changed: set[Path]) -> None:
    make_folder(target.parent)
    os.rename(source, target)
    changed.update((source.parent, target.parent))
