"""The log of a "parquet" table: a folder of numbered commits.

    _tailrace/log/00000000000000000007.json               commit 7, from 1 on without gaps
    _tailrace/log/00000000000000000050.checkpoint.json    everything up to commit 50

A commit is written under a temporary name, synced, and linked to its number: link(2) fails where the number
is taken, so of two writers exactly one wins. A checkpoint says what all commits up to it made; whoever opens
a table reads the newest one and the commits after it. What is older than the checkpoint before the last is
deleted. A number that is missing in between, or a file that is damaged, is an error that names the file.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

from tailrace.spark.lake.change import Conflict
from tailrace.spark.lake.durable import link_new, make_folder, write_new, write_temporary
from tailrace.spark.lake.entry import (
    Entry,
    checkpoint_of,
    damaged,
    read_checkpoint,
    read_entry,
    state_of,
    write_entry,
)
from tailrace.spark.lake.layout import LOG
from tailrace.spark.lake.state import State

CHECKPOINT_EVERY = 50
_LISTINGS_MAX = 5
_NAME = re.compile(r"(\d{20})(\.checkpoint)?\.json")


class TableLog:
    """Reads and appends commits; knows nothing of where files lie."""

    def __init__(self, root: Path, *, checkpoint_every: int = CHECKPOINT_EVERY) -> None:
        self.folder = root / LOG
        self._checkpoint_every = checkpoint_every

    def read_on(self, state: State | None) -> tuple[State, list[Entry]]:
        """The newest state, and the commits that led to it from `state` or the newest checkpoint."""
        for _ in range(_LISTINGS_MAX - 1):
            try:
                return self._read_listed(state)
            except FileNotFoundError:
                continue  # deleted between the listing and the reading: newer checkpoints are there
        return self._read_listed(state)

    def append(self, entry: Entry, *, on_step: Callable[[str], None]) -> bool:
        """Log a commit, durable when this returns; False if its number is taken."""
        make_folder(self.folder)
        temporary = write_temporary(self.folder, write_entry(entry))
        on_step("written")
        return link_new(temporary, self._entry_path(entry.version))

    def append_checkpoint(self, state: State) -> None:
        """Write a checkpoint if one is due, and delete what two of them make superfluous.

        Only once the files of every commit so far lie where they belong: a checkpoint does not say where they
        were staged.
        """
        if state.version % self._checkpoint_every:
            return
        write_new(self._checkpoint_path(state.version), write_entry(checkpoint_of(state)))
        self._prune(state.version - self._checkpoint_every)

    def _read_listed(self, state: State | None) -> tuple[State, list[Entry]]:
        commits, checkpoints = self._list()
        newest = max(commits | checkpoints, default=0)
        base = state.version if state is not None else 0
        if newest < base:
            raise damaged(str(self._entry_path(base)), "it was there, and is not any more")
        if state is None or any(version not in commits for version in range(base + 1, newest + 1)):
            state = self._read_newest_checkpoint(checkpoints)
        else:
            state = state.copy()
        entries = [self._read_entry(version) for version in range(state.version + 1, newest + 1)]
        for entry in entries:
            self._apply(state, entry)
        return state, entries

    def _list(self) -> tuple[set[int], set[int]]:
        commits: set[int] = set()
        checkpoints: set[int] = set()
        if not self.folder.is_dir():
            return commits, checkpoints  # nothing was committed yet
        for name in os.listdir(self.folder):
            found = _NAME.fullmatch(name)
            if found:
                (checkpoints if found[2] else commits).add(int(found[1]))
        return commits, checkpoints

    def _read_newest_checkpoint(self, checkpoints: set[int]) -> State:
        if not checkpoints:
            return State()
        version = max(checkpoints)
        path = self._checkpoint_path(version)
        return state_of(read_checkpoint(path.read_bytes(), path=str(path), version=version))

    def _read_entry(self, version: int) -> Entry:
        path = self._entry_path(version)
        try:
            data = path.read_bytes()
        except FileNotFoundError as error:
            commits, checkpoints = self._list()
            if checkpoints and max(checkpoints) >= version:
                raise  # pruned meanwhile
            raise damaged(str(path), f"it is missing, and {max(commits, default=0)} is there") from error
        return read_entry(data, path=str(path), version=version)

    def _apply(self, state: State, entry: Entry) -> None:
        try:
            state.apply(
                add=[staged.file for staged in entry.add],
                remove=entry.remove,
                advances=entry.advances,
                bad=entry.bad,
                topics=entry.topics,
            )
        except (Conflict, ValueError) as error:
            raise damaged(
                str(self._entry_path(entry.version)), f"it cannot follow on the one before: {error}"
            ) from error

    def _prune(self, before: int) -> None:
        commits, checkpoints = self._list()
        for version in commits:
            if version <= before:
                self._entry_path(version).unlink(missing_ok=True)
        for version in checkpoints:
            if version < before:
                self._checkpoint_path(version).unlink(missing_ok=True)

    def _entry_path(self, version: int) -> Path:
        return self.folder / f"{version:020d}.json"

    def _checkpoint_path(self, version: int) -> Path:
        return self.folder / f"{version:020d}.checkpoint.json"
