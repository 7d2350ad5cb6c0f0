"""What a client needs fetched or built before it runs, kept for the next run in the user's cache directory.

A directory is named after what it is made from, so a changed driver is built anew; it appears under its name
only when it is complete. What cannot be fetched here skips the client with the reason.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import pytest

DRIVERS = Path(__file__).resolve().parents[1] / "drivers"


def cached(name: str, sources: Sequence[Path], build: Callable[[Path], None]) -> Path:
    """The directory that `build` fills, given a directory with copies of the sources."""
    digest = hashlib.sha256()
    for source in sources:
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    root = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "tailrace-interop"
    ready = root / f"{name}-{digest.hexdigest()[:12]}"
    if ready.is_dir():
        return ready
    root.mkdir(parents=True, exist_ok=True)
    with open(root / f".{name}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # tests run in several processes: the first one builds for all
        if not ready.is_dir():
            with tempfile.TemporaryDirectory(dir=root, prefix=f".{name}-") as made:
                place = Path(made) / name
                place.mkdir()
                for source in sources:
                    shutil.copy(source, place)
                build(place)
                place.rename(ready)
    return ready


def need_program(name: str) -> str:
    """The path of a program, or a skip."""
    found = shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not installed")
    return found


def run(
    command: Sequence[str], directory: Path, *, within_s: float, environment: Mapping[str, str] | None = None
) -> None:
    """One step of a build; a failure skips with the last of what it said."""
    try:
        done = subprocess.run(
            command,
            cwd=directory,
            env={**os.environ, **(environment or {})},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=within_s,
            check=False,
        )
    except subprocess.TimeoutExpired:
        pytest.skip(f"{' '.join(command[:2])} took more than {within_s} s")
    if done.returncode != 0:
        said = done.stdout.decode(errors="replace").strip().splitlines()[-3:]
        pytest.skip(f"{' '.join(command[:2])} failed: {' / '.join(said)}")
