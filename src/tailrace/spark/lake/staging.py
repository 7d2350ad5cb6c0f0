"""Where a run keeps files that are in no commit yet.

    _tailrace/staging/<run>/LOCK             flock(2) is held on it as long as the run lives
    _tailrace/staging/<run>/<uuid>.staged    a file, whole once its writer returned

Workers on any machine write here; only the process that plans the run holds the lock. `clear_dead` removes
the folders whose lock is free. It may do so only after every commit was rolled forward, since a committed
file that was not moved yet lies in such a folder too: that is the order in which the tables' `recover` goes.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import time
import uuid
from contextlib import suppress
from pathlib import Path
from types import TracebackType

from tailrace.spark.lake.durable import hold_lock, make_folder, sync_folder
from tailrace.spark.lake.layout import LOCK, STAGED_SUFFIX, STAGING, resolve_root

_HELD = "LOCK"


class Staging:
    """A staging folder, held until `close`. One for each batch of a run is cheap.

    `path` is relative to the lake, and what `write_files` wants.
    """

    def __init__(self, root: str | Path) -> None:
        folder = resolve_root(root)
        run = f"{time.strftime('%Y%m%dT%H%M%S', time.gmtime())}-{uuid.uuid4().hex[:12]}"
        self.path = f"{STAGING}/{run}"
        self._folder = folder / self.path
        with hold_lock(folder / LOCK):  # else a recovery could take the folder before it is held
            make_folder(self._folder)
            self._fd = os.open(self._folder / _HELD, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
            fcntl.flock(self._fd, fcntl.LOCK_EX)

    def __repr__(self) -> str:
        return f"<Staging {self.path}>"

    def __enter__(self) -> Staging:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Let go; closing twice is harmless. What is left inside waits for the next `recover`.

        It is not deleted here: after a commit that failed halfway, the table still needs it.
        """
        if self._fd < 0:
            return
        os.close(self._fd)
        self._fd = -1
        with suppress(OSError):
            if os.listdir(self._folder) == [_HELD]:
                os.unlink(self._folder / _HELD)
                os.rmdir(self._folder)


def staged_name(staging: str) -> str:
    """A new name for a file in a staging folder, relative to the lake."""
    return f"{staging}/{uuid.uuid4().hex}{STAGED_SUFFIX}"


def clear_dead(root: Path) -> int:
    """Remove the staging folders whose lock is free, and return how many. Only under the lake's lock."""
    folder = root / STAGING
    if not folder.is_dir():
        return 0
    dead = [run for run in folder.iterdir() if run.is_dir() and not _is_held(run)]
    for run in dead:
        shutil.rmtree(run, ignore_errors=True)  # a worker of a dead run may still write into it
    if dead:
        sync_folder(folder)
    return len(dead)


def _is_held(run: Path) -> bool:
    try:
        fd = os.open(run / _HELD, os.O_RDWR | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(fd)
    return False
