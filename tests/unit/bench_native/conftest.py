"""What these tests share: the repository's root on the path, since the benchmark lives beside `src`."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import tailrace

_REPOSITORY = str(Path(__file__).resolve().parents[3])
if _REPOSITORY not in sys.path:
    sys.path.insert(0, _REPOSITORY)


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    """A broker in memory with both doors, where nothing is that a test did not create."""
    with tailrace.Broker(configs={"auto.create.topics.enable": False}) as broker:
        yield broker
