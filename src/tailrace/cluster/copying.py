"""A copy of a node's metadata for a backup, and what becomes of it when it is restored.

The copy is made of the rows of one revision, whatever store they come from: metadata.sqlite and cluster.json,
both as a node keeps them. Blocking calls.
"""

from __future__ import annotations

import os
from pathlib import Path

from tailrace.cluster.image_file import save, write_image
from tailrace.cluster.replacement import replace
from tailrace.cluster.store import METADATA, Rows


def write_copy(directory: Path, rows: Rows) -> None:
    """Write the files of a store that holds these rows into a directory that has none."""
    path = os.fspath(directory / METADATA)
    replace(path, rows, kept=path)
    save(directory, write_image(rows))
