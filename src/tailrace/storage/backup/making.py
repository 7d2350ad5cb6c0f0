"""A new generation: planned, copied and linked, checked, and only then named.

`partial/PROGRESS` has a line for every file that was copied, written when the file is durable. A backup that
was interrupted is resumed by it: a file is copied again only if the one in the data directory is another one
by now.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

import msgspec

from tailrace.storage.backup.catalogue import DATA, Catalogue, Generation
from tailrace.storage.backup.copying import Advance, Pace, copy_file
from tailrace.storage.backup.manifest import FileEntry, Manifest, save_manifest, sync_directory
from tailrace.storage.backup.source import Source, SourceFile
from tailrace.storage.segment.inspection import verify_directory
from tailrace.storage.segment.names import JOURNAL_DIRECTORY

PROGRESS = "PROGRESS"


class Held(Protocol):
    """What keeps the files of a source in their place; both methods raise if they may have changed."""

    def check(self) -> None:
        """Look at what is known; called for every piece."""

    def confirm(self) -> None:
        """Ask whoever holds the files; called once, when all are copied."""


class AtRest:
    """A source that nobody else may change."""

    def check(self) -> None: ...

    def confirm(self) -> None: ...


CheckMetadata = Callable[[Path], list[str]]
"""What is wrong with the metadata of a data directory, which is kept by others."""


@dataclass(slots=True)
class BackupPlan:
    """What becomes of every file of the source."""

    copied: list[SourceFile] = field(default_factory=list)
    linked: list[tuple[SourceFile, FileEntry]] = field(default_factory=list)  # to the generation before
    kept: list[tuple[SourceFile, FileEntry]] = field(default_factory=list)  # of an interrupted backup

    @property
    def copied_bytes(self) -> int:
        return sum(each.size for each in self.copied)

    @property
    def checked_bytes(self) -> int:
        """What is read again once it is copied."""
        return self.copied_bytes + sum(each.size for each, _ in self.kept)


@dataclass(frozen=True, slots=True)
class Made:
    """A generation, and what it took."""

    generation: Generation
    manifest: Manifest
    copied_bytes: int
    linked_bytes: int
    copied_files: int
    linked_files: int


def plan_backup(
    files: list[SourceFile], *, earlier: Mapping[str, FileEntry], unfinished: Mapping[str, FileEntry]
) -> BackupPlan:
    """Decide which files are the ones that a backup has already."""
    plan = BackupPlan()
    for each in files:
        if _is_same(each, unfinished.get(each.path)):
            plan.kept.append((each, unfinished[each.path]))
        elif _is_same(each, earlier.get(each.path)):
            plan.linked.append((each, earlier[each.path]))
        else:
            plan.copied.append(each)
    return plan


def _is_same(file: SourceFile, entry: FileEntry | None) -> bool:
    return entry is not None and (entry.size, entry.stamp) == (file.size, file.stamp)


def make_generation(
    catalogue: Catalogue,
    source: Source,
    *,
    earlier: Generation | None,
    plan: BackupPlan,
    created: datetime,
    version: str,
    pace: Pace,
    held: Held,
    check_metadata: CheckMetadata,
    advance: Advance,
) -> Made:
    """Perform `plan`. The caller holds the lock of the catalogue."""
    run = _Run(catalogue, source, pace=pace, held=held, advance=advance)
    entries = run.fill(plan, earlier)
    problems = run.check({each.path for each in plan.copied} | {each.path for each, _ in plan.kept})
    problems += check_metadata(catalogue.partial / DATA)
    held.confirm()
    manifest = Manifest(
        created=created.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ"),
        data_dir=os.fspath(source.data_dir),
        cluster_id=source.cluster_id,
        version=version,
        partitions=source.partitions,
        files=sorted(entries, key=lambda each: each.path),
        problems=problems,
    )
    generation = run.finish(manifest, catalogue.new_name(created))
    return Made(
        generation,
        manifest,
        copied_bytes=plan.checked_bytes,
        linked_bytes=sum(each.size for each, _ in plan.linked),
        copied_files=len(plan.copied) + len(plan.kept),
        linked_files=len(plan.linked),
    )


def read_progress(partial: Path) -> dict[str, FileEntry]:
    """The files that an interrupted backup has copied whole."""
    found: dict[str, FileEntry] = {}
    with suppress(FileNotFoundError):
        for line in (partial / PROGRESS).read_bytes().splitlines():
            with suppress(msgspec.DecodeError):  # the last line may be cut short
                entry = msgspec.json.decode(line, type=FileEntry)
                found[entry.path] = entry
    return {path: each for path, each in found.items() if _size(partial / DATA / path) == each.size}


def _size(path: Path) -> int | None:
    try:
        return path.stat().st_size
    except (FileNotFoundError, NotADirectoryError):
        return None


class _Run:
    """The work on `partial`."""

    def __init__(
        self, catalogue: Catalogue, source: Source, *, pace: Pace, held: Held, advance: Advance
    ) -> None:
        self._catalogue = catalogue
        self._source = source
        self._partial = catalogue.partial
        self._data = catalogue.partial / DATA
        self._pace = pace
        self._held = held
        self._advance = advance

    def fill(self, plan: BackupPlan, earlier: Generation | None) -> list[FileEntry]:
        """Bring every file of the plan into `partial`, and nothing else."""
        self._data.mkdir(parents=True, exist_ok=True)
        self._remove_others({each.path for each, _ in plan.kept})
        entries = [entry for _, entry in plan.kept]
        with open(self._partial / PROGRESS, "ab", buffering=0) as progress:
            for file, entry in plan.linked:
                assert earlier is not None
                entries.append(self._link(file, entry, earlier))
            for file in plan.copied:
                self._held.check()
                entries.append(self._copy(file))
                progress.write(msgspec.json.encode(entries[-1]) + b"\n")
        return entries

    def check(self, paths: set[str]) -> list[str]:
        """Read back what was copied: every batch, span and checksum. Returns what is wrong with it."""
        stems = {path.rpartition(".")[0] for path in paths}
        found = verify_directory(
            self._data,
            wanted=lambda path: path.rpartition(".")[0] in stems,
            advance=self._advance,
        )
        return [f"{each.path}: {each.message}" for each in found.problems]

    def finish(self, manifest: Manifest, name: str) -> Generation:
        (self._partial / PROGRESS).unlink(missing_ok=True)
        for directory, _, _ in os.walk(self._data):
            sync_directory(Path(directory))
        save_manifest(self._partial, manifest)
        return self._catalogue.adopt_partial(name)

    # ---- files

    def _copy(self, file: SourceFile) -> FileEntry:
        target = self._target(file.path)

        def advance(bytes_done: int) -> None:
            self._held.check()
            self._advance(bytes_done)

        digest = copy_file(
            self._source.root / file.path, target, size=file.size, pace=self._pace, advance=advance
        )
        return FileEntry(file.path, file.size, digest, file.stamp)

    def _link(self, file: SourceFile, entry: FileEntry, earlier: Generation) -> FileEntry:
        """The same file as the generation before has; copied where links cannot be."""
        known = earlier.data / file.path
        if _size(known) != file.size:
            return self._copy(file)
        try:
            os.link(known, self._target(file.path))
        except OSError:
            return self._copy(file)
        return entry

    def _target(self, path: str) -> Path:
        target = self._data / path
        target.parent.mkdir(parents=True, exist_ok=True)
        return target

    def _remove_others(self, kept: set[str]) -> None:
        """What an interrupted backup left and this one cannot use."""
        for directory, _, names in os.walk(self._data, topdown=False):
            for name in names:
                path = Path(directory, name)
                if path.relative_to(self._data).as_posix() not in kept:
                    path.unlink()
            if not os.listdir(directory):
                shutil.rmtree(directory)
        (self._data / JOURNAL_DIRECTORY).mkdir(parents=True, exist_ok=True)  # a cut has no file in it
