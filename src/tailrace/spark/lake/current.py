"""The files of one version by name, for programs that read files and do not know the log.

    _manifest/current.txt          a path per line, relative to the lake: all files of one version
    _manifest/files/<path>.link    what the lines name: a hard link to each data file

A program that lists folders while a compaction moves files can miss rows, or miss a file that it has listed.
One that reads current.txt gets the files of one commit, because the file is replaced by a rename. The names
in it stay: a compaction moves the visible name of a file away and leaves the link, and `expire` deletes the
link when the grace period of the file is over. Links do not end in .parquet, so a listing of the folders
never shows a row twice.

The links of a commit are made before current.txt names them. A process that is killed in between leaves the
current.txt of the commit before, whose links are all there, and the next writer goes on from it.
"""

from __future__ import annotations

import logging
import os
import uuid
from collections.abc import Callable, Collection, Container, Iterator
from contextlib import closing, suppress
from pathlib import Path

from tailrace.model import StorageError
from tailrace.spark.lake.durable import make_folder, remove_temporaries, replace_file, sync_folder
from tailrace.spark.lake.layout import (
    CURRENT,
    LINKS,
    MANIFEST,
    OLD,
    OLD_SUFFIX,
    link_path,
    read_link_path,
)

logger = logging.getLogger(__name__)


def read_current(root: Path) -> list[str] | None:
    """The data files that current.txt lists, by their own paths; None if there is no current.txt."""
    try:
        lines = (root / CURRENT).read_text().splitlines()
    except FileNotFoundError:
        return None
    paths = [read_link_path(line) for line in lines]
    known = [path for path in paths if path is not None]
    if len(known) < len(lines):
        raise StorageError(
            "read",
            str(root / CURRENT),
            "it has a line that is not the name of a file",
            hint="Delete it: the next archive or compaction writes it again",
        )
    return known


def list_files(root: Path) -> dict[str, str]:
    """Where to open each data file of one version, by its own path; both are relative to the lake.

    In a parquet lake that no writer has touched since this list exists, and in Delta and Iceberg lakes, whose
    files keep their names until their grace is over, that is the path itself.
    """
    from tailrace.spark.lake.table import open_table

    with closing(open_table(root)) as table:
        listed = read_current(root) if table.format == "parquet" else None
        if listed is not None:
            return {path: link_path(path) for path in listed}
        return {path: path for path in sorted(file.path for file in table.snapshot().files)}


class CurrentFiles:
    """Keeps current.txt and the links of one lake. Only under the lake's lock."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._listed: set[str] | None = None
        """The data files that current.txt lists and that have their links; None: not looked yet."""
        self._missing: set[str] = set()
        """Files of the table that are not there: they were deleted past the log."""

    def replace(self, files: Collection[str], *, on_step: Callable[[str], None]) -> None:
        """Make current.txt list these data files, all of which lie at their paths."""
        wanted = set(files) - self._missing
        listed = self._read_linked() if self._listed is None else self._listed
        self._link(sorted(wanted - listed), on_step=on_step)
        wanted -= self._missing
        if wanted != listed or not (self._root / CURRENT).exists():
            lines = "".join(f"{link_path(path)}\n" for path in sorted(wanted))
            make_folder(self._root / MANIFEST)
            replace_file(self._root / CURRENT, lines.encode())
        on_step("listed")
        self._listed = wanted

    def expire(self, live: Container[str]) -> None:
        """Delete the links of files that are neither in the table nor kept for older readers."""
        kept = set(_old_files(self._root))
        for folder, _, names in os.walk(self._root / LINKS, topdown=False):
            for name in names:
                path = read_link_path((Path(folder) / name).relative_to(self._root).as_posix())
                if path is None or (path not in live and path not in kept):
                    os.unlink(Path(folder) / name)
            with suppress(OSError):  # not empty
                os.rmdir(folder)

    def remove_temporaries(self) -> None:
        """Clear what a killed writer left, and look at the disk again before the next `replace`."""
        self._listed = None
        self._missing.clear()
        remove_temporaries(self._root / MANIFEST)

    def _read_linked(self) -> set[str]:
        try:
            listed = read_current(self._root) or []
        except StorageError:
            listed = []  # damaged: what the log says is listed again
        return {path for path in listed if os.path.exists(self._root / link_path(path))}

    def _link(self, paths: Collection[str], *, on_step: Callable[[str], None]) -> None:
        """Link files. One that is missing is logged and left out, as a listing of the folders does."""
        folders = set()
        for path in paths:
            link = self._root / link_path(path)
            make_folder(link.parent)
            folders.add(link.parent)
            try:
                _link_to(self._root / path, link)
            except FileNotFoundError:
                self._missing.add(path)
                logger.warning("a file of the lake %s is missing: %s", self._root, path)
            on_step("linked")
        for folder in folders:
            sync_folder(folder)


def _link_to(path: Path, link: Path) -> None:
    """Make `link` a name of the file at `path`, whatever had that name before."""
    try:
        os.link(path, link)
    except FileExistsError:
        if os.path.samefile(path, link):
            return
        # The link of an older file of that name: its grace is over, or the name would not be in use again.
        temporary = link.with_name(f"{uuid.uuid4().hex}.new")
        os.link(path, temporary)
        os.replace(temporary, link)


def _old_files(root: Path) -> Iterator[str]:
    """The data files that commits removed and that are kept for readers of older versions."""
    for version in (root / OLD).glob("*"):
        for path in version.rglob(f"*{OLD_SUFFIX}"):
            yield path.relative_to(version).as_posix().removesuffix(OLD_SUFFIX)
