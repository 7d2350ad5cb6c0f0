"""What the fault tests share: the seed, and a fast place for many copies of a directory."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.seed import seed_of_run

_SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture
def seed() -> int:
    """What the test draws from."""
    return seed_of_run()


@pytest.fixture(scope="module")
def untraced() -> Iterator[None]:
    """Without coverage: thousands of histories go through the same lines, two and a half times as slowly."""
    known = sys.modules.get("coverage")
    coverage = known.Coverage.current() if known is not None else None
    if coverage is not None:
        coverage.stop()
    yield
    if coverage is not None:
        coverage.start()


@pytest.fixture
def fast_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory where there is one, for tests that open thousands of copies."""
    if not os.access(_SHARED_MEMORY, os.W_OK):
        yield tmp_path
        return
    path = Path(tempfile.mkdtemp(prefix="tailrace-", dir=_SHARED_MEMORY))
    try:
        yield path
    finally:
        shutil.rmtree(path)
