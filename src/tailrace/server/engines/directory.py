"""A data directory that cannot be used, and the way out."""

from __future__ import annotations

from pathlib import Path

from tailrace.model import StorageError


def cannot_use(data_dir: Path, error: OSError) -> StorageError:
    """The error that a person reads."""
    is_file = isinstance(error, FileExistsError)  # what making a directory says of it
    return StorageError(
        "open",
        str(data_dir),
        "it is a file, and not a directory" if is_file else error.strerror or str(error),
        hint="Choose a directory that you may write to with --data-dir",
    )


def shown_path(path: Path) -> str:
    """A path as people type it: ./ in front of one that would look like a word."""
    text = str(path)
    return text if path.is_absolute() or text.startswith(".") else f"./{text}"
