"""A lake in a temporary folder, and an empty table of each format in it."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.unit.spark.lake.kit import Kit

from tailrace.spark.lake import Table


@pytest.fixture
def kit(tmp_path: Path) -> Kit:
    return Kit(root=tmp_path / "lake")


@pytest.fixture(params=["parquet", "delta", "iceberg"])
def table(request: pytest.FixtureRequest, kit: Kit) -> Iterator[Table]:
    """An empty table of each format."""
    table = kit.open(request.param)
    yield table
    table.close()
