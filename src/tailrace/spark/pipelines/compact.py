"""compact: a lake's small files become few large ones; old days go; snapshots of the newest record per key.

    drop whole days past `retain_days` -> rewrite small files, wave by wave -> snapshot -> delete what is old

Each wave is one commit that removes the small files and adds the large ones, so readers see the one or the
other. An archive that runs beside it only adds files and is not in the way; another compaction is met as a
Conflict, and the rest is planned again. Removed files stay readable for `grace_h` hours, for readers that
hold an older snapshot.

Only files that are there at the start are looked at. So a run ends, however fast an archive adds more.
"""

from __future__ import annotations

import datetime
import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from tailrace.model import ConfigError, TailraceError
from tailrace.spark.lake import Change, Conflict, DataFile, Staging, Table, open_table
from tailrace.spark.pipelines.compact_plan import Rewrite, pick_topics, plan_dropped, plan_rewrites
from tailrace.spark.pipelines.compact_task import CompactWork, Rewritten, rewrite_files
from tailrace.spark.pipelines.latest import check_latest_folder, write_latest
from tailrace.spark.pipelines.progress import Observer, Pace, Progress, ignore
from tailrace.spark.pipelines.repeat import check_every
from tailrace.spark.pipelines.spread import SparkFailed, TaskFailed, count_cores, spread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

logger = logging.getLogger(__name__)

_FILE_BYTES_MIN = 64 * 1024
_ATTEMPTS_MAX = 4
_RETRY_FIRST_S = 0.2
_TASKS_PER_CORE = 2

OnStep = Callable[[str], None]
T = TypeVar("T")


@dataclass(frozen=True, slots=True, kw_only=True)
class CompactConfig:
    """Which lake, and how far."""

    lake: str
    topic: tuple[str, ...] = ()
    """All of them, if none is named."""
    file_bytes: int = 256 * 1024 * 1024
    retain_days: int | None = None
    """Whole days older than this go; None keeps everything."""
    snapshot: str | None = None
    """A folder for the newest record of each key; outside of the lake."""
    grace_h: float = 24.0
    compression: str = "zstd"
    every_s: float | None = None
    """How long after its end a runner does it again (repeat.py); None: once."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compacted:
    """What a run did."""

    lake: str
    files_before: int
    files_after: int
    bytes_before: int
    bytes_after: int
    rows: int
    """That were written again."""
    waves: int
    dropped_files: int
    dropped_rows: int
    expired_files: int
    latest_rows: int | None
    """In the snapshot, where one was asked for."""
    seconds: float
    stopped: bool = False


def compact(
    config: CompactConfig,
    *,
    spark: SparkSession,
    observe: Observer = ignore,
    stop: threading.Event | None = None,
    on_step: OnStep | None = None,
) -> Compacted:
    """Compact once. `stop` ends it between two waves; what is done stays done."""
    check_config(config)
    with closing(open_table(config.lake)) as table:
        if config.snapshot is not None:
            check_latest_folder(config.snapshot, lake=table.root)
        table.recover()
        return _Compaction(
            config,
            table=table,
            spark=spark,
            observe=observe,
            stop=stop or threading.Event(),
            on_step=on_step or _no_step,
        ).run()


def check_config(config: CompactConfig) -> None:
    """ConfigError with the key and the fix."""
    if config.file_bytes < _FILE_BYTES_MIN:
        raise ConfigError(f"compact: file_bytes is {config.file_bytes}. Give at least {_FILE_BYTES_MIN}")
    if config.retain_days is not None and config.retain_days < 1:
        raise ConfigError(f"compact: retain_days is {config.retain_days}. Give at least 1, or leave it out")
    if not config.grace_h >= 0:
        raise ConfigError(f"compact: grace_h is {config.grace_h}. Give 0 or more hours")
    check_every("compact", config.every_s)


def _no_step(_name: str) -> None:
    """For runs that nobody kills."""


class _Compaction:
    """One run."""

    def __init__(
        self,
        config: CompactConfig,
        *,
        table: Table,
        spark: SparkSession,
        observe: Observer,
        stop: threading.Event,
        on_step: OnStep,
    ) -> None:
        self.config = config
        self.table = table
        self.spark = spark
        self.observe = observe
        self.stop = stop
        self.on_step = on_step
        self.tasks_max = _TASKS_PER_CORE * count_cores(spark)
        self.pace = Pace()
        self.waves = 0
        self.bytes = 0
        self.dropped: list[DataFile] = []
        self.failures = 0

    def run(self) -> Compacted:
        began = time.monotonic()
        before = self._files()
        self._check_topics(before)
        self._persist(self._drop)
        there_first = {file.path for file in before}
        while not self.stop.is_set() and self._persist(lambda: self._wave(there_first)):
            pass
        latest_rows = None
        if self.config.snapshot is not None and not self.stop.is_set():
            latest_rows = self._persist(self._latest)
        expired = self.table.expire(older_than_h=self.config.grace_h)
        after = self._files()
        return Compacted(
            lake=str(self.table.root),
            files_before=len(before),
            files_after=len(after),
            bytes_before=sum(file.bytes for file in before),
            bytes_after=sum(file.bytes for file in after),
            rows=self.pace.rows,
            waves=self.waves,
            dropped_files=len(self.dropped),
            dropped_rows=sum(file.rows for file in self.dropped),
            expired_files=expired,
            latest_rows=latest_rows,
            seconds=time.monotonic() - began,
            stopped=self.stop.is_set(),
        )

    def _files(self) -> list[DataFile]:
        return pick_topics(self.table.snapshot().files, self.config.topic)

    def _check_topics(self, files: Sequence[DataFile]) -> None:
        there = {file.topic for file in self.table.snapshot().files}
        for topic in self.config.topic:
            if topic not in there:
                raise ConfigError(
                    f"compact: the lake has no topic {topic}. It has {', '.join(sorted(there)) or 'none'}"
                )
        self._tell(plan_rewrites(files, file_bytes=self.config.file_bytes))

    # ---- steps

    def _drop(self) -> None:
        if self.config.retain_days is None:
            return
        today = datetime.datetime.now(datetime.UTC).date()
        dropped = plan_dropped(self._files(), retain_days=self.config.retain_days, today=today)
        if dropped:
            self.table.commit(Change(operation="retain", remove=dropped), on_step=self.on_step)
            self.dropped = dropped

    def _wave(self, there_first: set[str]) -> bool:
        """Rewrite some groups of files and commit that; False when nothing is worth it any more."""
        files = [file for file in self._files() if file.path in there_first]
        rewrites = plan_rewrites(files, file_bytes=self.config.file_bytes)
        if not rewrites:
            return False
        wave = rewrites[: self.tasks_max]
        with Staging(self.table.root) as staging:
            work = CompactWork(
                root=str(self.table.root), staging=staging.path, compression=self.config.compression
            )
            written = spread(self.spark, partial(rewrite_files, work), wave, result=Rewritten)
            change = Change(
                operation="compact",
                add=[file for each in written for file in each.files],
                remove=[file for each in wave for file in each.files],
            )
            self.table.commit(change, on_step=self.on_step)
        self.waves += 1
        self.bytes += sum(staged.file.bytes for staged in change.add)
        self.pace.add(sum(each.rows for each in wave))
        self._tell(rewrites[self.tasks_max :])
        return True

    def _latest(self) -> int:
        assert self.config.snapshot is not None
        self._tell((), note="writing the newest record of each key")
        return write_latest(
            self.spark, self.table, folder=self.config.snapshot, topics=self.config.topic
        ).rows

    def _persist(self, work: Callable[[], T]) -> T:
        """Plan again what somebody else was faster with, and try again what Spark lost."""
        while True:
            try:
                done = work()
            except (Conflict, SparkFailed, TaskFailed) as error:
                self.failures += 1
                if self.failures >= _ATTEMPTS_MAX or not _may_go_away(error):
                    raise
                logger.warning("compaction of %s: planning again: %s", self.config.lake, error)
                self.table.recover()  # what the attempt staged goes
                self.stop.wait(_RETRY_FIRST_S * 2**self.failures)
            else:
                self.failures = 0
                return done

    def _tell(self, left: Sequence[Rewrite], *, note: str = "") -> None:
        rows_left = sum(each.rows for each in left)
        self.observe(
            Progress(
                pipeline="compact",
                batch=self.waves,
                rows=self.pace.rows,
                rows_per_s=self.pace.rows_per_s,
                lag=rows_left,
                bytes=self.bytes,
                eta_s=self.pace.eta_s(rows_left),
                note=note or f"{sum(len(each.files) for each in left)} files to rewrite",
            )
        )


def _may_go_away(error: TailraceError) -> bool:
    # A file that is not found was moved, and deleted, by somebody else's commits.
    if isinstance(error, TaskFailed):
        return error.retriable or error.kind == "StorageError"
    return not isinstance(error, SparkFailed) or error.retriable
