"""The generations of one backup directory."""

from __future__ import annotations

import os
import re
import shutil
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

from tailrace.model import StorageError, TailraceError
from tailrace.runtime import DirectoryLock
from tailrace.storage.backup.manifest import FILE_NAME, Manifest, ManifestError, read_manifest, sync_directory
from tailrace.storage.segment.names import CHECKPOINT

DATA = "data"
PARTIAL = "partial"
LATEST = "latest"
REMOVING = "removing-"
_GENERATION = re.compile(r"\d{8}T\d{6}Z(-\d+)?")


class BackupError(TailraceError):
    """A backup cannot be made, read or restored; the message says why, and the way out."""


@dataclass(frozen=True, slots=True)
class Generation:
    """One backup. Without a manifest it cannot be trusted, and `trouble` says why."""

    path: Path
    manifest: Manifest | None
    trouble: str = ""

    @property
    def name(self) -> str:
        return self.path.name

    @property
    def data(self) -> Path:
        return self.path / DATA


class Catalogue:
    """A directory of generations."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def partial(self) -> Path:
        return self.path / PARTIAL

    def prepare(self) -> DirectoryLock:
        """Make the directory if it is missing, and be the only one that writes to it."""
        self.path.mkdir(parents=True, exist_ok=True)
        if (self.path / CHECKPOINT).exists():
            raise BackupError(f"{self.path} is a data directory. Choose another directory for backups")
        try:
            return DirectoryLock(os.fspath(self.path))
        except StorageError as error:
            raise BackupError(f"another backup writes to {self.path}: {error}") from error

    def generations(self) -> list[Generation]:
        """Every generation, the oldest first; FileNotFoundError if there is no such directory."""
        try:
            names = sorted(name for name in os.listdir(self.path) if _GENERATION.fullmatch(name))
        except FileNotFoundError as error:
            raise FileNotFoundError(
                f"there is no directory {self.path}. To make backups in it: tailrace backup {self.path}"
            ) from error
        return [read_generation(self.path / name) for name in names]

    def latest(self) -> Generation | None:
        """The newest generation whose manifest can be read."""
        whole = [each for each in self.generations() if each.manifest is not None]
        return whole[-1] if whole else None

    def new_name(self, created: datetime) -> str:
        """A name that is not taken."""
        stem = created.strftime("%Y%m%dT%H%M%SZ")
        name, number = stem, 1
        while (self.path / name).exists():
            number += 1
            name = f"{stem}-{number}"
        return name

    def adopt_partial(self, name: str) -> Generation:
        """`partial` is whole: give it its name, and point `latest` to it."""
        os.rename(self.partial, self.path / name)
        sync_directory(self.path)
        fresh = self.path / f".{LATEST}.tmp"
        fresh.unlink(missing_ok=True)
        fresh.symlink_to(name)
        os.replace(fresh, self.path / LATEST)
        sync_directory(self.path)
        return read_generation(self.path / name)

    def prune(self, keep: int) -> list[str]:
        """Remove the oldest whole generations but `keep` of them; returns their names.

        Generations that cannot be read stay: a person decides about them.
        """
        assert keep > 0
        whole = [each for each in self.generations() if each.manifest is not None]
        for generation in whole[:-keep]:
            os.rename(generation.path, self.path / (REMOVING + generation.name))
        self.remove_rest()
        return [generation.name for generation in whole[:-keep]]

    def remove_rest(self) -> None:
        """Finish removals, whichever run began them."""
        for name in os.listdir(self.path):
            if name.startswith(REMOVING):
                shutil.rmtree(self.path / name)


def read_generation(path: Path) -> Generation:
    """A generation with its manifest, or with what is wrong with it."""
    try:
        return Generation(path, read_manifest((path / FILE_NAME).read_bytes()))
    except FileNotFoundError:
        return Generation(path, None, "there is no MANIFEST.json")
    except ManifestError as error:
        return Generation(path, None, f"MANIFEST.json cannot be trusted: {error}")


def find_generation(path: Path) -> Generation:
    """The generation at `path`, or the newest one of the backup directory `path`; BackupError if none is."""
    if (path / FILE_NAME).exists() or _GENERATION.fullmatch(path.name):
        found: Generation | None = read_generation(path.resolve())
    else:
        found = None
        with suppress(NotADirectoryError):
            found = Catalogue(path).latest()
    if found is None:
        raise BackupError(f"there is no whole backup in {path}. Try: tailrace backup list {path}")
    if found.manifest is None:
        raise BackupError(f"{found.path} is no backup that can be used: {found.trouble}")
    return found
