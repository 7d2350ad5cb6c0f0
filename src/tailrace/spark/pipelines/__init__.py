"""Pipelines between topics and a lake, each a typed config and a function, run on any Spark.

    archive    topics -> lake: Parquet files, every record exactly once
    compact    lake -> lake: fewer and larger files, old days dropped, snapshots of the newest record per key
    replay     lake -> topic: the same records again
    sql        a query over topics as streams
    report     a page with plots about a lake

    archive_plan.py, archive_reach.py, archive_task.py   parts of archive: decided, asked, done in workers
    compact_plan.py, compact_task.py, latest.py          parts of compact, in the same order
    sql_query.py, sql_types.py, sql_view.py, sql_bad.py  parts of sql: its text, types, views of topics, bad
    sql_sink.py, sql_state.py                            rows, where its rows go, where its progress is
    spread.py                                            a list of tasks through Spark, and their results
    spark_path.py                                        paths as Spark takes them
    progress.py                                          what a run tells while it goes on
    runner.py, repeat.py, restart.py                     runs them together, again and again, after failures
    session.py, spark_settings.py, interpreter.py        the Spark: started, what it is told, its Pythons
    spark_home.py, ship.py                               where Spark lies, what is sent to the workers
    worker.py, worker_check.py                           what workers have, asked before they need it

A pipeline takes a `spark` session, an observer of its progress and an event that stops it between batches. It
may be killed at any moment and run again: what it has done stands in the lake or in the topic it writes, not
in a checkpoint beside them.

Configs and results are imported from here, when they are first used: pyspark and pyarrow take seconds. A
function has its module's name, so it is imported from there: `from tailrace.spark.pipelines.archive import
archive`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tailrace.spark.pipelines.archive import ArchiveConfig, Archived
    from tailrace.spark.pipelines.compact import CompactConfig, Compacted
    from tailrace.spark.pipelines.progress import Observer, Progress
    from tailrace.spark.pipelines.replay import ReplayConfig, Replayed
    from tailrace.spark.pipelines.report import ReportConfig, Reported
    from tailrace.spark.pipelines.sql import SqlConfig, SqlDone

_HOMES = {
    "ArchiveConfig": "tailrace.spark.pipelines.archive",
    "Archived": "tailrace.spark.pipelines.archive",
    "CompactConfig": "tailrace.spark.pipelines.compact",
    "Compacted": "tailrace.spark.pipelines.compact",
    "Observer": "tailrace.spark.pipelines.progress",
    "Progress": "tailrace.spark.pipelines.progress",
    "ReplayConfig": "tailrace.spark.pipelines.replay",
    "Replayed": "tailrace.spark.pipelines.replay",
    "ReportConfig": "tailrace.spark.pipelines.report",
    "Reported": "tailrace.spark.pipelines.report",
    "SqlConfig": "tailrace.spark.pipelines.sql",
    "SqlDone": "tailrace.spark.pipelines.sql",
}

__all__ = [
    "ArchiveConfig",
    "Archived",
    "CompactConfig",
    "Compacted",
    "Observer",
    "Progress",
    "ReplayConfig",
    "Replayed",
    "ReportConfig",
    "Reported",
    "SqlConfig",
    "SqlDone",
]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(home), name)
