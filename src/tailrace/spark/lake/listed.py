"""What tables on other people's logs share: files get their names first, and the log says which count.

Delta Lake and Iceberg name files by their paths in the commit, so a file must lie there before it. A killed
commit leaves files that no log lists: readers of the log never see them, and `expire_unlisted` deletes them.
Files that a commit removes stay where they are, because readers of older versions look for them there. They
are touched before that commit, so that their age is the age of their removal.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Container
from pathlib import Path

from tailrace.spark.lake.change import Change
from tailrace.spark.lake.layout import read_data_path
from tailrace.spark.lake.placing import place_files
from tailrace.spark.lake.state import State, plan_change


def place_change(root: Path, state: State, change: Change, *, on_step: Callable[[str], None]) -> Change:
    """Check a change against the newest state and bring its files to their names: ready for the log."""
    planned = plan_change(state, change, is_taken=lambda path: os.path.exists(root / path))
    place_files(root, planned.add, on_step=on_step)
    for file in planned.remove:
        os.utime(root / file.path)
    on_step("moved")
    return planned


def expire_unlisted(root: Path, live: Container[str], *, oldest_s: float) -> int:
    """Delete data files that the log does not list and that are older than that; under the lake's lock."""
    gone = 0
    for path in root.glob("topic=*/dt=*/p*.parquet"):
        name = path.relative_to(root).as_posix()
        if name not in live and read_data_path(name) and path.stat().st_mtime <= oldest_s:
            path.unlink()
            gone += 1
    return gone
