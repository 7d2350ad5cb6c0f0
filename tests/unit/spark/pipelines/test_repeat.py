"""A made-up pipeline over a lake, again and again: without Spark, and with a lake that comes late."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tailrace.model import ConfigError
from tailrace.spark.pipelines.compact import CompactConfig
from tailrace.spark.pipelines.compact import check_config as check_compact
from tailrace.spark.pipelines.progress import Progress
from tailrace.spark.pipelines.repeat import repeat
from tailrace.spark.pipelines.report import ReportConfig
from tailrace.spark.pipelines.report import check_config as check_report

SOON_S = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class TidyConfig:
    lake: str
    topic: tuple[str, ...] = ()


class Tidying:
    """Counts how often it was done, and has enough after some times."""

    def __init__(self, *, times: int) -> None:
        self.stop = threading.Event()
        self.notes: list[str] = []
        self.count = 0
        self._times = times

    def __call__(self) -> int:
        self.count += 1
        if self.count == self._times:
            self.stop.set()
        return self.count

    def repeat(self, config: TidyConfig, *, meanwhile: Callable[[], object] = lambda: None) -> int | None:
        def observe(progress: Progress) -> None:
            self.notes.append(progress.note)
            meanwhile()

        return repeat(self, config, every_s=SOON_S, pipeline="tidy", observe=observe, stop=self.stop)


def test_it_is_done_again_until_it_is_stopped(archive_rows: Any, row: Any) -> None:
    lake = archive_rows([row(offset=0, time_ms=0)])
    tidying = Tidying(times=3)
    assert tidying.repeat(TidyConfig(lake=str(lake), topic=("orders",))) == 3
    assert tidying.notes == []


@pytest.mark.parametrize("format", ["parquet", "delta", "iceberg"])
def test_it_waits_for_the_lake_and_then_for_its_topics(
    archive_rows: Any, row: Any, tmp_path: Path, format: str
) -> None:
    lake = str(tmp_path / "lake")
    left = ["payments", "orders"]

    def archive() -> None:
        archive_rows([row(offset=0, time_ms=0)], topic=left.pop(0), format=format)

    tidying = Tidying(times=1)
    assert tidying.repeat(TidyConfig(lake=lake, topic=("orders",)), meanwhile=archive) == 1
    assert tidying.notes == [f"waiting for the lake {lake}", f"waiting for orders in the lake {lake}"]


def test_it_can_be_stopped_while_it_waits(tmp_path: Path) -> None:
    tidying = Tidying(times=1)
    assert tidying.repeat(TidyConfig(lake=str(tmp_path / "none")), meanwhile=tidying.stop.set) is None
    assert tidying.count == 0


@pytest.mark.parametrize("every_s", [0.0, -1.0, float("nan"), 1e12])
def test_a_wrong_distance_is_named(every_s: float) -> None:
    with pytest.raises(ConfigError, match="compact: every_s is"):
        check_compact(CompactConfig(lake="x", every_s=every_s))
    with pytest.raises(ConfigError, match="report: every_s is"):
        check_report(ReportConfig(lake="x", every_s=every_s))
