"""How ranges become tasks: by what there is to read, and by the tasks that Spark runs side by side."""

from __future__ import annotations

import os

import pytest

from tailrace.spark.offset_range import OffsetRange

pytest.importorskip("pyarrow", reason="pyarrow is not installed: pip install 'tailrace[spark]'")

from tailrace.spark.source.settings import batch_settings
from tailrace.spark.source.task import plan_tasks


def count_tasks(partitions: int, records: int, **options: str) -> int:
    """How many tasks read so many records in each of so many partitions."""
    settings = batch_settings({"kafka.bootstrap.servers": "h:1", "subscribe": "t", **options})
    ranges = [OffsetRange(topic="t", partition=each, start=0, end=records) for each in range(partitions)]
    tasks = plan_tasks(ranges, settings)
    assert sorted(each.partition for task in tasks for each in task) == list(range(partitions))
    return len(tasks)


def test_the_parallelism_of_spark_decides_and_not_the_cores_of_this_machine(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert count_tasks(100, 4_000, parallelism="32") == 64
    monkeypatch.setattr(os, "cpu_count", lambda: 128)
    assert count_tasks(100, 4_000, parallelism="2") == 4


def test_without_it_a_cluster_may_have_more_than_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    assert count_tasks(100, 4_000) == 16


def test_a_task_is_not_started_for_hardly_anything() -> None:
    assert count_tasks(16, 63, parallelism="8") == 1
    assert count_tasks(16, 250, parallelism="8") == 2
    assert count_tasks(16, 1, parallelism="8") == 1


def test_large_partitions_have_a_task_each() -> None:
    assert count_tasks(50, 100_000, parallelism="2") == 50
