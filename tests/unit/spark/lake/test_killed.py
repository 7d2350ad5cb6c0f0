"""Writers killed with SIGKILL at every step of a commit and at random moments: every row exactly once."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import duckdb
import pytest
from tests.unit.spark.lake import dying_writer
from tests.unit.spark.lake.kit import Kit

from tailrace.spark.lake import Snapshot, Table, open_table

FORMATS = [
    "parquet",
    pytest.param("delta", marks=pytest.mark.slow),
    pytest.param("iceberg", marks=pytest.mark.slow),
]
REPOSITORY = Path(__file__).parents[4]


def run_writer(mode: str, format: str, folder: Path) -> list[list[str]]:
    found = [str(REPOSITORY), str(REPOSITORY / "src"), os.environ.get("PYTHONPATH", "")]
    done = subprocess.run(
        [sys.executable, dying_writer.__file__, mode, format, str(folder)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, found))},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    print(done.stderr)
    said: list[list[str]] = json.loads(done.stdout)
    return said


def read_as_others_do(table: Table) -> list[int]:
    """The offsets that a reader of folders, or of the table's own log, finds."""
    rows: Any
    if table.format == "parquet":
        source = f"read_parquet('{table.root}/**/*.parquet')"
        if not list(table.root.rglob("*.parquet")):
            return []
        return [offset for (offset,) in duckdb.sql(f'select "offset" from {source}').fetchall()]
    if table.format == "delta":
        import deltalake

        rows = deltalake.DeltaTable(table.root).to_pyarrow_table()
    else:
        from pyiceberg.catalog.sql import SqlCatalog

        catalogue = SqlCatalog("tailrace", uri=f"sqlite:///{table.root}/_tailrace/iceberg.db")
        rows = catalogue.load_table("tailrace.records").scan().to_arrow()
        catalogue.close()
    return [int(offset) for offset in rows.column("offset").to_pylist()]


def check_whole(kit: Kit, table: Table) -> Snapshot:
    """Every row before the table's end is there, once, for us and for others."""
    snapshot = table.snapshot()
    end = max(snapshot.ends.values(), default=0)
    assert kit.offsets(snapshot.files) == list(range(end))
    assert sorted(read_as_others_do(table)) == list(range(end))
    return snapshot


@pytest.mark.parametrize("format", FORMATS)
def test_a_writer_killed_at_any_step_loses_and_doubles_nothing(format: str, tmp_path: Path) -> None:
    deaths = run_writer("steps", format, tmp_path)
    assert {steps[-1] for steps in deaths} >= {"staged", "moved", "logged", "placed"}
    for number, steps in enumerate(deaths, start=1):
        kit = Kit(root=tmp_path / str(number))
        table = open_table(kit.root)
        seen = table.snapshot()  # somebody reads before anybody recovers
        assert kit.offsets(seen.files) == list(range(max(seen.ends.values())))
        table.recover()
        snapshot = check_whole(kit, table)
        assert snapshot == seen
        end = max(snapshot.ends.values())
        # Two files at first, one after the compaction, two again after what came then.
        assert (len(snapshot.files), end) == [(2, 20), (1, 20), (2, 30)][steps.count("logged")]
        kit.archive(table, end, 40)
        check_whole(kit, table)
        assert list(kit.root.rglob("*.staged")) == []
        table.close()


@pytest.mark.parametrize("format", FORMATS)
def test_writers_killed_at_random_moments_lose_and_double_nothing(format: str, tmp_path: Path) -> None:
    deaths = run_writer("random", format, tmp_path / "lake")
    kit = Kit(root=tmp_path / "lake")
    table = kit.open(format)
    table.recover()
    snapshot = check_whole(kit, table)
    reached = [int(word) for words in deaths for word in words if word.isdigit()]
    assert max(snapshot.ends.values(), default=0) >= max(reached, default=0)
    assert reached == sorted(reached)
    table.close()
