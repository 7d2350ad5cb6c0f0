"""What is to be copied: the cut of a running broker, or a data directory that no broker serves.

A cut has links to files of which some grow on: of those, the length that its CHECKPOINT says is copied. A
stopped directory is copied as it is, journal included: a start of the restored one recovers it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tailrace.storage.backup.catalogue import BackupError
from tailrace.storage.backup.copying import SourceChanged
from tailrace.storage.segment.checkpoint import Checkpoint, read_checkpoint
from tailrace.storage.segment.cut import lengths
from tailrace.storage.segment.names import (
    CHECKPOINT,
    CHECKPOINT_COPY,
    CUT,
    DELETED,
    RESTORING,
    STRAY,
    TEMPORARY,
)

_NOT_DATA = ("LOCK", "tailrace.ports.json", RESTORING)
_NOT_DATA_PREFIXES = (CUT, DELETED, STRAY, ".")
_NOT_DATA_SUFFIXES = (TEMPORARY, "-shm")


@dataclass(frozen=True, slots=True)
class SourceFile:
    """A file to copy; `path` is relative to the data directory."""

    path: str
    size: int
    stamp: tuple[int, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """Every file of one moment."""

    root: Path
    data_dir: Path
    files: list[SourceFile]
    partitions: int
    cluster_id: str = ""

    @property
    def bytes(self) -> int:
        return sum(each.size for each in self.files)


def cut_source(path: Path, *, data_dir: Path, cluster_id: str) -> Source:
    """The cut that a broker holds in `path`."""
    checkpoint = _checkpoint(path)
    limits = lengths(checkpoint)
    files = []
    for name in _walk(path):
        state = os.stat(path / name)
        size = limits.get(name, state.st_size)
        if size > state.st_size:
            raise SourceChanged(f"{path / name} has {state.st_size} bytes, and {size} were acknowledged")
        files.append(SourceFile(name, size, (state.st_ino, state.st_mtime_ns)))
    return Source(
        root=path,
        data_dir=data_dir,
        files=files,
        partitions=len(checkpoint.rows),
        cluster_id=cluster_id,
    )


def directory_source(data_dir: Path) -> Source:
    """A data directory that is not served; the caller holds its lock."""
    checkpoint = _checkpoint(data_dir)
    files = []
    for name in _walk(data_dir):
        state = os.stat(data_dir / name)
        files.append(SourceFile(name, state.st_size, (state.st_ino, state.st_mtime_ns)))
    return Source(root=data_dir, data_dir=data_dir, files=files, partitions=len(checkpoint.rows))


def _checkpoint(root: Path) -> Checkpoint:
    """The checkpoint, or its copy where it is damaged; BackupError without either."""
    found = False
    for name in (CHECKPOINT, CHECKPOINT_COPY):
        with suppress(FileNotFoundError):
            data = (root / name).read_bytes()
            found = True
            checkpoint = read_checkpoint(memoryview(data))
            if checkpoint is not None:
                return checkpoint
    if not found:
        raise BackupError(f"no log is kept in {root}: there is no CHECKPOINT")
    raise BackupError(f"{root / CHECKPOINT} is damaged. Try: tailrace log verify {root}")


def _walk(root: Path, below: str = "") -> Iterator[str]:
    with os.scandir(root / below) as found:
        entries = sorted(found, key=lambda each: each.name)
    for each in entries:
        name = below + each.name
        if not below and (each.name in _NOT_DATA or each.name.startswith(_NOT_DATA_PREFIXES)):
            continue
        if each.is_dir(follow_symlinks=False):
            yield from _walk(root, name + "/")
        elif each.is_file(follow_symlinks=False) and not each.name.endswith(_NOT_DATA_SUFFIXES):
            yield name
