"""Whether a generation is what its manifest says: every file there, of its size, with its SHA-256."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from tailrace.storage.backup.catalogue import Generation
from tailrace.storage.backup.copying import Advance, hash_file


def check_generation(generation: Generation, *, advance: Advance) -> Iterator[str]:
    """What is wrong with it, file by file, as it is found."""
    manifest = generation.manifest
    if manifest is None:
        yield f"{generation.path}: {generation.trouble}"
        return
    for each in manifest.files:
        path = generation.data / each.path
        try:
            size = path.lstat().st_size
            if size != each.size:
                yield f"{path}: it has {size} bytes, and {each.size} were backed up"
            elif hash_file(path, advance=advance) != each.sha256:
                yield f"{path}: it is not what was backed up"
        except OSError as error:
            yield f"{path}: {error.strerror}"
    known = {each.path for each in manifest.files}
    for directory, _, names in os.walk(generation.data):
        for name in names:
            path = Path(directory, name)
            if path.relative_to(generation.data).as_posix() not in known:
                yield f"{path}: the manifest does not know it"
