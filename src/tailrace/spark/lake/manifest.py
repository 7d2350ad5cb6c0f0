"""The default table: Parquet files in folders, and a log of our own (log.py).

A commit goes

    staged    every new file is whole, synced, and invisible
    written   the entry is synced under a temporary name
    logged    the entry has its number: from here on the change is made, whatever happens
    removed   a replaced file was moved to _tailrace/old            (once for each)
    placed    a new file was moved to its visible name              (once for each)
    moved     all of them were, and the folders are synced
    linked    a new file has the name that current.txt will list    (once for each)
    listed    current.txt lists the files of this commit

and a process that ends anywhere leaves a lake that the next `recover` or `commit` brings to an end of this
list. Changes happen under the lake's lock; should a file system not share that lock between machines, the
exclusive numbers of the log still let exactly one writer win.
"""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path

from tailrace.model import StorageError
from tailrace.spark.lake.change import Change, Conflict, Snapshot
from tailrace.spark.lake.current import CurrentFiles
from tailrace.spark.lake.durable import hold_lock, remove_temporaries
from tailrace.spark.lake.entry import entry_of
from tailrace.spark.lake.layout import LOCK, OLD
from tailrace.spark.lake.log import CHECKPOINT_EVERY, TableLog
from tailrace.spark.lake.placing import apply_moves, check_staged, find_old
from tailrace.spark.lake.staging import clear_dead
from tailrace.spark.lake.state import State, plan_change

_RACES_MAX = 100


def no_step(_: str) -> None:
    """For commits without an observer of steps."""


class ManifestTable:
    """A table whose log is ours. One object is used by one thread at a time."""

    format = "parquet"

    def __init__(self, root: Path, *, checkpoint_every: int = CHECKPOINT_EVERY) -> None:
        self.root = root
        self._log = TableLog(root, checkpoint_every=checkpoint_every)
        self._seen: State | None = None
        self._settled: State | None = None
        """The files of every commit up to this state lie where they belong, and current.txt lists them."""
        self._current = CurrentFiles(root)

    def __repr__(self) -> str:
        return f"<ManifestTable {self.root} version {self._seen.version if self._seen else '?'}>"

    def snapshot(self) -> Snapshot:
        self._seen, _ = self._log.read_on(self._seen)
        return self._seen.snapshot()

    def commit(self, change: Change, *, on_step: Callable[[str], None] = no_step) -> Snapshot:
        check_staged(self.root, change.add)
        on_step("staged")
        with hold_lock(self.root / LOCK):
            for _ in range(_RACES_MAX):
                state = self._settle()
                planned = plan_change(state, change, is_taken=self._is_taken)
                entry = entry_of(planned, version=state.version + 1, at_ms=time.time_ns() // 1_000_000)
                if self._log.append(entry, on_step=on_step):
                    on_step("logged")
                    state = self._settle(on_step=on_step)
                    self._log.append_checkpoint(state)
                    return state.snapshot()
        raise Conflict(f"{self.root}: other writers were faster {_RACES_MAX} times. Run fewer at once")

    def recover(self) -> None:
        with hold_lock(self.root / LOCK):
            self._settled = None
            self._current.remove_temporaries()
            self._settle()
            clear_dead(self.root)
            remove_temporaries(self._log.folder)

    def expire(self, *, older_than_h: float) -> int:
        oldest = time.time() - older_than_h * 3600
        with hold_lock(self.root / LOCK):
            live = self._settle().files
            gone = [path for path in _old_folders(self.root) if path.stat().st_mtime <= oldest]
            count = sum(len(files) for path in gone for _, _, files in os.walk(path))
            for path in gone:
                shutil.rmtree(path)
            self._current.expire(live)
        return count

    def close(self) -> None:
        self._seen = self._settled = None

    def _settle(self, *, on_step: Callable[[str], None] = no_step) -> State:
        """Read on, move what the commits since the last time left to be moved, and list it.

        The first time these are the ones after the newest checkpoint: before it everything was settled.
        """
        state, entries = self._log.read_on(self._settled)
        for entry in entries:
            apply_moves(self.root, entry, live=state.files, on_step=on_step)
        on_step("moved")
        if self._settled is None or self._settled.version != state.version:
            self._current.replace(state.files, on_step=on_step)
        self._settled = self._seen = state
        return state

    def _is_taken(self, path: str) -> bool:
        if os.path.exists(self.root / path):
            raise StorageError(
                "commit",
                str(self.root / path),
                "the file is there, but the log of the lake does not know it",
                hint="Was something of _tailrace/log deleted? Move the file out of the lake if not",
            )
        return find_old(self.root, path) is not None


def _old_folders(root: Path) -> list[Path]:
    folder = root / OLD
    return [path for path in folder.iterdir() if path.is_dir()] if folder.is_dir() else []
