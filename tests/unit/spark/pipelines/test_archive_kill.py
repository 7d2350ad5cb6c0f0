"""Archives and compactions, killed by SIGKILL at each step of a commit in processes of their own, run again.

One lake goes through all the steps of its format, one after the other: each process also has to mend what the
one before left. After every kill a plain reader must find no record twice, and in the end all of them once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest
from tests.spark.kill_archive import LocalSpark, as_session
from tests.unit.spark.pipelines.archive_rig import (
    DAY_MS,
    Filler,
    lake_rows,
    some_records,
    table_rows,
    topic_rows,
)

import tailrace
from tailrace.spark.link import close_links
from tailrace.spark.pipelines.archive import ArchiveConfig, archive

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[4]
STEPS = {
    "parquet": ["staged", "written", "logged", "placed", "moved"],
    "delta": ["staged", "placed", "logged"],
    "iceberg": ["staged", "placed", "logged"],
}


@pytest.fixture
def broker() -> Iterator[tailrace.Broker]:
    with tailrace.Broker() as running:
        yield running


@pytest.fixture
def filler(broker: tailrace.Broker) -> Iterator[Filler]:
    filler = Filler(broker.bootstrap_servers)
    yield filler
    filler.close()


def run(pipeline: str, config: dict[str, Any], *, step: str = "", nth: int = 1) -> None:
    """Run it in a process; it must end at the step, or well if there is none."""
    job = {"pipeline": pipeline, "config": config, "step": step, "nth": nth}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.kill_archive", msgspec.json.encode(job).decode()],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == (-signal.SIGKILL if step else 0), done.stderr


def fill(filler: Filler) -> None:
    """Two batches' worth, over two days."""
    filler.fill("orders", 0, some_records(40, step_ms=DAY_MS // 40))
    filler.fill("orders", 1, some_records(20))


@pytest.mark.parametrize("format", STEPS)
def test_an_archive_killed_at_any_step_has_every_record_once_in_the_end(
    format: str, broker: tailrace.Broker, filler: Filler, tmp_path: Path
) -> None:
    broker.create_topic("orders", 2)
    lake = tmp_path / "lake"
    config = {
        "bootstrap": broker.bootstrap_servers,
        "topic": ["orders"],
        "to": str(lake),
        "once": True,
        "format": format,
        "batch_rows": 40,  # so that one run has several commits
    }
    for step in STEPS[format]:
        fill(filler)
        run("archive", config, step=step, nth=2)
        if format == "parquet":  # the others' readers go by their logs
            seen = [row[:3] for row in lake_rows(lake)]
            assert len(set(seen)) == len(seen)
    run("archive", config)
    expected = topic_rows(broker, ["orders"])
    assert len(expected) == 60 * len(STEPS[format])
    assert table_rows(lake) == expected
    if format == "parquet":
        assert lake_rows(lake) == expected
        assert not list(lake.glob("_tailrace/staging/*/*"))


def test_a_compaction_killed_at_any_step_keeps_every_record_once(
    broker: tailrace.Broker, filler: Filler, tmp_path: Path
) -> None:
    broker.create_topic("orders", 2)
    lake = tmp_path / "lake"
    config = ArchiveConfig(
        bootstrap=broker.bootstrap_servers, topic=("orders",), to=str(lake), once=True, batch_rows=10
    )
    for step in ["staged", "logged", "removed", "placed"]:
        fill(filler)
        archive(config, spark=as_session(LocalSpark()))
        run("compact", {"lake": str(lake)}, step=step)
        seen = [row[:3] for row in lake_rows(lake)]
        assert len(set(seen)) == len(seen)
    run("compact", {"lake": str(lake)})
    close_links()
    expected = topic_rows(broker, ["orders"])
    assert lake_rows(lake) == expected and table_rows(lake) == expected
